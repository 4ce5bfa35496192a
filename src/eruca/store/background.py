"""What a store does by itself while an event loop owns it: flush, commit, retention.

Syncs run in a thread of their own; everything that touches the store's lists runs in the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from eruca.config import FlushMode
from eruca.errors import StoreError
from eruca.store.flush import FlushSchedule, GroupCommit
from eruca.store.messagestore import MessageStore
from eruca.store.retention import Retention

Result = TypeVar("Result")

log = logging.getLogger(__name__)

# The disk is looked at this often, Java's cleanResourceInterval.
RETENTION_INTERVAL_MS = 10_000


class StoreBackground:
    """The timers of one store, and the wait for the disk that an acknowledgement may need."""

    def __init__(self, store: MessageStore, *, retention_interval_ms: int = RETENTION_INTERVAL_MS) -> None:
        self.store = store
        self.retention = Retention(store)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eruca-flush")
        self.group_commit = GroupCommit(store.flusher, self._executor)
        self._retention_interval_ms = retention_interval_ms
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the timers; needs a running loop."""
        options = self.store.options
        timers: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (options.flush_interval_ms, self._make_flush()),
            (options.queue_flush_interval_ms, self._flush_derived),
            (self._retention_interval_ms, self._retain),
        ]
        if options.transient_enabled:
            timers.append((options.commit_interval_ms, self._commit))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._every(interval_ms, work)) for interval_ms, work in timers]

    async def wait_until_acknowledged(self, position: int) -> bool:
        """Wait until an append that ends at a position may be acknowledged; False when the disk took too long."""
        options = self.store.options
        if options.flush_mode is FlushMode.ASYNC:
            return True
        future = self.group_commit.when_flushed(position)
        try:
            return await asyncio.wait_for(future, options.sync_flush_timeout_ms / 1000)
        except TimeoutError:
            return False

    async def stop(self) -> None:
        """Stop the timers; the store itself stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.group_commit.close()
        await asyncio.to_thread(self._executor.shutdown)  # it waits for a sync that is under way

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except StoreError as error:
                log.error("%s; trying again in %d ms", error, interval_ms)
            except Exception:  # a mistake of ours must not end the timer: nothing would be flushed any more
                log.exception("a timer of the store failed; trying again in %d ms", interval_ms)

    def _make_flush(self) -> Callable[[], Awaitable[None]]:
        options = self.store.options
        schedule = FlushSchedule(
            options.flush_interval_ms, options.flush_pages_min, options.flush_thorough_ms, self.store.clock.monotonic
        )

        async def flush() -> None:
            if schedule.is_due(self.store.flusher.waiting_bytes):
                await self._in_thread(self.store.flusher.sync_log)
                schedule.mark()

        return flush

    async def _flush_derived(self) -> None:
        await self._in_thread(self.store.flusher.sync_derived)

    async def _commit(self) -> None:
        self.store.commit()

    async def _retain(self) -> None:
        facts = await self._in_thread(self.retention.observe)
        _, detached = self.retention.apply(facts)
        if detached:
            await self._in_thread(lambda: self.retention.dispose(detached))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
