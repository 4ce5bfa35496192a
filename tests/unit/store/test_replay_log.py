"""Records in a slave's log are dispatched in runs: queues and index get the same as from each record alone.

The kernel is compared with `Dispatch.run_record` twice: as it is built, and as plain Python.
"""

from __future__ import annotations

import mmap
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._store.kernel import dispatch as compiled_loop
from eruca._store.queues.consumequeue import ConsumeQueue, Entry
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.index import Index
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca._wire.digest import index_prefix
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.record import Record, encode_record
from eruca._wire.sysflag import (
    BORN_HOST_V6,
    COMPRESSED,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from eruca.errors import StoreError
from tests.kernels import load_twins
from tests.readable import read_facts
from tests.unit.store.samples import ROOT, make_disk

LEVELS = parse_delay_levels(StoreOptions().delay_levels)
NOW = 1_700_000_000_000
TWINS = load_twins("eruca._store.kernel.dispatch")
each_twin = pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())


def make_dispatch(twin: Any, disk: SimulatedDisk | None = None, *, with_index: bool = True) -> Dispatch:
    """Dispatch into empty queues and an empty index, with small files."""
    disk = disk or make_disk()
    queues = Queues(disk, ROOT / "consumequeue", 200)
    index = Index(disk, ROOT / "index", 16, 64, VirtualClock()) if with_index else None
    dispatch = Dispatch(queues, index, LEVELS, RemovedTopics(disk, ROOT / "removed"))
    if twin is not compiled_loop:

        def learn(encoded: bytes, queue_id: int) -> Any:
            topic = encoded.decode()
            return None if topic == SCHEDULE_TOPIC else twin.Lane(topic, queue_id, index_prefix(topic))

        dispatch._replayer = twin.Replayer(learn, queues.find)
    return dispatch


