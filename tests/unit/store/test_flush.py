"""Flush: what a sync covers, what a failed one leaves to do, and which waiters are notified when."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eruca._ground.config import StoreOptions
from eruca._store.flush import FlushSchedule, GroupCommit
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import Fault, SimulatedDisk
from eruca._wire.record import Record
from eruca.errors import StoreError, StoreIOError
from tests.unit.store.samples import (
    SEGMENT_BYTES,
    get_queue,
    make_disk,
    make_message,
    make_options,
    open_small,
    read_bodies,
    sized_message,
    wait_for,
)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """One flush thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def end_of(message: Record) -> int:
    """The position after a stored message."""
    return message.position + message.size


def count_log_syncs(disk: SimulatedDisk) -> int:
    """How often a segment of the commit log was synced."""
    return len([call for call in disk.trace if call[1] == "sync" and "commitlog" in call[2]])


# --- the flusher ----------------------------------------------------------------------------------------------------


def test_a_sync_covers_everything_written_before_it() -> None:
    disk = make_disk()
    store = open_small(disk)
    first = store.append(make_message())
    assert store.flusher.waiting_bytes == end_of(first)
    assert store.flusher.sync_log() == end_of(first) == store.flusher.flushed
    assert store.flusher.waiting_bytes == 0
    calls = disk.calls
    assert store.flusher.sync_log() == end_of(first)
    assert disk.calls == calls  # nothing new, nothing to do
    assert store.flusher.sync_ms_max >= store.flusher.sync_ms_last >= 0


def test_only_segments_with_new_bytes_are_synced() -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(sized_message(3000))
    store.flusher.sync_log()
    for _ in range(3):
        store.append(sized_message(3000))
    before = count_log_syncs(disk)
    store.flusher.sync_log()
    assert count_log_syncs(disk) - before == 4
    store.append(sized_message(1000))
    store.flusher.sync_log()
    assert count_log_syncs(disk) - before == 5
    assert read_bodies(open_small(disk.crash("drop")))[-1] == sized_message(1000).body


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_failed_sync_counts_nothing_and_the_next_writes_it_again(fault: Fault) -> None:
    disk = make_disk()
    store = open_small(disk)
    store.append(make_message(body=b"one"))
    disk.fail_next("sync", fault)
    with pytest.raises(StoreError):
        store.flusher.sync_log()
    assert (store.flusher.flushed, store.flusher.sync_failures) == (0, 1)
    store.flusher.sync_log()
    assert read_bodies(open_small(disk.crash("drop"))) == [b"one"]


def test_a_record_appended_during_a_failed_sync_is_not_forgotten() -> None:
    """The kernel forgets every dirty page of the file, not only those the sync was meant for."""
    disk = make_disk()
    store = open_small(disk)
    store.append(sized_message(600))

    def append_meanwhile(number: int, operation: str, path: str) -> None:
        if operation == "sync":
            disk.on_call = None
            store.append(sized_message(2000))
            disk.fail(number, Fault.EIO)

    disk.on_call = append_meanwhile
    with pytest.raises(StoreIOError):
        store.flusher.sync_log()
    assert store.flusher.sync_log() == 2600
    assert [len(body) for body in read_bodies(open_small(disk.crash("drop")))] == [503, 1903]


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_derived_files_are_synced_again_after_a_failure_of_any_of_them(fault: Fault) -> None:
    for failing in range(1, 5):
        disk = make_disk()
        store = open_small(disk)
        for number in range(3):
            store.append(make_message(queue_id=number % 2, body=b"%d" % number, KEYS=f"k{number}"))
        store.flusher.sync_log()
        seen: list[str] = []

        def fail_one(
            number: int,
            operation: str,
            path: str,
            disk: SimulatedDisk = disk,
            seen: list[str] = seen,
            failing: int = failing,
        ) -> None:
            if operation == "sync":
                seen.append(path)
                if len(seen) == failing:
                    disk.fail(number, fault)

        disk.on_call = fail_one
        with pytest.raises(StoreError):
            store.flusher.sync_derived()
        assert store.checkpoint.position in (None, 0, store.log.tail)
        disk.on_call = None
        store.flusher.sync_derived()
        left = disk.crash("drop")
        durable = left.snapshot(durable=True)
        for path, data in disk.snapshot().items():
            assert path.name == "lock" or durable[path] == data


