"""One timer of the loop that is set again and again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Goes off at the earliest time it was set to. It is not moved to a later one: going off too early does no harm."""

    __slots__ = ("_at", "_handle", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._handle: asyncio.TimerHandle | None = None
        # A handle of uvloop does not say when, if that was in the past.
        self._at = math.inf

    @property
    def is_set(self) -> bool:
        """Will it go off?"""
        return self._handle is not None

    def set(self, at: float) -> None:
        """Go off at a time of the running loop, or before."""
        if at < self._at:
            self.clear()
            self._at = at
            self._handle = asyncio.get_running_loop().call_at(at, self._go_off)

    def clear(self) -> None:
        """Do not go off."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at = math.inf

    def _go_off(self) -> None:
        self._handle = None
        self._at = math.inf
        self._work()
