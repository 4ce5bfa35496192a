"""What a store does in the background of a loop: flush, commit, retention, and the wait of a sync-flush append."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from eruca._ground.clock import SystemClock
from eruca._ground.config import FlushMode
from eruca._store.background import StoreBackground
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.faults import Fault, SimulatedDisk
from tests.unit.store.samples import (
    ROOT,
    SEGMENT_BYTES,
    get_queue,
    make_disk,
    make_message,
    make_options,
    read_bodies,
    sized_message,
    wait_for,
)

NEVER_MS = 10**9


@asynccontextmanager
async def run_background(
    disk: SimulatedDisk, retention_interval_ms: int = NEVER_MS, **changes: Any
) -> AsyncIterator[tuple[MessageStore, StoreBackground]]:
    """A store with its timers running; all intervals are out of reach unless given."""
    intervals = {"flush_interval_ms": NEVER_MS, "queue_flush_interval_ms": NEVER_MS, "commit_interval_ms": NEVER_MS}
    store = open_store(ROOT, make_options(**(intervals | changes)), disk=disk, clock=SystemClock())
    background = StoreBackground(store, retention_interval_ms=retention_interval_ms)
    background.start()
    try:
        yield store, background
    finally:
        await background.stop()


async def test_start_and_stop_leave_the_store_open() -> None:
    disk = make_disk()
    async with run_background(disk) as (store, background):
        assert background.retention.deleted_segments == 0
    assert len(asyncio.all_tasks()) == 1  # only this test
    store.append(make_message(body=b"after"))
    store.close()
    assert not disk.exists(ROOT / "abort")


async def test_stop_waits_for_the_thread_without_blocking_the_loop() -> None:
    disk = make_disk()
    async with run_background(disk, queue_flush_interval_ms=1) as (store, background):
        calls = disk.calls
        await wait_for(lambda: disk.calls > calls + 3)
        store.append(make_message())
    calls = disk.calls
    await asyncio.sleep(0.005)
    assert disk.calls == calls
    await background.stop()  # a second time does nothing


async def test_sync_flush_acknowledges_what_is_on_the_disk() -> None:
    disk = make_disk()
    async with run_background(disk, flush_mode=FlushMode.SYNC) as (store, background):
        messages = [store.append(make_message(body=b"%d" % number)) for number in range(20)]
        answers = await asyncio.gather(
            *[background.group_commit.when_flushed(message.position + message.size) for message in messages]
        )
        assert answers == [True] * 20
    left = open_store(ROOT, make_options(), disk=disk.crash("drop"), clock=SystemClock())
    assert read_bodies(left) == [b"%d" % number for number in range(20)]


async def test_stop_tells_waiting_senders_no() -> None:
    disk = make_disk()
    async with run_background(disk, flush_mode=FlushMode.SYNC) as (store, background):
        message = store.append(make_message())
        disk.broken_sync = True
        waiting = background.group_commit.when_flushed(message.position + message.size)
        await wait_for(lambda: store.flusher.sync_failures > 0)
    assert await waiting is False


async def test_enough_pages_are_flushed_at_the_interval() -> None:
    disk = make_disk()
    async with run_background(disk, flush_interval_ms=2, flush_pages_min=1, flush_thorough_ms=NEVER_MS) as (store, _):
        store.append(sized_message(1000))
        await asyncio.sleep(0.02)
        assert store.flusher.flushed == 0  # not a page yet
        for _ in range(4):
            store.append(sized_message(1000))
        await wait_for(lambda: store.flusher.flushed == store.log.tail)


async def test_a_few_bytes_are_flushed_after_a_while() -> None:
    disk = make_disk()
    async with run_background(disk, flush_interval_ms=2, flush_pages_min=100, flush_thorough_ms=10) as (store, _):
        store.append(make_message())
        await wait_for(lambda: store.flusher.flushed == store.log.tail)
        assert store.flusher.waiting_bytes == 0


async def test_a_failed_flush_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = make_disk()
    with caplog.at_level(logging.ERROR):
        async with run_background(disk, flush_interval_ms=1, flush_thorough_ms=1) as (store, _):
            disk.fail_next("sync", Fault.EIO, times=2)
            store.append(make_message())
            await wait_for(lambda: store.flusher.flushed == store.log.tail)
    assert store.flusher.sync_failures == 2
    assert "the flush of the log failed, retrying" in caplog.text


async def test_queues_index_and_checkpoint_follow() -> None:
    disk = make_disk()
    async with run_background(disk, flush_interval_ms=1, flush_thorough_ms=1, queue_flush_interval_ms=1) as (store, _):
        message = store.append(make_message(KEYS="k"))
        await wait_for(lambda: store.checkpoint.position == store.log.tail)
        assert store.checkpoint.queue_time == store.checkpoint.index_time == message.store_timestamp


async def test_the_transient_buffer_is_committed_on_a_timer() -> None:
    disk = make_disk()
    async with run_background(disk, transient_enabled=True, commit_interval_ms=1) as (store, _):
        arrived: list[int] = []
        store.dispatched.listen(lambda grown: arrived.extend([queue.max_offset for queue, _ in grown]))
        store.append(make_message(body=b"x"))
        assert get_queue(store).max_offset == 0
        await wait_for(lambda: arrived == [1])
        assert read_bodies(store) == [b"x"]


async def test_retention_runs_on_its_timer() -> None:
    disk = make_disk()
    disk.usage = 0.5
    # Not the hour of now, in which files of this disk would be deleted by their age.
    other_hour = f"{(datetime.now().hour + 12) % 24:02d}"
    often = {"retention_interval_ms": 1, "flush_interval_ms": 1, "flush_thorough_ms": 1}
    async with run_background(disk, delete_hours=other_hour, **often) as (store, background):
        for _ in range(6):
            store.append(sized_message(3000))
        await wait_for(lambda: store.flusher.flushed == store.log.tail)
        assert store.log.start == 0
        disk.usage = 0.86
        await wait_for(lambda: len(store.log.chain.segments) == 1)
        await wait_for(lambda: background.retention.deleted_segments == 5)
        assert get_queue(store).min_offset == 5
        disk.usage = 0.91
        await wait_for(lambda: bool(store.refusal))
        disk.usage = 0.5
        await wait_for(lambda: not store.refusal)
        store.append(make_message())
    assert disk.list(ROOT / "commitlog") == [f"{5 * SEGMENT_BYTES:020d}"]


async def test_a_timer_survives_an_error_nobody_expected(caplog: pytest.LogCaptureFixture) -> None:
    """A timer that dies silently would mean that nothing is flushed anymore."""
    disk = make_disk()
    with caplog.at_level(logging.ERROR):
        async with run_background(disk, queue_flush_interval_ms=1) as (store, _):
            times = 0

            def fail_once() -> None:
                nonlocal times
                times += 1
                if times == 1:
                    raise ValueError("a mistake")

            store.flusher.sync_derived = fail_once  # type: ignore[method-assign]
            await wait_for(lambda: times > 1)
    assert "a mistake" in caplog.text


async def test_on_the_real_disk_no_timer_blocks_the_loop(tmp_path: Path) -> None:
    def in_thread(work: Callable[[], Any]) -> Any:
        return asyncio.to_thread(work)

    options = make_options(
        flush_interval_ms=1, flush_thorough_ms=1, queue_flush_interval_ms=1, flush_mode=FlushMode.SYNC
    )
    store = await in_thread(lambda: open_store(tmp_path, options))
    await in_thread(lambda: store.append(make_message(KEYS="k")))
    background = StoreBackground(store, retention_interval_ms=1)
    background.start()
    message = store.append(make_message(KEYS="k"))
    assert await background.group_commit.when_flushed(message.position + message.size) is True
    await wait_for(lambda: store.checkpoint.position == store.log.tail)
    await background.stop()
    await in_thread(store.close)
    assert store.flusher.flushed == message.position + message.size
