"""Which brokers a producer avoids for a while, because they were slow or failed.

Every send reports how long its broker took. From half a second on, the broker is avoided for a time that grows with the
latency; when all are avoided, sends rotate through the better half. Time is passed in, in milliseconds of any clock
that only runs forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# (at least this slow, unavailable for), the slowest first. Faster ones are not avoided.
AVOIDED_MS: Final = (
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
)
# A failed send does not show how slow the broker is; it is avoided as if the send had taken this long.
FAILED_MS: Final = 30_000


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    available_from_ms: int


class LatencyFaults:
    """The result of the last send to each broker. When disabled, nothing is recorded and every broker is available."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self._faults: dict[str, _Fault] = {}
        self._picks = 0

    def update(self, broker: str, latency_ms: int, isolate: bool, now_ms: int) -> None:
        """Record a finished send; `isolate` means that it failed."""
        if not self.enabled:
            return
        avoided_ms = compute_avoided_ms(FAILED_MS if isolate else latency_ms)
        # The latency is the measured one for a failure too: brokers that refuse at once are tried before silent ones.
        self._faults[broker] = _Fault(latency_ms, now_ms + avoided_ms)

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Is the broker not avoided now? Unknown brokers are available."""
        fault = self._faults.get(broker)
        return fault is None or fault.available_from_ms <= now_ms

    def pick_best(self, now_ms: int) -> str | None:
        """Pick a broker of the better half, in rotation; None when no broker is known.

        Better means: available, then faster, then sooner available.
        """

        def rank(broker: str) -> tuple[bool, int, int]:
            fault = self._faults[broker]
            return fault.available_from_ms > now_ms, fault.latency_ms, fault.available_from_ms

        brokers = sorted(self._faults, key=rank)
        if not brokers:
            return None
        picked = brokers[self._picks % max(1, len(brokers) // 2)]
        self._picks += 1
        return picked

    def forget(self, broker: str) -> None:
        """Drop what is known about a broker, because no route contains it anymore."""
        self._faults.pop(broker, None)


def compute_avoided_ms(latency_ms: int) -> int:
    """How long a broker is avoided whose last answer took this long."""
    return next((avoided_ms for slow_ms, avoided_ms in AVOIDED_MS if latency_ms >= slow_ms), 0)
