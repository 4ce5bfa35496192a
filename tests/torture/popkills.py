"""`make torture ONLY=pop-kills`: `kill -9` under load, with several members that pop, and sync flush.

What must hold: every message whose send was answered is delivered; none is delivered to anybody whose delivery began
after its acknowledgement was answered; what was popped and not acknowledged comes again, until it is.

A message whose acknowledgement was sent and not answered, because the broker was killed in between, may come again or
not: the broker may have written the acknowledgement down before.
"""

from __future__ import annotations

import asyncio
import base64
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from eruca._net.caller import Caller
from eruca._wire.bodies import BatchAck, BatchAckBody
from eruca._wire.catalog import encode_request_body
from eruca._wire.codes import VERSION_ANNOUNCED, RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import CreateTopicHeader, Header, PopMessageAnswerHeader, PopMessageHeader, SendMessageV2Header
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, decode_records
from eruca.errors import ErucaError
from tests.torture.killedbroker import KilledBroker

TOPIC, GROUP = "popped", "poppers"
_QUEUES = 4
_INVISIBLE_MS = 2000
_CALL_MS = 3000
_SETTLE_S = 120.0
_KILLS_MIN = 50


@dataclass
class Ledger:
    """What clients were answered."""

    # Bodies whose send was answered, and those whose acknowledgement was, each with when.
    sent: dict[bytes, float] = field(default_factory=dict)
    acked: dict[bytes, float] = field(default_factory=dict)
    deliveries: Counter[bytes] = field(default_factory=Counter)
    # Bodies of which an acknowledgement was sent, and its answer did not come, or not in time, or not after a sync.
    unsure: set[bytes] = field(default_factory=set)
    # Delivered although acknowledged before the request began.
    again: list[bytes] = field(default_factory=list)
    kills: int = 0

    def list_missing(self) -> set[bytes]:
        """What still has to come."""
        return self.sent.keys() - self.acked.keys() - self.unsure

    def list_violations(self) -> list[str]:
        """What does not hold."""
        missing = self.list_missing()
        lost = missing - self.deliveries.keys()
        kept = missing - lost
        return [
            *([f"{len(lost)} messages were never delivered: {sorted(lost)[:5]}"] if lost else []),
            *([f"{len(kept)} did not come again: {sorted(kept)[:5]}"] if kept else []),
            *([f"{len(self.again)} came after their acknowledgement: {self.again[:5]}"] if self.again else []),
        ]

    def summarise(self) -> str:
        """The figures."""
        repeated = sum(count > 1 for count in self.deliveries.values())
        perhaps = len(self.sent.keys() & self.unsure - self.acked.keys())
        return (
            f"{self.kills} kills, {len(self.sent)} sent, {len(self.acked)} acknowledged, "
            f"{perhaps} perhaps acknowledged, {repeated} more than once"
        )


