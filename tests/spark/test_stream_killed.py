"""Exactly once at a Parquet sink although drivers and brokers are killed: `make torture ONLY=spark`, but short."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eruca import MessageQueue
from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, PATIENCE, SETTINGS
from tests.interop.javapeer import JavaBroker, JavaNameServer, find_broker_port, prepare_peer
from tests.spark.producing import create_topic, name_topic, send
from tests.spark.streams import Sink, number_bodies, open_stream
from tests.torture.killedbroker import KilledBroker
from tests.torture.sparkstream import Killable, Result, Settings, run, verify


class KilledJava:
    """The official servers, of which the broker is killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._peer = prepare_peer()
        self._names = JavaNameServer(self._peer, home / "namesrv")
        self._port = find_broker_port()
        self._broker: JavaBroker | None = None
        self.nameserver, self.address = self._names.address, f"127.0.0.1:{self._port}"

    async def start(self, **more: object) -> None:
        """Start the broker, and wait until it is up."""
        self._broker = await asyncio.to_thread(self._start, more)

    def _start(self, more: dict[str, object]) -> JavaBroker:
        return JavaBroker(
            self._peer,
            self.nameserver,
            self._home / "store",
            name=BROKER_NAME,
            home=self._home / "broker",
            port=self._port,
            properties={**SETTINGS, **PATIENCE, **more},
        )

    def kill(self) -> None:
        """`kill -9`, now."""
        assert self._broker is not None
        os.kill(self._broker.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Wait for the end of a broker that was killed."""
        assert self._broker is not None
        await asyncio.to_thread(self._broker.end, signal.SIGKILL)

    async def end(self) -> int:
        """End both."""
        if self._broker is not None:
            await asyncio.to_thread(self._broker.end, signal.SIGKILL)
        await asyncio.to_thread(self._names.end, signal.SIGKILL)
        return 0


def start_eruca(home: Path) -> Killable:
    """Eruca, to be killed."""
    return KilledBroker(home, {})


SYSTEMS: dict[str, Callable[[Path], Killable]] = {"eruca": start_eruca, "java": KilledJava}


@pytest.mark.whole
@pytest.mark.parametrize(("cluster", "seed"), [("eruca", 1), ("java", 2)])
def test_every_message_is_there_once_whoever_is_killed(cluster: str, seed: int, tmp_path: Path) -> None:
    settings = Settings(seed, messages=50_000, queues=4, driver_kills=2, broker_kills=1, batches=25, delay_s_max=1.0)
    result = asyncio.run(run(settings, tmp_path, SYSTEMS[cluster](tmp_path)))
    note_figures(f"{result.summarise()} ({cluster})")
    assert result.violations == []
    assert result.kills == {"driver": 2, "broker": 1}


@pytest.mark.parametrize("cluster", ["eruca", pytest.param("java", marks=pytest.mark.whole)])
def test_a_broker_that_is_killed_while_a_stream_runs(spark: Any, cluster: str, tmp_path: Path) -> None:
    broker = SYSTEMS[cluster](tmp_path)
    topic, sink, there = name_topic("killed"), Sink(tmp_path), SimpleNamespace(name_server=broker.nameserver)

    async def restart() -> None:
        broker.kill()
        await broker.wait()
        await broker.start()

    with asyncio.Runner() as runner:
        runner.run(broker.start())
        try:
            create_topic(there, topic, queues=2)
            send(there, topic, number_bodies(0, 500))
            with sink.running(open_stream(spark, there, subscribe=topic, maxOffsetsPerTrigger=100)) as query:
                sink.wait_for(query, lambda rows: len(rows) >= 200)
                runner.run(restart())
                send(there, topic, number_bodies(500, 600))
                sink.wait_for(query, lambda rows: len(rows) >= 600)
        finally:
            runner.run(broker.end())
    assert sink.list_bodies() == number_bodies(0, 600)


@pytest.mark.whole
def test_what_is_wrong_in_a_sink_is_seen(spark: Any, tmp_path: Path) -> None:
    def make_row(queue: int, offset: int, number: int) -> tuple[int, int, bytearray]:
        return (queue, offset, bytearray(number.to_bytes(8, "big") + bytes(92)))

    ends = {MessageQueue("broker-a", 0, "killed"): 3, MessageQueue("broker-a", 1, "killed"): 1}
    rows = [make_row(0, 0, 0), make_row(0, 1, 1), make_row(0, 1, 1), make_row(1, 0, 3)]
    place = tmp_path / "rows"
    spark.createDataFrame(rows, "queueId int, queueOffset bigint, body binary").coalesce(1).write.parquet(str(place))
    stream = spark.readStream.schema("queueId int, queueOffset bigint, body binary").parquet(str(place))
    sink = Sink(tmp_path)
    sink.run(stream)
    result = Result(Settings(0, messages=4))
    verify(sink.out, ends, result)
    assert (result.rows, result.distinct) == (4, 3)
    assert any("1 twice, 1 missing: [2]" in violation for violation in result.violations)
