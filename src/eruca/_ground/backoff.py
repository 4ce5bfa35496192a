"""Pauses between tries: longer after each failure, and not the same for everybody."""

from __future__ import annotations

import random
from dataclasses import dataclass

# More steps than any pause takes to reach its longest; a power of a bounded number does not overflow.
_STEPS_MAX = 100


def spread(seconds: float, share: float) -> float:
    """Shorten a wait by a random part of it, at most `share`: what began together must not go on together."""
    return seconds * random.uniform(1.0 - share, 1.0) if share else seconds


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after a failure: `first_s`, then `factor` times longer each time, up to `longest_s`.

    Chance takes away up to `jitter` of each pause, so that a thousand clients do not come back in the same moment.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    jitter: float = 0.5

    def after(self, failures: int) -> float:
        """How many seconds to wait after this many failures in a row; the first failure is number 1."""
        steps = min(max(failures - 1, 0), _STEPS_MAX)
        return spread(min(self.first_s * self.factor**steps, self.longest_s), self.jitter)
