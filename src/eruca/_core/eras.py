"""Times of records that stay valid when the wall clock is set.

A record carries wall-clock times: when it was stored, when it is due. The wall clock may be set while records wait.
So time is counted by a clock that only runs forward and started at the wall clock's time; it is called steady here. An
era is the time between two jumps of the wall clock, and the part of the log written in that time:

    log      |  before the start  |      era 0      | ? |      era 1       ...
             0                  begin              low high
    shift    |         0          |        0        | ? |  wall - steady   ...

A jump is noticed the next time both clocks are read. Records written since the time before that (?) may belong to
either side.
"""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.clock import ClockJumps

# The two clocks cannot be read at the same instant, so a small difference is not a jump.
JUMP_MS_MIN = 20
# How many eras are kept apart. Older ones are merged into one, whose messages are due at the latest possible time.
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
        # Records stored before this object was created count as an era that has just ended.
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
        """Compare both clocks and note the end of the log; returns the steady time."""
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
        """The latest possible steady time at which the record at a position was stored."""
        return self.find_due(position, wall_ms, 0)

    def find_due(self, position: int, due_ms: int, delay_ms: int) -> int:
        """The steady time at which the record at a position is due: never before `delay_ms` have passed since it was
        stored in this run, and never later than that after the end of its era. It is also never due before its time by
        a wall clock that was not set, which may lag a little.
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
