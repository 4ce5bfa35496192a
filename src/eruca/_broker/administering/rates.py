"""How fast a broker is: rates over the last seconds, and how long appends took."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

# Java's spans, in seconds; one sample is taken every second.
RATE_SPANS: Final = (10, 60, 600)

# Upper bounds of the buckets of `putMessageDistributeTime` in milliseconds, each exclusive but the first.
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
    """Upper bounds, inclusive, of the finer buckets that quantiles come from."""
    bounds: list[int] = []
    end = 0
    for step, count in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)):
        for _ in range(count):
            end += step
            bounds.append(end)
    return tuple(bounds)


_FINE_BOUNDS: Final = _fine_bounds()


class Sample(NamedTuple):
    """Totals at one moment."""

    time_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class Rates:
    """Totals of the last ten minutes, one sample a second, and the rates between them."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=RATE_SPANS[-1] + 1)

    def take(self, sample: Sample) -> None:
        """Keep a sample."""
        self._samples.append(sample)

    def over(self, seconds: int, column: str) -> float | None:
        """The rate of a total over the last seconds; None until that much time has passed."""
        if len(self._samples) <= seconds:
            return None
        last, first = self._samples[-1], self._samples[-1 - seconds]
        elapsed_ms = last.time_ms - first.time_ms
        if elapsed_ms <= 0:
            return 0.0  # the wall clock was set back
        total: int = getattr(last, column) - getattr(first, column)
        return total / elapsed_ms * 1000


class PutTimes:
    """How long appends took, by the minute.

    Nearly all take less than a millisecond; the hot path counts those as appends only, and `add` is told of the others.
    """

    def __init__(self) -> None:
        self.max_ms = 0
        self._puts_before = 0
        self._coarse = [0] * len(_BUCKET_NAMES)
        self._fine = [0] * (len(_FINE_BOUNDS) + 1)
        # The buckets of the last whole minute, None before it is over.
        self._last: tuple[list[int], list[int]] | None = None

    def add(self, elapsed_ms: int, count: int = 1) -> None:
        """Appends took a millisecond or more."""
        if elapsed_ms <= 0 or not count:
            return
        self.max_ms = max(self.max_ms, elapsed_ms)
        self._coarse[bisect_right(_BUCKET_BOUNDS, elapsed_ms)] += count
        self._fine[bisect_left(_FINE_BOUNDS, elapsed_ms)] += count

    def turn(self, puts: int) -> None:
        """A minute is over; `puts` counts the appends since the start."""
        fast = max(0, puts - self._puts_before - sum(self._coarse))
        self._puts_before = puts
        self._coarse[0] += fast
        self._fine[0] += fast
        self._last = self._coarse, self._fine
        self._coarse = [0] * len(_BUCKET_NAMES)
        self._fine = [0] * (len(_FINE_BOUNDS) + 1)

    def describe(self) -> str:
        """The buckets of the last minute as Java writes them; `null` in the first minute."""
        if self._last is None:
            return "null"
        pairs = zip(_BUCKET_NAMES, self._last[0], strict=True)
        return "".join([f"{name}:{count} " for name, count in pairs])

    def quantile(self, share: float) -> float:
        """The time in milliseconds that a share of the appends of the last minute did not exceed."""
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
