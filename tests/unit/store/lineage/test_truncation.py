"""Cutting a log back: what goes is set aside first, and a crash at any call leaves the log whole or cut."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from functools import cache

import pytest

from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import CrashMode, Fault, SimulatedDisk
from eruca._wire.epoch import Epoch
from eruca._wire.names import TIMER_TOPIC
from eruca._wire.record import decode_record
from eruca.errors import StoreError
from tests.crash.world import PowerCut
from tests.unit.store.replicas import copy_log, expect_same, expect_sound, fill, make_master, make_slave, read_log
from tests.unit.store.samples import (
    ROOT,
    SEGMENT_BYTES,
    get_queue,
    make_disk,
    make_message,
    make_options,
    open_small,
    read_aside,
    read_bodies,
)

DIVERGED = ROOT / "eruca-diverged"


def disk_of(store: MessageStore) -> SimulatedDisk:
    """The fault disk below a store."""
    assert isinstance(store.disk, SimulatedDisk)
    return store.disk


@cache
def make_fork(seed: int = 1) -> tuple[SimulatedDisk, SimulatedDisk, int, int]:
    """Two logs that are the same up to a position: the old master's, the new one's, where they part, the old end."""
    rng = random.Random(f"fork:{seed}")
    old = make_master(seed, 50)
    common = old.log.tail
    new = make_slave()
    replica = ReplicaLog(new)
    copy_log(old, replica)
    replica.finish()
    new.fence("")
    old.lineage.begin_epoch(1)
    new.lineage.begin_epoch(2)
    for store, first in ((old, 1000), (new, 2000)):
        assert isinstance(store.clock, VirtualClock)
        store.clock.advance(10_000)
        fill(store, store.clock, rng, 40, first=first)
        store.flusher.sync_log()
        store.flusher.sync_derived()
        fill(store, store.clock, rng, 5, first=first + 100)
        store.flusher.sync_log()
    return disk_of(old), disk_of(new), common, old.log.tail


def reopen(disk: SimulatedDisk) -> MessageStore:
    """Open what a killed process left."""
    return open_store(ROOT, make_options(), disk=disk.kill(), clock=VirtualClock())


def expect_follower(old: MessageStore, new: MessageStore, common: int) -> None:
    """A store that was cut must become a copy of the new master's."""
    assert old.log.tail == old.log.readable_end == common
    old.fence("slave")
    copy_log(new, ReplicaLog(old), random.Random(3))
    expect_same(old, new)


# --- the cut --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_log_that_was_cut_becomes_a_copy_of_the_other(seed: int) -> None:
    old_disk, new_disk, common, old_end = make_fork(seed)
    old, new = reopen(old_disk), reopen(new_disk)
    tail_bytes = read_log(old, common, old_end)
    lost = [
        decode_record(record).body
        for queue in old.queues
        for offset in range(queue.min_offset, queue.max_offset)
        if (entry := queue.entry(offset)) is not None
        and entry.position >= common
        and (record := old.reader.view_record(entry.position)) is not None
    ]
    row = old.lineage.truncate(common, epoch=1)
    assert row is not None
    assert (row.epoch, row.begin, row.end) == (1, common, old_end)
    assert row.file == f"1-{common}-{old_end}.log"
    assert disk_of(old).read_file(DIVERGED / row.file) == tail_bytes
    assert old.lineage.record.diverged == [row]
    assert set(read_aside(old, row.file)) >= set(lost)
    assert old.lineage.record.truncating == -1
    assert old.lineage.epochs == []
    assert old.lineage.seen_epoch == 1
    assert old.flusher.flushed == common
    twin = disk_of(old).crash(CrashMode.DROP)
    expect_follower(old, new, common)
    old.close()
    expect_sound(disk_of(old))
    expect_follower(open_store(ROOT, make_options(), disk=twin, clock=VirtualClock()), new, common)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_cut_store_is_as_one_that_never_had_more(seed: int) -> None:
    """Also the index, entry by entry and slot by slot."""
    old_disk, _, common, _ = make_fork(seed)
    old = reopen(old_disk)
    fresh = make_slave()
    copy_log(old, ReplicaLog(fresh), end=common)
    old.lineage.truncate(common, epoch=1)
    expect_same(old, fresh)
    assert old.flusher.last_store_time == fresh.flusher.last_store_time
    assert old.checkpoint.log_time <= fresh.flusher.last_store_time


