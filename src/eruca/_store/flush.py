"""Flush: writing bytes to disk, and answering those who wait for it.

`Flusher` does the work and may run in a thread (a sync releases the GIL). `GroupCommit` lets any number of senders
wait for one sync: requests that arrive during a sync are covered by the next one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from eruca._ground.signals import Signal
from eruca._observe.metrics import Histogram
from eruca._store.log.commitlog import CommitLog
from eruca._store.queues.index import Index
from eruca._store.queues.queueends import EndsFile
from eruca._store.queues.queues import Queues
from eruca._store.recovery.checkpoint import Checkpoint
from eruca.errors import StoreError

log = logging.getLogger(__name__)

PAGE_BYTES = 4096
# A disk that fails to sync is retried continuously, but logged this often.
_SAY_AGAIN_S = 10.0


class Flusher:
    """Syncs the commit log, then the files derived from it."""

    def __init__(
        self,
        commitlog: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        ends: EndsFile,
    ) -> None:
        self._ends = ends
        self._commitlog = commitlog
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        # Held during a sync, and while files are removed that a sync may be using.
        self.guard = threading.Lock()
        # Every byte of the log before this is on the disk.
        self.flushed = 0
        # As `flushed`, at the end of a record: a replica syncs parts of records too.
        self._records_end = 0
        # Store time of the last record written; the append path sets it.
        self.last_store_time = 0
        # How long the last sync took, and the longest one, in milliseconds; and all of them, in seconds.
        self.sync_ms_last = 0.0
        self.sync_ms_max = 0.0
        self.sync_times = Histogram()
        self.sync_failures = 0

    def begin_at(self, position: int) -> None:
        """Continue at a record boundary before which everything is on the disk."""
        self.flushed = self._records_end = position

    @property
    def waiting_bytes(self) -> int:
        """Bytes written but not yet known to be on the disk."""
        return self._commitlog.tail - self.flushed

    def sync_log(self) -> int:
        """Sync what has been written so far; returns the position up to which the disk has everything.

        After a failed sync the kernel counts the pages as clean although they were not written, so the range is
        written again before the next try; until one succeeds, nothing of it counts as flushed.
        """
        with self.guard:
            return self._sync_log()

    def _sync_log(self) -> int:
        store_time = self.last_store_time
        records_end = self._commitlog.readable_end
        goal = self._commitlog.written_end
        if goal <= self.flushed:
            return self.flushed
        started = time.perf_counter()
        for segment in list(self._commitlog.chain.segments):
            if segment.end <= self.flushed or segment.start >= goal:
                continue
            try:
                segment.mapping.sync()
            except StoreError:
                self.sync_failures += 1
                # The kernel also forgets what was appended since, so the range extends to the current end of the log.
                low = max(self.flushed, segment.start) - segment.start
                segment.mapping.rewrite(low, min(self._commitlog.written_end, segment.end) - segment.start)
                raise
            if segment.end <= goal:
                segment.mapping.let_go()
        self.sync_ms_last = (time.perf_counter() - started) * 1000
        self.sync_ms_max = max(self.sync_ms_max, self.sync_ms_last)
        self.sync_times.observe(self.sync_ms_last / 1000)
        self.flushed = goal
        self._records_end = min(goal, records_end)
        self._checkpoint.log_time = store_time
        return goal

    def sync_derived(self) -> None:
        """Sync queues and index, then note it in the checkpoint."""
        with self.guard:
            self._sync_derived()

    def _sync_derived(self) -> None:
        store_time = min(self.last_store_time, self._checkpoint.log_time)
        # A replica has bytes on the disk whose records are not dispatched yet.
        flushed = min(self.flushed, self._records_end, self._commitlog.readable_end)
        self._queues.sync()
        self._checkpoint.queue_time = store_time
        if self._index is not None:
            self._index.sync()
            # 0 where no record has a key; otherwise a start would take the index for lost and read the whole log again.
            self._checkpoint.index_time = store_time if self._index.files else 0
        if self._ends.is_due(flushed, self._commitlog.chain.segment_bytes):
            self._write_ends(flushed)
        self._checkpoint.position = flushed
        self._checkpoint.save()

    def write_ends(self) -> None:
        """Write the list of ends at a clean stop."""
        with self.guard:
            if self._ends.position != self._commitlog.readable_end:
                self._write_ends(self._commitlog.readable_end)

    def _write_ends(self, position: int) -> None:
        self._ends.write(position, self._commitlog.start, self._queues.values(), self._index)


class GroupCommit:
    """Completes the waits of senders when the sync that covers their record is done."""

    def __init__(self, flusher: Flusher, executor: Executor, *, retry_ms: int = 50) -> None:
        self._flusher = flusher
        self._executor = executor
        self._retry_s = retry_ms / 1000
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()
        # The position requested by `want`; 0 when the disk has reached it.
        self._wanted = 0
        #: Called after each sync with the position the disk has reached.
        self.flushed: Signal[int] = Signal()
        self._task: asyncio.Task[None] | None = None
        self._said_at = float("-inf")

    def want(self, position: int) -> None:
        """Have every byte before a position synced; `flushed` reports each sync. The cheap way for many waiters."""
        self._wanted = max(self._wanted, position)
        self._start()

    def stop_wanting(self) -> None:
        """Nothing waits for `flushed` anymore: a failing disk need not be retried continuously."""
        self._wanted = 0

    @property
    def is_idle(self) -> bool:
        """Is nothing waiting for a sync?"""
        return self._task is None or self._task.done()

    def when_flushed(self, position: int) -> asyncio.Future[bool]:
        """A future that becomes True when every byte before a position is on the disk.

        The caller bounds the wait; a record whose sync failed stays unanswered until a later sync covers it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        if position <= self._flusher.flushed:
            future.set_result(True)
            return future
        self._waiting.append((position, future))
        self._start()
        return future

    def _start(self) -> None:
        if self.is_idle:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or self._wanted:
            try:
                flushed = await loop.run_in_executor(self._executor, self._flusher.sync_log)
            except StoreError as error:
                if loop.time() - self._said_at >= _SAY_AGAIN_S:
                    self._said_at = loop.time()
                    log.error("sync failed, retrying: %s", error)
                self._drop_abandoned()
                await asyncio.sleep(self._retry_s)
                continue
            # Records are in log order, so those that the sync covers are at the front.
            while self._waiting and self._waiting[0][0] <= flushed:
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(True)
            # After the log was cut, the disk never reaches what was requested before.
            is_all = self._flusher.waiting_bytes <= 0
            if is_all or flushed >= self._wanted:
                self._wanted = 0
            if is_all:
                self._refuse_waiting()
            self.flushed.tell(flushed)

    def _drop_abandoned(self) -> None:
        """Drop abandoned waiters, so that they do not accumulate while the disk fails."""
        self._waiting = deque(item for item in self._waiting if not item[1].done())

    async def close(self) -> None:
        """Stop; futures that are still waiting get False."""
        self._wanted = 0
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(False)


class FlushSchedule:
    """Decides when an async flush is due: by time, but not for a few bytes unless they have waited long."""

    def __init__(self, interval_ms: int, pages_min: int, thorough_ms: int, monotonic: Callable[[], float]) -> None:
        self._interval_s = interval_ms / 1000
        self._bytes_min = pages_min * PAGE_BYTES
        self._thorough_s = thorough_ms / 1000
        self._monotonic = monotonic
        self._last = monotonic()

    def is_due(self, waiting_bytes: int) -> bool:
        """Is it time to sync, with this many bytes waiting?"""
        elapsed = self._monotonic() - self._last
        if waiting_bytes <= 0:
            return False
        if elapsed >= self._thorough_s:
            return True
        return elapsed >= self._interval_s and waiting_bytes >= self._bytes_min

    def mark(self) -> None:
        """Note that a sync was done."""
        self._last = self._monotonic()