def test_the_checkpoint_never_says_more_than_is_on_the_disk() -> None:
    disk = make_disk()
    clock = VirtualClock()
    store = open_small(disk, clock)
    store.append(make_message(KEYS="k"))
    synced = clock.now_ms()
    store.flusher.sync_log()
    clock.advance(10)
    store.append(make_message())
    store.flusher.sync_derived()
    checkpoint = store.checkpoint
    assert (checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time) == (synced, synced, synced)
    assert checkpoint.position == store.flusher.flushed < store.log.tail


# --- group commit ---------------------------------------------------------------------------------------------------


async def test_many_waiters_are_answered_by_few_syncs(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor)
    futures = []
    for number in range(64):
        message = store.append(make_message(queue_id=number % 4, body=b"%d" % number))
        futures.append(group.when_flushed(end_of(message)))
        if number % 8 == 7:
            await asyncio.sleep(0)
    assert await asyncio.gather(*futures) == [True] * 64
    assert store.flusher.flushed == store.log.tail
    syncs = count_log_syncs(disk)
    segments = len(store.log.chain.segments)
    assert syncs <= 9 + segments
    left = open_small(disk.crash("drop"))
    assert sum(len(read_bodies(left, queue_id=number)) for number in range(4)) == 64
    await group.close()


