"""Dispatch: what queue and index get of a record, when it is appended and when it is found again."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._store.log.scan import RecordFacts
from eruca._store.queues.consumequeue import FILLER_SIZE, Entry
from eruca._store.queues.dispatch import Dispatch, has_queue_entry
from eruca._store.queues.index import Index
from eruca._store.queues.queues import Queues
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.digest import index_prefix
from eruca._wire.javahash import java_hash
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.sysflag import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.unit.store.samples import ROOT, make_disk

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
    """The facts of a record of 100 bytes, as a walk over the log returns them."""
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
    dispatch.run_record(facts(0, 0, sys_flag=sys_flag, TAGS="x"), into_index=True)
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
            dispatch.run_record(facts(offset, offset * 100, TAGS="x", KEYS="k"), into_index=False)
    code = java_hash("x")
    assert entries_of(dispatch) == [Entry(offset * 100, 100, code) for offset in range(12)]
    queue = dispatch.queues.get("t", 0)
    assert queue is not None and queue.next_offset == 12
    assert dispatch.index is not None and dispatch.index.files == []


def test_replay_indexes_only_when_told() -> None:
    dispatch = make_dispatch()
    assert dispatch.index is not None
    dispatch.run_record(facts(0, 0, KEYS="k"), into_index=False)
    dispatch.run_record(facts(1, 100, KEYS="k"), into_index=True)
    assert dispatch.index.find("t", "k", 0, 2**60, 10) == [100]


@given(st.integers(1, 45))
def test_a_queue_whose_first_records_are_gone_begins_later(offset: int) -> None:
    dispatch = make_dispatch()
    dispatch.run_record(facts(offset, 5000), into_index=True)
    queue = dispatch.queues.get("t", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
    assert queue.entry(offset) == Entry(5000, 100, 0)


def test_offsets_lost_to_damage_point_at_it(caplog: pytest.LogCaptureFixture) -> None:
    dispatch = make_dispatch()
    dispatch.run_record(facts(0, 0), into_index=True)
    dispatch.last_damage = (100, 1350)
    with caplog.at_level(logging.ERROR):
        dispatch.run_record(facts(14, 1450), into_index=True)
    assert entries_of(dispatch) == [Entry(0, 100, 0), *[Entry(100, 1350, 0)] * 13, Entry(1450, 100, 0)]
    assert "messages 1 to 13 are lost" in caplog.text


def test_a_record_that_claims_an_impossible_offset_stays_out(caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit in the offset has no checksum; more messages than fit between two records cannot be lost."""
    dispatch = make_dispatch()
    dispatch.run_record(facts(0, 0), into_index=True)
    with caplog.at_level(logging.ERROR):
        dispatch.run_record(facts(2**40, 1000), into_index=True)
    dispatch.run_record(facts(1, 1100), into_index=True)
    assert entries_of(dispatch) == [Entry(0, 100, 0), Entry(1100, 100, 0)]
    assert "it is left out" in caplog.text


def test_offsets_lost_without_a_trace_are_fillers_that_keep_positions_in_order() -> None:
    dispatch = make_dispatch()
    dispatch.run_record(facts(0, 1000), into_index=True)
    dispatch.run_record(facts(3, 2000), into_index=True)
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
        dispatch.run_record(facts(0, 0, topic=topic, queue_id=queue_id), into_index=True)
    assert "is left out of the consume queues" in caplog.text
    assert len(dispatch.queues) == 0
    assert disk.files() == []