@pytest.mark.parametrize("place", ["first", "segment", "blank", "middle", "middle of the first record", "nearly all"])
def test_a_log_can_be_cut_anywhere(place: str) -> None:
    master = make_master(8, 90)
    log = master.log
    starts = [
        entry.position
        for queue in master.queues
        for offset in range(queue.max_offset)
        if (entry := queue.entry(offset)) is not None
    ]
    starts.sort()
    last_of_segment = max(start for start in starts if start < 2 * SEGMENT_BYTES)
    record = master.reader.view_record(last_of_segment)
    assert record is not None
    blank = last_of_segment + len(record)
    asked, expected = {
        "first": (0, 0),
        "segment": (2 * SEGMENT_BYTES, 2 * SEGMENT_BYTES),
        "blank": (blank + 1, blank),
        "middle": (last_of_segment + 50, last_of_segment),
        "middle of the first record": (3, 0),
        "nearly all": (log.tail - 1, starts[-1]),
    }[place]
    whole = read_log(master, 0, log.tail)
    row = master.lineage.truncate(asked, epoch=0)
    assert row is not None
    assert (row.begin, row.end) == (expected, len(whole))
    assert log.tail == log.readable_end == expected
    fresh = make_slave()
    if expected:
        ReplicaLog(fresh).append(0, whole[:expected])
    expect_same(master, fresh)
    stored = master.append(make_message("new"))
    assert (stored.position >= expected, stored.queue_offset) == (True, 0)
    master.close()
    expect_sound(disk_of(master))


def test_where_nothing_is_to_be_cut_nothing_happens() -> None:
    store = make_master(9, 5)
    calls = disk_of(store).calls
    for position in (store.log.tail, store.log.tail + 1, store.log.tail + 100_000):
        assert store.lineage.truncate(position, epoch=1) is None
        assert store.lineage.set_aside(position, epoch=1) is None
    assert disk_of(store).calls == calls


def test_a_part_of_a_record_goes_along() -> None:
    master, slave = make_master(10, 20), make_slave()
    replica = ReplicaLog(slave)
    end = master.log.tail - 3
    copy_log(master, replica, end=end)
    cut = replica.dispatched
    row = slave.lineage.truncate(end - 1, epoch=0)
    assert row is not None
    assert (row.begin, row.end, slave.log.tail) == (cut, end, cut)
    assert not read_aside(slave, row.file)
    copy_log(master, ReplicaLog(slave))
    expect_same(slave, master)


def test_a_log_that_shares_nothing_is_emptied_and_begins_elsewhere() -> None:
    """Its oldest part was deleted, and where the logs part is before what is left."""
    old, new = make_master(11, 120), make_master(12, 160)
    for _ in range(2):
        old.log.chain.dispose(old.log.chain.detach_first())
    for queue in old.queues:
        queue.raise_min(old.log.start)
    begin, end = old.log.start, old.log.tail
    row = old.lineage.truncate(100, epoch=3)
    assert row is not None
    assert (row.begin, row.end) == (begin, end)
    assert (old.log.start, old.log.tail) == (0, 0)
    assert not len(old.queues)
    last = new.log.tail - new.log.tail % SEGMENT_BYTES
    ReplicaLog(old).append(last, read_log(new, last, new.log.tail))
    assert read_log(old, last, new.log.tail) == read_log(new, last, new.log.tail)
    old.close()
    expect_sound(disk_of(old))


def test_the_first_segment_that_is_left_says_where_the_log_goes_on() -> None:
    store = make_master(11, 120)
    store.log.chain.dispose(store.log.chain.detach_first())
    for queue in store.queues:
        queue.raise_min(store.log.start)
    assert store.lineage.truncate(SEGMENT_BYTES, epoch=3) is not None
    assert (store.log.start, store.log.tail) == (SEGMENT_BYTES, SEGMENT_BYTES)
    again = reopen(disk_of(store))
    assert (again.log.start, again.log.tail) == (SEGMENT_BYTES, SEGMENT_BYTES)


def test_a_cut_inside_damage_takes_all_of_it() -> None:
    """A list of damage that goes beyond the end of the log would hide what is written there next."""
    disk = make_disk()
    store = open_small(disk)
    places = [store.append(make_message(body=b"x" * 400)).position for _ in range(12)]
    store.flusher.sync_log()
    for place in places[4:6]:
        disk.flip_bit(ROOT / "commitlog" / f"{0:020d}", place + 4, 1)
    again = reopen(disk)
    assert [(item.position, item.end) for item in again.damage.items] == [(places[4], places[6])]
    row = again.lineage.truncate(places[5], epoch=1)
    assert row is not None
    assert row.begin == again.log.tail == places[4]
    assert again.damage.items == []
    assert again.append(make_message(body=b"new")).queue_offset == 4
    assert read_bodies(again)[-1] == b"new"


