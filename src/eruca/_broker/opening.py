"""Opening a broker's store. This may take long, so it can be cancelled without waiting for recovery to finish."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from eruca._ground.clock import Clock
from eruca._ground.config import StoreOptions
from eruca._store.filesystem import FileSystem
from eruca._store.log.scan import Progress
from eruca._store.messagestore import MessageStore, open_store
from eruca.errors import StoreError


async def open_in_thread(
    root: Path,
    options: StoreOptions,
    *,
    disk: FileSystem,
    clock: Clock,
    executor: ThreadPoolExecutor,
    progress: Progress | None,
    commitlog: Path | None,
) -> MessageStore:
    """Open a store in a thread. `progress` is called there with the number of bytes that recovery has read.

    If this is cancelled, recovery stops at its next progress report, and the next start continues it.
    """
    is_cancelled = False

    def note_progress(count: int) -> None:
        if is_cancelled:
            raise StoreError("the broker was stopped while it was opening the store")
        if progress is not None:
            progress(count)

    work = partial(
        open_store,
        root,
        options,
        disk=disk,
        clock=clock,
        executor=executor,
        progress=note_progress,
        commitlog=commitlog,
    )
    opening = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        is_cancelled = True
        found = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(found, MessageStore):
            await asyncio.to_thread(found.close)
        raise
