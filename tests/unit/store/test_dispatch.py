"""Dispatch: what queue and index get of a record, when it is appended and when it is found again."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.config import StoreOptions, parse_delay_levels
from eruca.store.consumequeue import FILLER_SIZE, Entry
from eruca.store.dispatch import Dispatch, has_queue_entry
from eruca.store.index import Index
from eruca.store.queues import Queues
from eruca.store.scan import RecordFacts
from eruca.testing import VirtualClock
from eruca.testing.faults import SimulatedDisk
from eruca.wire import hot
from eruca.wire.digest import index_prefix
from eruca.wire.javahash import java_hash
from eruca.wire.names import SCHEDULE_TOPIC
from eruca.wire.properties import encode_properties
from eruca.wire.sysflag import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.unit.store.samples import ROOT, make_disk
from tests.unit.wire.test_hot import load_source

LEVELS = parse_delay_levels(StoreOptions().delay_levels)
NOW = 1_700_000_000_000


def make_dispatch(disk: SimulatedDisk | None = None, *, with_index: bool = True) -> Dispatch:
    """Dispatch into empty queues and an empty index."""
    disk = disk or make_disk()
    queues = Queues(disk, ROOT / "consumequeue", 200)
    index = Index(disk, ROOT / "index", 16, 64, VirtualClock()) if with_index else None
    return Dispatch(queues, index, LEVELS)


def facts(
    offset: int, position: int, topic: bytes = b"t", queue_id: int = 0, sys_flag: int = 0, **properties: str
) -> RecordFacts:
    """What a walk over the log says of a record of 100 bytes."""
    return position, 100, topic, queue_id, offset, sys_flag, NOW, encode_properties(properties)


def entries_of(dispatch: Dispatch, topic: str = "t", queue_id: int = 0) -> list[Entry | None]:
    """All entries of a queue."""
    queue = dispatch.queues.get(topic, queue_id)
    return [] if queue is None else [queue.entry(n) for n in range(queue.min_offset, queue.max_offset)]


@pytest.mark.parametrize(
    ("sys_flag", "shown"),
    [
        (0, True),
        (COMPRESSED, True),
        (TRANSACTION_COMMIT, True),
        (TRANSACTION_PREPARED, False),
        (TRANSACTION_ROLLBACK, False),
        (TRANSACTION_PREPARED | COMPRESSED, False),
    ],
)
def test_undecided_and_rolled_back_records_have_no_entry(sys_flag: int, shown: bool) -> None:
    assert has_queue_entry(sys_flag) is shown
    dispatch = make_dispatch()
    dispatch.replay(facts(0, 0, sys_flag=sys_flag, TAGS="x"), into_index=True)
    assert len(entries_of(dispatch)) == shown


def test_keys_of_all_but_rolled_back_records_are_indexed() -> None:
    for sys_flag, count in ((0, 2), (TRANSACTION_PREPARED, 2), (TRANSACTION_COMMIT, 2), (TRANSACTION_ROLLBACK, 0)):
        _, hashes = make_dispatch().digest(
            "t", index_prefix("t"), encode_properties({"KEYS": "a", "UNIQ_KEY": "b"}), NOW, sys_flag
        )
        assert len(hashes) == count
    assert make_dispatch(with_index=False).digest("t", 0, b"KEYS\x01a", NOW, 0) == (0, [])


@pytest.mark.parametrize(
    ("level", "due"),
    [
        ("1", NOW + 1000),
        ("2", NOW + 5000),
        ("18", NOW + 7_200_000),
        ("19", NOW + 7_200_000),
        ("9999999999999999999", NOW + 7_200_000),
        ("0", java_hash("x")),
        ("-3", java_hash("x")),
        ("three", java_hash("x")),
        ("٣", java_hash("x")),
    ],
)
def test_in_the_delay_topic_the_code_is_when_a_message_is_due(level: str, due: int) -> None:
    properties = encode_properties({"DELAY": level, "TAGS": "x"})
    assert make_dispatch().digest(SCHEDULE_TOPIC, 0, properties, NOW, 0)[0] == due
    assert make_dispatch().digest("orders", 0, properties, NOW, 0)[0] == java_hash("x")


def test_a_replayed_record_is_written_once() -> None:
    dispatch = make_dispatch()
    for _ in range(2):
        for offset in range(12):
            dispatch.replay(facts(offset, offset * 100, TAGS="x", KEYS="k"), into_index=False)
    code = java_hash("x")
    assert entries_of(dispatch) == [Entry(offset * 100, 100, code) for offset in range(12)]
    queue = dispatch.queues.get("t", 0)
    assert queue is not None and queue.next_offset == 12
    assert dispatch.index is not None and dispatch.index.files == []


def test_replay_indexes_only_when_told() -> None:
    dispatch = make_dispatch()
    assert dispatch.index is not None
    dispatch.replay(facts(0, 0, KEYS="k"), into_index=False)
    dispatch.replay(facts(1, 100, KEYS="k"), into_index=True)
    assert dispatch.index.find("t", "k", 0, 2**60, 10) == [100]


@given(st.integers(1, 45))
def test_a_queue_whose_first_records_are_gone_begins_later(offset: int) -> None:
    dispatch = make_dispatch()
    dispatch.replay(facts(offset, 5000), into_index=True)
    queue = dispatch.queues.get("t", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
    assert queue.entry(offset) == Entry(5000, 100, 0)


def test_offsets_lost_to_damage_point_at_it(caplog: pytest.LogCaptureFixture) -> None:
    dispatch = make_dispatch()
    dispatch.replay(facts(0, 0), into_index=True)
    dispatch.last_damage = (100, 1350)
    with caplog.at_level(logging.ERROR):
        dispatch.replay(facts(14, 1450), into_index=True)
    assert entries_of(dispatch) == [Entry(0, 100, 0), *[Entry(100, 1350, 0)] * 13, Entry(1450, 100, 0)]
    assert "messages 1 to 13 are lost" in caplog.text


def test_a_record_that_claims_an_impossible_offset_stays_out(caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit in the offset has no checksum; more messages than fit between two records cannot be lost."""
    dispatch = make_dispatch()
    dispatch.replay(facts(0, 0), into_index=True)
    with caplog.at_level(logging.ERROR):
        dispatch.replay(facts(2**40, 1000), into_index=True)
    dispatch.replay(facts(1, 1100), into_index=True)
    assert entries_of(dispatch) == [Entry(0, 100, 0), Entry(1100, 100, 0)]
    assert "stays out of it" in caplog.text


