"""Saving tables without stopping the loop: changes are gathered and written by one thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from eruca.errors import StoreError
from eruca.store.tables import TableFile
from eruca.wire.bodies import JsonBody

log = logging.getLogger(__name__)

Table = TypeVar("Table", bound=JsonBody)


class TableSaver:
    """Writes tables that changed; several changes before the disk is free make one write."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="eruca-tables")
        self._sources: dict[str, Callable[[], Callable[[], None]]] = {}
        self._changed: set[str] = set()
        # Tables with a change that is not on the disk yet: waiting for the thread, or in its hands.
        self.unsaved: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, name: str, file: TableFile[Table], snapshot: Callable[[], Table]) -> None:
        """Know a table: `snapshot` gives its content at the moment of a save."""

        def prepare() -> Callable[[], None]:
            content = snapshot()
            return lambda: file.save(content)

        self._sources[name] = prepare

    def mark(self, name: str) -> None:
        """The table changed; it is written soon."""
        self._changed.add(name)
        self.unsaved.add(name)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save_changed())

    async def _save_changed(self) -> None:
        loop = asyncio.get_running_loop()
        while self._changed:
            name = self._changed.pop()
            try:
                await loop.run_in_executor(self._executor, self._sources[name]())
            except StoreError as error:
                log.error("%s could not be saved: %s", name, error)
            if name not in self._changed:
                self.unsaved.discard(name)

    async def wait_until_saved(self, name: str) -> None:
        """Wait until the changes made so far are written, or could not be and the log says why."""
        while name in self.unsaved and self._task is not None:
            # Shielded: whoever waits may give up, the write goes on.
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Write every table once more and stop."""
        if self._task is not None:
            await self._task
        self._changed.update(self._sources)
        await self._save_changed()
        await asyncio.to_thread(self._executor.shutdown)
