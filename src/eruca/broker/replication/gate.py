"""The gate that every acknowledgement passes where the members elect their master: open while the lease lives."""

from __future__ import annotations

import math

from eruca.clock import Clock


class Gate:
    """Is this broker the master at this very moment, as far as its own clock can tell?"""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def open_until(self, until: float) -> None:
        """Let acknowledgements pass up to a moment of the monotonic clock; one that is over closes the gate."""
        self._until = until

    def close(self) -> None:
        """Let none pass."""
        self._until = -math.inf

    def is_open(self) -> bool:
        """May something be acknowledged now?"""
        return self._clock.monotonic() < self._until
