"""`make torture ONLY=spark`, its first part: exactly once from topics to Parquet, whichever process is killed.

Messages are sent while a driver streams them. The driver is killed with `kill -9`, and so is the broker, at places
determined by the seed; both are started again. When all is read, every message must be in the sink once, and offsets
of every queue must have no gap. The sink is read with pyarrow, not with Spark.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from eruca import MessageQueue, Producer
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader
from eruca.admin import Admin
from tests.clients.stage import poll
from tests.spark.streams import list_files
from tests.torture.killedbroker import KilledBroker
from tests.torture.killeddriver import KilledDriver
from tests.torture.runner import keep_quiet

TOPIC: Final = "killed"
_CHUNK: Final = 5_000
_POLL_S: Final = 0.05
# Without any progress for this long, something is wrong.
_PATIENCE_S: Final = 180.0
# How long a kill waits for a batch it can interrupt.
_BATCH_S: Final = 5.0
_FLUSH_MODES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


@dataclass(frozen=True)
class Settings:
    """One run."""

    seed: int
    messages: int = 2_000_000
    queues: int = 14
    driver_kills: int = 3
    broker_kills: int = 2
    # Batches all messages would take, one after the other.
    batches: int = 20
    body_bytes: int = 100
    # The longest a kill waits after its place was reached.
    delay_s_max: float = 2.0


@dataclass
class Result:
    """What was seen in one run."""

    settings: Settings
    rows: int = 0
    distinct: int = 0
    files: int = 0
    batches: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    # Batches that were begun and not committed when their driver was killed.
    interrupted: int = 0
    processes: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """One line."""
        settings = self.settings
        return (
            f"spark stream, seed {settings.seed}: {settings.messages:,} messages in {settings.queues} queues,"
            f" driver killed {self.kills['driver']} times ({self.processes} processes, {self.interrupted} in the middle"
            f" of a batch), broker killed {self.kills['broker']} times: {self.rows:,} rows, {self.distinct:,} distinct,"
            f" {self.batches} batches, {self.files} files, {self.seconds:.0f} s"
        )


class Killable(Protocol):
    """A broker that is killed and started again on the same directory and ports."""

    nameserver: str
    address: str

    async def start(self, **more: object) -> None:
        """Start it, and wait until it is up."""

    def kill(self) -> None:
        """`kill -9`, now."""

    async def wait(self) -> None:
        """Wait for the end of a process that was killed."""

    async def end(self) -> int:
        """Have it end cleanly."""


class _Sink:
    """Where the driver writes, and how far it is."""

    def __init__(self, home: Path) -> None:
        self.out, self.checkpoint = home / "out", home / "checkpoint"

    def list_batches(self, kind: str) -> list[int]:
        """The batches that were begun (`offsets`) or are through (`commits`)."""
        place = self.checkpoint / kind
        if not place.exists():
            return []
        return sorted(int(path.name) for path in place.iterdir() if path.name.isdecimal())

    def count_committed(self) -> int:
        """The messages of all batches that are through."""
        done = self.list_batches("commits")
        if not done:
            return 0
        lines = (self.checkpoint / "offsets" / str(done[-1])).read_text(encoding="utf-8").splitlines()
        brokers = json.loads(lines[2])["topics"][TOPIC].values()
        return sum(offset for queues in brokers for offset in queues.values())

    def is_in_a_batch(self) -> bool:
        """Is a batch begun and not through?"""
        return self.list_batches("offsets")[-1:] != self.list_batches("commits")[-1:]


class _Feeder:
    """Sends numbered messages; holds still while a broker is killed, so that none is sent twice."""

    def __init__(self, producer: Producer, settings: Settings) -> None:
        self._producer = producer
        self._settings = settings
        self.steady = asyncio.Lock()
        self.sent = 0

    async def send_until(self, count: int) -> None:
        """Send up to a number."""
        queues = await self._producer.list_queues(TOPIC)
        fill = bytes(self._settings.body_bytes - 8)
        while self.sent < count:
            async with self.steady:
                numbers = range(self.sent, min(count, self.sent + _CHUNK))
                queue = queues[self.sent // _CHUNK % len(queues)]
                bodies = [number.to_bytes(8, "big") + fill for number in numbers]
                await self._producer.send_batch(TOPIC, bodies, queue=queue)
                self.sent = numbers.stop
            await asyncio.sleep(0)


async def run(settings: Settings, home: Path, broker: Killable | None = None) -> Result:
    """Run it once."""
    began = time.monotonic()
    rng = random.Random(f"sparkstream:{settings.seed}")
    result, sink = Result(settings), _Sink(home)
    broker = broker or KilledBroker(home, {})
    await broker.start()
    drivers: list[KilledDriver] = []
    feeding: asyncio.Task[None] | None = None
    try:
        await _create_topic(broker, settings)
        async with Producer(broker.nameserver, group="feeder", timeout=60.0) as producer:
            feeder = _Feeder(producer, settings)
            await feeder.send_until(settings.messages // 2)
            drivers.append(await asyncio.to_thread(_start_driver, settings, broker, sink, home))
            feeding = asyncio.create_task(feeder.send_until(settings.messages))
            victims = ["driver"] * settings.driver_kills + ["broker"] * settings.broker_kills
            rng.shuffle(victims)
            for number, victim in enumerate(victims):
                place = settings.messages * (number + 1) // (len(victims) + 1)
                await _wait_for_rows(sink, drivers[-1], place)
                await asyncio.sleep(rng.uniform(0, settings.delay_s_max))
                result.kills[victim] += 1
                if victim == "broker":
                    async with feeder.steady:
                        broker.kill()
                        await broker.wait()
                        await broker.start(flushDiskType=rng.choice(_FLUSH_MODES))
                    continue
                await _wait_for_batch(sink)
                await asyncio.sleep(rng.uniform(0, settings.delay_s_max / 10))
                result.interrupted += await asyncio.to_thread(sink.is_in_a_batch)
                result.processes += await asyncio.to_thread(drivers[-1].kill)
                drivers.append(await asyncio.to_thread(_start_driver, settings, broker, sink, home))
            await feeding
            await _wait_for_rows(sink, drivers[-1], settings.messages)
            status = await asyncio.to_thread(drivers.pop().end)
            if status:
                result.violations.append(f"the driver ended with {status}")
        ends = await _find_ends(broker)
    finally:
        if feeding is not None:
            feeding.cancel()
        for driver in drivers:
            await asyncio.to_thread(driver.kill)
        await broker.end()
    await asyncio.to_thread(verify, sink.out, ends, result)
    result.batches = len(await asyncio.to_thread(sink.list_batches, "commits"))
    result.seconds = time.monotonic() - began
    return result


def _start_driver(settings: Settings, broker: Killable, sink: _Sink, home: Path) -> KilledDriver:
    options = {
        "nameServer": broker.nameserver,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": max(1, settings.messages // settings.batches),
        # A broker has to read its whole log again after a kill.
        "retries": 20,
    }
    told = {"home": str(home), "out": str(sink.out), "checkpoint": str(sink.checkpoint), "options": options}
    return KilledDriver("tests.torture.sparkdriver", told, home / "driver.log")


async def _create_topic(broker: Killable, settings: Settings) -> None:
    header = CreateTopicHeader(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=settings.queues,
        write_queue_nums=settings.queues,
        perm=6,
    )
    async with Admin(broker.nameserver) as admin:
        await admin.connection.calls.ask(broker.address, build_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        await poll(lambda: admin.connection.find_route(TOPIC), lambda found: found is not None)


async def _find_ends(broker: Killable) -> dict[MessageQueue, int]:
    async with Admin(broker.nameserver) as admin:
        route = await admin.connection.routes.refresh(TOPIC)
        return {
            queue: await admin.connection.calls.find_max_offset(broker.address, queue) for queue in route.read_queues
        }


async def _wait_for_rows(sink: _Sink, driver: KilledDriver, count: int) -> None:
    """Wait until `count` messages are through, as long as there is progress."""
    seen, since = -1, time.monotonic()
    while (done := await asyncio.to_thread(sink.count_committed)) < count:
        if done != seen:
            seen, since = done, time.monotonic()
        if not driver.is_running() or time.monotonic() - since > _PATIENCE_S:
            said = await asyncio.to_thread(driver.read_log)
            what = "is stuck" if driver.is_running() else "ended by itself"
            raise AssertionError(f"the driver {what} at {done} of {count}: {said[-3000:]}")
        await asyncio.sleep(_POLL_S)


async def _wait_for_batch(sink: _Sink) -> None:
    """Wait until a batch is in progress, if there is another one to come."""
    deadline = time.monotonic() + _BATCH_S
    while not await asyncio.to_thread(sink.is_in_a_batch):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_POLL_S / 10)


# -- what is in the sink -----------------------------------------------------------------------------------------------


def verify(out: Path, ends: dict[MessageQueue, int], result: Result) -> None:
    """Compare the sink with the queues, and with what was sent."""
    settings = result.settings
    files = list_files(out)
    table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]).combine_chunks()
    queue_ids, offsets = (table[name].to_numpy() for name in ("queueId", "queueOffset"))
    numbers = _read_numbers(table["body"], settings.body_bytes)
    result.rows, result.files, result.distinct = table.num_rows, len(files), len(np.unique(numbers))
    complain = result.violations.append
    if sum(ends.values()) != settings.messages:
        complain(f"the queues have {sum(ends.values())} messages, {settings.messages} were sent")
    if result.rows != settings.messages or result.distinct != settings.messages:
        complain(f"{settings.messages} messages were sent, {result.rows} rows are there, {result.distinct} distinct")
    for queue, end in sorted(ends.items()):
        found = np.sort(offsets[queue_ids == queue.queue_id])
        if not np.array_equal(found, np.arange(end)):
            missing = np.setdiff1d(np.arange(end), found)
            complain(
                f"queue {queue.queue_id} has {end} messages, the sink {len(found)} of it,"
                f" {len(found) - len(np.unique(found))} twice, {len(missing)} missing: {missing[:5]}"
            )


def _read_numbers(bodies: Any, size: int) -> npt.NDArray[np.int64]:
    """The numbers of messages, with which their bodies begin."""
    numbers = []
    for chunk in bodies.chunks:
        _, _, data = chunk.buffers()
        begin = chunk.offset * size
        rows = np.frombuffer(data, np.uint8)[begin : begin + len(chunk) * size].reshape(-1, size)
        numbers.append(np.ascontiguousarray(rows[:, :8]).view(">i8").reshape(-1))
    return np.concatenate(numbers).astype(np.int64)


# -- many runs ---------------------------------------------------------------------------------------------------------


def run_stream(minutes: float | None, seed: int = 0) -> int:
    """Run it and print what was seen; 0 when all is well. The duration does not depend on `minutes`."""
    keep_quiet()
    with tempfile.TemporaryDirectory(prefix="eruca-spark-stream-") as home:
        result = asyncio.run(run(Settings(seed), Path(home)))
    print(result.summarise(), flush=True)
    for violation in result.violations:
        print(f"FAILED {violation}")
    if result.violations:
        print(f"replay: {name_replay(seed)}")
    return 1 if result.violations else 0


def name_replay(seed: int) -> str:
    """The command that runs one seed again; the kills come at the same places, as far as the clock allows."""
    return f".venv/bin/python -m tests.torture.sparkstream {seed}"


if __name__ == "__main__":
    sys.exit(run_stream(None, int(sys.argv[1]) if len(sys.argv) > 1 else 0))
