"""The time by which a broker decides what is due: that of a clock nobody can set."""

from __future__ import annotations

import logging

from eruca._core.eras import ClockEras
from eruca._ground.clock import Clock, read_clocks
from eruca._store.messagestore import MessageStore

log = logging.getLogger(__name__)


class SteadyTime:
    """Reads the clocks, and knows the jumps of the wall clock since the broker became what it is."""

    def __init__(self, clock: Clock, store: MessageStore) -> None:
        self._clock = clock
        self._store = store
        self._eras = self._make_eras()

    def begin(self) -> None:
        """A master starts: what the log has now was stored by some other clock, perhaps."""
        self._eras = self._make_eras()

    def now_ms(self) -> int:
        """The steady time."""
        wall_ms, monotonic_s = read_clocks(self._clock)
        before_ms = self._eras.shift_ms
        now_ms = self._eras.look(wall_ms, monotonic_s, self._store.log.tail)
        moved_ms = self._eras.shift_ms - before_ms
        if moved_ms:
            log.warning(
                "the clock of this machine was set %s by %.3f s; delays are counted by one that was not",
                "forward" if moved_ms > 0 else "back",
                abs(moved_ms) / 1000,
            )
        return now_ms

    @property
    def shift_ms(self) -> int:
        """How far the wall clock is ahead of the steady one."""
        return self._eras.shift_ms

    def find_due(self, position: int, due_ms: int, delay_ms: int) -> int:
        """When the record at a position is due that waits for a time by the wall clock."""
        return self._eras.find_due(position, due_ms, delay_ms)

    def find_stored(self, position: int, wall_ms: int) -> int:
        """When what a record says of its own past happened."""
        return self._eras.find_stored(position, wall_ms)

    def _make_eras(self) -> ClockEras:
        return ClockEras(*read_clocks(self._clock), self._store.log.tail)