class Client:
    """One connection to the broker, which may be away."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._caller = Caller()

    async def ask(self, code: int, header: Header | None, body: object = None) -> Command:
        """Send a request and return its answer."""
        data = body if isinstance(body, bytes) else encode_request_body(code, body, header, version=VERSION_ANNOUNCED)
        return await self._caller.call(self._address, make_request(code, header, data), _CALL_MS)

    async def close(self) -> None:
        """Close the connection."""
        await self._caller.close()


async def send(client: Client, ledger: Ledger, number: int, rng: random.Random) -> None:
    """Send one message."""
    body = b"%08d" % number
    header = SendMessageV2Header(
        producer_group="producers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=_QUEUES,
        queue_id=rng.randrange(_QUEUES),
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=encode_properties({"KEYS": body.decode()}).decode(),
    )
    answer = await client.ask(RequestCode.SEND_MESSAGE_V2, header, body)
    if answer.code == ResponseCode.SUCCESS:
        ledger.sent[body] = time.monotonic()


async def consume(client: Client, ledger: Ledger, rng: random.Random, *, forgets: float) -> None:
    """Pop some messages and acknowledge most of them."""
    began = time.monotonic()
    header = PopMessageHeader(GROUP, TOPIC, -1, rng.randrange(1, 33), _INVISIBLE_MS, 500, 1, 0)
    command = await client.ask(RequestCode.POP_MESSAGE, header)
    if command.code != ResponseCode.SUCCESS:
        await asyncio.sleep(0.02)
        return
    answer = command.decode_header(PopMessageAnswerHeader)
    starts: dict[tuple[int, int], int] = {}
    for part in (answer.start_offset_info or "").split(";"):
        kind, queue_id, start = map(int, part.split(" "))
        starts[kind, queue_id] = start
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in decode_records(command.body):
        ledger.deliveries[record.body] += 1
        if ledger.acked.get(record.body, began) < began:
            ledger.again.append(record.body)
        if rng.random() >= forgets:
            groups.setdefault((int(record.topic.startswith("%RETRY%")), record.queue_id), []).append(record)
    for (kind, queue_id), records in groups.items():
        start = starts[kind, queue_id]
        bits = sum(1 << record.queue_offset - start for record in records)
        ack = BatchAck(
            bits=base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
            group=GROUP,
            topic=TOPIC,
            retry=str(kind),
            start_offset=start,
            queue_id=queue_id,
            pop_time=answer.pop_time,
            invisible_time=answer.invisible_time,
        )
        # In time, so that success says that each of them was in flight.
        if time.monotonic() - began > _INVISIBLE_MS / 2000:
            return
        body = BatchAckBody(acks=[ack], broker_name="broker-a")
        bodies = [record.body for record in records]
        try:
            done = await client.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
        except ErucaError:
            ledger.unsure.update(bodies)
            raise
        now = time.monotonic()
        if done.code == ResponseCode.SUCCESS and now - began < _INVISIBLE_MS / 1000:
            for each in bodies:
                ledger.acked.setdefault(each, now)
        elif done.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
            ledger.unsure.update(bodies)


async def run(kills: int, seed: int, home: Path, *, members: int = 4) -> Ledger:
    """Kill the broker this often."""
    rng, ledger = random.Random(seed), Ledger()
    broker = KilledBroker(home, {"flushDiskType": "SYNC_FLUSH", "brokerName": "broker-a"})
    await broker.start()
    clients = [Client(broker.address) for _ in range(members + 1)]
    is_feeding, is_over = True, False

    async def produce() -> None:
        number = 0
        while is_feeding:
            number += 1
            try:
                await send(clients[0], ledger, number, rng)
            except ErucaError:
                await asyncio.sleep(0.05)

    async def pop(client: Client) -> None:
        while not is_over:
            try:
                await consume(client, ledger, rng, forgets=0.1 if is_feeding else 0.0)
            except ErucaError:
                await asyncio.sleep(0.05)

    topic = CreateTopicHeader(
        topic=TOPIC, default_topic="TBW102", read_queue_nums=_QUEUES, write_queue_nums=_QUEUES, perm=6
    )
    await clients[0].ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    tasks = [asyncio.ensure_future(produce()), *[asyncio.ensure_future(pop(client)) for client in clients[1:]]]
    try:
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.5, 2.0))
            broker.kill()
            await broker.wait()
            ledger.kills += 1
            await broker.start()
        is_feeding = False
        end = time.monotonic() + _SETTLE_S
        while ledger.list_missing() and time.monotonic() < end:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.2)
        # Whatever would come again has the time for it.
        await asyncio.sleep(2 * _INVISIBLE_MS / 1000)
    finally:
        is_feeding, is_over = False, True
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.close()
        await broker.end()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return ledger


def torture(minutes: float | None) -> int:
    """The whole run; 0 when nothing was violated."""
    seed = random.randrange(1 << 32)
    kills = max(_KILLS_MIN, round((minutes or 0) * 15))
    with tempfile.TemporaryDirectory() as directory:
        ledger = asyncio.run(run(kills, seed, Path(directory)))
    print(f"pop-kills  {ledger.summarise()}  [seed {seed}]")
    violations = ledger.list_violations()
    for violation in violations:
        print(f"FAILED {violation}")
    return bool(violations)