async def test_what_is_on_the_disk_already_is_answered_at_once(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    message = store.append(make_message())
    store.flusher.sync_log()
    calls = disk.calls
    future = GroupCommit(store.flusher, executor).when_flushed(end_of(message))
    assert future.done() and future.result() is True
    assert disk.calls == calls


async def test_nobody_is_told_before_a_sync_succeeds(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor, retry_ms=1)
    message = store.append(make_message(body=b"kept"))
    disk.fail_next("sync", Fault.EIO, times=3)
    with caplog.at_level(logging.ERROR):
        future = group.when_flushed(end_of(message))
        while store.flusher.sync_failures < 3:
            assert not future.done()
            await asyncio.sleep(0.001)
        assert await future is True
    # It is retried after a moment each time, and logged now and then.
    assert caplog.text.count("sync failed, retrying") == 1
    assert read_bodies(open_small(disk.crash("drop"))) == [b"kept"]
    await group.close()


async def test_a_waiter_that_came_during_a_sync_waits_for_the_next(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor)
    in_sync, may_go = threading.Event(), threading.Event()

    def hold_back(number: int, operation: str, path: str) -> None:
        if operation == "sync" and not in_sync.is_set():
            in_sync.set()
            assert may_go.wait(10)

    first = store.append(make_message())
    disk.on_call = hold_back
    waiting = group.when_flushed(end_of(first))
    await wait_for(in_sync.is_set)
    goal = store.flusher.flushed
    # The disk's guard is held by the sync, as a file's would not be; the append must not ask for it.
    second = store.append(make_message())
    late = group.when_flushed(end_of(second))
    assert store.flusher.flushed == goal
    may_go.set()
    assert await waiting is True
    assert await late is True
    assert store.flusher.flushed == end_of(second)
    await group.close()


async def test_close_tells_whoever_still_waits_no(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor, retry_ms=1)
    messages = [store.append(make_message()) for _ in range(3)]
    disk.broken_sync = True
    futures = [group.when_flushed(end_of(message)) for message in messages]
    await wait_for(lambda: store.flusher.sync_failures >= 2)
    await group.close()
    assert [future.result() for future in futures] == [False] * 3
    await group.close()  # a second time does nothing


async def test_waiters_that_gave_up_are_forgotten(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor, retry_ms=1)
    messages = [store.append(make_message()) for _ in range(5)]
    disk.broken_sync = True
    futures = [group.when_flushed(end_of(message)) for message in messages]
    for future in futures[:4]:
        future.cancel()
    failures = store.flusher.sync_failures
    await wait_for(lambda: store.flusher.sync_failures >= failures + 2)
    disk.broken_sync = False
    assert await futures[4] is True
    assert all(future.cancelled() for future in futures[:4])
    await group.close()


async def test_who_wants_a_position_is_told_of_every_sync_until_it_is_there(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor)
    told: list[int] = []
    group.flushed.listen(told.append)
    ends = [end_of(store.append(make_message())) for _ in range(3)]
    for end in ends:
        group.want(end)
    await wait_for(lambda: told == [ends[-1]])
    # Another sync was faster: the waiter is notified all the same.
    end = end_of(store.append(make_message()))
    store.flusher.sync_log()
    group.want(end)
    await wait_for(lambda: len(told) == 2)
    assert told == [ends[-1], end]
    await group.close()


async def test_a_disk_that_nobody_wants_any_more_is_left_alone(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor, retry_ms=1)
    message = store.append(make_message())
    disk.broken_sync = True
    group.want(end_of(message))
    await wait_for(lambda: store.flusher.sync_failures >= 2)
    group.stop_wanting()
    await wait_for(lambda: group.is_idle)
    failures = store.flusher.sync_failures
    await asyncio.sleep(0.01)
    assert store.flusher.sync_failures == failures
    await group.close()


async def test_nobody_waits_for_what_was_cut_off(executor: ThreadPoolExecutor) -> None:
    disk = make_disk()
    store = open_small(disk)
    group = GroupCommit(store.flusher, executor)
    first = store.append(make_message())
    second = store.append(make_message())
    waiting = group.when_flushed(end_of(second))
    group.want(end_of(second))
    store.lineage.truncate(end_of(first), epoch=1)
    assert await waiting is False
    await wait_for(lambda: group.is_idle)
    assert await group.when_flushed(end_of(first)) is True
    await group.close()


async def test_group_commit_on_the_real_disk(tmp_path: Path) -> None:
    """The loop makes no blocking call while it appends and waits; opening and closing are for a thread."""

    def open_with_queues() -> MessageStore:
        store = open_store(tmp_path, make_options(commitlog_segment_bytes=1024 * 1024, index_entries=4096))
        for queue_id in range(4):
            for _ in range(2):
                store.append(make_message(queue_id=queue_id, KEYS="k"))
            get_queue(store, queue_id=queue_id).reserve(100)
        return store

    store = await asyncio.to_thread(open_with_queues)
    pool = ThreadPoolExecutor(1)
    group = GroupCommit(store.flusher, pool)
    messages = [store.append(make_message(queue_id=n % 4, body=b"%d" % n, KEYS="k")) for n in range(64)]
    assert await asyncio.gather(*[group.when_flushed(end_of(m)) for m in messages]) == [True] * 64
    await group.close()
    await asyncio.to_thread(pool.shutdown)
    await asyncio.to_thread(store.close)
    assert store.flusher.flushed == store.log.tail


# --- schedule -------------------------------------------------------------------------------------------------------


def test_a_flush_is_due_by_time_and_pages() -> None:
    clock = VirtualClock()
    schedule = FlushSchedule(500, 4, 10_000, clock.monotonic)
    page = 4096
    assert not schedule.is_due(100 * page)
    clock.advance(499)
    assert not schedule.is_due(100 * page)
    clock.advance(1)
    assert schedule.is_due(4 * page)
    assert not schedule.is_due(4 * page - 1)  # too little yet
    clock.advance(9499)
    assert not schedule.is_due(1)
    clock.advance(1)
    assert schedule.is_due(1)  # however little: it has waited long enough
    assert not schedule.is_due(0)
    schedule.mark()
    assert not schedule.is_due(100 * page)


def test_the_defaults_are_javas() -> None:
    options = StoreOptions()
    assert (options.flush_interval_ms, options.flush_pages_min, options.flush_thorough_ms) == (500, 4, 10_000)
    assert (options.sync_flush_timeout_ms, options.queue_flush_interval_ms) == (5000, 1000)
    assert SEGMENT_BYTES == 4096
