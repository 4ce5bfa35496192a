"""Times of records that hold whatever happens to the wall clock.

A record carries wall-clock times: when it was stored, when it is due. Somebody may set that clock while records wait.
So time is counted by a clock that only runs forward, and began with the wall clock's time; it is called steady here. An
era is the time between two jumps of the wall clock, and the part of the log that was written meanwhile:

    log      |  before the start  |      era 0      | ? |      era 1       ...
             0                  begin              low high
    shift    |         0          |        0        | ? |  wall - steady   ...

A jump is noticed at the next look. What was written since the look before it (?) may belong to either side.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.clock import ClockJumps

# Both clocks cannot be read in the same moment, and a little difference is not a jump.
JUMP_MS_MIN = 20
# Eras that are told apart. Older ones become one, whose messages are due at the latest time that is possible.
ERAS_MAX = 256


@dataclass(slots=True)
class _Era:
    """An era that is over."""

    # Records before `low` belong to it, or to one before it; those from `high` on do not.
    low: int
    high: int
    shift_ms: int
    # The steady time of its end.
    ended_ms: int


class ClockEras:
    """Turns the times of records into steady ones."""

    def __init__(self, wall_ms: int, monotonic_s: float, log_end: int) -> None:
        self._clock = ClockJumps(wall_ms, monotonic_s, JUMP_MS_MIN)
        # What was stored before this began counts as an era that has just ended.
        self._past = [_Era(log_end, log_end, 0, wall_ms)]
        self._looked_at = log_end

    @property
    def shift_ms(self) -> int:
        """How far the wall clock is ahead of the steady one now."""
        return self._clock.shift_ms

    @property
    def jumps(self) -> int:
        """How many jumps are remembered."""
        return len(self._past) - 1

    def look(self, wall_ms: int, monotonic_s: float, log_end: int) -> int:
        """Take note of both clocks and of where the log ends; returns the steady time."""
        clock = self._clock
        jump_ms = clock.look(wall_ms, monotonic_s)
        if jump_ms:
            self._past.append(_Era(self._looked_at, log_end, clock.shift_ms - jump_ms, clock.steady_ms))
            if len(self._past) > ERAS_MAX:
                oldest, second = self._past[:2]
                second.shift_ms = min(oldest.shift_ms, second.shift_ms)
                del self._past[0]
        self._looked_at = log_end
        return clock.steady_ms

    def find_stored(self, position: int, wall_ms: int) -> int:
        """The steady time of what happened when the record at a position was stored, at the latest."""
        return self.find_due(position, wall_ms, 0)

    def find_due(self, position: int, due_ms: int, delay_ms: int) -> int:
        """The steady time at which the record at a position is due: never before `delay_ms` have passed since it was
        stored in this run, and never later than that after the end of its era. Nor is it due before its time by a wall
        clock that nobody set, which may be a little behind.
        """
        return self._translate(position, due_ms, delay_ms) + max(0, -self._clock.off_ms)

    def _translate(self, position: int, due_ms: int, delay_ms: int) -> int:
        if position >= self._past[-1].high:
            return due_ms - self.shift_ms
        index = next(index for index, era in enumerate(self._past) if position < era.high)
        era = self._past[index]
        shift_ms = era.shift_ms
        if position >= era.low:
            following = self._past[index + 1].shift_ms if index + 1 < len(self._past) else self.shift_ms
            shift_ms = min(shift_ms, following)
        return min(due_ms - shift_ms, era.ended_ms + delay_ms)
