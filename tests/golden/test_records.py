"""Every record of the Java broker's commit log decodes and encodes again to the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import mmap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eruca._wire.batch import decode_batch, encode_batch
from eruca._wire.ids import decode_offset_id, decode_unique_id, encode_offset_id
from eruca._wire.properties import UNIQ_KEY, encode_properties, get_property, parse_properties
from eruca._wire.record import (
    RECORD_MAGIC,
    BlankView,
    InvalidView,
    Record,
    RecordView,
    decode_record,
    decode_records,
    encode_record,
    find_record,
    inspect_record,
    user_body,
)
from tests.paths import GOLDEN, unpack_golden


def extract(name: str, where: Path) -> list[Path]:
    return sorted((unpack_golden(name, where) / "commitlog").iterdir())


def walk_segments(segments: list[Path]) -> list[Record]:
    """Walk segments as recovery does and check each record on the way; stop where nothing was written."""
    messages: list[Record] = []
    for segment in segments:
        base = int(segment.name)
        with open(segment, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            at = 0
            while type(view := inspect_record(mapped, at, len(mapped), True, base + at)) is RecordView:
                message = decode_record(mapped, at)
                assert message.position == base + at
                assert encode_record(message) == mapped[at : at + view.size]
                assert find_record(mapped, at, len(mapped), base) == at
                messages.append(message)
                at += view.size
            if isinstance(view, BlankView):
                assert at + view.size == len(mapped)
                continue
            assert isinstance(view, InvalidView)
            assert view.empty, view.reason
            assert not any(mapped[at:])
    return messages


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return walk_segments(extract("clean", tmp_path_factory.mktemp("clean")))


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    with gzip.open(GOLDEN / "stored-clean.json.gz", "rt", encoding="utf-8") as file:
        result: dict[str, Any] = json.load(file)
    return result


def test_the_commit_log_holds_what_java_serves(messages: list[Record], served: dict[str, Any]) -> None:
    by_position = {message.position: message for message in messages}
    # Every record is served exactly once, but for the two topics that no consumer may ask for.
    hidden = {message.position for message in messages if message.topic.startswith("RMQ_SYS_TRANS_")}
    assert sorted(by_position.keys() - hidden) == sorted(expected["commitLogOffset"] for expected in served["messages"])
    for expected in served["messages"]:
        message = by_position[expected["commitLogOffset"]]
        assert (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.size,
            message.sys_flag,
            message.flag,
        ) == (
            expected["topic"],
            expected["queueId"],
            expected["queueOffset"],
            expected["storeSize"],
            expected["sysFlag"],
            expected["flag"],
        )
        assert message.body_crc == expected["bodyCRC"]
        assert message.reconsume_times == expected["reconsumeTimes"]
        assert message.prepared_position == expected["preparedTransactionOffset"]
        assert message.born_timestamp == expected["bornTimestamp"]
        assert message.store_timestamp == expected["storeTimestamp"]
        body = user_body(message)
        assert len(body) == expected["bodyLen"]
        assert hashlib.sha256(body).hexdigest() == expected["bodySha256"]
        assert encode_offset_id(message.store_host, message.position) == expected["offsetMsgId"]


def test_properties_are_what_java_parses(messages: list[Record], served: dict[str, Any]) -> None:
    by_position = {message.position: message for message in messages}
    for expected in served["messages"]:
        raw = by_position[expected["commitLogOffset"]].properties
        properties = parse_properties(raw)
        assert properties == expected["properties"]
        assert parse_properties(encode_properties(properties)) == properties
        for name, value in properties.items():
            assert get_property(raw, name.encode()) == value.encode()


def test_ids_decode(messages: list[Record]) -> None:
    for message in messages:
        located = decode_offset_id(encode_offset_id(message.store_host, message.position))
        assert (located.ip, located.port, located.position) == ("127.0.0.1", 10911, message.position)
        if unique := message.get_property(UNIQ_KEY):
            # Months begin at local midnight, and this machine may be in another zone than the one that made the id:
            # the two times agree up to whole quarters of an hour.
            made = decode_unique_id(unique, message.born_timestamp + 86_400_000).timestamp
            assert (message.born_timestamp - made + 60_000) % 900_000 < 120_000


def test_all_kinds_of_messages_are_there(messages: list[Record]) -> None:
    flags = Counter(message.sys_flag for message in messages)
    assert flags[0] and flags[8] and flags[769]
    assert {message.topic for message in messages} >= {"G_Normal", "G_Batch", "G_Big", "G_Delay", "G_Order", "G_Txn"}


def test_the_torn_store_ends_in_a_record_that_is_refused(tmp_path: Path) -> None:
    *whole, torn = [segment for segment in extract("torn", tmp_path) if any(segment.read_bytes())]
    earlier = walk_segments(whole)
    data = torn.read_bytes()
    base = int(torn.name)
    at = 0
    while type(view := inspect_record(data, at, len(data), True, base + at)) is RecordView:
        at += view.size
    assert earlier
    assert isinstance(view, InvalidView)
    assert not view.empty
    assert find_record(data, at, len(data), base) == -1


def list_bodies(code: int) -> list[bytes]:
    """Bodies of the captured frames of one request code, requests and answers, that hold messages."""
    bodies: list[bytes] = []
    for name in ("frames.jsonl", "frames-rocketmq.jsonl"):
        with open(GOLDEN / name, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        bodies += [bytes.fromhex(row["bodyHex"]) for row in rows if row["requestCode"] == code and row["bodyHex"]]
    return bodies


@pytest.mark.parametrize(("code", "count"), [(11, 2), (12, 2), (39, 2), (309, 1)])
def test_records_on_the_wire_come_back(code: int, count: int) -> None:
    bodies = [body for body in list_bodies(code) if body[4:8] == RECORD_MAGIC.to_bytes(4, "big")]
    assert len(bodies) == count
    for body in bodies:
        messages = decode_records(body)
        assert messages
        assert b"".join(map(encode_record, messages)) == body


def test_batches_on_the_wire_come_back() -> None:
    bodies = list_bodies(320)
    assert bodies
    for body in bodies:
        items = decode_batch(body)
        assert len(items) > 1
        assert all(get_property(item.properties, UNIQ_KEY.encode()) for item in items)
        assert encode_batch(items) == body