def test_offsets_lost_without_a_trace_are_fillers_that_keep_positions_in_order() -> None:
    dispatch = make_dispatch()
    dispatch.replay(facts(0, 1000), into_index=True)
    dispatch.replay(facts(3, 2000), into_index=True)
    queue = dispatch.queues.get("t", 0)
    assert queue is not None
    sizes = [entry.size for entry in entries_of(dispatch) if entry is not None]
    assert sizes == [100, FILLER_SIZE, FILLER_SIZE, 100]
    for position, offset in ((0, 0), (1000, 0), (1001, 1), (2000, 3), (2001, 4)):
        assert queue.find_position(position) == offset


@pytest.mark.parametrize(("topic", "queue_id"), [(b"a/b", 0), (b"\xff", 0), (b"", 0), (b"t", -1)])
def test_a_record_with_an_impossible_queue_stays_out(
    topic: bytes, queue_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = make_disk()
    dispatch = make_dispatch(disk)
    with caplog.at_level(logging.ERROR):
        dispatch.replay(facts(0, 0, topic=topic, queue_id=queue_id), into_index=True)
    assert "stays out of the consume queues" in caplog.text
    assert len(dispatch.queues) == 0
    assert disk.files() == []


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2), st.sampled_from((0, TRANSACTION_COMMIT)))))
def test_records_of_a_queue_in_a_row_are_dispatched_as_each_alone(rows: list[tuple[int, int, int]]) -> None:
    """Whatever comes between them, and however many files of queue and index they fill."""
    run: list[RecordFacts] = []
    ends = [0, 0, 0]
    for count, queue_id, sys_flag in rows:
        for _ in range(count):
            number = len(run)
            keys = {"KEYS": f"a{number} b", "TAGS": f"t{number}", "UNIQ_KEY": f"u{number}"} if number % 3 else {}
            run.append(facts(ends[queue_id], 100 * number + 7, b"t", queue_id, sys_flag, **keys))
            ends[queue_id] += 1
    disks = make_disk(), make_disk()
    alone, together = (make_dispatch(disk) for disk in disks)
    for each in run:
        alone.replay(each, into_index=True)
    grown = together.replay_run(run, -1)
    assert {(queue.queue_id, begin) for queue, begin in grown.items()} == {(n, 0) for n in range(3) if ends[n]}
    assert together.replayed == (run[-1] if run else None)
    for queue_id, end in enumerate(ends):
        assert entries_of(together, queue_id=queue_id) == entries_of(alone, queue_id=queue_id)
        if end:
            queue = together.queues.get("t", queue_id)
            assert queue is not None
            assert (queue.max_offset, queue.next_offset) == (end, end)
    assert alone.index is not None
    assert together.index is not None
    assert [bytes(file.buffer) for file in together.index.files] == [bytes(file.buffer) for file in alone.index.files]


def test_a_run_is_dispatched_alike_built_and_plain() -> None:
    run = [facts(n, 100 * n, TAGS=f"t{n}", KEYS="a b") for n in range(5)] + [facts(9, 900)]
    found: list[tuple[bytearray, bytearray]] = []
    for module in (hot, load_source("hot", with_cython=True), load_source("hot", with_cython=False)):
        entries, index = bytearray(200), bytearray(40 + 4 * 7 + 20 * 20)
        done = module.dispatch_run(run, 1, entries, 20, 9, 1, index_prefix("t"), index, 7, 20)
        assert done == (4, 8)
        # No room for the second record's keys, none for its entry, none at all.
        for room, index_room, fitting in ((9, 3, (1, 2)), (1, 20, (1, 2)), (0, 20, (0, 0))):
            spare = bytearray(index)
            told = run, 1, bytearray(200), 20, room, 1, index_prefix("t"), spare, 7, index_room
            assert module.dispatch_run(*told) == fitting
        with pytest.raises(ValueError, match="not inside"):
            module.dispatch_run(run, 1, entries, 20, 10, 1, 0, index, 7, 20)
        found.append((entries, index))
    assert found[0] == found[1] == found[2]
