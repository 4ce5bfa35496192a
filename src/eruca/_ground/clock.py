"""Time, passed in: `SystemClock` in production, `eruca._testing.clock.VirtualClock` in tests."""

from __future__ import annotations

import time
from typing import Final, Protocol

# Both clocks are read once more when reading them took longer than this: the process was suspended in between.
_READ_S_MAX: Final = 0.002
_READS_MAX: Final = 5


class Clock(Protocol):
    """Access to time, for any room."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def read_clocks(clock: Clock) -> tuple[int, float]:
    """Read the wall clock and the monotonic clock at the same moment."""
    for _ in range(_READS_MAX):
        before = clock.monotonic()
        wall_ms = clock.now_ms()
        after = clock.monotonic()
        if after - before <= _READ_S_MAX:
            break
    return wall_ms, after


class ClockJumps:
    """Detects that the wall clock was set, by comparison with the monotonic clock. Steady time has no jumps."""

    __slots__ = ("_began_ms", "_began_s", "_jump_ms_min", "off_ms", "shift_ms", "steady_ms")

    def __init__(self, wall_ms: int, monotonic_s: float, jump_ms_min: int) -> None:
        """A difference of less than `jump_ms_min` is not a jump."""
        self._began_ms = wall_ms
        self._began_s = monotonic_s
        self._jump_ms_min = jump_ms_min
        # The steady time of the last look, and the sum of all jumps of the wall clock relative to it.
        self.steady_ms = wall_ms
        self.shift_ms = 0
        # How far the wall clock is ahead of both together: less than a jump.
        self.off_ms = 0

    def look(self, wall_ms: int, monotonic_s: float) -> int:
        """Compare both clocks; returns by how much the wall clock was set forward, 0 when it was not set."""
        self.steady_ms = self._began_ms + round((monotonic_s - self._began_s) * 1000)
        self.off_ms = wall_ms - self.steady_ms - self.shift_ms
        if abs(self.off_ms) < self._jump_ms_min:
            return 0
        jump_ms, self.off_ms = self.off_ms, 0
        self.shift_ms += jump_ms
        return jump_ms
