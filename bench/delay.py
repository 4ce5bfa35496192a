"""Messages with arbitrary delays: a million within ten minutes on a real broker, and forty days on a virtual clock.

The million is sent before the first one is due. The result is read from the store when the broker has stopped: a
message that is lost, delivered twice or early is an error, not a figure. Lateness is the time between the moment a
message was due and the moment it was stored in its topic, where waiting consumers are woken at once.

It is compared with the cost of plain solutions: a heap in the memory of a Python process, and a loop that sleeps
until its first entry is due.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.runner import Aim, BenchError, Run, Sample
from bench.up import _read_anonymous, _started, _up_command
from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._broker.sending.mapping import map_timer
from eruca._client.produce.producer import Producer
from eruca._ground.config import StoreOptions
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.clock import VirtualClock
from eruca._wire.properties import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, UNIQ_KEY, encode_properties
from eruca._wire.record import Record, decode_record

SEED = 6
LATE_AIM = Aim(200, at_least=False)
MEMORY_AIM = Aim(200, at_least=False)
TOPIC = "delayed"
_SENDERS = 64
_DAY_MS = 24 * 3_600_000
_NEVER_MS = 3_600_000
_HEAP = """
import heapq, random, re, sys
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1000
before, heap = anonymous(), []
for position in range(int(sys.argv[1])):
    heapq.heappush(heap, (random.randrange(600_000), position * 300, 300))
