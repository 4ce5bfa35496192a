"""Backpressure: limits what is in flight at the same time, by count and by bytes."""

from __future__ import annotations

import asyncio
from collections import deque


class Window:
    """Lets in as much as fits; the rest waits in order of arrival."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        # The number of waiters that were let in but have not run yet. A newcomer must not overtake them.
        self._woken = 0
        self._emptied: asyncio.Event | None = None

    def try_enter(self, size: int) -> bool:
        """Enter if there is room and nobody is waiting for it; return whether that was so."""
        count, taken = self.count, self.bytes + size
        # Same as `_fits`, inlined because this runs for every send.
        if self._waiting or self._woken or count >= self.count_max or (taken > self._bytes_max and count):
            return False
        self.count = count + 1
        self.bytes = taken
        return True

    def _fits(self, size: int) -> bool:
        # An entry larger than the whole window is let in alone.
        return self.count < self.count_max and (self.bytes + size <= self._bytes_max or not self.count)

    async def enter(self, size: int) -> None:
        """Wait for room, and enter."""
        if self.try_enter(size):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, size))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._woken -= 1
                self.leave(size)  # it was let in just as it was cancelled
            raise
        self._woken -= 1
        self._let_in()

    def leave(self, size: int) -> None:
        """Leave, and let in what fits now."""
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._let_in()
        if not self.count and self._emptied is not None:
            self._emptied.set()
            self._emptied = None

    def _let_in(self) -> None:
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
            self._woken += 1
            future.set_result(None)

    async def wait_empty(self) -> None:
        """Wait until nothing is in flight and nobody is waiting for room."""
        while self.count:
            # All waiters share one event.
            self._emptied = self._emptied or asyncio.Event()
            await self._emptied.wait()
