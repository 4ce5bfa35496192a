"""The commit log: how a segment ends, when the next begins, and what the transient buffer keeps back."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store.filesystem import FileSystem
from eruca._store.log import commitlog
from eruca._store.log.commitlog import PREFAULT_BYTES, CommitLog
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca._wire.record import BLANK_BYTES
from eruca.errors import StoreFull, StoreIOError
from tests.unit.store.samples import ROOT, SEGMENT_BYTES, make_disk, make_options, view_log

DIRECTORY = ROOT / "commitlog"
FIRST, SECOND = DIRECTORY / f"{0:020d}", DIRECTORY / f"{SEGMENT_BYTES:020d}"


def make_log(
    disk: FileSystem, executor: Executor | None = None, clock: VirtualClock | None = None, **changes: Any
) -> CommitLog:
    """A loaded, empty log."""
    log = CommitLog(disk, DIRECTORY, make_options(**changes), clock or VirtualClock(), executor)
    log.chain.load()
    log.open_at(log.chain.end)
    return log


def append(log: CommitLog, data: bytes) -> int:
    """What the store does for each record."""
    position = log.reserve(len(data))
    log.write(data)
    return position


# --- the end of a segment -------------------------------------------------------------------------------------------


def test_the_end_of_a_segment_has_javas_bytes() -> None:
    """Golden: five records end at 15630 of a segment of 16384; the broker wrote 000002f2 cbd43194."""
    disk = make_disk()
    log = make_log(disk, commitlog_segment_bytes=16_384)
    append(log, b"r" * 15_630)
    assert append(log, b"s" * 800) == 16_384
    first = disk.read_file(FIRST)
    assert first[15_630:15_638] == bytes.fromhex("000002f2cbd43194")
    assert first[15_638:] == bytes(16_384 - 15_638)
    assert disk.read_file(DIRECTORY / f"{16_384:020d}")[:800] == b"s" * 800


@pytest.mark.parametrize("size", [91, 100, 1000])
@pytest.mark.parametrize("spare", range(-3, 12))
def test_a_record_rolls_when_eight_bytes_would_not_be_left(size: int, spare: int) -> None:
    """`spare` bytes would be left behind the record; the end-of-segment record needs 8."""
    disk = make_disk()
    log = make_log(disk)
    filled = SEGMENT_BYTES - size - spare
    append(log, b"f" * filled)
    if spare >= BLANK_BYTES:
        assert append(log, b"r" * size) == filled
        assert log.tail == filled + size
        assert not disk.exists(SECOND)
        return
    assert append(log, b"r" * size) == SEGMENT_BYTES
    rest = SEGMENT_BYTES - filled
    assert disk.read_file(FIRST)[filled:] == rest.to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + bytes(rest - 8)
    assert (log.tail, log.readable_end) == (SEGMENT_BYTES + size, SEGMENT_BYTES + size)


def test_the_largest_record_leaves_room_for_the_end() -> None:
    log = make_log(make_disk())
    assert append(log, b"r" * (SEGMENT_BYTES - BLANK_BYTES)) == 0
    assert append(log, b"r" * (SEGMENT_BYTES - BLANK_BYTES)) == SEGMENT_BYTES


def test_a_record_that_fits_no_segment_is_refused_and_nothing_moves() -> None:
    disk = make_disk()
    log = make_log(disk)
    append(log, b"r" * 100)
    before = disk.snapshot()
    with pytest.raises(StoreFull, match="does not fit in a segment"):
        log.reserve(SEGMENT_BYTES - BLANK_BYTES + 1)
    assert (log.tail, disk.snapshot()) == (100, before)
    assert append(log, b"r" * 100) == 100


@given(st.lists(st.integers(1, SEGMENT_BYTES - BLANK_BYTES), max_size=30))
def test_records_never_cross_a_segment(sizes: list[int]) -> None:
    log = make_log(make_disk())
    expected = 0
    for number, size in enumerate(sizes):
        left = SEGMENT_BYTES - expected % SEGMENT_BYTES
        if size + BLANK_BYTES > left:
            expected += left
        data = bytes([number + 1]) * size
        assert append(log, data) == expected
        assert view_log(log, expected, size) == data
        expected += size
    assert log.tail == log.readable_end == expected


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EIO])
def test_a_roll_that_fails_writes_nothing_and_is_tried_again(fault: Fault) -> None:
    disk = make_disk()
    log = make_log(disk)
    append(log, b"r" * 4000)
    disk.fail_next("create", fault)
    with pytest.raises((StoreFull, StoreIOError)):
        log.reserve(200)
    assert disk.read_file(FIRST)[4000:] == bytes(96)
    assert (log.tail, log.readable_end) == (4000, 4000)
    assert append(log, b"s" * 50) == 4000  # what still fits is taken
    assert append(log, b"r" * 200) == SEGMENT_BYTES


def test_a_log_goes_on_where_recovery_says() -> None:
    disk = make_disk()
    append(make_log(disk), b"r" * 100)
    log = CommitLog(disk, DIRECTORY, make_options(), VirtualClock())
    log.chain.load()
    log.open_at(100)
    assert append(log, b"s" * 10) == 100
    log.open_at(SEGMENT_BYTES)  # behind the last segment, as after one that was full to its last byte
    assert append(log, b"t" * 10) == SEGMENT_BYTES
    assert (log.start, log.chain.end) == (0, 2 * SEGMENT_BYTES)


def test_a_copy_may_end_at_the_very_end_of_a_segment() -> None:
    """A replica copies bytes, so its tail may be where no record of its own would end."""
    disk = make_disk()
    log = make_log(disk)
    assert log.copy_in(memoryview(b"c" * 4000)) == 4000
    assert log.copy_in(memoryview(b"d" * 100)) == 96  # what is left goes to the next segment
    assert (log.tail, log.readable_end, log.written_end) == (SEGMENT_BYTES, 0, SEGMENT_BYTES)
    log.show_copied(SEGMENT_BYTES)
    assert append(log, b"r" * 100) == SEGMENT_BYTES
    assert disk.read_file(FIRST) == b"c" * 4000 + b"d" * 96


# --- reading --------------------------------------------------------------------------------------------------------


def test_only_what_is_there_can_be_viewed() -> None:
    log = make_log(make_disk())
    append(log, b"r" * 100)
    append(log, b"s" * 4080)  # rolls
    assert view_log(log, 0, 100) == b"r" * 100
    assert view_log(log, SEGMENT_BYTES, 4080) == b"s" * 4080
    assert log.view(SEGMENT_BYTES, 4081) is None  # behind the tail
    assert log.view(SEGMENT_BYTES - 10, 20) is None  # across segments
    assert log.view(-1, 10) is None
    assert log.view(0, -1) is None
    log.chain.dispose(log.chain.detach_first())
    assert log.view(0, 100) is None
    assert log.start == SEGMENT_BYTES


# --- in the background ----------------------------------------------------------------------------------------------


class PopulateTrace(SimulatedDisk):
    """A disk that notes which pages are touched ahead of use."""

    populated: list[tuple[int, int]]

    def create(self, *args: Any, **kwargs: Any) -> Any:
        mapping = super().create(*args, **kwargs)
        trace = self.populated

        class Traced(type(mapping)):  # type: ignore[misc]
            __slots__ = ()

            def populate(self, start: int, end: int) -> None:
                trace.append((start, end))

        mapping.__class__ = Traced
        return mapping


@pytest.mark.parametrize(("warm", "size"), [(True, SEGMENT_BYTES), (False, PREFAULT_BYTES)])
def test_the_warm_option_touches_the_whole_next_segment(warm: bool, size: int) -> None:
    disk = PopulateTrace()
    disk.populated = []
    disk.make_directory(ROOT)
    with ThreadPoolExecutor(1) as executor:
        log = make_log(disk, executor, warm_segments=warm)
        append(log, b"r" * 100)
        executor.submit(int).result()
        assert disk.exists(SECOND)  # ready long before the roll
        assert (0, size) in disk.populated
        log.chain.close()


def test_touching_goes_on_ahead_of_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commitlog, "PREFAULT_BYTES", 64 * 1024)
    disk = PopulateTrace()
    disk.populated = []
    disk.make_directory(ROOT)
    size = 10 * 64 * 1024
    with ThreadPoolExecutor(1) as executor:
        log = make_log(disk, executor, commitlog_segment_bytes=size)
        chunk = b"r" * 1024
        while log.tail + len(chunk) + BLANK_BYTES <= size:
            append(log, chunk)
        executor.submit(int).result()
        covered = 0
        for start, end in sorted(set(disk.populated)):
            assert start <= covered  # no hole in what was touched
            covered = max(covered, end)
        assert covered == size
        log.chain.close()


def test_the_wait_for_a_segment_is_visible() -> None:
    clock = VirtualClock()
    disk = make_disk()
    log = make_log(disk, clock=clock)

    def be_slow(number: int, operation: str, path: str) -> None:
        if operation == "create":
            clock.advance(1500)

    disk.on_call = be_slow
    assert log.append_wait_ms_max == 0
    append(log, b"r" * 100)
    assert log.append_wait_ms_max == 1500


# --- the transient buffer -------------------------------------------------------------------------------------------


def make_transient(disk: SimulatedDisk, pool_size: int = 2) -> CommitLog:
    """A log whose records wait in memory."""
    return make_log(disk, transient_enabled=True, transient_pool_size=pool_size)


def test_records_are_readable_only_after_a_commit() -> None:
    disk = make_disk()
    log = make_transient(disk)
    append(log, b"r" * 100)
    assert (log.tail, log.readable_end, log.view(0, 100)) == (100, 0, None)
    assert disk.read_file(FIRST) == bytes(SEGMENT_BYTES)
    assert log.commit() == 100
    assert (log.readable_end, view_log(log, 0, 100)) == (100, b"r" * 100)
    assert log.transient is not None and log.transient.waiting_bytes == 0
    assert log.commit() == 100  # nothing to do


@pytest.mark.parametrize("writes", range(1, 6))
def test_a_short_write_is_continued(writes: int) -> None:
    disk = make_disk()
    log = make_transient(disk)
    data = bytes(range(250)) * 4
    append(log, data)
    disk.fail_next("write", Fault.SHORT, times=writes)
    assert log.commit() == len(data)
    assert view_log(log, 0, len(data)) == data
    assert len(disk.injected) == writes


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_failed_write_keeps_what_is_not_yet_in_the_file(fault: Fault) -> None:
    disk = make_disk()
    log = make_transient(disk)
    append(log, b"a" * 1000)
    disk.fail_next("write", Fault.SHORT)
    disk.fail_next("write", fault)
    with pytest.raises((StoreIOError, StoreFull)):
        log.commit()
    assert log.readable_end == 0  # half a record is none
    append(log, b"b" * 500)
    assert log.commit() == 1500
    assert view_log(log, 0, 1500) == b"a" * 1000 + b"b" * 500


def test_a_roll_while_records_wait() -> None:
    disk = make_disk()
    log = make_transient(disk)
    append(log, b"a" * 3000)
    assert append(log, b"b" * 2000) == SEGMENT_BYTES
    assert disk.read_file(FIRST) == disk.read_file(SECOND) == bytes(SEGMENT_BYTES)
    assert log.readable_end == 0
    assert log.commit() == SEGMENT_BYTES + 2000
    rest = (SEGMENT_BYTES - 3000).to_bytes(4, "big")
    assert disk.read_file(FIRST) == b"a" * 3000 + rest + b"\xcb\xd4\x31\x94" + bytes(SEGMENT_BYTES - 3008)
    assert disk.read_file(SECOND)[:2000] == b"b" * 2000
    assert append(log, b"c" * 10) == SEGMENT_BYTES + 2000


def test_a_failure_between_two_segments_is_continued() -> None:
    disk = make_disk()
    log = make_transient(disk)
    append(log, b"a" * 3000)
    append(log, b"b" * 2000)
    seen: list[str] = []

    def fail_in_second(number: int, operation: str, path: str) -> None:
        if operation == "write":
            seen.append(path)
            if len(seen) == 2:
                disk.fail(number, Fault.EIO)

    disk.on_call = fail_in_second
    with pytest.raises(StoreIOError):
        log.commit()
    assert log.commit() == SEGMENT_BYTES + 2000
    assert view_log(log, SEGMENT_BYTES, 2000) == b"b" * 2000


def test_the_bound_on_waiting_bytes_is_kept() -> None:
    log = make_transient(make_disk(), pool_size=1)
    assert log.transient is not None
    append(log, b"a" * 4000)
    log.transient.check_room(96)
    with pytest.raises(StoreFull, match="4000 bytes are waiting"):
        log.transient.check_room(97)
    log.commit()
    log.transient.check_room(SEGMENT_BYTES)


@given(st.lists(st.integers(-2, 0) | st.integers(1, 2000), max_size=40))
def test_the_buffer_gives_the_same_file_as_no_buffer(steps: list[int]) -> None:
    """A number below 1 stands for a commit with that many short writes."""
    plain_disk, buffered_disk = make_disk(), make_disk()
    plain, buffered = make_log(plain_disk), make_transient(buffered_disk, pool_size=100)
    for number, size in enumerate(steps):
        if size > 0:
            data = bytes([number % 255 + 1]) * size
            assert append(plain, data) == append(buffered, data)
        else:
            buffered_disk.fail_next("write", Fault.SHORT, times=-size)
            with suppress(StoreFull):  # the error of a disk that writes not even one byte
                buffered.commit()
    buffered_disk.plan.clear()
    assert buffered.commit() == plain.readable_end
    assert buffered_disk.snapshot() == plain_disk.snapshot()


def test_a_commit_needs_no_buffer() -> None:
    log = make_log(make_disk())
    append(log, b"r" * 10)
    assert log.commit() == 10
