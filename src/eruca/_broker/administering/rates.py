"""Broker throughput: rates over recent intervals, and append latencies."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

# Java's intervals, in seconds; one sample is taken every second.
RATE_SPANS: Final = (10, 60, 600)

# Upper bounds of the buckets of `putMessageDistributeTime` in milliseconds; all but the first are exclusive.
_BUCKET_BOUNDS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_BUCKET_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)


def _fine_bounds() -> tuple[int, ...]:
    """Return the inclusive upper bounds of the finer buckets that quantiles are computed from."""
    bounds: list[int] = []
    end = 0
    for step, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)):
        for _ in range(count):
            end += step
            bounds.append(end)
    return tuple(bounds)


_FINE_BOUNDS: Final = _fine_bounds()


class Sample(NamedTuple):
    """Totals at one point in time."""

    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class Rates:
    """Totals of the last ten minutes, one sample per second, and the rates between them."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=RATE_SPANS[-1] + 1)

    def take(self, sample: Sample) -> None:
        """Add a sample."""
        self._samples.append(sample)

    def over(self, seconds: int, column: str) -> float | None:
        """Return the rate of a total over the last `seconds`; None until that much time has passed."""
        if len(self._samples) <= seconds:
            return None
        last, first = self._samples[-1], self._samples[-1 - seconds]
        elapsed_ms = last.time_ms - first.time_ms
        if elapsed_ms <= 0:
            return 0.0  # the wall clock was set back
        total: int = getattr(last, column) - getattr(first, column)
        return total / elapsed_ms * 1000


class PutTimes:
    """Append latencies, by the minute.

    Nearly all appends take less than a millisecond; the hot path only counts those, and `add` records the others.
    """

    def __init__(self) -> None:
        self.max_ms = 0
        self._puts_before = 0
        self._coarse = [0] * len(_BUCKET_NAMES)
        self._fine = [0] * (len(_FINE_BOUNDS) + 1)
        # The buckets of the last full minute; None during the first minute.
        self._last: tuple[list[int], list[int]] | None = None

    def add(self, elapsed_ms: int, count: int = 1) -> None:
        """Record appends that took a millisecond or more."""
        if elapsed_ms <= 0 or not count:
            return
        self.max_ms = max(self.max_ms, elapsed_ms)
        self._coarse[bisect_right(_BUCKET_BOUNDS, elapsed_ms)] += count
        self._fine[bisect_left(_FINE_BOUNDS, elapsed_ms)] += count

    def turn(self, puts: int) -> None:
        """Finish a minute; `puts` is the number of appends since the start."""
        fast = max(0, puts - self._puts_before - sum(self._coarse))
        self._puts_before = puts
        self._coarse[0] += fast
        self._fine[0] += fast
        self._last = self._coarse, self._fine
        self._coarse = [0] * len(_BUCKET_NAMES)
        self._fine = [0] * (len(_FINE_BOUNDS) + 1)

    def describe(self) -> str:
        """Format the buckets of the last minute as Java does; `null` in the first minute."""
        if self._last is None:
            return "null"
        pairs = zip(_BUCKET_NAMES, self._last[0], strict=True)
        return "".join([f"{name}:{count} " for name, count in pairs])

    def quantile(self, share: float) -> float:
        """Return the time in milliseconds that a share of the last minute's appends did not exceed."""
        return 0.0 if self._last is None else _quantile(self._last[1], share)


def _quantile(buckets: Sequence[int], share: float) -> float:
    wanted = int(sum(buckets) * share)
    passed = 0
    low = 0
    for count, high in zip(buckets, (*_FINE_BOUNDS, _FINE_BOUNDS[-1]), strict=True):
        if wanted <= passed + count:
            return low + ((high - low) * (wanted - passed) / count if count else 0)
        passed += count
        low = high
    return float(low)
