"""Logs cut into pieces at records, and walked: whole, damaged, growing, and with copies of records in bodies."""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eruca._spark.columns import STORE_COLUMNS, Column
from eruca._spark.store.datasource import DIGEST_COLUMNS, OPTIONS, StoreReader, encode_paths
from eruca._spark.store.logfiles import Piece, StoreLog, TopicChoice, find_log_end, plan_pieces, walk_piece
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths
from eruca._store.log.scan import Damage
from eruca._store.messagestore import open_store
from eruca._store.queues.consumequeue import ENTRY
from eruca._store.queues.removed import RemovedTopics
from eruca._testing.clock import VirtualClock
from eruca._wire.record import Record, decode_record, encode_record
from eruca.errors import ConfigError, StoreError, StoreLayoutError
from tests.paths import unpack_golden
from tests.spark.stores import (
    GOLDEN_NAMES,
    HARMS,
    Harm,
    expire,
    lose_a_page,
    make_options,
    make_rich_store,
    read_files,
    rot_a_body,
    tear_the_end,
)
from tests.store_samples import OPTIONS as SMALL
from tests.store_samples import START_MS, fill_store, find_segment, make_message, patch
from tests.unit.spark.kernel.test_columns import expect_row


def choose(*names: str) -> list[Column]:
    """Some columns by name, all of the default ones without any."""
    known = {column.name: column for column in (*STORE_COLUMNS, *DIGEST_COLUMNS)}
    return [known[name] for name in names] or list(STORE_COLUMNS)


def read_rows(*names: str, **options: str) -> list[dict[str, Any]]:
    """The rows that a query of the source gives, in the order of its tasks."""
    reader = StoreReader(OPTIONS.read(options), choose(*names))
    rows: list[dict[str, Any]] = []
    # Spark sends them to its tasks so.
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        for batch in reader.read(partition):
            batch.validate(full=True)
            arrays = [
                column.view("int64") if pa.types.is_timestamp(column.type) else column for column in batch.columns
            ]
            rows += pa.RecordBatch.from_arrays(arrays, batch.schema.names).to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            row["properties"] = dict(row["properties"])
    return rows


def read_positions(root: Path, **options: str) -> list[int]:
    return [row["physicalOffset"] for row in read_rows("physicalOffset", path=str(root), **options)]


