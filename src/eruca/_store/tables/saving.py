"""Saving tables without blocking the loop: changes are collected and written by one thread, until they are on the disk.

A failed save is retried, sooner while something waits for it, and waiters get the error: success is reported only
when the table is on the disk. At a stop, tables that could not be saved are reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar

from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody
from eruca.errors import StoreError, TableUnsaved

log = logging.getLogger(__name__)

Table = TypeVar("Table", bound=JsonBody)
# Called when the changes made so far are on the disk, or with the reason they are not.
Saved: TypeAlias = Callable[[StoreError | None], None]

# A table that could not be saved is tried again after a pause, which doubles up to the longest one. Waiters wait for
# the next try, so while there are any, it comes after the shortest pause.
_RETRY_S_MIN: Final = 0.25
_RETRY_S_MAX: Final = 5.0
# After a save there is a pause as long as the save took, at most this long, unless something waits: a table that
# changes all the time must not be written all the time.
_PAUSE_S_MAX: Final = 1.0
# A disk that stays full is not logged at every try.
_LOG_AGAIN_S: Final = 60.0


class _Source:
    """One table: how to write it, and what is not written yet."""

    def __init__(self, name: str, prepare: Callable[[], Callable[[], None]], on_saved: Callable[[], None]) -> None:
        self.name = name
        self.prepare = prepare
        self.on_saved = on_saved
        # Has it changed since the last snapshot?
        self.is_changed = False
        # Waiters for the next snapshot, and for the one that is being written.
        self.waiting: list[Saved] = []
        self.writing: list[Saved] | None = None
        self.pause_until = 0.0
        self.failures = 0
        self.failed_at = 0.0
        self.logged_at = 0.0

    @property
    def due_at(self) -> float:
        """The loop time of the next try; 0 for at once."""
        if not self.failures:
            return 0.0 if self.waiting else self.pause_until
        pause_s = _RETRY_S_MIN if self.waiting else min(_RETRY_S_MAX, _RETRY_S_MIN * 2 ** min(self.failures, 16))
        return self.failed_at + pause_s


class TableSaver:
    """Writes tables that changed; several changes before the disk is free make one write."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eruca-tables")
        self._sources: dict[str, _Source] = {}
        # Tables with a change that is not on the disk yet: waiting for the thread, being written, or to be retried.
        self.unsaved: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        name: str,
        file: TableFile[Table],
        snapshot: Callable[[], Table],
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Register a table: `snapshot` returns its content at the moment of a save, `on_saved` is called after it."""

        def prepare() -> Callable[[], None]:
            content = snapshot()
            return lambda: file.save(content)

        known = self._sources.get(name)
        if known is None:
            self._sources[name] = _Source(name, prepare, on_saved)
        else:
            known.prepare, known.on_saved = prepare, on_saved

    def mark(self, name: str) -> None:
        """The table changed; it will be written soon."""
        self._sources[name].is_changed = True
        self.unsaved.add(name)
        self._start()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save_due())

    # -- waiting -----------------------------------------------------------------------------------------------------

    def when_saved(self, name: str, then: Saved) -> None:
        """Call `then` when the changes made so far are on the disk, or with the error of the next try to write them."""
        if name not in self.unsaved:
            then(None)
            return
        source = self._sources[name]
        if source.is_changed or source.writing is None:
            source.waiting.append(then)
            self._start()
        else:
            source.writing.append(then)  # the snapshot that is being written has every change made so far

    async def wait_until_saved(self, name: str) -> None:
        """Wait until the changes made so far are on the disk. Raises TableUnsaved when they could not be written."""
        if name not in self.unsaved:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StoreError | None) -> None:
            if future.done():
                return  # the waiter gave up
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(_describe({name: error}))

        self.when_saved(name, finish)
        await future

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _save_due(self) -> None:
        loop = asyncio.get_running_loop()
        while changed := [source for source in self._sources.values() if source.is_changed]:
            source = min(changed, key=lambda each: each.due_at)
            if source.due_at > loop.time():
                self._wake_at(source.due_at)
                return
            await self._save(source)

    def _wake_at(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(time, self._start)

    async def _save(self, source: _Source) -> StoreError | None:
        """Write a table once, and notify the waiters."""
        loop = asyncio.get_running_loop()
        source.is_changed = False
        self.unsaved.add(source.name)
        source.writing, source.waiting = source.waiting, []
        error: StoreError | None = None
        started = loop.time()
        try:
            await loop.run_in_executor(self._executor, source.prepare())
        except StoreError as failure:
            error = failure
        except Exception as failure:  # a bug must not stop saving for good
            log.exception("%s could not be saved", source.name)
            error = StoreError(f"{failure.__class__.__name__}: {failure}")
        now = loop.time()
        source.pause_until = now + min(_PAUSE_S_MAX, now - started)
        if error is None:
            self._note_saved(source)
        else:
            self._note_failed(source, error, now)
        waiting, source.writing = source.writing, None
        for then in waiting:
            try:
                then(error)
            except Exception:
                log.exception("%s: a callback that waited for the save failed", source.name)
        return error

    def _note_saved(self, source: _Source) -> None:
        if source.failures:
            log.warning("%s was saved after %d failed tries", source.name, source.failures)
            source.failures = 0
        source.on_saved()
        if not source.is_changed:
            self.unsaved.discard(source.name)

    def _note_failed(self, source: _Source, error: StoreError, now: float) -> None:
        source.is_changed = True
        source.failures += 1
        source.failed_at = now
        if source.failures == 1 or now - source.logged_at >= _LOG_AGAIN_S:
            source.logged_at = now
            log.error("%s could not be saved: %s; retrying", source.name, error)

    async def close(self, *, everything: bool = True) -> None:
        """Write every table once more (or only changed ones) and stop. Raises TableUnsaved when that failed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task
            if self._timer is not None:
                self._timer.cancel()
        failed: dict[str, StoreError] = {}
        for source in [each for each in self._sources.values() if everything or each.name in self.unsaved]:
            error = await self._save(source)
            if error is not None:
                failed[source.name] = error
        await asyncio.to_thread(self._executor.shutdown)
        if failed:
            raise _describe(failed)


def _describe(failed: dict[str, StoreError]) -> TableUnsaved:
    text = "; ".join(f"{name} could not be saved: {error.args[0]}" for name, error in failed.items())
    return TableUnsaved(text, hint=next((error.hint for error in failed.values() if error.hint), None))
