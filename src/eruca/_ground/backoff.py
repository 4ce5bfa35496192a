"""Pauses between tries: longer after each failure, with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

# More steps than any pause takes to reach its maximum; a power of a bounded number does not overflow.
_STEPS_MAX = 100


def spread(seconds: float, share: float) -> float:
    """Shorten a wait randomly by at most `share` of it: waits that began together must not end together."""
    return seconds * random.uniform(1.0 - share, 1.0) if share else seconds


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after a failure: `first_s`, then `factor` times longer each time, up to `longest_s`.

    Up to `jitter` of each pause is randomly removed, so that a thousand clients do not come back at the same moment.
    """

    first_s: float
    longest_s: float
    factor: float = 2.0
    jitter: float = 0.5

    def after(self, failures: int) -> float:
        """Seconds to wait after this many consecutive failures; the first failure is number 1."""
        steps = min(max(failures - 1, 0), _STEPS_MAX)
        return spread(min(self.first_s * self.factor**steps, self.longest_s), self.jitter)
