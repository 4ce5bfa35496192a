"""A single event loop timer that is set repeatedly."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Fires at the earliest time it was set to. It is never moved to a later time: firing too early does no harm."""

    __slots__ = ("_at", "_handle", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._handle: asyncio.TimerHandle | None = None
        # With uvloop, a handle does not report its time if that has passed.
        self._at = math.inf

    @property
    def is_set(self) -> bool:
        """Whether it is set."""
        return self._handle is not None

    def set(self, at: float) -> None:
        """Fire at a time of the running loop, or before."""
        if at < self._at:
            self.clear()
            self._at = at
            self._handle = asyncio.get_running_loop().call_at(at, self._go_off)

    def clear(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at = math.inf

    def _go_off(self) -> None:
        self._handle = None
        self._at = math.inf
        self._work()
