"""Time, passed in: `SystemClock` in production, `eruca.testing.VirtualClock` in tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What any room may ask about time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
