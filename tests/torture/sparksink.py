"""`make torture ONLY=spark`, its second part: rows written to a topic once, whichever process is killed.

A driver streams files into a topic. Its workers end in the middle of tasks, it is killed with `kill -9`, and so is the
broker, at places determined by the seed; both are started again. At the end every row must be in the topic once when
the sink is idempotent. The same with `at-least-once` is the control: there every row must be there, and the number of
duplicates is printed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.source.batch import TopicReader
from eruca._spark.source.options import read_options
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader, EmptyHeader
from eruca.admin import Admin
from eruca.errors import ErucaError
from tests.clients.stage import poll
from tests.torture.killedbroker import KilledBroker
from tests.torture.killeddriver import KilledDriver
from tests.torture.runner import keep_quiet

TOPIC: Final = "written"
_POLL_S: Final = 0.05
# Without any progress for this long, something is wrong.
_PATIENCE_S: Final = 180.0
_FLUSH_MODES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


@dataclass(frozen=True)
class Settings:
    """One run."""

    seed: int
    delivery: str = "idempotent"
    rows: int = 2_000_000
    queues: int = 8
    driver_kills: int = 3
    broker_kills: int = 2
    # Micro-batches, each of two files: two tasks.
    batches: int = 20
    # The share of first attempts whose worker ends.
    exit_share: float = 0.4
    # The longest a kill waits after its place was reached.
    delay_s_max: float = 1.0
    body_bytes: int = 100


@dataclass
class Result:
    """What was seen in one run."""

    settings: Settings
    stored: int = 0
    lost: int = 0
    repeated: int = 0
    # Messages that the broker dropped since its last start.
    dropped: int = 0
    exits: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """One line."""
        settings = self.settings
        return (
            f"spark sink, {settings.delivery}, seed {settings.seed}: {settings.rows:,} rows to {settings.queues} queues"
            f" in {settings.batches} batches, {self.exits} workers ended, driver killed {self.kills['driver']} times,"
            f" broker killed {self.kills['broker']} times: {self.stored:,} stored, {self.lost:,} lost,"
            f" {self.repeated:,} more than once ({self.dropped:,} dropped by the broker since its last start),"
            f" {self.seconds:.0f} s"
        )


async def run(settings: Settings, home: Path) -> Result:
    """Run it once."""
    began = time.monotonic()
    rng = random.Random(f"sparksink:{settings.seed}")
    result = Result(settings)
    await asyncio.to_thread(write_files, settings, home / "input")
    broker = KilledBroker(home, {})
    await broker.start()
    driver: KilledDriver | None = None
    try:
        await _create_topic(broker, settings)
        driver = await asyncio.to_thread(_start_driver, settings, broker, home)
        victims = ["driver"] * settings.driver_kills + ["broker"] * settings.broker_kills
        rng.shuffle(victims)
        for number, victim in enumerate(victims):
            await _wait_for_rows(broker, driver, settings.rows * (number + 1) // (len(victims) + 1))
            await asyncio.sleep(rng.uniform(0, settings.delay_s_max))
            if not driver.is_running():
                break  # it was done before the kill came
            result.kills[victim] += 1
            if victim == "broker":
                broker.kill()
                await broker.wait()
                await broker.start(flushDiskType=rng.choice(_FLUSH_MODES))
            else:
                await asyncio.to_thread(driver.kill)
                driver = await asyncio.to_thread(_start_driver, settings, broker, home)
        await _wait_for_end(broker, driver)
        status = await asyncio.to_thread(driver.end)
        if status:
            result.violations.append(f"the driver ended with {status}: {driver.read_log()[-3000:]}")
        driver = None
        result.dropped = await _count_dropped(broker)
        await asyncio.to_thread(verify, broker.nameserver, result)
    finally:
        if driver is not None:
            await asyncio.to_thread(driver.kill)
        await broker.end()
    result.exits = await asyncio.to_thread(_count_exits, home / "exits")
    result.seconds = time.monotonic() - began
    return result


def write_files(settings: Settings, place: Path) -> None:
    """Numbered rows, in files that the stream takes two by two."""
    place.mkdir(parents=True)
    files = settings.batches * 2
    fill = bytes(settings.body_bytes - 8)
    for number in range(files):
        begin, end = settings.rows * number // files, settings.rows * (number + 1) // files
        bodies = pa.array([row.to_bytes(8, "big") + fill for row in range(begin, end)], pa.binary())
        pq.write_table(pa.table({"body": bodies}), place / f"rows-{number:04}.parquet", row_group_size=1 << 20)


def _count_exits(notes: Path) -> int:
    return notes.stat().st_size if notes.exists() else 0


def _start_driver(settings: Settings, broker: KilledBroker, home: Path) -> KilledDriver:
    rows_of_file = settings.rows // (settings.batches * 2)
    options = {
        "nameServer": broker.nameserver,
        "topic": TOPIC,
        "delivery": settings.delivery,
        "batchRows": max(1, min(2000, rows_of_file // 20)),
        # A broker has to read its whole log again after a kill.
        "retries": 20,
    }
    told = {
        "home": str(home),
        "input": str(home / "input"),
        "checkpoint": str(home / "checkpoint"),
        "notes": str(home / "exits"),
        "seed": settings.seed,
        "exitShare": settings.exit_share,
        "filesPerBatch": 2,
        "arrowRows": max(1, rows_of_file // 6),
        "options": options,
    }
    return KilledDriver("tests.torture.sparksinkdriver", told, home / "driver.log")


async def _create_topic(broker: KilledBroker, settings: Settings) -> None:
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


async def _count_stored(broker: KilledBroker) -> int:
    async with Admin(broker.nameserver) as admin:
        route = await admin.connection.routes.refresh(TOPIC)
        return sum([await admin.connection.calls.find_max_offset(broker.address, queue) for queue in route.read_queues])


async def _count_dropped(broker: KilledBroker) -> int:
    async with Admin(broker.nameserver) as admin:
        _, body = await admin.connection.ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader())
        table: dict[str, str] = getattr(body, "table", {})
        return int(table.get("erucaOnceDropped", 0))


async def _wait_for_rows(broker: KilledBroker, driver: KilledDriver, count: int) -> None:
    """Wait until `count` messages are stored, as long as there is progress, or until the driver is done."""
    seen, since = -1, time.monotonic()
    while driver.is_running():
        try:
            done = await _count_stored(broker)
        except ErucaError:
            done = seen  # the broker is not registered yet
        if done >= count:
            return
        if done != seen:
            seen, since = done, time.monotonic()
        assert time.monotonic() - since < _PATIENCE_S, f"stuck at {done} of {count}: {driver.read_log()[-3000:]}"
        await asyncio.sleep(_POLL_S)


async def _wait_for_end(broker: KilledBroker, driver: KilledDriver) -> None:
    await _wait_for_rows(broker, driver, sys.maxsize)


# -- what is in the topic ----------------------------------------------------------------------------------------------


def verify(nameserver: str, result: Result) -> None:
    """Count each row in the topic."""
    settings = result.settings
    given = {"nameServer": nameserver, "subscribe": TOPIC, "startingOffsets": "earliest"}
    reader = TopicReader(read_options(given), [column for column in MESSAGE_COLUMNS if column.name == "body"])
    numbers = [
        _read_numbers(batch.column(0), settings.body_bytes)
        for partition in reader.partitions()
        for batch in reader.read(partition)
    ]
    counts = np.bincount(np.concatenate(numbers), minlength=settings.rows)
    result.stored = int(counts.sum())
    result.lost = int((counts[: settings.rows] == 0).sum())
    result.repeated = int((counts > 1).sum())
    if result.lost or len(counts) > settings.rows:
        missing = np.flatnonzero(counts[: settings.rows] == 0)[:5].tolist()
        result.violations.append(f"{result.lost} rows are lost: {missing}")
    if settings.delivery == "idempotent" and result.repeated:
        twice = np.flatnonzero(counts > 1)[:5].tolist()
        result.violations.append(f"{result.repeated} rows are there more than once: {twice}")


def _read_numbers(bodies: Any, size: int) -> Any:
    """The numbers of rows, with which their bodies begin."""
    data = np.frombuffer(bodies.buffers()[2], np.uint8)
    begin = bodies.offset * size
    rows = data[begin : begin + len(bodies) * size].reshape(-1, size)
    return np.ascontiguousarray(rows[:, :8]).view(">i8").reshape(-1).astype(np.int64)


# -- many runs ---------------------------------------------------------------------------------------------------------


def run_sink(minutes: float | None, seed: int = 0) -> int:
    """Run it, and its control; 0 when all is well. The duration does not depend on `minutes`."""
    keep_quiet()
    failed = 0
    for settings in (
        Settings(seed),
        Settings(seed, delivery="at-least-once", rows=200_000, driver_kills=1, broker_kills=1, batches=5),
    ):
        with tempfile.TemporaryDirectory(prefix="eruca-spark-sink-") as home:
            result = asyncio.run(run(settings, Path(home)))
        print(result.summarise(), flush=True)
        for violation in result.violations:
            print(f"FAILED {violation}")
        if result.violations:
            print(f"replay: .venv/bin/python -m tests.torture.sparksink {seed}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(run_sink(None, int(sys.argv[1]) if len(sys.argv) > 1 else 0))
