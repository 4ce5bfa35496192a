"""`describe_store`, `dump_records`, `verify_store` and `rebuild_store` on stores of ours, whole and damaged."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import pytest

from eruca._store.messagestore import open_store
from eruca._store.queues.consumequeue import ENTRY, FILLER_SIZE
from eruca._store.queues.indexfile import ENTRY as INDEX_ENTRY
from eruca._store.queues.indexfile import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from eruca._storetools.dump import RecordFilter, dump_records
from eruca._storetools.readonly import Finding, Kind, Level, ReadOnlyStore
from eruca._storetools.rebuild import rebuild_store
from eruca._storetools.summary import describe_store, measure_log
from eruca._storetools.verify import format_ranges, verify_opened, verify_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.record import Record, encode_record
from eruca._wire.sysflag import COMPRESSED, COMPRESSION_ZLIB, TRANSACTION_COMMIT
from eruca.errors import StoreError, StoreLayoutError, StoreLocked
from tests.store_samples import (
    OPTIONS,
    PROPERTIES,
    START_MS,
    append_messages,
    fill_store,
    find_segment,
    flip,
    forget_promises,
    hash_files,
    patch,
    read_all,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def errors_of(root: Path, kind: Kind | None = None) -> list[Finding]:
    report = verify_store(root)
    found = [f for f in report.findings if f.level is Level.ERROR and kind in (None, f.kind)]
    assert report.clean == (report.errors == 0)
    return found


def queue_file(root: Path, topic: str = "Orders", queue: int = 0, segment: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue) / f"{segment * 400:020d}"


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


# --- looking --------------------------------------------------------------------------------------------------------


def test_stat_says_what_is_in_the_store(root: Path) -> None:
    messages = fill_store(root)
    before = hash_files(root)
    summary = describe_store(root)
    assert summary.messages == len(messages)
    assert [(t.topic, t.queues, t.messages) for t in summary.topics] == [("Bills", 1, 30), ("Orders", 2, 90)]
    assert [(q.topic, q.queue, q.min_offset, q.max_offset) for q in summary.queues] == [
        ("Bills", 1, 0, 30),
        ("Orders", 0, 0, 60),
        ("Orders", 1, 0, 30),
    ]
    assert summary.log.segment_bytes == 8192
    assert (summary.log.start, summary.log.end) == (0, messages[-1].position + messages[-1].size)
    assert summary.log.first_store_time == messages[0].store_timestamp
    assert summary.log.last_store_time == messages[-1].store_timestamp
    assert sum(file.entries for file in summary.index) == 3 * len(messages)
    assert summary.index[0].entries == summary.index[0].entries_max == 199
    assert summary.checkpoint is not None
    assert summary.checkpoint.queue_time == messages[-1].store_timestamp
    assert [(t.name, t.entries, t.has_backup) for t in summary.tables] == [
        ("consumerOffset.json", 1, True),
        ("topics.json", 2, True),
    ]
    assert not summary.aborted
    assert not summary.damage
    assert not summary.findings
    assert measure_log(root) == summary.log.end
    assert hash_files(root) == before


def test_stat_finds_the_end_without_consume_queues(root: Path) -> None:
    messages = fill_store(root)
    shutil.rmtree(root / "consumequeue")
    assert describe_store(root).log.end == messages[-1].position + messages[-1].size


def test_an_empty_store_is_clean(root: Path) -> None:
    open_store(root, OPTIONS).close()
    summary = describe_store(root)
    assert (summary.messages, summary.log.segments, summary.log.end) == (0, 0, 0)
    assert verify_store(root).clean
    assert list(dump_records(root)) == []
    with pytest.raises(StoreError, match="empty"):
        rebuild_store(root)


def test_an_open_store_can_be_looked_at(root: Path) -> None:
    clock = VirtualClock(START_MS)
    store = open_store(root, OPTIONS, clock=clock)
    append_messages(store, clock, 50)
    before = hash_files(root)
    assert describe_store(root).aborted
    report = verify_store(root)
    assert report.clean
    assert [finding.kind for finding in report.findings] == [Kind.OPEN]
    assert (report.records, report.queue_entries, report.index_entries) == (50, 50, 150)
    assert len(list(dump_records(root))) == 50
    assert hash_files(root) == before
    with pytest.raises(StoreLocked):
        rebuild_store(root)
    append_messages(store, clock, 50)
    assert verify_store(root).records == 100
    store.close()
    assert not verify_store(root).findings


@pytest.mark.parametrize("before", [0, 30, 66, 100])
@pytest.mark.parametrize("after", [1, 10, 120])
def test_a_broker_may_go_on_while_its_store_is_verified(root: Path, before: int, after: int) -> None:
    clock = VirtualClock(START_MS)
    store = open_store(root, OPTIONS, clock=clock)
    append_messages(store, clock, before)
    with ReadOnlyStore(root) as view:
        append_messages(store, clock, after)
        report = verify_opened(view)
    store.close()
    assert [finding.kind for finding in report.findings] == [Kind.OPEN]
    assert before <= report.records <= before + after


def test_progress_counts_the_bytes_of_the_log(root: Path) -> None:
    fill_store(root)
    length = describe_store(root).log.end
    told: list[int] = []
    verify_store(root, progress=told.append)
    assert min(told) >= 0
    assert length < sum(told) <= 2 * length
    told.clear()
    rebuild_store(root, progress=told.append)
    assert 2 * length < sum(told) <= 3 * length


# --- dump -----------------------------------------------------------------------------------------------------------


def test_dump_shows_every_record_in_order(root: Path) -> None:
    messages = fill_store(root)
    rows = list(dump_records(root))
    assert [row.position for row in rows] == [message.position for message in messages]
    row, message = rows[5], messages[5]
    assert (row.topic, row.queue, row.offset, row.size) == ("Orders", 1, message.queue_offset, message.size)
    assert (row.tags, row.keys, row.unique_id) == ("Tag2", ["key-5", "common"], f"{5:032X}")
    assert (row.store_time, row.born_time) == (message.store_timestamp, message.born_timestamp)
    assert row.body == message.body.decode()
    assert (row.body_is_text, row.body_is_cut, row.crc_ok) == (True, False, True)
    assert row.properties["TAGS"] == "Tag2"
    assert row.born_host == "0.0.0.0:0"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RecordFilter(topic="Bills"), list(range(3, 120, 4))),
        (RecordFilter(topic="Orders", queue=0), [n for n in range(120) if n % 2 == 0]),
        (RecordFilter(key="key-17"), [17]),
        (RecordFilter(key=f"{42:032X}"), [42]),
        (RecordFilter(key="common", topic="Bills", queue=0), []),
        (RecordFilter(from_time=START_MS + 100_000, to_time=START_MS + 103_000), [99, 100, 101, 102]),
        (RecordFilter(to_time=START_MS), []),
    ],
)
def test_dump_takes_only_what_is_wanted(root: Path, wanted: RecordFilter, expected: list[int]) -> None:
    messages = fill_store(root)
    rows = list(dump_records(root, wanted))
    assert [row.position for row in rows] == [messages[number].position for number in expected]


def test_dump_starts_and_stops_at_positions(root: Path) -> None:
    messages = fill_store(root)
    low, high = messages[40].position, messages[90].position
    expected = [message.position for message in messages[40:90]]
    assert [row.position for row in dump_records(root, RecordFilter(from_position=low, to_position=high))] == expected
    # A position inside a record: the next record is the first.
    inside = [row.position for row in dump_records(root, RecordFilter(from_position=low - 7), limit=1)]
    assert inside == [low]
    assert len(list(dump_records(root, limit=7))) == 7


def test_dump_shows_bodies_as_well_as_they_can_be_shown(root: Path) -> None:
    store = open_store(root, OPTIONS, clock=VirtualClock(START_MS))
    text = "grün-" * 100
    flags = COMPRESSED | COMPRESSION_ZLIB | TRANSACTION_COMMIT
    store.append(Record("T", body=zlib.compress(text.encode()), sys_flag=flags))
    store.append(Record("T", body=b"\x00\x01\xff"))
    store.append(Record("T", body="é".encode() * 100))
    store.append(Record("T", body=b"not zlib", sys_flag=COMPRESSED))
    store.append(Record("T"))
    store.append(Record("T", body=b"\x1b[31mred"))
    store.close()
    rows = list(dump_records(root, body_bytes=7))
    assert [row.body for row in rows] == ["grün-g", "0001ff", "ééé", "not zli", "", "1b5b33316d7265"]
    assert [row.body_is_text for row in rows] == [True, False, True, True, True, False]
    assert [row.body_is_cut for row in rows] == [True, False, True, True, False, True]
    assert rows[0].sys_flag_words == ["compressed-zlib", "commit"]


# --- verify: the log ------------------------------------------------------------------------------------------------


def test_verify_finds_nothing_wrong_with_a_good_store(root: Path) -> None:
    messages = fill_store(root)
    before = hash_files(root)
    report = verify_store(root)
    assert report.clean
    assert not report.findings
    assert (report.records, report.queues, report.queue_entries) == (len(messages), 3, len(messages))
    assert report.index_entries == 3 * len(messages)
    assert report.log_end == messages[-1].position + messages[-1].size
    assert hash_files(root) == before


@pytest.mark.parametrize("place", ["body", "size", "magic", "topic length", "zeros"])
def test_verify_names_damage_in_the_middle_and_later_records_stay(root: Path, place: str) -> None:
    messages = fill_store(root)
    hurt = messages[60]
    path, at = find_segment(root, hurt.position)
    if place == "zeros":
        patch(path, at, bytes(hurt.size))
    else:
        flip(path, at + {"body": 90, "size": 2, "magic": 5, "topic length": 88 + len(hurt.body)}[place])
    report = verify_store(root)
    assert not report.clean
    damage = [finding for finding in report.findings if finding.kind is Kind.DAMAGE]
    assert [(f.path, f.position, f.length) for f in damage] == [(str(path), hurt.position, hurt.size)]
    lost = [finding for finding in report.findings if finding.kind is Kind.LOST]
    assert len(lost) == 1
    assert lost[0].path.endswith(f"{hurt.topic}/{hurt.queue_id}")
    assert lost[0].reason.endswith(f"offsets {hurt.queue_offset}")
    assert report.errors == 2
    assert report.records == len(messages) - 1
    good = [row.position for row in dump_records(root) if row.crc_ok]
    assert good == [message.position for message in messages if message is not hurt]
    store = open_store(root, OPTIONS)
    found = read_all(store)
    store.close()
    expected = {(m.topic, m.queue_id, m.queue_offset): m for m in messages if m is not hurt}
    assert found.keys() == expected.keys()
    assert all(record.find(expected[key].body) > 0 for key, record in found.items())


def test_verify_names_damage_across_segments(root: Path) -> None:
    messages = fill_store(root)
    boundary = 2 * 8192
    last_before = max((m for m in messages if m.position < boundary), key=lambda m: m.position)
    first_after = min((m for m in messages if m.position >= boundary), key=lambda m: m.position)
    following = messages[messages.index(first_after) + 1]
    path, at = find_segment(root, last_before.position)
    patch(path, at, bytes(8192 - at))  # the last record and the end-of-segment record after it
    patch(root / "commitlog" / f"{boundary:020d}", 0, bytes(first_after.size))
    damage = errors_of(root, Kind.DAMAGE)
    assert [(f.position, f.length) for f in damage] == [
        (last_before.position, following.position - last_before.position)
    ]


def test_verify_names_the_torn_tail(root: Path) -> None:
    messages = fill_store(root)
    last = messages[-1]
    path, at = find_segment(root, last.position)
    patch(path, at + last.size - 20, bytes(20))
    (root / "abort").touch()
    forget_promises(root)
    report = verify_store(root)
    torn = [finding for finding in report.findings if finding.level is Level.ERROR]
    assert [(f.kind, f.path, f.position) for f in torn] == [(Kind.TORN_TAIL, str(path), last.position)]
    # Its entries are still there; the next start removes them.
    warned = [(f.kind, f.position) for f in report.findings if f.kind in (Kind.QUEUE, Kind.INDEX)]
    assert (Kind.QUEUE, last.position) in warned
    assert report.log_end == last.position
    open_store(root, OPTIONS).close()
    assert verify_store(root).clean


def test_verify_goes_on_behind_a_missing_segment(root: Path) -> None:
    messages = fill_store(root)
    (root / "commitlog" / f"{8192:020d}").unlink()
    report = verify_store(root)
    gap = next(f for f in report.findings if f.kind is Kind.LAYOUT)
    assert (gap.position, gap.length) == (8192, 8192)
    kept = [m for m in messages if not 8192 <= m.position < 16384]
    assert report.records == len(kept)
    assert [row.position for row in dump_records(root)] == [m.position for m in kept]
    assert {f.kind for f in report.findings} == {Kind.LAYOUT, Kind.LOST}
    assert describe_store(root).log.end == messages[-1].position + messages[-1].size


def test_verify_names_a_record_with_an_impossible_topic(root: Path) -> None:
    messages = fill_store(root, 5)
    end = messages[-1].position + messages[-1].size
    path, at = find_segment(root, end)
    patch(path, at, encode_record(Record("../../etc", position=end, body=b"x", store_timestamp=START_MS)))
    found = errors_of(root)
    assert [(f.kind, f.position) for f in found] == [(Kind.RECORD, end)]
    assert "../../etc" in found[0].reason


# --- verify: consume queues -----------------------------------------------------------------------------------------


def test_verify_checks_every_entry_against_its_record(root: Path) -> None:
    fill_store(root)
    path = queue_file(root, "Orders", 0, 1)
    entry = ENTRY.unpack_from(path.read_bytes(), 60)
    patch(path, 60, ENTRY.pack(entry[0] + 1, entry[1], entry[2]))
    found = errors_of(root)
    assert {f.kind for f in found} == {Kind.QUEUE}
    assert all("offset 23" in f.reason and f.path.endswith("Orders/0") for f in found)
    assert any(f.position == entry[0] for f in found)


def test_verify_checks_tags_codes(root: Path) -> None:
    fill_store(root)
    path = queue_file(root)
    entry = ENTRY.unpack_from(path.read_bytes(), 40)
    patch(path, 40, ENTRY.pack(entry[0], entry[1], entry[2] + 1))
    found = errors_of(root)
    assert [(f.kind, f.position) for f in found] == [(Kind.QUEUE, entry[0])]
    assert "tags code" in found[0].reason


def test_verify_finds_an_entry_of_another_queue(root: Path) -> None:
    fill_store(root)
    other = ENTRY.unpack_from(queue_file(root, "Bills", 1).read_bytes(), 0)
    patch(queue_file(root), 100, ENTRY.pack(*other))
    found = errors_of(root)
    assert any("Bills queue 1 offset 0" in f.reason for f in found)
    assert all("offset 5" in f.reason for f in found)


def test_verify_finds_a_hole_in_a_queue(root: Path) -> None:
    fill_store(root)
    patch(queue_file(root, segment=1), 0, bytes(20))
    found = errors_of(root)
    assert found
    assert {f.kind for f in found} == {Kind.QUEUE}


def test_verify_finds_a_record_without_an_entry(root: Path) -> None:
    messages = fill_store(root)
    shutil.rmtree(root / "consumequeue" / "Bills")
    found = errors_of(root)
    assert [(f.kind, f.position) for f in found] == [(Kind.QUEUE, messages[3].position)]
    assert "30 records have no entry: offsets 0 to 29" in found[0].reason
    # A marker of a crash does not make it harmless: recovery would not look that far back.
    (root / "abort").touch()
    assert len(errors_of(root)) == 1


def test_what_the_next_start_repairs_is_a_warning(root: Path) -> None:
    fill_store(root)
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    report = verify_store(root)
    assert report.clean
    assert sorted(f.kind.value for f in report.findings) == ["consume-queue"] * 3 + ["not-closed"]
    open_store(root, OPTIONS).close()
    report = verify_store(root)
    assert report.clean
    assert not report.warnings


def test_verify_finds_an_entry_behind_the_end(root: Path) -> None:
    messages = fill_store(root)
    end = messages[-1].position + messages[-1].size
    patch(queue_file(root, "Bills", 1, 1), 200, ENTRY.pack(end, 100, 0))
    found = errors_of(root)
    assert [(f.kind, f.position) for f in found] == [(Kind.QUEUE, end)]


# --- verify: the index ----------------------------------------------------------------------------------------------


def index_entry_at(number: int) -> int:
    return HEADER_BYTES + 50 * SLOT_BYTES + number * ENTRY_BYTES


@pytest.mark.parametrize(
    ("field", "number", "expected"),
    [("hash", 20, "key"), ("low position", 20, "out of order"), ("high position", 20, "out of order")],
)
def test_verify_checks_index_entries(root: Path, field: str, number: int, expected: str) -> None:
    fill_store(root)
    path = index_file(root)
    at = index_entry_at(number)
    key_hash, position, seconds, previous = INDEX_ENTRY.unpack_from(path.read_bytes(), at)
    wrong = {
        "hash": (key_hash + 50, position, seconds, previous),  # the same slot, so that its chain is still right
        "low position": (key_hash, 1, seconds, previous),
        "high position": (key_hash, 20_000, seconds, previous),
    }[field]
    patch(path, at, INDEX_ENTRY.pack(*wrong))
    report = verify_store(root)
    found = [f for f in report.findings if f.level is Level.ERROR]
    assert [(f.kind, f.path) for f in found] == [(Kind.INDEX, str(path))]
    assert f"entry {number}:" in found[0].reason
    assert expected in found[0].reason
    # The key with the wrong entry cannot be found anymore, and that is reported too.
    assert [f.reason for f in report.findings if f.level is Level.WARNING] == [
        f"1 records cannot be found by key, the first at {position}"
    ]


def test_verify_checks_index_times(root: Path) -> None:
    fill_store(root)
    at = index_entry_at(100)
    fields = INDEX_ENTRY.unpack_from(index_file(root).read_bytes(), at)
    patch(index_file(root), at, INDEX_ENTRY.pack(fields[0], fields[1], fields[2] + 60, fields[3]))
    assert "entry 100: 93 seconds" in errors_of(root, Kind.INDEX)[0].reason


def test_verify_finds_a_circle_in_a_hash_chain(root: Path) -> None:
    fill_store(root)
    at = index_entry_at(150)
    fields = INDEX_ENTRY.unpack_from(index_file(root).read_bytes(), at)
    patch(index_file(root), at, INDEX_ENTRY.pack(*fields[:3], 150))
    found = errors_of(root)
    assert len(found) == 1
    assert "entry 150: its chain continues at entry 150" in found[0].reason


def test_verify_checks_slots_and_header(root: Path) -> None:
    fill_store(root)
    slots = struct.unpack(">50i", index_file(root).read_bytes()[40:240])
    slot = next(number for number, value in enumerate(slots) if value)
    patch(index_file(root), HEADER_BYTES + 4 * slot, struct.pack(">i", slots[slot] - 1))
    assert f"slot {slot} points to entry {slots[slot] - 1}" in errors_of(root, Kind.INDEX)[0].reason
    patch(index_file(root), HEADER_BYTES + 4 * slot, struct.pack(">i", slots[slot]))
    flip(index_file(root), 35)
    assert "the header has" in errors_of(root, Kind.INDEX)[0].reason


def test_verify_says_which_records_have_no_index_entry(root: Path) -> None:
    messages = fill_store(root)
    index_file(root, 1).unlink()
    report = verify_store(root)
    assert report.clean
    assert [f.level for f in report.findings] == [Level.WARNING]
    assert report.findings[0].position == messages[66].position  # 199 entries are in the first file


def test_many_findings_of_a_kind_are_counted_but_not_all_kept(root: Path) -> None:
    fill_store(root, 240)
    for path in sorted((root / "index").iterdir())[:2]:
        data = path.read_bytes()
        for number in range(1, 180):
            fields = INDEX_ENTRY.unpack_from(data, index_entry_at(number))
            patch(path, index_entry_at(number), INDEX_ENTRY.pack(fields[0] + 50, *fields[1:]))
    report = verify_store(root)
    assert len(report.findings) == 101
    assert report.findings_left_out == report.errors + report.warnings - 101
    assert report.errors == 358


# --- verify: tables and the rest ------------------------------------------------------------------------------------


def test_verify_checks_the_tables(root: Path) -> None:
    fill_store(root)
    table = root / "config" / "topics.json"
    good = table.read_bytes()
    table.write_bytes(good[: len(good) // 2])
    report = verify_store(root)
    assert report.clean
    assert [(f.kind, f.level, f.path) for f in report.findings] == [(Kind.TABLE, Level.WARNING, str(table))]
    (root / "config" / "topics.json.bak").write_bytes(b"{")
    found = errors_of(root)
    assert [(f.kind, f.path) for f in found] == [(Kind.TABLE, str(table))]
    assert "by hand" in found[0].hint
    assert next(t for t in describe_store(root).tables if t.name == "topics.json").problem


def test_verify_goes_on_after_files_that_do_not_fit(root: Path) -> None:
    messages = fill_store(root)
    (root / "commitlog" / "notes.txt").write_bytes(b"mine")
    (root / "commitlog" / f"{7:020d}").write_bytes(bytes(8192))
    (root / "consumequeue" / "stray").write_bytes(b"")
    (root / "consumequeue" / "a.b").mkdir()
    (root / "consumequeue" / "Orders" / "x").mkdir()
    queue_file(root, "Bills", 1, 1).write_bytes(bytes(100))
    (root / "index" / "20200101000000000").write_bytes(bytes(77))
    (root / "index" / "readme").write_bytes(b"")
    (root / "checkpoint").write_bytes(b"short")
    before = hash_files(root)
    report = verify_store(root)
    assert report.records == len(messages)
    named = {Path(f.path).name for f in report.findings if f.kind is Kind.LAYOUT}
    expected = {"notes.txt", f"{7:020d}", "stray", "a.b", "x", "1", "20200101000000000", "readme"}
    assert named == expected
    assert any(f.kind is Kind.CHECKPOINT for f in report.findings)
    assert all(f.hint for f in report.findings if f.kind is Kind.LAYOUT)
    assert describe_store(root).findings
    assert hash_files(root) == before


def test_a_directory_that_is_no_store_is_refused_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a directory"):
        describe_store(tmp_path / "nothing")
    fill_store(tmp_path / "store", 3)
    with pytest.raises(StoreError, match=str(tmp_path / "store")):
        describe_store(tmp_path)
    with pytest.raises(StoreError, match=f"try {tmp_path / 'store'}"):
        describe_store(tmp_path / "store" / "commitlog")


def test_ranges_are_short() -> None:
    assert format_ranges([3, 4, 5, 9]) == "3-5, 9"
    assert format_ranges(list(range(0, 100, 2))).endswith("16, 18, ...")


# --- rebuild --------------------------------------------------------------------------------------------------------


def read_derived(root: Path) -> dict[str, bytes]:
    """All bytes of consume queues by name, and of index files by age, because their names are times."""
    queues = root / "consumequeue"
    found = {str(path.relative_to(queues)): path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    return found | {f"index {n}": path.read_bytes() for n, path in enumerate(sorted((root / "index").iterdir()))}


def test_rebuild_makes_the_same_bytes_again(root: Path) -> None:
    messages = fill_store(root)
    before = hash_files(root)
    derived = read_derived(root)
    report = rebuild_store(root, clock=VirtualClock(START_MS))
    assert read_derived(root) == derived
    assert (report.records, report.queues, report.queue_entries) == (len(messages), 3, len(messages))
    assert len(report.kept) == 2
    kept = {Path(path).name.partition(".old-")[0]: Path(path) for path in report.kept}
    assert kept.keys() == {"consumequeue", "index"}
    after = hash_files(root)
    for name, digest in before.items():
        part, _, rest = name.partition("/")
        old = f"{kept[part].name}/{rest}" if part in kept else name
        if name != "config/erucaQueueEnds":  # it described the old files
            assert after[old] == digest, name
    assert not list(root.glob("*.rebuilding"))
    assert not (root / "abort").exists()
    assert verify_store(root).clean
    store = open_store(root, OPTIONS)
    assert len(read_all(store)) == len(messages)
    assert len(store.reader.find_by_key("Orders", "key-16", 0, 2**62)) == 1
    store.close()


def test_rebuild_from_nothing_but_the_log(root: Path) -> None:
    fill_store(root)
    derived = read_derived(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    report = rebuild_store(root, PROPERTIES)
    assert report.kept == []
    assert read_derived(root) == derived


def test_rebuild_repairs_what_verify_found(root: Path) -> None:
    fill_store(root)
    derived = read_derived(root)
    patch(queue_file(root), 40, b"\x55" * 60)
    patch(index_file(root), 300, b"\x55" * 600)
    (root / "index" / "readme").write_bytes(b"keep me")
    assert errors_of(root)
    report = rebuild_store(root, drop_old=False)
    assert not verify_store(root).findings
    assert read_derived(root) == derived
    assert any((Path(path) / "readme").exists() for path in report.kept)


def test_rebuild_can_drop_the_old_files_and_run_twice(root: Path) -> None:
    fill_store(root)
    clock = VirtualClock(START_MS)
    assert len(rebuild_store(root, clock=clock).kept) == 2
    assert len(rebuild_store(root, clock=clock).kept) == 2  # in the same second
    assert len(list(root.glob("*.old-*"))) == 4
    assert rebuild_store(root, drop_old=True).kept == []
    assert len(list(root.glob("*.old-*"))) == 4
    assert verify_store(root).clean


def test_rebuild_to_other_sizes(root: Path) -> None:
    messages = fill_store(root)
    sizes = {"mappedFileSizeConsumeQueue": "1000", "maxHashSlotNum": "100", "maxIndexNum": "1000"}
    rebuild_store(root, sizes, drop_old=True)
    assert {path.stat().st_size for path in (root / "consumequeue").rglob("0" * 16 + "*")} == {1000}
    assert [path.stat().st_size for path in (root / "index").iterdir()] == [40 + 400 + 20_000]
    assert verify_store(root, sizes).clean
    # 1000 entries for 100 slots cannot be derived from the size alone, so nothing is guessed.
    with pytest.raises(StoreLayoutError, match="how many slots"):
        rebuild_store(root)
    assert verify_store(root, sizes).queue_entries == len(messages)


def test_rebuild_without_index_leaves_it_alone(root: Path) -> None:
    fill_store(root)
    before = {name: digest for name, digest in hash_files(root).items() if name.startswith("index/")}
    rebuild_store(root, {"messageIndexEnable": "false"})
    assert {name: digest for name, digest in hash_files(root).items() if name.startswith("index/")} == before


def test_rebuild_keeps_the_offsets_behind_damage(root: Path) -> None:
    messages = fill_store(root)
    hurt = messages[60]
    path, at = find_segment(root, hurt.position)
    patch(path, at, b"\x00" * hurt.size)
    log = path.read_bytes()
    report = rebuild_store(root)
    assert [f.kind for f in report.findings] == [Kind.DAMAGE, Kind.LOST]
    assert path.read_bytes() == log
    store = open_store(root, OPTIONS)
    found = read_all(store)
    store.close()
    assert found.keys() == {(m.topic, m.queue_id, m.queue_offset) for m in messages if m is not hurt}


def test_rebuild_keeps_the_offset_of_a_queue_without_records(root: Path) -> None:
    messages = fill_store(root)
    # The queue "Bills" was last written long ago: its records go with the first segments.
    store = open_store(root, OPTIONS, clock=VirtualClock(START_MS + 10**6))
    fresh = [store.append(Record("Orders", queue_id=0, body=b"x" * 500)) for _ in range(40)]
    segments = store.log.chain.segments
    keep_from = max(segment.start for segment in segments if segment.start <= fresh[10].position)
    store.close()
    assert keep_from > messages[-1].position
    for path in (root / "commitlog").iterdir():
        if int(path.name) < keep_from:
            path.unlink()
    report = rebuild_store(root)
    assert report.empty_queues == ["Bills/1", "Orders/1"]
    assert not report.dropped_queues
    assert verify_store(root).clean
    store = open_store(root, OPTIONS)
    for topic, queue_id, expected in (("Bills", 1, 30), ("Orders", 1, 30), ("Orders", 0, 100)):
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.max_offset == expected
    assert store.append(Record("Bills", queue_id=1)).queue_offset == 30
    store.close()


@pytest.mark.parametrize("old_max", [19, 20, 21, 40])
def test_rebuild_keeps_an_offset_wherever_it_lies_in_a_segment(root: Path, old_max: int) -> None:
    fill_store(root, 3)
    directory = root / "consumequeue" / "Gone" / "0"
    directory.mkdir(parents=True)
    first = (old_max - 1) // 20 * 20
    entries = ENTRY.pack(0, FILLER_SIZE, 0) * (old_max - first)
    (directory / f"{first * 20:020d}").write_bytes(entries.ljust(400, b"\0"))
    assert rebuild_store(root).empty_queues == ["Gone/0"]
    store = open_store(root, OPTIONS)
    assert store.append(Record("Gone")).queue_offset == old_max
    store.close()


def test_rebuild_refuses_a_log_with_a_gap_and_changes_nothing(root: Path) -> None:
    fill_store(root)
    (root / "commitlog" / f"{8192:020d}").unlink()
    before = hash_files(root)
    with pytest.raises(StoreLayoutError, match="missing"):
        rebuild_store(root)
    assert hash_files(root) == before


def test_rebuild_does_not_hide_that_the_last_stop_was_a_crash(root: Path) -> None:
    fill_store(root)
    (root / "abort").touch()
    rebuild_store(root)
    assert (root / "abort").exists()


STORE = Path("/store")


@pytest.fixture(scope="module")
def filled_disk() -> tuple[SimulatedDisk, int]:
    """A store on the simulated disk, and how many calls a whole rebuild of it makes."""
    disk = SimulatedDisk(clock=VirtualClock(START_MS + 10**6))
    fill_store(STORE, 60, disk=disk)
    trial = disk.kill()
    rebuild_store(STORE, disk=trial, clock=trial.clock)
    return disk, trial.calls


def check_opens_with_everything(disk: SimulatedDisk, count: int = 60) -> None:
    store = open_store(STORE, OPTIONS, disk=disk, clock=disk.clock)
    assert len(read_all(store)) == count
    for number in range(0, count, 7):
        topic = "Bills" if number % 4 == 3 else "Orders"
        assert len(store.reader.find_by_key(topic, f"key-{number}", 0, 2**62)) == 1, number
    store.close()
    assert not verify_store(STORE, disk=disk).findings


@pytest.mark.parametrize("kind", ["eio", "enospc"])
def test_rebuild_with_any_call_failing_leaves_a_store_that_opens(
    filled_disk: tuple[SimulatedDisk, int], kind: str
) -> None:
    whole, calls = filled_disk
    failed = 0
    for number in range(1, calls + 1):
        disk = whole.kill()
        disk.fail(number, kind)
        try:
            rebuild_store(STORE, disk=disk, clock=disk.clock)
        except StoreError:
            failed += 1
        check_opens_with_everything(disk)
    assert failed > calls // 2


def test_rebuild_cut_by_power_loss_at_any_call_leaves_a_store_that_opens(
    filled_disk: tuple[SimulatedDisk, int],
) -> None:
    whole, calls = filled_disk
    for number in range(1, calls + 1):
        check_opens_with_everything(rebuild_with_power_loss(whole.kill(), number))


def rebuild_with_power_loss(disk: SimulatedDisk, number: int) -> SimulatedDisk:
    """What is left of a disk whose power went when call `number` of a rebuild began."""
    left: list[SimulatedDisk] = []

    def cut(call: int, operation: str, path: str) -> None:
        if call == number:
            left.append(disk.crash(seed=number))

    disk.on_call = cut
    rebuild_store(STORE, disk=disk, clock=disk.clock)
    return left[0]
