"""Consume queues: the bytes of an entry, the borders of segments, and what a truncated or damaged queue returns."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE, ConsumeQueue, Entry
from eruca._testing.faults import Fault, SimulatedDisk
from eruca.errors import StoreError, StoreFull, StoreIOError
from tests.unit.store.samples import QUEUE_ENTRIES, ROOT, make_disk

DIRECTORY = ROOT / "consumequeue" / "orders" / "0"


def make_queue(disk: SimulatedDisk, entries: int = QUEUE_ENTRIES) -> ConsumeQueue:
    """A loaded queue."""
    queue = ConsumeQueue(disk, DIRECTORY, entries * ENTRY_BYTES, topic="orders", queue_id=0)
    queue.load()
    return queue


def put(queue: ConsumeQueue, count: int, size: int = 100) -> None:
    """Write entries for consecutive records of one size."""
    for _ in range(count):
        queue.reserve(1)
        queue.add(queue.max_offset * size, size, queue.max_offset)
        queue.next_offset = queue.max_offset


def read_file(disk: SimulatedDisk, first_entry: int = 0) -> bytes:
    """The bytes of one segment."""
    return disk.read_file(DIRECTORY / f"{first_entry * ENTRY_BYTES:020d}")


# --- layout ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_position_size_and_tags_code() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.reserve(2)
    queue.add(0x0102030405060708, 0x0A0B0C0D, 2598919)
    queue.add(1, 2, -1)
    assert read_file(disk)[:40] == (
        bytes.fromhex("0102030405060708 0a0b0c0d 000000000027a807")
        + bytes.fromhex("0000000000000001 00000002 ffffffffffffffff")
    )
    assert queue.entry(0) == Entry(0x0102030405060708, 0x0A0B0C0D, 2598919)
    assert queue.end_position == 3


def test_a_segment_is_named_after_its_first_byte() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 25)
    assert disk.list(DIRECTORY) == [f"{n * QUEUE_ENTRIES * 20:020d}" for n in range(3)]


def test_a_filled_start_has_javas_bytes() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.start_at(13)
    assert disk.list(DIRECTORY) == [f"{200:020d}"]
    assert read_file(disk, 10) == struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 3 + bytes(140)
    assert (queue.min_offset, queue.max_offset, queue.next_offset, queue.end_position) == (13, 13, 13, -1)
    put(queue, 1)
    queue.sync()
    again = make_queue(disk)
    assert again.max_offset == 14
    again.raise_min(0)
    assert again.min_offset == 13  # fillers are not messages


@pytest.mark.parametrize("offset", [0, 10, 20])
def test_a_start_at_a_segment_border_needs_no_filling(offset: int) -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.start_at(offset)
    assert disk.list(DIRECTORY) == []
    put(queue, 1)
    assert disk.list(DIRECTORY) == [f"{offset * 20:020d}"]
    assert queue.entry(offset) == Entry(offset * 100, 100, offset)


@pytest.mark.parametrize("offset", [7, 10, 13, 20, 25])
def test_a_start_does_not_keep_room_that_was_made_elsewhere(offset: int) -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.find_room()  # as for a message 0, which is lost
    assert disk.list(DIRECTORY) == [f"{0:020d}"]
    queue.start_at(offset)
    put(queue, 1)
    assert disk.list(DIRECTORY) == [f"{(offset - offset % QUEUE_ENTRIES) * 20:020d}"]
    assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
    queue.sync()
    again = make_queue(disk)
    assert (again.max_offset, again.entry(offset)) == (offset + 1, Entry(offset * 100, 100, offset))


def test_a_start_survives_a_power_loss_once_synced() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.start_at(13)
    queue.sync()
    assert make_queue(disk.crash("drop")).max_offset == 13


# --- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(32))
def test_a_loaded_queue_knows_its_end(count: int) -> None:
    disk = make_disk()
    put(make_queue(disk), count)
    again = make_queue(disk.kill())
    assert (again.max_offset, again.next_offset) == (count, count)
    assert again.end_position == (count * 100 if count else -1)


def test_a_segment_made_but_not_written_is_not_counted() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 10)
    queue.reserve(5)
    assert len(disk.list(DIRECTORY)) == 2
    again = make_queue(disk.kill())
    assert again.max_offset == 10
    put(again, 3)
    assert again.entry(12) == Entry(1200, 100, 12)


# --- writing --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 25), max_size=12), st.integers(0, 9))
def test_entries_reserved_together_cross_segments(batches: list[int], start: int) -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.start_at(start)
    offset = start
    for count in batches:
        queue.reserve(count)
        calls = disk.calls
        for _ in range(count):
            queue.add(offset * 7, 7, -offset)
            offset += 1
        assert disk.calls == calls  # a put that was reserved asks nothing of the disk
    assert queue.max_offset == offset
    for number in range(start, offset):
        assert queue.entry(number) == Entry(number * 7, 7, -number)
    assert disk.bus_errors == []


def test_a_reservation_that_fails_changes_nothing() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 9)
    disk.fail_next("create", Fault.ENOSPC)
    with pytest.raises(StoreFull):
        queue.reserve(2)
    assert queue.max_offset == 9
    put(queue, 3)
    assert [entry[2] for entry in queue.entries(0, 100)] == list(range(10))
    assert queue.max_offset == 12


def test_blocks_that_cannot_be_had_are_asked_for_again() -> None:
    disk = make_disk()
    queue = make_queue(disk, entries=10_000)
    put(queue, 1)
    disk.full = True
    queue.reserve(65_536 // 20 - 1)  # the first step is already there
    with pytest.raises(StoreFull):
        queue.reserve(65_536 // 20)
    disk.full = False
    put(queue, 5000)
    queue.sync()
    assert disk.bus_errors == []
    assert queue.entry(4999) == Entry(499_900, 100, 4999)


def test_lost_offsets_are_filled_with_the_place_they_were_at() -> None:
    queue = make_queue(make_disk())
    put(queue, 2)
    queue.reserve(3)
    queue.fill_to(5, 200, 77)
    assert [queue.entry(n) for n in range(2, 5)] == [Entry(200, 77, 0)] * 3


# --- reading --------------------------------------------------------------------------------------------------------


def test_entries_never_cross_a_segment() -> None:
    queue = make_queue(make_disk())
    put(queue, 25)
    assert [tags for _, _, tags in queue.entries(7, 100)] == [7, 8, 9]
    assert [tags for _, _, tags in queue.entries(10, 4)] == [10, 11, 12, 13]
    assert [tags for _, _, tags in queue.entries(22, 100)] == [22, 23, 24]
    assert list(queue.entries(25, 10)) == []
    assert list(queue.entries(0, 0)) == []


def remove_expired(queue: ConsumeQueue) -> None:
    """Delete the segments that no message needs."""
    for segment in queue.detach_expired():
        queue.chain.dispose(segment)


def test_an_offset_that_is_not_there_has_no_entry() -> None:
    queue = make_queue(make_disk())
    put(queue, 12)
    assert queue.entry(-1) is None
    assert queue.entry(12) is None
    queue.min_offset = 10
    remove_expired(queue)
    assert queue.entry(9) is None
    assert queue.entry(10) is not None
    assert list(queue.entries(3, 5)) == []


@given(st.lists(st.integers(1, 50), max_size=45), st.integers(0, 12), st.data())
def test_find_position_is_the_first_entry_at_or_behind(gaps: list[int], start: int, data: st.DataObject) -> None:
    queue = make_queue(make_disk())
    queue.start_at(start)
    positions: list[int] = []
    at = 0
    for gap in gaps:
        at += gap
        queue.reserve(1)
        queue.add(at, 1, 0)
        positions.append(at)
    wanted = data.draw(st.integers(0, at + 2))
    expected = start + len([position for position in positions if position < wanted])
    assert queue.find_position(wanted) == expected
    queue.raise_min(wanted)
    assert queue.min_offset == expected
    queue.check()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=45), st.integers(0, 12), st.data())
def test_find_end_is_behind_the_last_record_that_ends_in_time(
    records: list[tuple[int, int]], start: int, data: st.DataObject
) -> None:
    queue = make_queue(make_disk())
    queue.start_at(start)
    ends: list[int] = []
    at = 0
    for gap, size in records:
        queue.reserve(1)
        queue.add(at + gap, size, 0)
        at += gap + size
        ends.append(at)
    wanted = data.draw(st.integers(0, at + 2))
    assert queue.find_end(wanted) == start + len([end for end in ends if end <= wanted])


# --- shrinking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", range(26))
def test_truncate_leaves_zeros_and_no_later_segment(keep: int) -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 25)
    queue.truncate(keep)
    assert (queue.max_offset, queue.next_offset) == (keep, keep)
    assert queue.end_position == (keep * 100 if keep else -1)
    data = b"".join([disk.read_file(DIRECTORY / name) for name in disk.list(DIRECTORY)])
    assert data[keep * 20 :] == bytes(len(data) - keep * 20)
    assert len(data) // 20 - keep < QUEUE_ENTRIES  # segments that hold nothing are gone
    again = make_queue(disk.kill())
    assert again.max_offset == keep
    put(queue, 30)
    assert [queue.entry(n) for n in range(keep + 30)] == [Entry(n * 100, 100, n) for n in range(keep + 30)]


def test_a_truncated_queue_that_was_loaded_reserves_its_blocks_again() -> None:
    disk = make_disk()
    put(make_queue(disk, entries=1000), 900)
    queue = make_queue(disk.kill(), entries=1000)
    queue.truncate(700)
    put(queue, 600)
    assert queue.entry(1299) == Entry(129_900, 100, 1299)


@pytest.mark.parametrize("keep", [3, 12, 20])
def test_what_was_cut_off_does_not_come_back_after_a_sync(keep: int) -> None:
    """Otherwise a power loss after a clean stop would show entries whose records were cut off long ago."""
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 25)
    queue.sync()
    queue.truncate(keep)
    queue.sync()
    disk.sync_directory(DIRECTORY)
    assert make_queue(disk.crash("drop")).max_offset == keep


def test_what_was_cut_off_from_the_first_segment_does_not_come_back_either() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    queue.start_at(10)
    put(queue, 5)
    queue.sync()
    queue.truncate(10)
    assert disk.list(DIRECTORY) == [f"{200:020d}"]  # its name is all that remembers the offset
    queue.sync()
    assert make_queue(disk.crash("drop")).max_offset == 10


def test_only_segments_below_the_first_message_go_and_never_the_last() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 30)
    queue.min_offset = 19
    remove_expired(queue)
    assert disk.list(DIRECTORY) == [f"{n:020d}" for n in (200, 400)]
    queue.min_offset = 30
    remove_expired(queue)
    assert disk.list(DIRECTORY) == [f"{400:020d}"]
    put(queue, 1)
    assert queue.entry(30) == Entry(3000, 100, 30)


def test_destroy_starts_over() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 12)
    queue.destroy()
    assert not disk.exists(DIRECTORY)
    assert (queue.min_offset, queue.max_offset, queue.end_position) == (0, 0, -1)


def test_contradicting_offsets_are_noticed() -> None:
    queue = make_queue(make_disk())
    queue.min_offset = 3
    with pytest.raises(StoreError, match="are inconsistent"):
        queue.check()


# --- syncing --------------------------------------------------------------------------------------------------------


def test_synced_entries_survive_with_their_names() -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 12)
    assert not disk.crash("drop").exists(DIRECTORY)
    queue.sync()
    put(queue, 5)
    left = make_queue(disk.crash("drop"))
    assert left.max_offset == 12
    calls = disk.calls
    queue.sync()
    assert disk.calls == calls + 1  # one segment was dirty
    queue.sync()
    assert disk.calls == calls + 1  # and now none is


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_sync_is_made_again_with_what_the_kernel_forgot(failing: int) -> None:
    disk = make_disk()
    queue = make_queue(disk)
    put(queue, 25)
    seen: list[str] = []

    def fail_one(number: int, operation: str, path: str) -> None:
        if operation == "sync":
            seen.append(path)
            if len(seen) == failing:
                disk.fail(number, Fault.EIO)

    disk.on_call = fail_one
    with pytest.raises(StoreIOError):
        queue.sync()
    disk.on_call = None
    put(queue, 2)
    queue.sync()
    assert make_queue(disk.crash("drop")).max_offset == 27


def test_entries_written_during_a_failed_sync_are_not_forgotten() -> None:
    disk = make_disk()
    queue = make_queue(disk, entries=1000)
    put(queue, 25)

    def put_meanwhile(number: int, operation: str, path: str) -> None:
        if operation == "sync":
            disk.on_call = None
            put(queue, 100)
            disk.fail(number, Fault.EIO)

    disk.on_call = put_meanwhile
    with pytest.raises(StoreIOError):
        queue.sync()
    queue.sync()
    assert make_queue(disk.crash("drop"), entries=1000).max_offset == 125


def test_a_filler_is_larger_than_any_record() -> None:
    assert FILLER_SIZE == 0x7FFFFFFF
