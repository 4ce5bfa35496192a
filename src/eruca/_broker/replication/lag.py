"""The lag of a slave in time: how long ago the log ended where the slave is now."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_MARKS_MAX: Final = 1024
# The minimum distance between marks, and so the resolution of the lag.
_MARK_SECONDS: Final = 0.05


class LagMeter:
    """Remembers when the log passed which position, back to the position of the slowest slave."""

    def __init__(self) -> None:
        self._tails: list[int] = []
        self._times: list[float] = []
        # Grows when a slave is so far behind that there are too many marks.
        self._spacing_s = _MARK_SECONDS

    def note(self, tail: int, now: float, reached: int) -> None:
        """Record the current end of the log, and the position that all slaves have reached."""
        if self._tails and self._tails[0] <= reached:
            done = bisect_right(self._tails, reached)
            del self._tails[:done], self._times[:done]
            if not self._tails:
                self._spacing_s = _MARK_SECONDS
        if tail <= reached or (self._tails and (tail <= self._tails[-1] or now - self._times[-1] < self._spacing_s)):
            return
        self._tails.append(tail)
        self._times.append(now)
        if len(self._tails) > _MARKS_MAX:
            del self._tails[1::2], self._times[1::2]
            self._spacing_s = (self._times[-1] - self._times[0]) / (len(self._times) - 1)

    def measure_ms(self, position: int, tail: int, now: float) -> int:
        """Return how long ago, in milliseconds, a log that ends at `tail` passed a position."""
        if position >= tail or not self._times:
            return 0
        # Behind the last mark: the log has grown since, but too soon for another mark.
        place = min(bisect_right(self._tails, position), len(self._times) - 1)
        return int((now - self._times[place]) * 1000)

    def forget(self) -> None:
        """Discard all marks, because the log was replaced."""
        self._tails.clear()
        self._times.clear()
        self._spacing_s = _MARK_SECONDS
