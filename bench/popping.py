"""Popped messages: a million in flight on a broker in this process, with the cost of each ack and of each revive.

`python -m bench.popping [count [messages of a delivery]]` prints figures; they are not compared with anything.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import tempfile
import time
from pathlib import Path

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._broker.popping.contract import Outcome, PopRequest, PopStatus
from eruca._ground.config import StoreOptions
from eruca._testing.clock import VirtualClock
from eruca._wire.handle import Handle
from eruca._wire.names import POP_TOPIC
from eruca._wire.record import Record
from tests.interop.javapeer import find_broker_port

TOPIC, GROUP = "popped", "poppers"
_QUEUES = 8
_INVISIBLE_MS = 3_600_000
_SAMPLE = 10_000


def read_anonymous() -> int:
    """Anonymous bytes of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+)", text)
    return int(found[1]) * 1024 if found else 0


async def measure(count: int, size: int, root: Path) -> None:
    """Put messages in flight, acknowledge some, and let the others run out."""
    sample = min(_SAMPLE, count // 4)
    clock, port = VirtualClock(), find_broker_port()
    broker = Broker(BrokerOptions(port=port, pop_in_flight_max=count + 1), StoreOptions(), root, clock=clock)
    await broker.start()
    try:
        broker.topics.create_internal(TOPIC, _QUEUES)
        for number in range(count):
            broker.store.append(Record(TOPIC, number % _QUEUES, 0, b"x" * 100))
        before, service = read_anonymous(), broker.popping.service
        handles: list[Handle] = []
        began = time.perf_counter()
        request = PopRequest(group=GROUP, topic=TOPIC, count=size, invisible_ms=_INVISIBLE_MS, latest=False)
        popped = 0
        while True:
            result = await service.pop(request)
            if result.status is not PopStatus.FOUND:
                break
            popped += len(result.messages)
            if popped <= 2 * sample or popped > count - 2 * sample:
                handles += [each.handle for each in result.messages]
        print(f"pop      {(time.perf_counter() - began) / popped * 1e6:8.1f} us a message")
        gc.collect()
        print(f"memory   {(read_anonymous() - before) / popped:8.1f} bytes a message, {popped} in flight")
        for name, some in (("first", handles[:sample]), ("last", handles[-sample:])):
            began = time.perf_counter()
            for handle in some:
                assert await service.ack(GROUP, TOPIC, handle) is Outcome.DONE
            print(f"ack      {(time.perf_counter() - began) / len(some) * 1e6:8.1f} us a message ({name} ones)")
        await broker.stop()
        began = time.perf_counter()
        broker = Broker(BrokerOptions(port=port, pop_in_flight_max=count + 1), StoreOptions(), root, clock=clock)
        await broker.start()
        service = broker.popping.service
        queue = broker.store.queues.get(POP_TOPIC, 0)
        assert queue is not None
        left = service.in_flight
        print(f"start    {time.perf_counter() - began:8.2f} s, {left} in flight, {queue.max_offset} records")
        clock.advance(_INVISIBLE_MS + 1000)
        longest = total = 0.0
        marks = [left * 3 // 4, left // 2, left // 4, 0]
        begun, at = time.perf_counter(), left
        while marks:
            turn = time.perf_counter()
            broker.popping.redelivery.run_turn()
            longest = max(longest, time.perf_counter() - turn)
            if service.in_flight <= marks[0]:
                total = time.perf_counter() - begun
                print(f"revive   {total / max(1, at - service.in_flight) * 1e6:8.1f} us a message, down to {marks[0]}")
                begun, at = time.perf_counter(), service.in_flight
                marks.pop(0)
        print(f"longest turn {longest * 1000:.1f} ms")
    finally:
        await broker.stop()


def main() -> None:
    """Run it with the sizes of the command line."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    print(f"{count} messages, {size} in a delivery")
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(count, size, Path(directory)))


if __name__ == "__main__":
    main()
