"""Times of records while the wall clock is set this way and that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca._core.eras import ERAS_MAX, ClockEras
from eruca._testing.clock import VirtualClock

DELAY_MS = 10_000
JUMP = st.integers(-(10**10), 10**10)


STEP = st.tuples(st.integers(0, 3000), st.one_of(st.just(0), JUMP), st.booleans(), st.booleans())


@given(st.lists(STEP, max_size=60))
def test_no_record_is_early_and_none_is_late(steps: list[tuple[int, int, bool, bool]]) -> None:
    clock = VirtualClock()
    eras = ClockEras(clock.now_ms(), clock.monotonic(), 0)
    end = 0
    # Of each record: its position, its due time by the wall clock, when it was stored, and when was the next look.
    records: list[list[float]] = []
    for wait_ms, jump_ms, stores, looks in [*steps, (1, 0, False, True)]:
        clock.advance(wait_ms)
        clock.set_ms(max(0, clock.now_ms() + jump_ms))
        if stores:
            records.append([end, clock.now_ms() + DELAY_MS, clock.monotonic() * 1000, -1])
            end += 100
        # Two jumps between two looks, a tenth of a second apart, cannot be distinguished.
        if looks or jump_ms:
            looked_ms = clock.monotonic() * 1000
            eras.look(clock.now_ms(), clock.monotonic(), end)
            for record in records:
                record[3] = looked_ms if record[3] < 0 else record[3]
    began_ms = eras.look(clock.now_ms(), clock.monotonic(), end) - clock.monotonic() * 1000
    for position, due_ms, stored_ms, next_look_ms in records:
        found_ms = eras.find_due(int(position), int(due_ms), DELAY_MS) - began_ms
        # Jumps too small to be detected leave their mark.
        assert found_ms >= stored_ms + DELAY_MS - 20
        assert found_ms <= next_look_ms + DELAY_MS + 20


def test_what_is_due_is_the_wall_clock_s_time_as_long_as_nobody_sets_it() -> None:
    clock = VirtualClock()
    eras = ClockEras(clock.now_ms(), clock.monotonic(), 500)
    clock.advance(86_400_000)
    assert eras.look(clock.now_ms(), clock.monotonic(), 900) == clock.now_ms()
    assert eras.find_due(500, clock.now_ms() + 7, 10) == clock.now_ms() + 7
    assert (eras.jumps, eras.shift_ms) == (0, 0)


def test_of_what_was_stored_before_the_start_nothing_waits_longer_than_its_delay() -> None:
    clock = VirtualClock()
    eras = ClockEras(clock.now_ms(), clock.monotonic(), 500)
    assert eras.find_due(499, clock.now_ms() + 5000, 10_000) == clock.now_ms() + 5000
    assert eras.find_due(499, clock.now_ms() + 50_000, 10_000) == clock.now_ms() + 10_000


def test_a_clock_that_is_set_all_the_time_costs_a_bounded_amount_of_memory() -> None:
    clock = VirtualClock()
    eras = ClockEras(clock.now_ms(), clock.monotonic(), 0)
    first_due_ms = clock.now_ms() + DELAY_MS
    for number in range(1, 3 * ERAS_MAX):
        clock.advance(1)
        clock.set_ms(clock.now_ms() + (1000 if number % 2 else -1000))
        eras.look(clock.now_ms(), clock.monotonic(), number)
    assert eras.jumps < ERAS_MAX
    # What was stored first is still not early.
    assert eras.find_due(0, first_due_ms, DELAY_MS) >= first_due_ms


@given(st.floats(0, 0.999), st.floats(0.001, 100_000), st.integers(0, 19), st.sampled_from([499, 500]))
def test_nothing_is_due_before_its_time_by_a_wall_clock_that_nobody_set(
    fraction_ms: float, elapsed_ms: float, behind_ms: int, position: int
) -> None:
    # Both clocks are read in whole milliseconds or less, at any moment, and may differ by less than a jump.
    eras = ClockEras(1_000_000, 5.0, 500)
    wall_ms = int(1_000_000 + fraction_ms + elapsed_ms) - behind_ms
    now_ms = eras.look(wall_ms, 5.0 + elapsed_ms / 1000, 900)
    assert eras.jumps == 0
    assert now_ms < eras.find_due(position, wall_ms + 1, 10**9)
    assert now_ms >= eras.find_due(position, wall_ms - 1, 10**9)
