"""A topic on two brokers, of which one comes and goes."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from eruca.admin import Admin
from eruca.errors import NetError, OffsetLost
from tests.clients.stage import poll
from tests.interop.brokers import BROKER_NAME, ErucaCluster
from tests.interop.javapeer import START_SECONDS_MAX, JavaProcess, find_broker_port
from tests.spark.producing import create_topic, name_topic, run, send
from tests.spark.reading import make_reader, read_rows

OTHER = "broker-b"


def start_other(home: Path, nameserver: str) -> JavaProcess:
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "eruca", "broker", "-o", "json", "-n", nameserver, "--broker-name", OTHER]
    command += ["--listen-port", str(find_broker_port()), "--store-path-root-dir", str(home / "store")]
    process = JavaProcess(command, home / "other.log", talks=True)
    process.wait_for(lambda line: line.startswith("{"), START_SECONDS_MAX)
    return process


def wait_for_brokers(nameserver: str, count: int) -> None:
    async def wait() -> None:
        async with Admin(nameserver) as admin:
            await poll(admin.connection.list_masters, lambda masters: len(masters) == count)

    run(wait())


def test_two_brokers(tmp_path: Path) -> None:
    with ErucaCluster(tmp_path / "eruca") as cluster, start_other(tmp_path / "other", cluster.name_server) as other:
        wait_for_brokers(cluster.name_server, 2)
        topic, alone = name_topic("both"), name_topic("alone")
        assert len(create_topic(cluster, topic, 2)) == 4
        send(cluster, topic, 400)
        create_topic(cluster, alone, 1)
        send(cluster, alone, [b"only-one"])  # the other broker has the topic, and nothing in it
        rows = read_rows(cluster, subscribe=topic)
        assert {(row["broker"], row["queueId"]) for row in rows} == {
            (b, q) for b in (BROKER_NAME, OTHER) for q in (0, 1)
        }
        assert len({(row["broker"], row["queueId"], row["queueOffset"]) for row in rows}) == 400
        assert len(read_rows(cluster, subscribe=alone)) == 1
        starts = json.dumps({topic: {OTHER: "latest", BROKER_NAME: {"0": 90}}})
        assert len(read_rows(cluster, subscribe=topic, startingOffsets=starts)) == 110

        reader = make_reader(cluster, {"subscribe": topic, "retries": 1, "requestTimeout": "20s"})
        planned = reader.partitions()
        other.end(signal.SIGKILL)
        wait_for_brokers(cluster.name_server, 1)
        # Planned while it was there: its messages are not lost, they cannot be read now.
        with pytest.raises(NetError, match=r"cannot connect to|could not be reached"):
            for partition in planned:
                list(reader.read(partition))
        assert {row["broker"] for row in read_rows(cluster, subscribe=topic)} == {BROKER_NAME}
        both = json.dumps({topic: {BROKER_NAME: [0], OTHER: [0]}})
        with pytest.raises(OffsetLost, match=f"assign contains {topic}, broker {OTHER}, queue 0"):
            read_rows(cluster, assign=both)
