"""Chains: names, gaps, growth in the background, and what is left when making a segment fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from eruca._store.log.chain import Chain
from eruca._store.log.segment import Segment
from eruca._testing.faults import Fault, SimulatedDisk
from eruca.errors import StoreError, StoreFull, StoreIOError, StoreLayoutError

DIRECTORY = Path("/store/log")
SIZE = 4096


def make_chain(
    disk: SimulatedDisk, executor: Executor | None = None, *, durable: bool = True, size: int = SIZE
) -> Chain:
    """A loaded chain on a disk."""
    chain = Chain(disk, DIRECTORY, size, durable=durable, size_key="sizeKey", executor=executor)
    chain.load()
    return chain


def grow(chain: Chain, count: int) -> None:
    """Add segments one after the other."""
    for _ in range(count):
        chain.segment_for(chain.end)


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty disk."""
    return SimulatedDisk()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """One background thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


# --- loading --------------------------------------------------------------------------------------------------------


def test_an_empty_chain_has_no_bounds(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    assert (chain.start, chain.end, chain.segments, chain.find(0)) == (0, 0, [], None)
    assert disk.is_directory(DIRECTORY)


def test_names_are_positions_in_twenty_digits(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 3)
    assert disk.list(DIRECTORY) == [f"{n * SIZE:020d}" for n in range(3)]
    chain.close()
    again = make_chain(disk)
    assert [(s.start, s.end, s.size) for s in again.segments] == [(n * SIZE, (n + 1) * SIZE, SIZE) for n in range(3)]


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "0", "0000000000000000000x", "00000000000000000000.bak", f"{100:020d}", "\u0660" * 20, "²" * 20],
)
def test_a_foreign_file_is_refused(disk: SimulatedDisk, name: str) -> None:
    disk.make_directory(DIRECTORY)
    disk.write_file(DIRECTORY / name, bytes(SIZE))
    with pytest.raises(StoreLayoutError):
        make_chain(disk)


def test_a_wrong_size_names_the_setting_that_would_fit(disk: SimulatedDisk) -> None:
    disk.make_directory(DIRECTORY)
    disk.write_file(DIRECTORY / f"{0:020d}", bytes(100))
    with pytest.raises(StoreLayoutError, match="has 100 bytes, but sizeKey is 4096") as caught:
        make_chain(disk)
    assert "sizeKey=100" in caught.value.hint


def test_a_gap_is_refused_and_named(disk: SimulatedDisk) -> None:
    disk.make_directory(DIRECTORY)
    for start in (SIZE, 3 * SIZE):
        disk.write_file(DIRECTORY / f"{start:020d}", bytes(SIZE))
    with pytest.raises(StoreLayoutError, match=f"{2 * SIZE:020d} is missing"):
        make_chain(disk)


def test_staging_leftovers_of_this_chain_are_removed(disk: SimulatedDisk) -> None:
    disk.make_directory(DIRECTORY)
    mine = DIRECTORY.parent / f".eruca-new-log-{0:020d}"
    other = DIRECTORY.parent / f".eruca-new-logs-{0:020d}"
    disk.write_file(mine, b"")
    disk.write_file(other, b"")
    make_chain(disk)
    assert not disk.exists(mine)
    assert disk.exists(other)


def test_a_chain_opened_to_look_changes_nothing(disk: SimulatedDisk) -> None:
    grow(make_chain(disk), 1)
    disk.write_file(DIRECTORY.parent / f".eruca-new-log-{SIZE:020d}", b"")
    before = disk.snapshot()
    chain = Chain(disk, DIRECTORY, SIZE, durable=True, size_key="sizeKey")
    chain.load(writable=False)
    assert len(chain.segments) == 1
    assert disk.snapshot() == before


# --- looking --------------------------------------------------------------------------------------------------------


def test_find_knows_both_ends_of_each_segment(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 3)
    chain.dispose(chain.detach_first())
    assert chain.start == SIZE
    for position, number in ((SIZE, 0), (2 * SIZE - 1, 0), (2 * SIZE, 1), (3 * SIZE - 1, 1)):
        assert chain.find(position) is chain.segments[number]
    for position in (-1, 0, SIZE - 1, 3 * SIZE, 10 * SIZE):
        assert chain.find(position) is None


def test_from_position_begins_with_the_segment_that_holds_it(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 3)
    assert [s.start for s in chain.from_position(SIZE - 1)] == [0, SIZE, 2 * SIZE]
    assert [s.start for s in chain.from_position(SIZE)] == [SIZE, 2 * SIZE]
    assert list(chain.from_position(3 * SIZE)) == []


def test_a_walk_misses_no_segment_when_the_first_is_taken_out_meanwhile(disk: SimulatedDisk) -> None:
    """The flush thread walks while the loop deletes; a segment it misses would count as synced."""
    chain = make_chain(disk)
    grow(chain, 4)
    walk = chain.from_position(SIZE)
    assert next(walk).start == SIZE
    chain.dispose(chain.detach_first())
    assert [s.start for s in walk] == [2 * SIZE, 3 * SIZE]


def test_view_is_a_window_into_the_mapping(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 2)
    segment = chain.segments[1]
    segment.buffer[10:15] = b"hello"
    view = segment.view(SIZE + 10, 5)
    assert bytes(view) == b"hello"
    segment.buffer[10] = ord("j")
    assert bytes(view) == b"jello"


# --- growing --------------------------------------------------------------------------------------------------------


def test_the_next_segment_is_ready_before_the_roll(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    warmed: list[int] = []
    chain.prepare_next(lambda segment: warmed.append(segment.start))
    executor.submit(int).result()  # the thread is past it now
    assert disk.exists(chain.path_of(SIZE))
    assert warmed == [SIZE]
    assert chain.end == SIZE  # it is not part of the chain before it is needed
    created = len([call for call in disk.trace if call[1] == "create"])
    assert chain.segment_for(SIZE).start == SIZE
    assert len([call for call in disk.trace if call[1] == "create"]) == created


def test_one_segment_is_prepared_at_a_time(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    for _ in range(5):
        chain.prepare_next()
    executor.submit(int).result()
    assert disk.list(DIRECTORY) == [f"{0:020d}", f"{SIZE:020d}"]


def test_a_roll_waits_for_a_segment_on_its_way(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    may_go, begun = threading.Event(), threading.Event()

    def hold_back(segment: Segment) -> None:
        begun.set()
        assert may_go.wait(10)

    chain.prepare_next(hold_back)
    assert begun.wait(10)
    threading.Timer(0.01, may_go.set).start()
    assert chain.segment_for(SIZE).start == SIZE
    assert may_go.is_set()


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EIO])
def test_a_failed_preparation_is_made_again_when_it_is_needed(
    disk: SimulatedDisk, executor: ThreadPoolExecutor, fault: Fault
) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    disk.fail_next("create", fault, times=2)
    chain.prepare_next()
    with pytest.raises(StoreFull if fault is Fault.ENOSPC else StoreIOError):
        chain.segment_for(SIZE)  # once in the background, once more now
    assert disk.list(DIRECTORY) == [f"{0:020d}"]  # nothing half-made in the chain
    assert chain.segment_for(SIZE).start == SIZE
    assert disk.list(DIRECTORY) == [f"{0:020d}", f"{SIZE:020d}"]


def test_a_preparation_that_failed_does_not_keep_a_chain_from_closing(
    disk: SimulatedDisk, executor: ThreadPoolExecutor
) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    disk.full = True
    chain.prepare_next()
    chain.close()
    assert chain.segments == []
    assert len(make_chain(disk).segments) == 1


def test_a_preparation_that_was_called_off_does_not_keep_a_chain_from_closing(disk: SimulatedDisk) -> None:
    begun, may_go = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        chain = make_chain(disk, pool)
        grow(chain, 1)
        pool.submit(begun.set)
        pool.submit(may_go.wait, 10)
        assert begun.wait(10)
        chain.prepare_next()
        pool.shutdown(wait=False, cancel_futures=True)
        may_go.set()
        chain.close()
    assert chain.segments == []


def test_without_executor_nothing_is_prepared(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 1)
    chain.prepare_next()
    assert disk.list(DIRECTORY) == [f"{0:020d}"]


def test_a_prepared_segment_is_taken_in_when_the_chain_closes(
    disk: SimulatedDisk, executor: ThreadPoolExecutor
) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 1)
    chain.prepare_next()
    chain.close()
    assert disk.mapped == {}
    assert [s.start for s in make_chain(disk).segments] == [0, SIZE]


def test_a_chain_may_begin_anywhere_but_not_have_a_hole(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    assert chain.segment_for(5 * SIZE + 7).start == 5 * SIZE
    with pytest.raises(StoreError, match="the chain ends at"):
        chain.segment_for(7 * SIZE)
    with pytest.raises(StoreError, match="the chain ends at"):
        chain.segment_for(0)


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_segment_survives_at_once_the_other_after_its_names_are_synced(
    disk: SimulatedDisk, durable: bool
) -> None:
    chain = make_chain(disk, durable=durable)
    grow(chain, 1)
    assert disk.crash("drop").exists(chain.path_of(0)) is durable
    chain.sync_names(DIRECTORY)
    assert disk.crash("drop").exists(chain.path_of(0))


def test_names_that_could_not_be_synced_are_synced_again(disk: SimulatedDisk) -> None:
    chain = make_chain(disk, durable=False)
    grow(chain, 1)
    disk.fail_next("sync_directory", Fault.EIO)
    with pytest.raises(StoreIOError):
        chain.sync_names(DIRECTORY)
    chain.sync_names(DIRECTORY)
    assert disk.crash("drop").exists(chain.path_of(0))
    calls = disk.calls
    chain.sync_names(DIRECTORY)
    assert disk.calls == calls  # nothing new, nothing to do


def test_blocks_are_reserved_in_steps(disk: SimulatedDisk) -> None:
    chain = make_chain(disk, durable=False, size=64 * 1024)
    grow(chain, 1)
    segment = chain.segments[0]
    segment.ensure_allocated(20, 8192)
    assert segment.allocated_end == 8192
    calls = disk.calls
    segment.ensure_allocated(8192, 8192)
    assert disk.calls == calls
    segment.ensure_allocated(8193, 8192)
    assert segment.allocated_end == 16_384
    segment.ensure_allocated(64 * 1024, 8192)
    assert segment.allocated_end == segment.size


def test_a_failed_reservation_is_not_remembered_as_done(disk: SimulatedDisk) -> None:
    chain = make_chain(disk, durable=False)
    grow(chain, 1)
    disk.fail_next("allocate", Fault.ENOSPC)
    with pytest.raises(StoreFull):
        chain.segments[0].ensure_allocated(20, 100)
    assert chain.segments[0].allocated_end == 0


# --- shrinking ------------------------------------------------------------------------------------------------------


def test_remove_from_keeps_what_starts_before(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 4)
    chain.remove_from(SIZE + 1)
    assert disk.list(DIRECTORY) == [f"{0:020d}", f"{SIZE:020d}"]
    chain.remove_from(0)
    assert (chain.segments, disk.list(DIRECTORY), disk.mapped) == ([], [], {})


def test_a_file_that_cannot_be_removed_stays_in_the_chain(disk: SimulatedDisk) -> None:
    chain = make_chain(disk)
    grow(chain, 2)
    disk.fail_next("remove", Fault.EIO)
    with pytest.raises(StoreIOError):
        chain.remove_from(SIZE)
    assert chain.end == 2 * SIZE
    chain.remove_from(SIZE)
    assert chain.end == SIZE


def test_destroy_leaves_no_trace(disk: SimulatedDisk, executor: ThreadPoolExecutor) -> None:
    chain = make_chain(disk, executor)
    grow(chain, 2)
    chain.prepare_next()
    chain.destroy()
    assert not disk.exists(DIRECTORY)
    assert disk.mapped == {}


@pytest.mark.parametrize("position", [0, 1, SIZE - 1, SIZE, SIZE + 100, 2 * SIZE])
def test_zero_from_clears_to_the_end_of_one_segment(disk: SimulatedDisk, position: int) -> None:
    chain = make_chain(disk)
    grow(chain, 2)
    for segment in chain.segments:
        segment.buffer[:] = b"\xff" * SIZE
    chain.zero_from(position)
    expected = bytearray(b"\xff" * 2 * SIZE)
    if position < 2 * SIZE:
        stop = (position // SIZE + 1) * SIZE
        expected[position:stop] = bytes(stop - position)
    assert b"".join([bytes(segment.buffer) for segment in chain.segments]) == expected


def test_zero_from_finds_bytes_behind_a_hole(disk: SimulatedDisk) -> None:
    chain = make_chain(disk, size=1024 * 1024)
    grow(chain, 1)
    chain.segments[0].buffer[900_000] = 7
    chain.zero_from(0)
    assert bytes(chain.segments[0].buffer) == bytes(1024 * 1024)
