"""What a store does in the background while an event loop owns it: flush, commit, retention.

Syncs run in a separate thread; everything that touches the store's lists runs in the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from eruca._ground.repeating import Repeating
from eruca._store.flush import FlushSchedule, GroupCommit
from eruca._store.messagestore import MessageStore
from eruca._store.retention import Retention

Result = TypeVar("Result")

log = logging.getLogger(__name__)

# How often the disk is checked, as Java's cleanResourceInterval.
RETENTION_INTERVAL_MS = 10_000


class StoreBackground:
    """The timers of one store, and the syncs that acknowledgements wait for."""

    def __init__(self, store: MessageStore, *, retention_interval_ms: int = RETENTION_INTERVAL_MS) -> None:
        self.store = store
        self.retention = Retention(store)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eruca-flush")
        self.group_commit = GroupCommit(store.flusher, self._executor)
        self._retention_interval_ms = retention_interval_ms
        self._timers: list[Repeating] = []

    def start(self) -> None:
        """Start the timers; needs a running loop."""
        options = self.store.options
        self._timers = [
            # Read before each wait, because an operator may change it.
            Repeating("the flush of the log", self._make_flush(), lambda: self.store.options.flush_interval_ms / 1000),
            Repeating("the flush of the queues", self._flush_derived, lambda: options.queue_flush_interval_ms / 1000),
            Repeating("retention", self._retain, lambda: self._retention_interval_ms / 1000),
        ]
        if options.transient_enabled:
            commit_s = options.commit_interval_ms / 1000
            self._timers.append(Repeating("the commit of the transient buffer", self._commit, lambda: commit_s))
        for timer in self._timers:
            timer.start()

    def follow_options(self) -> None:
        """Apply changed store options to the intervals of the timers."""
        for timer in self._timers:
            timer.look_again()

    async def stop(self) -> None:
        """Stop the timers; the store itself stays open."""
        for timer in self._timers:
            await timer.stop()
        self._timers.clear()
        await self.group_commit.close()
        await asyncio.to_thread(self._executor.shutdown)  # waits for a sync in progress

    def sync(self) -> asyncio.Future[bool]:
        """Sync everything stored so far; False when the store closed before that was done."""
        self.store.commit()
        return self.group_commit.when_flushed(self.store.log.readable_end)

    def _make_schedule(self) -> FlushSchedule:
        options = self.store.options
        return FlushSchedule(
            options.flush_interval_ms, options.flush_pages_min, options.flush_thorough_ms, self.store.clock.monotonic
        )

    def _make_flush(self) -> Callable[[], Awaitable[None]]:
        options = self.store.options
        schedule = self._make_schedule()

        async def flush() -> None:
            nonlocal options, schedule
            if options is not self.store.options:
                options = self.store.options
                schedule = self._make_schedule()
            if schedule.is_due(self.store.flusher.waiting_bytes):
                await self._in_thread(self.store.flusher.sync_log)
                schedule.mark()

        return flush

    async def _flush_derived(self) -> None:
        await self._in_thread(self.store.flusher.sync_derived)

    async def _commit(self) -> None:
        self.store.commit()

    async def _retain(self) -> None:
        await self.retain()

    async def retain(self, *, asked: bool = False) -> int:
        """Run one pass of retention; returns the number of segments removed. `asked`: an operator requested it."""
        facts = await self._in_thread(self.retention.observe)
        plan, detached = self.retention.apply(facts, asked=asked)
        if detached:
            await self._in_thread(lambda: self.retention.dispose(detached))
        return plan.delete_count

    async def remove_topic(self, topic: str) -> None:
        """Delete the consume queues of a topic without blocking the loop."""
        await self._in_thread(self.store.detach_topic(topic))

    async def clean_derived(self) -> int:
        """Delete queue and index files whose records are all gone; returns how many."""
        count = self.retention.detach_derived()
        if count:
            await self._in_thread(lambda: self.retention.dispose([]))
        return count

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