def read_log(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


# --- rows -----------------------------------------------------------------------------------------------------------


def test_every_column_of_every_record(tmp_path: Path) -> None:
    stored = make_rich_store(tmp_path / "store")
    log = read_log(tmp_path / "store")
    expected = [expect_row(log, message.position, "b0")[0] for message in stored]
    assert read_rows(path=str(tmp_path / "store"), broker="b0") == expected


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_every_record_of_javas_stores(tmp_path: Path, name: str) -> None:
    root = unpack_golden(name, tmp_path)
    log, rows = read_log(root), read_rows(path=str(root), minPartitions="4")
    assert len(rows) == {"clean": 2127, "torn": 2426}.get(name, 2427)
    assert rows == [expect_row(log, row["physicalOffset"], str(root))[0] for row in rows]
    assert all(row["crcOk"] for row in rows)


def test_tags_codes_and_key_hashes_are_what_the_broker_wrote(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_rich_store(root)
    rows = read_rows("physicalOffset", "tagsCode", "keyHashes", path=str(root))
    codes = {row["physicalOffset"]: row["tagsCode"] for row in rows}
    entries = [entry for data in read_files(root / "consumequeue").values() for entry in ENTRY.iter_unpack(data)]
    seen = [(position, code) for position, size, code in entries if 0 < size < 2**31 - 1]
    assert len(seen) > 200
    assert all(codes[position] == code for position, code in seen)
    with_entry = [
        row["physicalOffset"] for row in read_rows("physicalOffset", "hasEntry", path=str(root)) if row["hasEntry"]
    ]
    assert with_entry == sorted(position for position, _ in seen)
    hashes = Counter((row["physicalOffset"], each) for row in rows for each in row["keyHashes"])
    index: Counter[tuple[int, int]] = Counter()
    for data in read_files(root / "index").values():
        count = struct.unpack_from(">i", data, 36)[0]
        for number in range(1, count):
            key_hash, position = struct.unpack_from(">iq", data, 40 + 4 * 50 + 20 * number)
            index[position, key_hash] += 1
    assert hashes == index


def test_what_was_deleted_has_no_entry(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root, 20)
    rows = read_rows("topic", "queueId", "physicalOffset", path=str(root))
    middle, topic = rows[10]["physicalOffset"], rows[0]["topic"]
    removed = RemovedTopics(LocalFileSystem(), StorePaths(root).removed)
    removed.add(topic, middle)
    removed.save()
    expected = [row["topic"] != topic or row["physicalOffset"] >= middle for row in rows]
    assert [row["hasEntry"] for row in read_rows("hasEntry", path=str(root))] == expected
    assert not all(expected)


def test_fewer_columns_in_any_order(tmp_path: Path) -> None:
    fill_store(tmp_path / "store", 5)
    rows = read_rows("tagsCode", "topic", "physicalOffset", path=str(tmp_path / "store"))
    assert [list(row) for row in rows] == [["tagsCode", "topic", "physicalOffset"]] * 5


# --- what is asked for ----------------------------------------------------------------------------------------------


def test_topics_times_and_isolation(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    place = {"path": str(root)}

    def count(**options: str) -> Counter[str]:
        return Counter(row["topic"] for row in read_rows("topic", **place, **options))

    everything = Counter(message.topic for message in stored)
    assert count() == everything
    assert count(subscribe="Orders, Gone,Nowhere") == {"Orders": 160, "Gone": 40}
    assert count(subscribePattern="B.*|Pl") == {"Bills": 40}
    assert set(count(includeInternal="false")) == {"Orders", "Bills", "Plain", "Gone"}
    assert count(isolation="committed") == everything - Counter({"RMQ_SYS_TRANS_HALF_TOPIC": 40, "Orders": 80})
    begin, end = START_MS + 700 * 10, START_MS + 700 * 20
    rows = read_rows("storeTimestamp", **place, startingTimestamp=str(begin), endingTimestamp=str(end))
    assert len(rows) == 90
    assert all(begin <= row["storeTimestamp"] // 1000 < end for row in rows)
    assert count(startingTimestamp="-10m") == {}
    with pytest.raises(ConfigError, match="mutually exclusive"):
        count(subscribe="Orders", subscribePattern="O.*")
    with pytest.raises(ConfigError, match="regular expression"):
        count(subscribePattern="(")
    with pytest.raises(ConfigError, match="did you mean subscribePattern"):
        count(subscribePatern="x")


def test_bodies_are_as_stored_if_asked_for(tmp_path: Path) -> None:
    root = unpack_golden("clean", tmp_path)
    plain = read_rows("body", "size", path=str(root))
    stored = read_rows("body", "size", path=str(root), decompress="false")
    assert [row["size"] for row in plain] == [row["size"] for row in stored]
    longer = [one for one, other in zip(plain, stored, strict=True) if len(one["body"]) > len(other["body"])]
    assert longer


def test_several_stores_and_wild_cards(tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 7), ("c", 3)):
        fill_store(tmp_path / name / "store", count)
    rows = read_rows("broker", path=str(tmp_path / "*" / "store"), broker="x,y,z")
    assert Counter(row["broker"] for row in rows) == {"x": 5, "y": 7, "z": 3}
    two = f"{tmp_path}/a/store, {tmp_path}/b/store"
    assert Counter(row["broker"] for row in read_rows("broker", path=two)) == {
        f"{tmp_path}/a/store": 5,
        f"{tmp_path}/b/store": 7,
    }
    assert len(read_rows("broker", paths=f'["{tmp_path}/a/store"]', broker="one")) == 5
    # A copy of the log alone will do.
    assert len(read_rows("topic", path=f"{tmp_path}/c/store/commitlog")) == 3
    with pytest.raises(ConfigError, match="2 names for 3 paths"):
        read_rows("broker", path=str(tmp_path / "*" / "store"), broker="x,y")
    with pytest.raises(ConfigError, match="no such directory"):
        read_rows("broker", path=str(tmp_path / "nothing*"))
    with pytest.raises(ConfigError, match="no store is given"):
        read_rows("broker")
    with pytest.raises(StoreError, match="not a store"):
        read_rows("broker", path=str(tmp_path / "a"))


# --- pieces ---------------------------------------------------------------------------------------------------------


def check_answers(log: StoreLog, tasks: list[list[Piece]], stored: list[Record]) -> None:
    """Every record is in one piece, and pieces begin and end at records."""
    pieces = [piece for task in tasks for piece in task]
    assert [piece.begin for piece in pieces] == sorted(piece.begin for piece in pieces)
    found = [position for piece in pieces for position in list_positions(piece)]
    assert found == [message.position for message in stored]
    starts = {message.position for message in stored}
    # Or where the rest of a segment is blank.
    assert all(piece.begin in starts or not list_positions(piece) for piece in pieces)
    assert all(piece.size > 0 for piece in pieces)


def list_positions(piece: Piece) -> list[int]:
    found = []
    for each in walk_piece(piece):
        assert not isinstance(each, Damage)
        found += [piece.base + int(begin) for begin in each.spans.reshape(-1, 5)[: each.count, 0]]
    return found


@pytest.mark.parametrize(
    ("piece_bytes", "least", "most", "tasks"),
    [
        (None, 1, None, (1, 1)),
        (None, 5, None, (5, 9)),
        (None, 30, None, (30, 45)),
        (3000, 1, None, (20, 30)),
        (3000, 1, 4, (1, 4)),
        (None, 300, None, (200, 370)),
        (1, 1, None, (360, 370)),
    ],
)
def test_pieces_begin_at_records(
    tmp_path: Path, piece_bytes: int | None, least: int, most: int | None, tasks: tuple[int, int]
) -> None:
    stored = make_rich_store(tmp_path / "store")
    with StoreLog(tmp_path / "store") as log:
        (planned,) = plan_pieces([log], piece_bytes=piece_bytes, count_min=least, count_max=most)
        assert tasks[0] <= len(planned) <= tasks[1]
        check_answers(log, planned, stored)


def test_many_segments_are_taken_whole(tmp_path: Path) -> None:
    stored = fill_store(tmp_path / "store", 900)
    with StoreLog(tmp_path / "store") as log:
        segments = log.list_pieces()
        assert len(segments) > 20
        (planned,) = plan_pieces([log], piece_bytes=None, count_min=1, count_max=None)
        assert [piece for task in planned for piece in task] == segments
        (planned,) = plan_pieces([log], piece_bytes=SMALL.commitlog_segment_bytes, count_min=1, count_max=None)
        assert len(planned) == len(segments)
        check_answers(log, planned, stored)


def test_a_body_that_holds_a_record_is_not_taken_for_one(tmp_path: Path) -> None:
    """The copy even claims to lie where it lies."""
    root = tmp_path / "store"
    clock = VirtualClock(START_MS)
    store = open_store(root, make_options(), clock=clock)
    stored = []
    for number in range(60):
        body_at = store.log.tail + 88
        inner = [Record("Inner", number, body=b"inner", properties=b"a\x01b") for _ in range(3)]
        body = b""
        for each in inner:
            each.position = body_at + len(body)
            body += encode_record(each)
        stored.append(store.append(Record("Outer", 0, body=body, properties=b"a\x01b")))
    store.close()
    with StoreLog(root) as log:
        (planned,) = plan_pieces([log], piece_bytes=150, count_min=1, count_max=None)
        assert 60 <= len(planned) <= 64
        check_answers(log, planned, stored)


def test_names_with_odd_letters(tmp_path: Path) -> None:
    root = tmp_path / "a,b [1] *"
    fill_store(root, 5)
    rows = read_rows("broker", path=encode_paths([str(root)]))
    assert [row["broker"] for row in rows] == [str(root)] * 5


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    open_store(tmp_path / "store", make_options()).close()
    assert read_rows(path=str(tmp_path / "store")) == []
    (tmp_path / "bare" / "commitlog").mkdir(parents=True)
    assert read_rows(path=str(tmp_path / "bare")) == []


def test_a_segment_of_another_size_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root)
    (root / "commitlog" / f"{10 * 8192:020d}").write_bytes(bytes(100))
    with pytest.raises(StoreLayoutError, match="100 bytes"):
        read_rows(path=str(root))


# --- stores at work -------------------------------------------------------------------------------------------------


def test_a_broker_goes_on_while_its_log_is_read(tmp_path: Path) -> None:
    """The end is where it was when the query was planned, however often a task runs."""
    root, clock = tmp_path / "store", VirtualClock(START_MS)
    store = open_store(root, make_options(), clock=clock)
    for number in range(50):
        store.append(make_message(number))
    reader = StoreReader(OPTIONS.read({"path": str(root)}), choose("queueOffset"))
    partitions = reader.partitions()
    for number in range(50):
        store.append(make_message(number))
    for _ in range(2):
        assert sum(batch.num_rows for partition in partitions for batch in reader.read(partition)) == 50
    assert len(read_rows("queueOffset", path=str(root))) == 100
    store.close()


def test_a_record_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = fill_store(root, 50)
    path, at = find_segment(root, stored[-1].position)
    whole = path.read_bytes()[at : at + stored[-1].size]
    for length in range(0, len(whole), 7):
        patch(path, at, whole[:length] + bytes(len(whole) - length))
        with StoreLog(root) as log:
            assert find_log_end(log.runs[0]) == stored[-1].position, length
    patch(path, at, whole)
    assert len(read_positions(root)) == 50


def test_a_segment_made_in_advance_has_no_records(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_store(root, 50)
    count = len(list((root / "commitlog").iterdir()))
    (root / "commitlog" / f"{count * 8192:020d}").write_bytes(bytes(8192))
    assert len(read_positions(root)) == 50


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: str(harm.__name__))
@pytest.mark.parametrize("tasks", ["1", "7", "1000"])
def test_what_is_left_of_a_damaged_log(tmp_path: Path, harm: Harm, tasks: str) -> None:
    """The good records are read, whichever way the log is cut."""
    root = tmp_path / "store"
    stored = make_rich_store(root)
    harm(root, stored)
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    start = int(min(path.name for path in (root / "commitlog").iterdir()))
    whole = []
    for message in stored:
        at = message.position - start
        try:
            whole.append(decode_record(log, at).position if at >= 0 else -1)
        except Exception:
            whole.append(-1)
    options = {"verifyCrc": "true", "minPartitions": tasks}
    assert read_positions(root, onDamage="skip", **options) == [position for position in whole if position >= 0]


def test_a_lost_page_fails_is_skipped_or_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    lose_a_page(root, stored)
    lost = [message for message in stored if stored[60].position - 1 < message.position < stored[60].position + 1500]
    position, length = lost[0].position, lost[-1].position + lost[-1].size - lost[0].position
    path, at = find_segment(root, position)
    with pytest.raises(StoreError, match=rf"{path.name}: position {position} \(byte {at} of the file\): {length} byt"):
        read_rows(path=str(root))
    assert len(read_rows("topic", path=str(root), onDamage="skip")) == len(stored) - len(lost)
    rows = read_rows(path=str(root), onDamage="report", subscribe="Orders", broker="b")
    (shown,) = [row for row in rows if row["topic"] is None]
    assert {name: value for name, value in shown.items() if value is not None} == {
        "broker": "b",
        "physicalOffset": position,
        "size": length,
        "crcOk": False,
        "properties": {"DAMAGE": "nothing was written here"},
    }


def test_a_rotten_body_is_seen_with_its_crc(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    rot_a_body(root, stored)
    bad = stored[27].position
    assert read_positions(root).count(bad) == 1
    rows = read_rows("physicalOffset", "crcOk", path=str(root))
    assert [row["physicalOffset"] for row in rows if not row["crcOk"]] == [bad]
    with pytest.raises(StoreError, match=f"position {bad} .*CRC"):
        read_positions(root, verifyCrc="true")
    assert bad not in read_positions(root, verifyCrc="true", onDamage="skip")
    assert bad in read_positions(root, verifyCrc="true", onDamage="report")


def test_missing_segments(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = fill_store(root)
    middle = sorted((root / "commitlog").iterdir())[1]
    middle.unlink()
    with pytest.raises(StoreError, match="segments are missing"):
        read_rows(path=str(root))
    left = [message.position for message in stored if not 8192 <= message.position < 16384]
    assert read_positions(root, onDamage="skip") == left
    rows = read_rows("topic", "physicalOffset", "size", path=str(root), onDamage="report")
    assert rows[0] == {"topic": None, "physicalOffset": 8192, "size": 8192}
    assert len(rows) == len(left) + 1


def test_expired_segments_are_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    expire(root, stored)
    assert read_positions(root) == [message.position for message in stored if message.position >= 16384]


def test_a_torn_end_is_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    stored = make_rich_store(root)
    tear_the_end(root, stored)
    assert read_positions(root) == [message.position for message in stored[:-1]]


def test_records_that_end_with_a_zero_come_in_whole_batches(tmp_path: Path) -> None:
    """The fast walk stops at each, and they are put together again."""
    root, clock = tmp_path / "store", VirtualClock(START_MS)
    store = open_store(root, make_options(), clock=clock)
    stored = [store.append(Record("Orders", properties=b"a\x01" + b"b" * (number % 9))) for number in range(100)]
    store.close()
    for message in stored[:-1:3]:
        path, at = find_segment(root, message.position + message.size - 1)
        patch(path, at, b"\x00")
    reader = StoreReader(OPTIONS.read({"path": str(root)}), choose("physicalOffset", "properties"))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert sum(batch.num_rows for batch in batches) == 100
    assert len(batches) == len(list((root / "commitlog").iterdir())) == 2


def test_topics_are_judged_once() -> None:
    asked: list[str] = []

    def is_wanted(topic: str) -> bool:
        asked.append(topic)
        return topic == "Orders"

    choice = TopicChoice(is_wanted)
    assert [topic in choice for topic in (b"Orders", b"Bills", b"Orders", b"\xff")] == [True, False, True, False]
    assert asked == ["Orders", "Bills", "\ufffd"]
    assert (list(choice), len(choice)) == ([b"Orders"], 1)
