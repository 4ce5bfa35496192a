"""A Java 4.9 broker opens a store with pending messages of any delay, keeps them, and we deliver them afterwards."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import open_store
from eruca._wire.names import TIMER_TOPIC
from eruca.sync import Producer
from eruca.testing import EmbeddedBroker
from tests.delivery.test_timer import consume
from tests.integration.broker.conftest import allow_new_files
from tests.interop.javapeer import JavaBroker, JavaNameServer, Peer, StoreClient, find_broker_port
from tests.interop.workload import hash_log, make_options, read_all, to_java

__all__ = ["allow_new_files"]

COUNT = 50
OPTIONS = make_options(1024 * 1024)
# Not before Java was started and stopped, which takes about ten seconds.
DELAY = timedelta(seconds=45)

pytestmark = pytest.mark.whole


def start_ours(directory: Path) -> EmbeddedBroker:
    sizes = {name: getattr(OPTIONS, name) for name in StoreOptions.__dataclass_fields__ if "bytes" in name}
    return EmbeddedBroker(directory, index_slots=OPTIONS.index_slots, index_entries=OPTIONS.index_entries, **sizes)


def read_topic(root: Path, topic: str) -> list[dict[str, object]]:
    store = open_store(root, OPTIONS)
    try:
        return read_all(store, (topic,))
    finally:
        store.close()


def test_java_keeps_what_waits(peer: Peer, tmp_path: Path, allow_new_files: None) -> None:
    with start_ours(tmp_path / "ours") as broker, Producer(broker.nameserver) as producer:
        receipts = [producer.send("timers", b"%d" % number, timer=DELAY) for number in range(COUNT)]
        producer.cancel_delayed("timers", receipts[7])
    root = tmp_path / "ours" / "store"
    waiting = read_topic(root, TIMER_TOPIC)
    assert len(waiting) == COUNT + 1
    store = open_store(root, OPTIONS)
    tail = store.log.tail
    store.close()
    digest = hash_log(root, tail)
    with (
        JavaNameServer(peer, tmp_path / "nameserver") as nameserver,
        StoreClient(peer, tmp_path / "client") as client,
        JavaBroker(
            peer,
            nameserver.address,
            root,
            name="java-timer",
            home=tmp_path / "java",
            port=find_broker_port(),
            properties=to_java(OPTIONS),
        ) as java,
    ):
        with client.connect(java) as link:
            dump = link.dump([TIMER_TOPIC, "timers"])
        java.end()
        assert any(line.endswith(f"load over, and the max phy offset = {tail}") for line in java.lines)
        assert java.list_complaints() == []
    # The official client reads each of them as we do, and none is delivered.
    assert dump.messages == waiting
    assert hash_log(root, tail) == digest
    with start_ours(tmp_path / "ours") as broker:
        asyncio.run(consume(broker, COUNT - 1))
    delivered = read_topic(root, "timers")
    assert len({row["msgId"] for row in delivered}) == len(delivered) == COUNT - 1
    for row in delivered:
        properties = row["properties"]
        assert isinstance(properties, dict)
        assert int(str(row["storeTimestamp"])) >= int(properties["TIMER_OUT_MS"])
