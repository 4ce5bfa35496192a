"""How many handlers to run at once when the user sets no number: as many as increase the throughput.

Every look compares the rate with the previous one. While work is waiting, the limit is raised as long as that
increases the rate, and lowered by a step when it does not: more handlers than the backend can serve only wait for it.
"""

from __future__ import annotations

from typing import Final

_STEP: Final = 1.5
# A rate must be this much higher to count as better, and this much lower to count as worse.
_BETTER: Final = 1.05
_WORSE: Final = 0.95
# After this many looks at a limit that seemed best, the next higher one is tried: the backend may have changed.
_PATIENCE: Final = 10


class AdaptiveLimit:
    """A limit on handlers that follows the rate of work."""

    def __init__(self, low: int = 1, high: int = 256, start: int = 8) -> None:
        assert 1 <= low <= start <= high
        self._low = low
        self._high = high
        self.limit = start
        self._rate = 0.0
        self._climbs = True
        self._rests = 0

    def look(self, done: int, seconds: float, waiting: int) -> int:
        """Given the work done since the last look and the work waiting, return how many handlers may run now."""
        if seconds <= 0:
            return self.limit
        rate = done / seconds
        before, self._rate = self._rate, rate
        if not waiting:
            # Nothing is waiting: there is no reason to change anything, and nothing to learn from the rate.
            self._rests = 0
            return self.limit
        if rate < before * _WORSE:
            self._climbs = not self._climbs
            self._move()
        elif rate > before * _BETTER:
            self._move()
        else:
            self._rest()
        return self.limit

    def _rest(self) -> None:
        """The last step made no difference: undo it, then wait for a while before trying again."""
        if self._rests == 0 and self._climbs and self._rate:
            self.limit = max(self._low, round(self.limit / _STEP))
        self._rests += 1
        if self._rests > _PATIENCE:
            self._rests = 0
            self._climbs = True
            self._move()

    def _move(self) -> None:
        self._rests = 0
        if self._climbs:
            self.limit = min(self._high, max(self.limit + 1, round(self.limit * _STEP)))
        else:
            self.limit = max(self._low, min(self.limit - 1, round(self.limit / _STEP)))
