"""Rows written once although workers, drivers and brokers end: `make torture ONLY=spark-sink`, but short."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from eruca._spark.sink.writer import plan_sink, write_rows
from tests.figures import note_figures
from tests.spark.producing import create_topic
from tests.spark.reading import read_rows
from tests.torture.killedbroker import KilledBroker
from tests.torture.sparksink import Settings, run


@pytest.mark.whole
@pytest.mark.parametrize(("delivery", "seed"), [("idempotent", 1), ("at-least-once", 2)])
def test_rows_are_stored_whoever_is_killed(delivery: str, seed: int, tmp_path: Path) -> None:
    settings = Settings(
        seed, delivery, rows=50_000, queues=4, driver_kills=1, broker_kills=1, batches=6, delay_s_max=0.3
    )
    result = asyncio.run(run(settings, tmp_path))
    note_figures(result.summarise())
    assert result.violations == []
    assert result.kills == {"driver": 1, "broker": 1}
    assert result.exits > 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_that_is_killed_while_a_task_writes(flush: str, tmp_path: Path) -> None:
    """Without Spark: the broker is killed several times while one task writes, which knows nothing of it."""
    rows, seed = 20_000, 5
    rng = random.Random(seed)
    pa.array([b""])  # it imports more when it is used first, which takes its time
    broker = KilledBroker(tmp_path, {"flushDiskType": flush})

    async def write_and_kill() -> None:
        await broker.start()
        loop = asyncio.get_running_loop()
        there = SimpleNamespace(name_server=broker.nameserver)
        await asyncio.to_thread(create_topic, there, "killed", 3)
        given = {
            "nameServer": broker.nameserver,
            "topic": "killed",
            "delivery": "idempotent",
            "batchRows": "37",
            "retries": "40",
        }
        schema = StructType([StructField("body", BinaryType())])
        plan = await asyncio.to_thread(lambda: plan_sink(given, schema, overwrite=False))
        batches = [
            pa.record_batch([pa.array([b"%d" % row for row in range(begin, begin + 100)])], names=["body"])
            for begin in range(0, rows, 100)
        ]
        places = sorted(rng.sample(range(1, rows // 100), 3))

        def make_batches() -> Iterator[Any]:
            for number, batch in enumerate(batches):
                if number in places:
                    # While requests are under way, and the next ones are packed.
                    loop.call_soon_threadsafe(lambda: restarts.append(loop.create_task(restart())))
                yield batch

        restarts: list[asyncio.Task[None]] = []

        async def restart() -> None:
            async with steady:
                broker.kill()
                await broker.wait()
                await broker.start()

        steady = asyncio.Lock()
        written = await asyncio.to_thread(write_rows, plan, make_batches(), 0, "q:0:0")
        await asyncio.gather(*restarts)
        assert (written.rows, len(restarts)) == (rows, 3)
        found = Counter(row["body"] for row in await asyncio.to_thread(read_rows, there, subscribe="killed"))
        assert found == {b"%d" % row: 1 for row in range(rows)}
        note_figures(f"spark sink, {flush}, seed {seed}: {rows:,} rows, broker killed 3 times: each stored once")

    with asyncio.Runner() as runner:
        try:
            runner.run(write_and_kill())
        finally:
            runner.run(broker.end())
