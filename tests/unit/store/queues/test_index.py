"""The index: the bytes of its files, lookups by time, rolling over, and damage."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._store.queues.index import Index
from eruca._store.queues.indexfile import ENTRY, HEADER, SLOT, file_bytes
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca._wire.javahash import index_key_hash
from eruca.errors import StoreFull, StoreIOError, StoreLayoutError
from tests.unit.store.samples import ROOT, make_disk

DIRECTORY = ROOT / "index"
SLOTS, ENTRIES = 4, 8
NOON = 1_700_000_000_000
FOREVER = 2**62


def make_index(
    disk: SimulatedDisk, clock: VirtualClock | None = None, slots: int = SLOTS, entries: int = ENTRIES
) -> Index:
    """A loaded index with tiny files."""
    index = Index(disk, DIRECTORY, slots, entries, clock or VirtualClock(NOON))
    index.load()
    return index


def put(index: Index, keys: list[str], position: int, store_time: int = NOON) -> None:
    """Index one record of the topic `t`."""
    index.reserve(len(keys))
    index.add([index_key_hash("t", key) for key in keys], position, store_time)


def find(index: Index, key: str, begin: int = 0, end: int = FOREVER, count_max: int = 100) -> list[int]:
    """Positions of a key of the topic `t`."""
    return index.find("t", key, begin, end, count_max)


def only_file(disk: SimulatedDisk) -> Path:
    """The path of the one index file."""
    (name,) = disk.list(DIRECTORY)
    return DIRECTORY / name


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names are local times, so the zone must be known."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# --- layout ---------------------------------------------------------------------------------------------------------


def test_the_size_of_javas_default_file() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040


def test_header_slots_and_entries_lie_where_java_has_them() -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a", "e"], 0x1000, NOON)
    put(index, ["a"], 0x2000, NOON + 5999)
    data = disk.read_file(only_file(disk))
    a, e = index_key_hash("t", "a"), index_key_hash("t", "e")
    assert (a - e) % SLOTS == 0  # one chain
    assert len(data) == 40 + 4 * SLOTS + 20 * ENTRIES
    assert data[:40] == struct.pack(">qqqqii", NOON, NOON + 5999, 0x1000, 0x2000, 1, 4)
    slots = struct.unpack(f">{SLOTS}i", data[40 : 40 + 4 * SLOTS])
    assert slots == tuple([3 if slot == a % SLOTS else 0 for slot in range(SLOTS)])
    entries = data[40 + 4 * SLOTS :]
    assert entries[:20] == bytes(20)  # entry 0 is never used
    assert entries[20:40] == struct.pack(">iqii", a, 0x1000, 0, 0)
    assert entries[40:60] == struct.pack(">iqii", e, 0x1000, 0, 1)
    assert entries[60:80] == struct.pack(">iqii", a, 0x2000, 5, 2)
    assert entries[80:] == bytes(20 * (ENTRIES - 4))


@pytest.mark.usefixtures("utc")
def test_a_file_is_named_after_the_local_time() -> None:
    disk = make_disk()
    put(make_index(disk, VirtualClock(1_700_000_000_123)), ["a"], 1)
    assert disk.list(DIRECTORY) == ["20231114221320123"]


def test_a_count_of_zero_on_the_disk_means_one() -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a"], 1)
    HEADER.pack_into(index.files[0].buffer, 0, NOON, NOON, 0, 0, 0, 0)
    assert index.files[0].next_entry == 1
    HEADER.pack_into(index.files[0].buffer, 0, NOON, NOON, 0, 0, 0, -7)
    assert index.files[0].next_entry == 1
    HEADER.pack_into(index.files[0].buffer, 0, NOON, NOON, 0, 0, 0, 2**31 - 1)
    assert index.files[0].is_full


def test_a_clock_that_was_set_back_gives_no_negative_seconds() -> None:
    index = make_index(make_disk())
    put(index, ["a"], 1, NOON)
    put(index, ["b"], 2, NOON - 60_000)
    assert index.files[0].entry(2)[2] == 0


def test_seconds_that_do_not_fit_are_the_most_that_does() -> None:
    index = make_index(make_disk())
    put(index, ["a"], 1, 1)
    put(index, ["b"], 2, 2**50)
    assert index.files[0].entry(2)[2] == 2**31 - 1


# --- lookups --------------------------------------------------------------------------------------------------------


def test_the_newest_comes_first() -> None:
    index = make_index(make_disk(), entries=5)
    for position in range(1, 12):
        put(index, ["k", f"other{position}"], position, NOON + position)
    assert len(index.files) > 4
    assert find(index, "k") == list(range(11, 0, -1))
    assert find(index, "k", count_max=3) == [11, 10, 9]
    assert find(index, "k", count_max=0) == []
    assert find(index, "none") == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4000)), max_size=40),
    st.integers(0, 60_000),
    st.integers(0, 30_000),
)
def test_every_record_in_the_range_is_among_the_candidates(
    steps: list[tuple[str, int]], begin: int, length: int
) -> None:
    """Entries know whole seconds only, so a neighbour within a second of the range may come along, none farther."""
    index = make_index(make_disk())
    now = NOON
    stored: list[tuple[str, int]] = []
    for position, (key, later) in enumerate(steps):
        now += later
        put(index, [key], position, now)
        stored.append((key, now))
    low, high = NOON + begin, NOON + begin + length
    for key in "abc":
        found = find(index, key, low, high)
        exact = {at for at, (name, when) in enumerate(stored) if name == key and low <= when <= high}
        near = {at for at, (name, when) in enumerate(stored) if name == key and low - 1000 < when < high + 1000}
        assert exact <= set(found) <= near
        assert found == sorted(found, reverse=True)


def test_a_lookup_ends_in_a_damaged_chain() -> None:
    """Whatever slots and entries contain, a walk ends, and it reads nothing outside the entries."""
    index = make_index(make_disk())
    for position in range(1, 7):
        put(index, ["k"], position)
    buffer = index.files[0].buffer
    entries_at = 40 + 4 * SLOTS
    for number in range(1, 7):
        for previous in (-1, 0, 1, number, number + 1, 6, 7, 2**31 - 1, -(2**31)):
            kept = bytes(buffer)
            struct.pack_into(">i", buffer, entries_at + number * 20 + 16, previous)
            found = find(index, "k")
            assert len(found) <= 6 and found[0] == 6
            assert len(set(found)) == len(found)
            buffer[:] = kept
    slot = 40 + 4 * (index_key_hash("t", "k") % SLOTS)
    for value in (-1, 0, 7, 8, 100, 2**31 - 1, -(2**31)):
        SLOT.pack_into(buffer, slot, value)
        assert find(index, "k") == []
    SLOT.pack_into(buffer, slot, 6)
    ENTRY.pack_into(buffer, entries_at + 6 * 20, index_key_hash("t", "k"), 6, -1, 5)
    assert find(index, "k") == []  # as Java: a negative time ends the chain


def test_writing_over_a_damaged_header_stays_inside_the_file() -> None:
    """The sign bit of the count turned over: it was read as four billion and written there."""
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a", "b"], 1)
    disk.flip_bit(only_file(disk), 36, 7)  # under the mapping: at the next start the file would be removed as unused
    put(index, ["c"], 2)
    assert find(index, "c") == [2]


# --- rolling over ---------------------------------------------------------------------------------------------------


def test_a_full_file_is_followed_by_one_that_begins_where_it_ends() -> None:
    index = make_index(make_disk())
    for position in range(7):
        put(index, ["k"], position, NOON + position)
    assert index.files[0].is_full and len(index.files) == 1
    index.reserve(1)
    second = index.files[1]
    assert (second.begin_time, second.end_time) == (NOON + 6, NOON + 6)  # Java's header until the first entry
    assert (second.begin_position, second.end_position, second.next_entry) == (6, 6, 1)
    assert (index.end_position, index.end_time) == (6, NOON + 6)
    index.add([index_key_hash("t", "k")], 7, NOON + 9000)
    assert (second.begin_time, second.begin_position) == (NOON + 9000, 7)


def test_keys_that_do_not_fit_go_on_in_a_file_made_before_the_first_is_written() -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a"] * 5, 1)
    index.reserve(5)
    calls = disk.calls
    index.add([index_key_hash("t", f"k{n}") for n in range(5)], 2, NOON)
    assert disk.calls == calls
    assert [file.next_entry for file in index.files] == [8, 4]
    assert all(find(index, f"k{n}") == [2] for n in range(5))


def test_a_spare_that_was_not_needed_is_removed() -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a"] * 5, 1)
    index.reserve(5)
    assert len(disk.list(DIRECTORY)) == 2
    killed = disk.kill()
    index.close()
    assert len(disk.list(DIRECTORY)) == 1
    assert len(make_index(killed).files) == 1  # after a crash the next start removes it
    assert len(killed.list(DIRECTORY)) == 1


def test_files_made_in_one_millisecond_have_names_of_their_own() -> None:
    disk = make_disk()
    index = make_index(disk)
    for position in range(7 * 12):
        put(index, ["k"], position)
    names = disk.list(DIRECTORY)
    assert len(names) == len(index.files) == 12
    assert [file.path.name for file in index.files] == names
    index.close()
    assert find(make_index(disk), "k") == list(range(7 * 12 - 1, -1, -1))


@pytest.mark.parametrize("back_ms", [1, 5000, 3_600_000, 400 * 86_400_000])
def test_a_clock_that_goes_back_does_not_change_the_order_of_files(back_ms: int) -> None:
    disk = make_disk()
    clock = VirtualClock(NOON)
    index = make_index(disk, clock)
    for position in range(21):
        put(index, ["k"], position)
        if position == 6:
            clock.set_ms(NOON - back_ms)
    assert [file.path.name for file in index.files] == disk.list(DIRECTORY)
    assert len(disk.list(DIRECTORY)) == 3


@pytest.mark.parametrize("last_ms", [999, 998, 0])
def test_the_hour_that_comes_twice_overwrites_no_file(monkeypatch: pytest.MonkeyPatch, last_ms: int) -> None:
    """Summer time ended at 1698541200000: an hour later the wall clock shows the same time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        disk = make_disk()
        clock = VirtualClock(1_698_541_200_000 - 1000 + last_ms)
        index = make_index(disk, clock)
        for position in range(35):
            put(index, ["k"], position)
            clock.advance(3_600_000 // 7)
        assert len(disk.list(DIRECTORY)) == 5
        assert find(index, "k") == list(range(34, -1, -1))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("operation", ["create", "allocate"])
def test_a_file_that_cannot_be_made_leaves_nothing_and_is_made_later(operation: str) -> None:
    disk = make_disk()
    index = make_index(disk)
    disk.fail_next(operation, Fault.ENOSPC)
    with pytest.raises(StoreFull):
        index.reserve(1)
    assert (disk.list(DIRECTORY), index.files, disk.mapped) == ([], [], {})
    put(index, ["a"], 5)
    assert find(index, "a") == [5]
    assert index.end_position == 5


def test_blocks_are_reserved_before_entries_are_written() -> None:
    disk = make_disk()
    index = make_index(disk, slots=1000, entries=200_000)
    put(index, ["a"], 1)
    disk.full = True
    with pytest.raises(StoreFull):
        index.reserve(100_000)
    disk.full = False
    for position in range(100):
        put(index, [f"k{n}" for n in range(1000)], position)
    index.sync()
    assert disk.bus_errors == []
    assert find(index, "k7", count_max=3) == [99, 98, 97]


# --- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", "2023x", "²", ".hidden"])
def test_a_foreign_file_is_refused(name: str) -> None:
    disk = make_disk()
    disk.make_directory(DIRECTORY)
    disk.write_file(DIRECTORY / name, bytes(file_bytes(SLOTS, ENTRIES)))
    with pytest.raises(StoreLayoutError, match="not an index file"):
        make_index(disk)


def test_a_wrong_size_is_refused_with_the_settings() -> None:
    disk = make_disk()
    disk.make_directory(DIRECTORY)
    disk.write_file(DIRECTORY / "20231114221320123", bytes(100))
    with pytest.raises(StoreLayoutError, match="maxHashSlotNum=4 and maxIndexNum=8 make 216"):
        make_index(disk)


def test_a_loaded_index_goes_on() -> None:
    disk = make_disk()
    first = make_index(disk)
    for position in range(10):
        put(first, ["k"], position)
    first.close()
    disk.write_file(ROOT / ".eruca-new-index", b"left over")
    index = make_index(disk)
    assert not disk.exists(ROOT / ".eruca-new-index")
    assert index.end_position == 9
    put(index, ["k"], 10)
    assert find(index, "k") == list(range(10, -1, -1))


# --- cutting back ---------------------------------------------------------------------------------------------------


def as_if_written(count: int, position: int) -> dict[Path, bytes]:
    """The files of an index that only ever saw the records before a position."""
    disk = make_disk()
    index = make_index(disk)
    for number in range(count):
        if number * 10 < position:
            put(index, ["k", f"u{number}"], number * 10, NOON + number * 1000)
    index.close()
    return {path: data for path, data in disk.snapshot().items() if path.is_relative_to(DIRECTORY)}


@pytest.mark.parametrize("position", [0, 1, 30, 31, 40, 70, 95, 1000])
def test_truncate_leaves_the_files_as_if_the_rest_had_never_been(position: int) -> None:
    disk = make_disk()
    index = make_index(disk)
    for number in range(10):
        put(index, ["k", f"u{number}"], number * 10, NOON + number * 1000)
    index.truncate(position)
    index.close()
    left = {path: data for path, data in disk.snapshot().items() if path.is_relative_to(DIRECTORY)}
    assert left == as_if_written(10, position)
    again = make_index(disk)
    kept = [number for number in range(10) if number * 10 < position]
    assert find(again, "k") == [number * 10 for number in reversed(kept)]
    assert again.end_position == (kept[-1] * 10 if kept else -1)
    put(again, ["new"], 5000)
    assert find(again, "new") == [5000]


def test_truncate_finds_entries_the_header_does_not_know() -> None:
    """After a crash the header may be older than the entries, and the slots older than both."""
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a"], 10)
    header = bytes(index.files[0].buffer[:40])
    put(index, ["b"], 20)
    index.files[0].buffer[:40] = header
    index.files[0].buffer[40 : 40 + 4 * SLOTS] = bytes(4 * SLOTS)
    index.truncate(21)
    assert (find(index, "a"), find(index, "b"), index.end_position) == ([10], [20], 20)


def test_after_a_truncation_the_last_record_is_found_at_its_very_time() -> None:
    """The end time of the header is made from entries then, which know whole seconds only."""
    index = make_index(make_disk())
    put(index, ["a"], 10, NOON)
    put(index, ["b"], 20, NOON + 1999)
    put(index, ["c"], 30, NOON + 3000)
    index.truncate(30)
    assert index.end_time == NOON + 1000
    assert find(index, "b", NOON + 1999, NOON + 1999) == [20]
    assert find(index, "b", NOON + 2000, FOREVER) == []


def test_what_was_cut_off_does_not_come_back_after_a_sync() -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["a"], 10)
    put(index, ["b"], 20)
    index.sync()
    index.truncate(15)
    index.sync()
    assert find(make_index(disk.crash("drop")), "b") == []


