"""The time by which a broker decides what is due: a clock that cannot be set."""

from __future__ import annotations

import logging

from eruca._core.eras import ClockEras
from eruca._ground.clock import Clock, read_clocks
from eruca._store.messagestore import MessageStore

log = logging.getLogger(__name__)


class SteadyTime:
    """Reads the clocks, and tracks the jumps of the wall clock since the broker took its role."""

    def __init__(self, clock: Clock, store: MessageStore) -> None:
        self._clock = clock
        self._store = store
        self._eras = self._make_eras()

    def begin(self) -> None:
        """Start as a master: existing records in the log may have been stamped by another clock."""
        self._eras = self._make_eras()

    def now_ms(self) -> int:
        """Return the steady time."""
        wall_ms, monotonic_s = read_clocks(self._clock)
        before_ms = self._eras.shift_ms
        now_ms = self._eras.look(wall_ms, monotonic_s, self._store.log.tail)
        moved_ms = self._eras.shift_ms - before_ms
        if moved_ms:
            log.warning(
                "the clock of this machine was set %s by %.3f s; delays use a clock that was not",
                "forward" if moved_ms > 0 else "back",
                abs(moved_ms) / 1000,
            )
        return now_ms

    @property
    def shift_ms(self) -> int:
        """Return how far the wall clock is ahead of the steady clock."""
        return self._eras.shift_ms

    def find_due(self, position: int, due_ms: int, delay_ms: int) -> int:
        """Return the steady time at which the record at a position is due, given its due time by the wall clock."""
        return self._eras.find_due(position, due_ms, delay_ms)

    def find_stored(self, position: int, wall_ms: int) -> int:
        """Convert a wall clock time found in a record to steady time."""
        return self._eras.find_stored(position, wall_ms)

    def _make_eras(self) -> ClockEras:
        return ClockEras(*read_clocks(self._clock), self._store.log.tail)