def test_epochs_that_have_no_byte_left_go() -> None:
    store = open_small(make_disk())
    store.lineage.begin_epoch(1)
    first = store.append(make_message()).size
    store.lineage.begin_epoch(2)
    second = first + store.append(make_message()).size
    store.lineage.begin_epoch(3)
    store.append(make_message())
    store.lineage.truncate(second, epoch=3)
    assert (store.lineage.epochs, store.lineage.seen_epoch) == ([Epoch(1, 0), Epoch(2, first)], 3)


def test_what_tells_of_the_log_is_corrected() -> None:
    store = open_small(make_disk())
    disk = disk_of(store)
    cut = store.append(make_message(TIMER_TOPIC)).size
    store.append(make_message(TIMER_TOPIC))
    store.append(make_message("gone"))
    store.append(make_message("orders"))
    store.detach_topic("gone")()
    store.archived.write(store.log.tail)
    store.change_options(replace(store.options, archived_position=store.log.tail))
    told: list[tuple[int, int]] = []
    store.lineage.was_cut.listen(lambda position: told.append((position, store.log.tail)))
    store.lineage.truncate(cut, epoch=1)
    # Listeners that keep tables about the log are called when it is cut.
    assert (told, store.lineage.cuts) == ([(cut, cut)], 1)
    assert store.removed.positions == {"gone": cut}
    assert (store.archived.read(), store.options.archived_position) == (cut, cut)
    # A topic deleted after the cut may be created again from the cut on.
    assert store.append(make_message("gone", body=b"back")).queue_offset == 0
    again = reopen(disk)
    assert read_bodies(again, "gone") == [b"back"]
    assert get_queue(again, TIMER_TOPIC).max_offset == 1


def test_the_store_touches_no_table_of_others_when_it_is_cut() -> None:
    store = open_small(make_disk())
    disk, paths = disk_of(store), store.paths
    cut = store.append(make_message(TIMER_TOPIC)).size
    store.append(make_message(TIMER_TOPIC))
    disk.make_directory(paths.timer)
    disk.make_directory(paths.config)
    for name in (paths.timer / "checkpoint", paths.once):
        disk.write_file(name, b"theirs")
    store.lineage.truncate(cut, epoch=1)
    assert [disk.read_file(name) for name in (paths.timer / "checkpoint", paths.once)] == [b"theirs", b"theirs"]


def test_nobody_is_told_when_nothing_is_cut() -> None:
    store = open_small(make_disk())
    end = store.append(make_message()).size
    told: list[int] = []
    store.lineage.was_cut.listen(told.append)
    assert store.lineage.truncate(end, epoch=1) is None
    assert (told, store.lineage.cuts) == ([], 0)


# --- setting aside --------------------------------------------------------------------------------------------------


def test_setting_aside_first_spares_the_cut_the_copy() -> None:
    old_disk, _, common, _ = make_fork()
    old = reopen(old_disk)
    before = old.lineage.set_aside(common, epoch=1)
    disk_of(old).trace.clear()
    after = old.lineage.truncate(common, epoch=1)
    assert before is not None
    assert after is not None
    assert before.file == after.file
    assert not [call for call in disk_of(old).trace if call[1] == "create" and "diverged" in call[2]]


def test_another_tail_of_the_same_name_does_not_replace_the_first() -> None:
    store = open_small(make_disk())
    rows = []
    for body in (b"one", b"two", b"two"):
        store.append(make_message(body=body))
        row = store.lineage.truncate(0, epoch=0)
        assert row is not None
        rows.append(row)
    size = rows[0].end
    assert [row.file for row in rows] == [f"0-0-{size}.log", f"0-0-{size}-2.log", f"0-0-{size}-2.log"]
    assert store.lineage.record.diverged == rows
    assert [read_aside(store, row.file) for row in rows] == [[b"one"], [b"two"], [b"two"]]
    disk_of(store).remove(DIVERGED / rows[0].file)
    with pytest.raises(StoreError, match="no longer exists"):
        read_aside(store, rows[0].file)
    assert [read_aside(store, row.file) for row in rows[1:]] == [[b"two"], [b"two"]]


@pytest.mark.parametrize("name", ["../config/topics.json", "1-0-5.log", ""])
def test_only_what_was_set_aside_is_read(name: str) -> None:
    with pytest.raises(StoreError, match="nothing was set aside"):
        read_aside(open_small(make_disk()), name)


def test_a_disk_without_room_for_the_tail_keeps_the_log() -> None:
    old_disk, new_disk, common, old_end = make_fork()
    old = reopen(old_disk)
    disk_of(old).full = True
    with pytest.raises(StoreError):
        old.lineage.truncate(common, epoch=1)
    assert old.log.tail == old_end
    assert old.lineage.record.truncating == -1
    disk_of(old).full = False
    old.lineage.truncate(common, epoch=1)
    expect_follower(old, reopen(new_disk), common)


