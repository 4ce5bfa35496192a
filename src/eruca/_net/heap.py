"""The heap after an attack: memory that peers held and that is free again goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

# A peak below this is not worth the time: the next requests use the memory again.
_PEAK_BYTES_MIN: Final = 16 * 1024 * 1024
# It is given back when this share of the peak, or less, is still in use.
_LEFT_SHARE: Final = 4


def find_trim() -> Callable[[int], int] | None:
    """Return the function of the C library that gives free memory back; None where it has none (musl, macOS)."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


class HeapWatch:
    """Watches how much of something is in use, and gives memory back after a peak.

    glibc keeps what is freed for the next time: after 40 connections that read nothing, 90 MB of it.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._trim = find_trim()
        #: How often memory was given back.
        self.count = 0

    async def look(self, used: int) -> None:
        """Note what is in use now; call this regularly."""
        self._peak = max(self._peak, used)
        if self._trim is None or self._peak < _PEAK_BYTES_MIN or used * _LEFT_SHARE > self._peak:
            return
        self._peak = used
        self.count += 1
        # In a thread: it takes some milliseconds, in which the loop does not need the lock of the interpreter.
        await asyncio.to_thread(self._trim, 0)
