"""Finding out that somebody set the clock."""

from __future__ import annotations

from eruca._ground.clock import ClockJumps, read_clocks
from eruca._testing.clock import VirtualClock


def test_jumps_of_the_wall_clock_are_told_once() -> None:
    jumps = ClockJumps(1_000_000, 5.0, 20)
    assert jumps.look(1_001_000, 6.0) == 0
    assert jumps.look(1_062_000, 7.0) == 60_000
    assert (jumps.steady_ms, jumps.shift_ms, jumps.off_ms) == (1_002_000, 60_000, 0)
    assert jumps.look(1_063_000, 8.0) == 0
    assert jumps.look(1_003_999, 9.0) == -60_001
    assert (jumps.steady_ms, jumps.shift_ms) == (1_004_000, -1)


def test_small_differences_are_not_a_jump_until_they_have_become_one() -> None:
    jumps = ClockJumps(1_000_000, 5.0, 20)
    assert jumps.look(1_000_981, 6.0) == 0
    assert jumps.off_ms == -19
    assert jumps.look(1_001_980, 7.0) == -20
    assert (jumps.off_ms, jumps.shift_ms) == (0, -20)


class Interrupted(VirtualClock):
    """A clock of a process that stood still while it read the clocks, a number of times."""

    stops = 0

    def now_ms(self) -> int:
        wall_ms = super().now_ms()
        if self.stops:
            self.stops -= 1
            self.advance(1000)
        return wall_ms


def test_clocks_that_were_not_read_in_one_moment_are_read_again() -> None:
    clock = Interrupted()
    began_ms, began_s = read_clocks(clock)
    clock.stops = 2
    wall_ms, monotonic_s = read_clocks(clock)
    assert (wall_ms - began_ms, round((monotonic_s - began_s) * 1000)) == (2000, 2000)
