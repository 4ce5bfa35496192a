"""The four golden stores open, and every queue and message equals what the Java broker served from them."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eruca._ground.config import StoreOptions, from_properties
from eruca._store.filesystem import LocalFileSystem
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.consumequeue import ENTRY_BYTES
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies.text import decode_options
from eruca._wire.host import unpack_host
from eruca._wire.ids import encode_offset_id
from eruca._wire.javahash import tags_code
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.record import Record, decode_record, user_body
from tests.paths import GOLDEN, unpack_golden

KINDS = ("clean", "killed", "torn", "rebuild")
# Topics whose messages the Java client may not pull, so the golden data has only some of them.
INTERNAL = {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}


def golden_options() -> StoreOptions:
    """The settings of the broker that made the stores."""
    return from_properties(StoreOptions, decode_options((GOLDEN / "broker.properties").read_bytes()))


def served(kind: str) -> dict[str, Any]:
    """What the Java broker served from a store."""
    with gzip.open(GOLDEN / f"stored-{kind}.json.gz") as file:
        content: dict[str, Any] = json.load(file)
    return content


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, MessageStore, dict[str, Any]]]:
    """Each store, opened, beside what Java served from it."""
    kind = request.param
    clock = VirtualClock()
    store = open_store(unpack_golden(kind, tmp_path), golden_options(), clock=clock)
    expected = served(kind)
    if kind == "rebuild":
        deliver_what_java_delivered_early(store, clock, expected)
    yield kind, store, expected
    store.close()


def deliver_what_java_delivered_early(store: MessageStore, clock: VirtualClock, expected: dict[str, Any]) -> None:
    """Do to the rebuilt store what the Java broker did to it before its messages were requested.

    When Java rebuilds consume queues it has not read its delay levels yet, takes every delay for one second, and so
    delivered the ten messages of level 18 two hours early. They are not in the given store; delivering them by
    hand here must produce the very records Java wrote.
    """
    log_end = store.log.tail
    early = sorted(
        (message for message in expected["messages"] if message["commitLogOffset"] >= log_end),
        key=lambda message: message["commitLogOffset"],
    )
    waiting = [decode_record(view) for view in store.reader.read(SCHEDULE_TOPIC, 17, 0).slices]
    assert [message["msgId"] for message in early] == [message.get_property("UNIQ_KEY") for message in waiting]
    for message, delivered in zip(waiting, early, strict=True):
        clock.set_ms(delivered["storeTimestamp"])
        store.append(
            Record(
                topic=message.get_property("REAL_TOPIC") or "",
                queue_id=int(message.get_property("REAL_QID") or -1),
                flag=message.flag,
                body=message.body,
                properties=message.properties,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_host=message.store_host,
                reconsume_times=message.reconsume_times,
            )
        )


def as_java_shows(message: Record) -> dict[str, Any]:
    """A message with the fields and spellings of the golden JSON."""
    properties = message.read_properties()
    ip, port = unpack_host(message.store_host)
    offset_id = encode_offset_id(message.store_host, message.position)
    body = user_body(message)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.position,
        "storeSize": message.size,
        "msgId": properties.get("UNIQ_KEY", offset_id),
        "offsetMsgId": offset_id,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_position,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": unpack_host(message.born_host)[0],
        "storeHost": f"/{ip}:{port}",
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "properties": properties,
        "bodyLen": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


Opened = tuple[str, MessageStore, dict[str, Any]]


def test_every_queue_equals(opened: Opened) -> None:
    _, store, expected = opened
    ours = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in store.queues}
    javas = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in expected["queues"]}
    for key, offsets in javas.items():
        assert ours.get(key, (0, 0)) == offsets, key
    assert {topic for topic, _ in ours.keys() - javas.keys()} <= INTERNAL


def test_every_message_equals(opened: Opened) -> None:
    _, store, expected = opened
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for queue in store.queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.reader.read(queue.topic, queue.queue_id, offset)
            for view in result.slices:
                message = decode_record(view)
                found[queue.topic, queue.queue_id, message.queue_offset] = as_java_shows(message)
            assert result.next_offset > offset
            offset = result.next_offset
    javas = {(item["topic"], item["queueId"], item["queueOffset"]): item for item in expected["messages"]}
    assert len(javas) == len(expected["messages"])
    for key, message in javas.items():
        assert found[key] == {name: message[name] for name in found[key]}, key
        assert set(message) == set(found[key]), "the golden data has a field the test does not compare"
    assert {topic for topic, _, _ in found.keys() - javas.keys()} <= INTERNAL


def test_topics_equal(opened: Opened) -> None:
    _, store, expected = opened
    table = Tables(LocalFileSystem(), store.paths.config).topics.load()
    ours = {name: config for name, config in table.topic_config_table.items()}
    for name, config in expected["topicConfigs"].items():
        if name not in ours:
            # Made by the running Java broker after the store was packed, because it delivered to it.
            assert name.startswith(("%DLQ%", "%RETRY%", "TRANS_CHECK")), name
            continue
        topic = ours[name]
        assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums, topic.order, topic.topic_sys_flag) == (
            config["perm"],
            config["readQueueNums"],
            config["writeQueueNums"],
            config["order"],
            config["topicSysFlag"],
        ), name


def test_every_key_is_found(opened: Opened) -> None:
    _, store, expected = opened
    assert expected["keyQueries"]
    for query, ids in expected["keyQueries"].items():
        topic, key = query.split("/", 1)
        found = [
            decode_record(view).get_property("UNIQ_KEY") for _, view in store.reader.find_by_key(topic, key, 0, 2**62)
        ]
        # Java loses index entries in a crash; what it found we find, and every message that has the key.
        have = [
            message["msgId"]
            for message in expected["messages"]
            if message["topic"] == topic and key in [message["msgId"], *(message["keys"] or "").split(" ")]
        ]
        assert set(ids) <= set(found)
        assert sorted(str(item) for item in found) == sorted(have)


def test_unique_ids_are_found(opened: Opened) -> None:
    _, store, expected = opened
    for message in expected["messages"]:
        found = store.reader.find_by_key(message["topic"], message["msgId"], 0, 2**62)
        assert message["commitLogOffset"] in [position for position, _ in found]


def read_all(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("how", ["recovery", "append"])
def test_derived_files_equal_javas_bytes(how: str, tmp_path: Path) -> None:
    """Queues and index rebuilt from the clean store's commit log alone equal Java's, up to the write position."""
    java_root = unpack_golden("clean", tmp_path / "java")
    root = unpack_golden("clean", tmp_path / "ours")
    make_again: Callable[[Path], None] = recover_without_derived if how == "recovery" else append_every_record
    make_again(root)
    assert (read_all(root / "commitlog")) == read_all(java_root / "commitlog")
    java_queues, our_queues = read_all(java_root / "consumequeue"), read_all(root / "consumequeue")
    # A segment that holds no entry yet is only there in advance.
    assert {name for name, data in our_queues.items() if any(data)} == {
        name for name, data in java_queues.items() if any(data)
    }
    entries = 0
    for name, data in java_queues.items():
        if any(data):
            assert our_queues[name] == data, name
            entries += sum(any(data[at : at + ENTRY_BYTES]) for at in range(0, len(data), ENTRY_BYTES))
    assert entries > 2000
    java_index = sorted((java_root / "index").iterdir())
    our_index = sorted((root / "index").iterdir())
    assert len(java_index) == len(our_index) == 3
    for java_file, our_file in zip(java_index, our_index, strict=True):
        assert our_file.read_bytes() == java_file.read_bytes()


def recover_without_derived(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    store = open_store(root, golden_options())
    store.close()


def append_every_record(root: Path) -> None:
    """Send every record of the store through the append path of a new store, at the time Java stored it."""
    source = root.with_name("source")
    root.rename(source)
    clock = VirtualClock()
    reader = open_store(source, golden_options())
    writer = open_store(root, replace(golden_options(), flush_interval_ms=1), clock=clock)
    for run in sent_together(reader):
        positions = [message.position for message in run]
        clock.set_ms(run[0].store_timestamp)
        stored = writer.append_batch(run) if len(run) > 1 else [writer.append(run[0])]
        assert [message.position for message in stored] == positions
    reader.close()
    writer.close()


def sent_together(store: MessageStore) -> Iterator[list[Record]]:
    """The records of a store, those of one batch in one list; a batch shows by its one store time and queue."""
    run: list[Record] = []
    position = store.log.start
    while position < store.log.tail:
        view = store.reader.view_record(position)
        if view is None:
            segment = store.log.chain.find(position)
            assert segment is not None
            position = segment.end
            continue
        message = decode_record(view)
        position += len(view)
        same = (
            run
            and message.topic == "G_Batch"
            and (message.queue_id, message.store_timestamp)
            == (
                run[-1].queue_id,
                run[-1].store_timestamp,
            )
        )
        if run and not same:
            yield run
            run = []
        run.append(message)
    yield run


def test_offset_by_time_and_earliest_time(opened: Opened) -> None:
    _, store, expected = opened
    by_queue: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for message in expected["messages"]:
        by_queue.setdefault((message["topic"], message["queueId"]), []).append(message)
    for (topic, queue_id), messages in by_queue.items():
        messages.sort(key=lambda message: message["queueOffset"])
        first, last = messages[0], messages[-1]
        assert store.reader.earliest_time(topic, queue_id) == first["storeTimestamp"]
        assert store.reader.find_offset(topic, queue_id, first["storeTimestamp"] - 10_000) == first["queueOffset"]
        assert store.reader.find_offset(topic, queue_id, last["storeTimestamp"] + 10_000) == last["queueOffset"]
        for message in messages:
            found = store.reader.find_offset(topic, queue_id, message["storeTimestamp"])
            assert messages[found - first["queueOffset"]]["storeTimestamp"] == message["storeTimestamp"]


def test_delayed_messages_keep_their_due_time(opened: Opened) -> None:
    kind, store, _ = opened
    queue = store.queues.get(SCHEDULE_TOPIC, 17)
    assert queue is not None
    for offset in range(queue.max_offset):
        entry = queue.entry(offset)
        assert entry is not None
        message = decode_record(store.reader.read(SCHEDULE_TOPIC, 17, offset).slices[0])
        assert entry.tags_code == message.store_timestamp + 2 * 3_600_000, kind


def test_tags_code_is_javas(opened: Opened) -> None:
    _, store, expected = opened
    for message in expected["messages"][:500]:
        if message["topic"] == SCHEDULE_TOPIC:
            continue
        queue = store.queues.get(message["topic"], message["queueId"])
        assert queue is not None
        entry = queue.entry(message["queueOffset"])
        assert entry is not None
        assert entry.tags_code == (tags_code(message["tags"]) if message["tags"] else 0)