class Log:
    """Consecutive records, each the next of its queue."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.data = bytearray(7)
        self.ends: dict[tuple[str, int], int] = {}

    def add(self, topic: str = "t", queue_id: int = 0, sys_flag: int = 0, properties: bytes = b"TAGS\x01a") -> None:
        """Append a record."""
        offset = 0
        if sys_flag & TRANSACTION_PREPARED == 0:
            offset = self.ends.get((topic, queue_id), 0)
            self.ends[topic, queue_id] = offset + 1
        self.data += encode_record(
            Record(
                topic,
                queue_id=queue_id,
                body=b"body",
                properties=properties,
                sys_flag=sys_flag,
                born_host=bytes(20 if sys_flag & BORN_HOST_V6 else 8),
                store_host=bytes(20 if sys_flag & STORE_HOST_V6 else 8),
                store_timestamp=NOW + len(self.data),
                queue_offset=offset,
                position=self.base + len(self.data),
            )
        )


def replay_alone(dispatch: Dispatch, log: Log) -> None:
    """Dispatch every record individually."""
    for facts in read_facts(log.data, 7, len(log.data), log.base, len(log.data)):
        dispatch.run_record(facts, into_index=True)


def replay_together(dispatch: Dispatch, log: Log, at: int = 7) -> tuple[int, list[Any]]:
    """Dispatch all records from a place on; returns how many were dispatched individually, and what grew."""
    alone, run_record = 0, dispatch.run_record

    def count(facts: Any, *, into_index: bool) -> Any:
        nonlocal alone
        alone += 1
        return run_record(facts, into_index=into_index)

    dispatch.run_record = count  # type: ignore[method-assign]
    try:
        done = dispatch.run_records(log.data, at, len(log.data), log.base)
    finally:
        dispatch.run_record = run_record  # type: ignore[method-assign]
    if done.error is not None:
        raise done.error
    assert done.end == max(at, len(log.data))
    if facts := read_facts(log.data, at, len(log.data), log.base, len(log.data)):
        assert done.store_time == facts[-1][6]
    return alone, [(queue.topic, queue.queue_id, begin) for queue, begin in done.grown]


def run_kernel(dispatch: Dispatch, log: Log, at: int, end: int | None = None) -> Any:
    """Dispatch ordinary records; returns where it ended, the last store time, what grew, and the error, if any."""
    index, removed = dispatch.index, dispatch._removed
    assert index is not None and removed is not None
    covers = None if removed.is_empty else removed.covers
    file = index.files[-1] if index.files else None
    end = len(log.data) if end is None else end
    told = (None, 0, 0) if file is None else (file.buffer, file.slots, file.room)
    stop, store_time, written, grown, trouble = dispatch._replayer.run(log.data, at, end, log.base, covers, True, *told)
    if written:
        assert file is not None
        file.add_run(written)
    return stop, store_time, grown, trouble


def list_entries(queue: ConsumeQueue) -> list[Entry | None]:
    """All entries of a queue."""
    return [queue.entry(n) for n in range(queue.min_offset, queue.max_offset)]


def expect_same(one: Dispatch, other: Dispatch) -> None:
    """Queues and index of both must be the same."""
    assert [(queue.topic, queue.queue_id) for queue in one.queues] == [(q.topic, q.queue_id) for q in other.queues]
    for mine, theirs in zip(one.queues, other.queues, strict=True):
        assert list_entries(mine) == list_entries(theirs)
        assert (mine.max_offset, mine.next_offset, mine.end_position) == (
            theirs.max_offset, theirs.next_offset, theirs.end_position,
        )  # fmt: skip
    assert (one.index is None) is (other.index is None)
    if one.index is not None and other.index is not None:
        assert [bytes(file.buffer) for file in one.index.files] == [bytes(file.buffer) for file in other.index.files]
        for file in one.index.files:
            assert file.room <= file.entries_max - file.next_entry


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["t", "orders", SCHEDULE_TOPIC]) | st.just("t"),
        st.integers(0, 3),
        st.just(0)
        | st.sampled_from(
            [COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, BORN_HOST_V6, STORE_HOST_V6]
        ),
        st.sampled_from(
            [
                b"",
                b"TAGS\x01a",
                b"UNIQ_KEY\x01u1\x02KEYS\x01a  b \x02TAGS\x01tag\x02",
                b"KEYS\x01polygenelubricants\x02TAGS\x01polygenelubricants",
                "TAGS\x01消息\x02KEYS\x01ключ b".encode(),
                b"KEYS\x01" + b" ".join(b"k%d" % n for n in range(33)),
                b"TAGS\x01\x02\x01x\x02TAGS\x02KEYS\x02UNIQ_KEY",
                b"TAGS\x01one\x02DELAY\x013\x02TAGS\x01two",
            ]
        ),
    ),
    max_size=60,
)


@each_twin
@given(rows=ROWS, with_index=st.booleans(), base=st.integers(0, 2**40))
def test_a_run_is_dispatched_as_each_record_alone(
    twin: ModuleType, rows: list[tuple[str, int, int, bytes]], with_index: bool, base: int
) -> None:
    log = Log(base)
    for row in rows:
        log.add(*row)
    alone, together = (make_dispatch(twin, with_index=with_index) for _ in range(2))
    replay_alone(alone, log)
    replay_together(together, log)
    expect_same(together, alone)


@each_twin
def test_ordinary_records_of_several_queues_are_one_run(twin: ModuleType) -> None:
    log = Log()
    for number in range(8):
        log.add("t", number % 4, properties=b"TAGS\x01a\x02UNIQ_KEY\x01u%d" % number)
    dispatch = make_dispatch(twin)
    # A queue that does not exist yet is made for its first record, and the index for its first key.
    assert replay_together(dispatch, log) == (4, [("t", n, 0) for n in range(4)])
    begin = len(log.data)
    for number in range(8):
        log.add("t", number % 4)
    assert replay_together(dispatch, log, begin) == (0, [("t", n, 2) for n in range(4)])


@each_twin
@pytest.mark.parametrize("sys_flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_what_has_no_entry_in_a_queue_ends_a_run(twin: ModuleType, sys_flag: int) -> None:
    log = Log()
    log.add()
    log.add(sys_flag=sys_flag)
    log.add()
    dispatch = make_dispatch(twin)
    assert replay_together(dispatch, log) == (2, [("t", 0, 0)])


@each_twin
def test_a_record_that_is_not_the_next_of_its_queue_ends_a_run(twin: ModuleType) -> None:
    log = Log()
    for _ in range(3):
        log.add()
    dispatch = make_dispatch(twin)
    replay_together(dispatch, log)
    assert run_kernel(dispatch, log, 7)[:3] == (7, 0, [])
    queue = dispatch.queues.get("t", 0)
    assert queue is not None
    assert queue.max_offset == 3


@each_twin
def test_a_record_of_a_topic_deleted_since_ends_a_run_and_those_behind_it_do_not(twin: ModuleType) -> None:
    log = Log()
    log.add()
    dispatch = make_dispatch(twin)
    replay_together(dispatch, log)
    begin = len(log.data)
    log.add()
    deleted = len(log.data)
    assert dispatch._removed is not None
    dispatch._removed.add("t", deleted)
    assert run_kernel(dispatch, log, begin, deleted)[:3] == (begin, 0, [])
    log.ends["t", 0] = 1
    log.add()
    assert run_kernel(dispatch, log, deleted)[0] == len(log.data)


@each_twin
def test_a_queue_that_was_deleted_gets_nothing(twin: ModuleType) -> None:
    log = Log()
    log.add()
    log.add()
    dispatch = make_dispatch(twin)
    replay_together(dispatch, log)
    old = dispatch.queues.get("t", 0)
    dispatch.queues.detach_topic("t")()
    log.ends.clear()
    begin = len(log.data)
    log.add()
    log.add()
    replay_together(dispatch, log, begin)
    new = dispatch.queues.get("t", 0)
    assert new is not None and old is not None and new is not old
    assert (old.max_offset, new.max_offset) == (0, 2)


@each_twin
def test_what_was_indexed_before_the_disk_was_full_is_not_indexed_again(twin: ModuleType) -> None:
    log = Log()
    log.add()
    log.add(properties=b"KEYS\x01k")
    dispatch = make_dispatch(twin)
    [first, second] = read_facts(log.data, 7, len(log.data), 0, 2)
    dispatch.run_record(first, into_index=True)
    assert dispatch.index is not None
    dispatch.index.add([5], second[0], NOW)
    before = bytes(dispatch.index.files[-1].buffer)
    assert run_kernel(dispatch, log, second[0])[0] == len(log.data)
    assert bytes(dispatch.index.files[-1].buffer) == before
    assert replay_together(dispatch, log)[0] == 2  # the queue has them both
    assert bytes(dispatch.index.files[-1].buffer) == before


@each_twin
def test_what_is_done_before_the_disk_fails_is_told(twin: ModuleType) -> None:
    disk = make_disk()
    log = Log()
    for queue_id in (0, 1, 1):
        log.add("t", queue_id)
    dispatch = make_dispatch(twin, disk)
    replay_together(dispatch, log)
    begin = len(log.data)
    log.add("t", 0)
    middle = len(log.data)
    log.add("t", 1)
    queues = [dispatch.queues.get("t", n) for n in range(2)]
    queues[1]._room = 0  # type: ignore[union-attr]
    queues[1].chain.segments[-1].allocated_end = 0  # type: ignore[union-attr]
    disk.fail(disk.calls + 1, Fault.ENOSPC)
    stop, store_time, grown, trouble = run_kernel(dispatch, log, begin)
    assert (stop, store_time, grown) == (middle, NOW + begin, [(queues[0], 1)])
    assert isinstance(trouble, StoreError)
    stop, _, grown, trouble = run_kernel(dispatch, log, stop)
    assert (stop, grown, trouble) == (len(log.data), [(queues[1], 2)], None)


class Hollow:
    """A queue that reports more room than there is."""

    max_offset = 0

    def find_room(self) -> tuple[bytearray, int, int]:
        """Report too much room."""
        return bytearray(39), 0, 2


@each_twin
def test_room_that_is_not_there_is_an_error_and_not_a_crash(twin: ModuleType) -> None:
    log = Log()
    log.add(properties=b"KEYS\x01k")
    replayer = twin.Replayer(lambda topic, queue_id: twin.Lane("t", queue_id, 1), lambda name: Hollow())
    told = log.data, 7, len(log.data), 0, None, False, None, 0, 0
    stop, _, written, grown, trouble = replayer.run(*told)
    assert (stop, written, grown) == (7, 0, [])
    assert isinstance(trouble, ValueError)
    # Again, because a lane that was not opened must not count as open.
    assert isinstance(replayer.run(*told)[4], ValueError)


@each_twin
@pytest.mark.parametrize("size", [0, 39, 40, 127])
def test_an_index_file_that_is_too_small_gets_nothing(twin: ModuleType, size: int) -> None:
    log = Log()
    log.add()
    log.add(properties=b"KEYS\x01k")
    dispatch = make_dispatch(twin, with_index=False)
    [first, second] = read_facts(log.data, 7, len(log.data), 0, 2)
    dispatch.run_record(first, into_index=True)
    index = bytearray(size)
    told = log.data, second[0], len(log.data), 0, None, True, index, 12, 9
    assert dispatch._replayer.run(*told)[:4] == (second[0], 0, 0, [])
    assert index == bytearray(size)
    queue = dispatch.queues.get("t", 0)
    assert queue is not None
    assert queue.max_offset == 1
    told = log.data, second[0], len(log.data), 0, None, True, bytearray(128), 12, 9
    assert dispatch._replayer.run(*told)[0] == len(log.data)


@each_twin
@given(data=st.binary(max_size=300), at=st.integers(0, 300))
def test_noise_is_not_read_beyond_its_end(twin: ModuleType, data: bytes, at: int) -> None:
    dispatch = make_dispatch(twin)
    for end in (len(data), len(data) + 500):
        assert dispatch._replayer.run(data, at, end, 0, None, True, None, 0, 0)[:4] == (at, 0, 0, [])


@each_twin
def test_mapped_files_can_be_closed_after_a_run(twin: ModuleType) -> None:
    log = Log()
    log.add()
    log.add(properties=b"KEYS\x01k")
    dispatch = make_dispatch(twin, with_index=False)
    [first, second] = read_facts(log.data, 7, len(log.data), 0, 2)
    dispatch.run_record(first, into_index=True)
    mapped, index = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    mapped[: len(log.data)] = log.data
    told = second[0], len(log.data), 0, None, True, index, 12, 9
    assert dispatch._replayer.run(mapped, *told)[0] == len(log.data)
    mapped.close()
    index.close()
    trouble = dispatch._replayer.run(mapped, *told)[4]
    assert isinstance(trouble, ValueError)


@each_twin
@given(rows=ROWS, with_index=st.booleans())
def test_a_message_that_was_just_written_is_dispatched_as_any_record(
    twin: ModuleType, rows: list[tuple[str, int, int, bytes]], with_index: bool
) -> None:
    log = Log()
    alone, written = (make_dispatch(twin, with_index=with_index) for _ in range(2))
    for topic, queue_id, _, properties in rows:
        begin = len(log.data)
        log.add("t" if topic == SCHEDULE_TOPIC else topic, queue_id, 0, properties)
        [facts] = read_facts(log.data, begin, len(log.data), 0, 1)
        alone.run_record(facts, into_index=True)
        position, size, encoded, _, _, _, store_time, _ = facts
        queue, index = written.queues.get_or_make(encoded.decode(), queue_id), written.index
        entries, at, _ = queue.find_room()
        file = index.files[-1] if index is not None and index.files else None
        prefix = index_prefix(encoded.decode())
        keys, slots, room = (None, 0, 0) if file is None else (file.buffer, file.slots, file.room)
        count = twin.dispatch_one(
            properties, prefix, position, size, store_time, entries, at, with_index, keys, slots, room
        )
        if count < 0:
            written.run_record(facts, into_index=True)
            continue
        queue.add_run(1, position + size)
        if file is not None:
            file.add_run(count)
    expect_same(written, alone)


@each_twin
def test_an_entry_that_is_not_inside_its_file_is_an_error(twin: ModuleType) -> None:
    for entries_at in (-1, 20):
        with pytest.raises(ValueError, match="not inside"):
            twin.dispatch_one(b"", 1, 0, 100, NOW, bytearray(39), entries_at, True, None, 0, 0)
