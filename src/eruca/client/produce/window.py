"""Backpressure: how much may be under way at the same time, by count and by bytes."""

from __future__ import annotations

import asyncio
from collections import deque


class Window:
    """Lets in as much as fits; the rest waits in the order it came."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._emptied: asyncio.Event | None = None

    def try_enter(self, size: int) -> bool:
        """Enter if there is room and nobody waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    def _fits(self, size: int) -> bool:
        # One that is larger than the whole window goes alone.
        return self.count < self._count_max and (self.bytes + size <= self._bytes_max or not self.count)

    async def enter(self, size: int) -> None:
        """Wait for room."""
        if self.try_enter(size):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, size))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(size)  # let in at the moment it was cancelled
            raise

    def leave(self, size: int) -> None:
        """Make room again."""
        self.count -= 1
        self.bytes -= size
        waiting = self._waiting
        while waiting:
            future, wanted = waiting[0]
            if future.done():
                waiting.popleft()
                continue
            if not self._fits(wanted):
                break
            waiting.popleft()
            self.count += 1
            self.bytes += wanted
            future.set_result(None)
        if not self.count and self._emptied is not None:
            self._emptied.set()

    async def wait_empty(self) -> None:
        """Wait until nothing is under way and nobody waits for room."""
        while self.count:
            self._emptied = asyncio.Event()
            await self._emptied.wait()
