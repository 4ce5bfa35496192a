"""A broker is killed while a task reads from it, and comes back: the task continues where it was."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, PATIENCE, SETTINGS
from tests.interop.javapeer import (
    START_SECONDS_MAX,
    JavaBroker,
    JavaNameServer,
    JavaProcess,
    find_broker_port,
    find_ports,
    prepare_peer,
)
from tests.spark.producing import create_topic, send
from tests.spark.reading import make_reader

TOTAL = 40_000


@dataclass
class Mortal:
    """A system whose broker can be killed and started again on the same files and port."""

    kind: str
    name_server: str
    broker: str
    start: Callable[[], JavaProcess]


def make_eruca(home: Path) -> Mortal:
    server, port = find_ports(), find_broker_port()
    command = [sys.executable, "-m", "eruca", "up", "-o", "json", "--data", str(home / "data")]
    command += ["--nameserver-port", str(server), "--listen-port", str(port), "--console-listen-port", "-1"]
    command += ["--option", f"brokerName={BROKER_NAME}"]

    def start() -> JavaProcess:
        process = JavaProcess(command, home / "eruca.log", talks=True)
        process.wait_for(lambda line: line.startswith("{"), START_SECONDS_MAX)
        return process

    return Mortal("eruca", f"127.0.0.1:{server}", f"127.0.0.1:{port}", start)


def make_java(home: Path, names: JavaNameServer) -> Mortal:
    peer, port = prepare_peer(), find_broker_port()

    def start() -> JavaProcess:
        return JavaBroker(
            peer,
            names.address,
            home / "store",
            name=BROKER_NAME,
            home=home / "broker",
            port=port,
            properties={**SETTINGS, **PATIENCE},
        )

    return Mortal("java", names.address, f"127.0.0.1:{port}", start)


def check_restart(system: Mortal) -> None:
    """Kill it after the first batch; every message comes once, in the order of its queue."""
    running = system.start()
    try:
        create_topic(system, "restart", 2)
        send(system, "restart", TOTAL)
        options = {"subscribe": "restart", "pullInFlight": 4, "pullBytes": 30_000, "maxPartitions": 1, "retries": 20}
        reader = make_reader(system, options)
        (partition,) = reader.partitions()
        seen: list[tuple[int, int]] = []
        restarted: list[JavaProcess] = []
        thread = threading.Thread(target=lambda: restarted.append(system.start()))
        for number, batch in enumerate(reader.read(partition)):
            seen += zip(batch.column("queueId").to_pylist(), batch.column("queueOffset").to_pylist(), strict=True)
            if number == 0:
                assert len(seen) < TOTAL / 2
                running.end(signal.SIGKILL)
                thread.start()
        thread.join()
        running = restarted[0]
        assert seen == [(queue, offset) for queue in range(2) for offset in range(TOTAL // 2)]
        note_figures(f"spark source, {system.kind}: {TOTAL:,} messages, broker killed once: each read once")
    finally:
        running.end(signal.SIGKILL)


def test_eruca_is_killed_while_a_task_reads(tmp_path: Path) -> None:
    check_restart(make_eruca(tmp_path))


@pytest.mark.whole
def test_a_java_broker_is_killed_while_a_task_reads(tmp_path: Path) -> None:
    with JavaNameServer(prepare_peer(), tmp_path / "names") as names:
        check_restart(make_java(tmp_path, names))