# --- crashes --------------------------------------------------------------------------------------------------------


def count_calls(seed: int) -> int:
    """How many calls of the disk a cut makes."""
    old_disk, _, common, _ = make_fork(seed)
    old = reopen(old_disk)
    before = disk_of(old).calls
    old.lineage.truncate(common, epoch=1)
    return disk_of(old).calls - before


@pytest.mark.parametrize("mode", [None, CrashMode.DROP, CrashMode.SECTORS, CrashMode.PREFIX, CrashMode.RANDOM])
def test_a_crash_at_any_call_leaves_the_log_whole_or_cut(mode: CrashMode | None) -> None:
    old_disk, new_disk, common, old_end = make_fork()
    new = reopen(new_disk)
    tail_bytes = read_log(reopen(old_disk), common, old_end)
    outcomes = set()
    for call in range(1, count_calls(1) + 1):
        old = reopen(old_disk)
        disk = disk_of(old)
        left: list[SimulatedDisk] = []
        cut_power(disk, call, mode, left)
        with contextlib.suppress(PowerCut):
            old.lineage.truncate(common, epoch=1)
        again = open_store(ROOT, make_options(), disk=left[0], clock=VirtualClock())
        assert again.lineage.record.truncating == -1
        outcomes.add(again.log.tail)
        assert again.log.tail in (common, old_end), f"call {call}"
        if again.log.tail == old_end:
            assert read_log(again, common, old_end) == tail_bytes
            assert not again.lineage.record.diverged
            assert again.lineage.truncate(common, epoch=1) is not None
        (row,) = again.lineage.record.diverged
        assert left[0].read_file(DIVERGED / row.file) == tail_bytes
        expect_follower(again, new, common)
        again.close()
        expect_sound(left[0])
    assert outcomes == {common, old_end}


def cut_power(disk: SimulatedDisk, call: int, mode: CrashMode | None, left: list[SimulatedDisk]) -> None:
    """Let the power go at a call from now on; `left` gets what the next process finds."""
    first = disk.calls

    def count(number: int, operation: str, path: str) -> None:
        if number - first == call:
            left.append(disk.kill() if mode is None else disk.crash(mode, seed=call))
            raise PowerCut

    disk.on_call = count


def test_a_crash_at_any_call_of_the_start_that_finishes_a_cut() -> None:
    old_disk, new_disk, common, _ = make_fork()
    new = reopen(new_disk)
    calls = count_calls(1)
    begun: list[SimulatedDisk] = []
    for call in range(1, calls + 1):
        old = reopen(old_disk)
        left: list[SimulatedDisk] = []
        cut_power(disk_of(old), call, CrashMode.DROP, left)
        with contextlib.suppress(PowerCut):
            old.lineage.truncate(common, epoch=1)
        if b'"truncating": -1' not in left[0].read_file(old.paths.replication):
            begun.append(left[0])
    assert len(begun) > 3
    for number in (0, len(begun) // 2, len(begun) - 1):
        whole = begun[number].kill()
        before = whole.calls
        open_store(ROOT, make_options(), disk=whole, clock=VirtualClock())
        for call in range(1, whole.calls - before + 1, 3):
            disk = begun[number].kill()
            left = []
            cut_power(disk, call, (None, CrashMode.DROP, CrashMode.RANDOM)[call % 3], left)
            with contextlib.suppress(PowerCut):
                open_store(ROOT, make_options(), disk=disk, clock=VirtualClock())
            again = open_store(ROOT, make_options(), disk=left[0], clock=VirtualClock())
            assert again.lineage.record.truncating == -1
            expect_follower(again, new, common)


def test_a_call_that_fails_is_tried_again() -> None:
    old_disk, new_disk, common, old_end = make_fork()
    new = reopen(new_disk)
    for call in range(1, count_calls(1) + 1):
        for fault in (Fault.EIO, Fault.ENOSPC):
            old = reopen(old_disk)
            disk = disk_of(old)
            disk.fail(disk.calls + call, fault)
            with contextlib.suppress(StoreError):
                old.lineage.truncate(common, epoch=1)
            if old.lineage.record.truncating >= 0:
                with pytest.raises(StoreError):
                    old.lineage.begin_epoch(9)
                if call % 2:
                    ReplicaLog(old)  # it ends what was begun
            if old.log.tail != common or old.lineage.record.truncating >= 0:
                row = old.lineage.truncate(common, epoch=1)
                assert row is not None
                assert (row.begin, row.end) == (common, old_end)
            assert old.lineage.record.truncating == -1, f"call {call} {fault}"
            (row,) = old.lineage.record.diverged
            expect_follower(old, new, common)
