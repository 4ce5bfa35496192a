"""Time for tests."""

from __future__ import annotations


class VirtualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds since the clock was created; `set_ms` does not change them."""
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Advance both clocks."""
        if ms < 0:
            raise ValueError("time does not run backwards; set_ms moves the wall clock alone")
        self._now_ms += ms
        self._elapsed_ms += ms

    def set_ms(self, ms: int) -> None:
        """Set the wall clock, possibly backwards, as an operator or NTP does."""
        self._now_ms = ms
