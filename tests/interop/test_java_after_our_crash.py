"""The Java broker on stores that a dead process left, that lack what can be made again, or that we still hold."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from eruca._ground.clock import SystemClock
from eruca._store.filesystem import LocalFileSystem
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._wire.names import SCHEDULE_TOPIC
from tests.interop import crashing_writer
from tests.interop.javapeer import JavaBroker, JavaNameServer, Peer, StoreClient, find_broker_port
from tests.interop.workload import (
    QUEUES,
    TOPICS,
    Workload,
    append_all,
    describe,
    iterate_queue,
    make_options,
    read_all,
    to_java,
    write_tables,
)
from tests.paths import REPOSITORY

pytestmark = pytest.mark.whole

APPENDS_MIN = 3_000
REPEATED = "Maybe try to build consume queue repeatedly"


def run_writer_until_killed(root: Path, port: int) -> int:
    """Let a process append, kill it while it does; returns how many appends had returned."""
    command = [sys.executable, "-m", "tests.interop.crashing_writer", str(root), str(port)]
    acknowledged = 0
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == APPENDS_MIN:
                writer.kill()
    assert writer.returncode == -signal.SIGKILL
    return acknowledged


def test_java_serves_what_a_killed_process_had_appended(
    peer: Peer, name_server: JavaNameServer, java_client: StoreClient, tmp_path: Path
) -> None:
    port, root = find_broker_port(), tmp_path / "store"
    options = crashing_writer.OPTIONS
    acknowledged = run_writer_until_killed(root, port)
    assert (root / "abort").exists()
    write_tables(Tables(LocalFileSystem(), root / "config"), delivered={})
    properties = to_java(options)
    with JavaBroker(
        peer, name_server.address, root, name="java-killed", home=tmp_path / "java", port=port, properties=properties
    ) as broker:
        with java_client.connect(broker) as link:
            dump = link.dump([crashing_writer.TOPIC])
            last = [
                link.ask("key", topic=crashing_writer.TOPIC, key=f"W{acknowledged - 1 - back}") for back in range(5)
            ]
        # The Java broker dies as well, and it is our turn to recover.
        broker.end(signal.SIGKILL)
    assert broker.list_complaints([REPEATED]) == []
    served = {row["flag"]: row for row in dump.messages}
    assert len(served) == len(dump.messages)
    # Everything acknowledged is there, and at most the append that was under way besides.
    assert list(range(len(served))) == sorted(served)
    assert acknowledged <= len(served) <= acknowledged + 1
    placed = ("queueOffset", "commitLogOffset", "storeSize", "storeTimestamp", "offsetMsgId")
    for number, row in served.items():
        expected = describe(crashing_writer.build(number, port))
        assert {**row, **{key: expected[key] for key in placed}} == expected
        assert row["queueOffset"] == number // QUEUES
    assert [[row["flag"] for row in rows] for rows in last] == [[acknowledged - 1 - back] for back in range(5)]
    store = open_store(root, options)
    assert read_all(store, (crashing_writer.TOPIC,)) == dump.messages
    store.close()


def write_everything(root: Path, port: int, *, close: bool) -> tuple[MessageStore, Workload]:
    """A store with messages of every kind and the tables for them."""
    now = SystemClock().now_ms()
    clock = VirtualClock(now - 600_000)
    store = open_store(root, make_options(128 * 1024), clock=clock)
    work = Workload(store, clock, port)
    append_all(work, now, lambda: None)
    write_tables(Tables(LocalFileSystem(), root / "config"))
    if close:
        store.close()
    return store, work


def test_java_rebuilds_the_queues_and_the_index_that_we_wrote(
    peer: Peer, name_server: JavaNameServer, java_client: StoreClient, tmp_path: Path
) -> None:
    port, ours, rebuilt = find_broker_port(), tmp_path / "ours", tmp_path / "rebuilt"
    store, work = write_everything(ours, port, close=True)
    shutil.copytree(ours, rebuilt, ignore=shutil.ignore_patterns("consumequeue", "index", "checkpoint"))
    (rebuilt / "abort").touch()
    properties = to_java(store.options)
    with JavaBroker(
        peer,
        name_server.address,
        rebuilt,
        name="java-rebuild",
        home=tmp_path / "java",
        port=port,
        properties=properties,
    ) as broker:
        with java_client.connect(broker) as link:
            topics = [topic for topic in TOPICS if topic != "Delayed"]
            dump = link.dump(topics)
        broker.end()
    assert dump.messages == [describe(message) for topic in topics for message in work.of_topic(topic)]
    queues = sorted((ours / "consumequeue").glob("*/*"))
    assert len(queues) > 30
    for queue in queues:
        # Java recovers before it knows its delay levels, so that its rebuilt entries do not say when they are due.
        fields = 2 if queue.parent.name == SCHEDULE_TOPIC else 3
        mine = read_entries(queue, fields)
        # Delayed messages were delivered, so Java's queues may be longer.
        assert read_entries(rebuilt / queue.relative_to(ours), fields)[: len(mine)] == mine, queue
    mine_index = sorted((ours / "index").iterdir())
    java_index = sorted((rebuilt / "index").iterdir())
    assert len(mine_index) > 2
    for mine_file, java_file in zip(mine_index[:-1], java_index, strict=False):
        assert java_file.read_bytes() == mine_file.read_bytes(), mine_file
    # The last file went on growing, which changes its header and slots but no entry.
    last = mine_index[-1].read_bytes()
    start = 40 + 4 * store.options.index_slots
    end = start + 20 * int.from_bytes(last[36:40], "big")
    assert end > start + 20
    assert java_index[len(mine_index) - 1].read_bytes()[start:end] == last[start:end]


def read_entries(directory: Path, fields: int) -> list[tuple[int, ...]]:
    """The entries of a consume queue: position, size, tags code, or the first of these fields."""
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    return [entry[:fields] for entry in struct.iter_unpack(">qiq", data) if entry[1]]


def test_java_stays_out_of_a_store_that_we_hold(peer: Peer, name_server: JavaNameServer, tmp_path: Path) -> None:
    port, root = find_broker_port(), tmp_path / "store"
    store, work = write_everything(root, port, close=False)
    store.flusher.sync_log()
    store.flusher.sync_derived()
    with JavaBroker(
        peer,
        name_server.address,
        root,
        name="java-second",
        home=tmp_path / "java",
        port=port,
        properties=to_java(store.options),
        wait=False,
    ) as broker:
        assert broker.wait() != 0
    assert any("Lock failed,MQ already started" in line for line in broker.lines)
    for topic in (*TOPICS, SCHEDULE_TOPIC):
        ours = [message for queue_id in range(18) for message in iterate_queue(store, topic, queue_id)]
        assert list(map(describe, ours)) == list(map(describe, work.of_topic(topic)))
    store.close()