print(anonymous() - before)
"""


@dataclass(frozen=True, slots=True)
class _Size:
    """How much a run does."""

    count: int
    window_ms: int
    warm_up: int
    far_count: int
    days: int
    step_ms: int


WHOLE = _Size(1_000_000, 600_000, 20_000, 100_000, 40, 60_000)
QUICK = _Size(3000, 2000, 500, 500, 4, 600_000)


def run_bench(run: Run) -> None:
    """Measure both."""
    size = QUICK if run.quick else WHOLE
    run.note(f"seed {SEED}")
    with run.show("delayed messages on a real broker", 1), run.scratch() as directory:
        _measure_real(run, size, directory)
    with run.show("40 days on a virtual clock", 1), run.scratch() as directory:
        _measure_virtual(run, size, directory)


# -- a real broker ---------------------------------------------------------------------------------------------------


def _measure_real(run: Run, size: _Size, directory: Path) -> None:
    with _started(_up_command(directory), directory) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchError("eruca up did not start")
        with _watch_memory(process) as memory:
            sent_s, end_ms = asyncio.run(_send(json.loads(line)["nameserver"], size, memory))
            time.sleep(max(0.0, end_ms / 1000 - time.time()) + 2.0)
            grown = max(memory) - memory[0]
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            raise BenchError(f"eruca up ended with status {process.returncode}")
    lates = _read_lates(directory / "data" / "store", size.count)
    details = {
        "delivered": float(len(lates)),
        "early": 0.0,
        "p50 ms": float(statistics.median(lates)),
        "p99.9 ms": float(lates[int(len(lates) * 0.999)]),
        "longest ms": float(lates[-1]),
        "sent a second": size.count / sent_s,
        "due a second": size.count * 1000 / size.window_ms,
    }
    plain_s = 1.0 if run.quick else 10.0
    late = _sleep_on_heap(size.count * 1000 / size.window_ms, plain_s)
    # A loop that is never late by a millisecond would make every ratio infinite.
    run.add_figure(
        "p99 lateness of a timer message",
        "ms",
        Sample(max(1.0, lates[int(len(lates) * 0.99)]), details),
        {"a heap and a sleeping loop": Sample(max(0.1, late))},
        aim=LATE_AIM,
    )
    heap = subprocess.run(
        [sys.executable, "-c", _HEAP, str(size.count)], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    run.add_figure(
        "anonymous memory for what is pending",
        "MB",
        Sample(max(0.1, grown), {"before": memory[0], "pending": float(size.count)}),
        {"a heap of tuples": Sample(max(0.1, float(heap.stdout)))},
        aim=MEMORY_AIM,
    )


@contextmanager
def _watch_memory(process: subprocess.Popen[str]) -> Iterator[list[float]]:
    """Anonymous MB of a process, once a second; the first is replaced when everything is warm."""
    found = [_read_anonymous(process.pid)]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            found.append(_read_anonymous(process.pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


async def _send(nameserver: str, size: _Size, memory: list[float]) -> tuple[float, int]:
    """Send all messages before the first is due; returns the seconds it took, and when the last is due."""
    generator = random.Random(SEED)
    async with Producer(nameserver, group="bench", timeout=30.0) as producer:
        started = time.monotonic()
        # With a timer too: such a message costs more than a plain one, and the timer wheel must be warm as well.
        soon = datetime.fromtimestamp(time.time() + 2.0, UTC)
        await _send_all(producer, ((b"%d" % number, soon) for number in range(size.warm_up)), "warm")
        speed = size.warm_up / (time.monotonic() - started)
        memory[:] = [memory[-1] if len(memory) == 1 else max(memory[1:])]
        begin_ms = int((time.time() + 1.0 + 2.0 * size.count / speed) * 1000)
        dues = (
            (b"%d" % number, datetime.fromtimestamp((begin_ms + generator.randrange(size.window_ms)) / 1000, UTC))
            for number in range(size.count)
        )
        started = time.monotonic()
        await _send_all(producer, dues, TOPIC)
        if time.time() * 1000 >= begin_ms:
            raise BenchError("the machine was too busy to send everything before the first message was due")
        return time.monotonic() - started, begin_ms + size.window_ms


async def _send_all(producer: Producer, messages: Iterator[tuple[bytes, datetime]], topic: str) -> None:
    padding = b" " * 100

    async def send_some() -> None:
        for body, timer in messages:
            await producer.send(topic, body + padding, timer=timer)

    await asyncio.gather(*[send_some() for _ in range(_SENDERS)])


def _read_lates(root: Path, count: int) -> list[int]:
    """Return how late every message was, sorted. Raises BenchError if one is missing, early or duplicated."""
    lates: list[int] = []
    seen: set[int] = set()
    store = open_store(root, detect_options(LocalFileSystem(), StorePaths(root)))
    try:
        for message in _read_topic(store, TOPIC):
            lates.append(message.store_timestamp - int(message.read_properties()[TIMER_OUT_MS]))
            seen.add(int(message.body))
    finally:
        store.close()
    early = sum([late < 0 for late in lates])
    if early or len(lates) != count or len(seen) != count:
        raise BenchError(f"of {count} messages {len(seen)} arrived, {len(lates) - len(seen)} twice, {early} early")
    return sorted(lates)


def _read_topic(store: MessageStore, topic: str) -> Iterator[Record]:
    for queue_id in itertools.count():
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            return
        for offset in range(queue.min_offset, queue.max_offset):
            entry = queue.entry(offset)
            view = None if entry is None else store.reader.view_record(entry.position)
            if view is None:
                raise BenchError(f"the message at {offset} of {topic} cannot be read")
            yield decode_record(view)


def _sleep_on_heap(rate: float, seconds: float) -> float:
    """The p99 lateness of a loop that has nothing else to do."""
    begin = time.monotonic()
    heap = [begin + random.random() * seconds for _ in range(int(rate * seconds))]
    heapq.heapify(heap)
    lates = []
    while heap:
        wait = heap[0] - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        lates.append((time.monotonic() - heapq.heappop(heap)) * 1000)
    lates.sort()
    return lates[int(len(lates) * 0.99)]


# -- a virtual clock -------------------------------------------------------------------------------------------------


def _measure_virtual(run: Run, size: _Size, directory: Path) -> None:
    generator = random.Random(SEED)
    dues = {number: 1 + generator.randrange(size.days * _DAY_MS) for number in range(size.far_count)}
    cancelled = set(generator.sample(sorted(dues), size.far_count // 20))
    # Each is cancelled at a random moment before it is due.
    cancels = sorted([(generator.randrange(dues[number]), number) for number in cancelled])
    started = time.monotonic()
    details = asyncio.run(_live_through(size, directory, dues, cancels))
    ours = (size.far_count - len(cancelled)) / (time.monotonic() - started)
    started = time.monotonic()
    heap = [(due, number) for number, due in dues.items()]
    heapq.heapify(heap)
    delivered = [heapq.heappop(heap) for _ in range(len(heap))]
    plain = len(delivered) / (time.monotonic() - started)
    run.add_figure(
        f"{size.far_count} messages over {size.days} days",
        "messages/s",
        Sample(ours, details),
        {"a heap": Sample(plain)},
    )


async def _live_through(
    size: _Size, directory: Path, dues: dict[int, int], cancels: list[tuple[int, int]]
) -> dict[str, float]:
    clock = VirtualClock()
    start = clock.now_ms()
    options = BrokerOptions(port=0, schedule_interval_ms=_NEVER_MS)
    broker = Broker(options, StoreOptions(commitlog_segment_bytes=1 << 28), directory / "store", clock=clock)
    await broker.start()
    try:
        store, timing = broker.store, broker.timing
        await asyncio.sleep(0)  # the timer's own first turn; the next one is an hour away
        for number, due in dues.items():
            _append(store, b"%d" % number, start + due, {UNIQ_KEY: str(number)})
        to_cancel = iter(cancels)
        following = next(to_cancel, None)
        while clock.now_ms() <= start + size.days * _DAY_MS:
            while following is not None and start + following[0] <= clock.now_ms():
                number = following[1]
                _append(store, b"c", start + dues[number], {TIMER_DEL_UNIQKEY: str(number), UNIQ_KEY: f"c{number}"})
                following = next(to_cancel, None)
            while timing.run_turn() == 0:
                pass
            # Stop at the next cancellation: that message may be due right after it.
            step = (
                size.step_ms if following is None else max(1, min(size.step_ms, start + following[0] - clock.now_ms()))
            )
            clock.advance(step)
            await asyncio.sleep(0)
        while timing.run_turn() == 0:
            pass
        await timing.save()
        seen: set[int] = set()
        count = early = 0
        for message in _read_topic(store, TOPIC):
            number = int(message.body)
            count += 1
            early += message.store_timestamp < start + dues[number]
            seen.add(number)
        cancelled = {number for _, number in cancels}
        if early or count != len(seen) or seen != set(dues) - cancelled or timing.pending:
            raise BenchError(
                f"of {len(dues)} messages with {len(cancelled)} cancelled {len(seen)} arrived, {count - len(seen)} "
                "twice, "
                f"{early} early, {len(seen & cancelled)} although cancelled, {timing.pending} are pending"
            )
        return {"delivered": float(count), "cancelled": float(len(cancelled)), "early": 0.0}
    finally:
        await broker.stop()


def _append(store: MessageStore, body: bytes, due_ms: int, properties: dict[str, str]) -> None:
    message = Record(topic=TOPIC, body=body, properties=encode_properties(properties))
    map_timer(message, due_ms)
    store.append(message)