def test_files_without_records_go_but_never_the_last() -> None:
    disk = make_disk()
    index = make_index(disk)
    for position in range(21):
        put(index, ["k"], position)
    for position, gone in ((6, 0), (7, 1), (1000, 1)):
        detached = index.detach_before(position)
        assert len(detached) == gone
        for file in detached:
            index.dispose(file)
    assert len(disk.list(DIRECTORY)) == len(index.files) == 1
    index.clear()
    assert (disk.list(DIRECTORY), index.end_position, index.end_time) == ([], -1, 0)


# --- syncing --------------------------------------------------------------------------------------------------------


def test_synced_entries_survive_with_their_files() -> None:
    disk = make_disk()
    disk.strict_datasync = True
    disk.make_directory(DIRECTORY)
    disk.sync_directory(ROOT)
    index = make_index(disk)
    for position in range(10):
        put(index, ["k"], position)
    index.sync()
    put(index, ["k"], 10)
    assert find(make_index(disk.crash("drop")), "k") == list(range(9, -1, -1))
    calls = disk.calls
    index.sync()
    index.sync()
    assert disk.calls == calls + 1  # only the file that changed, and only once


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_failed_sync_is_made_again(operation: str) -> None:
    disk = make_disk()
    index = make_index(disk)
    put(index, ["k", "l"], 1)
    disk.fail_next(operation, Fault.EIO)
    with pytest.raises(StoreIOError):
        index.sync()
    index.sync()
    assert find(make_index(disk.crash("drop")), "k") == [1]


def test_an_entry_written_during_a_failed_sync_is_not_forgotten() -> None:
    disk = make_disk()
    index = make_index(disk, entries=1000)
    put(index, ["k"], 1)

    def put_meanwhile(number: int, operation: str, path: str) -> None:
        if operation == "sync":
            disk.on_call = None
            put(index, [f"m{n}" for n in range(100)], 2)
            disk.fail(number, Fault.EIO)

    disk.on_call = put_meanwhile
    with pytest.raises(StoreIOError):
        index.sync()
    index.sync()
    assert find(make_index(disk.crash("drop"), entries=1000), "m99") == [2]


def test_a_file_is_left_only_when_it_is_full() -> None:
    disk = make_disk()
    index = Index(disk, DIRECTORY, 100, 300_000, VirtualClock())
    index.reserve(1)
    step = index.files[-1].room
    assert step < 100_000, "room is reserved in smaller steps than the file has"
    for position in range(5):
        index.add([position * 7 + number for number in range(step // 2)], position, 1)
    assert len(index.files) == 1
