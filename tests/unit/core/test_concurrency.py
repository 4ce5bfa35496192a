"""The adaptive limit finds how many handlers help, against simple models of the backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eruca._core.concurrency import AdaptiveLimit


def run(limit: AdaptiveLimit, rate_of: Callable[[int], float], looks: int, *, waiting: int = 1000) -> list[int]:
    """Let it look `looks` times at a system that does `rate_of(handlers)` a second."""
    return [limit.look(round(rate_of(limit.limit)), 1.0, waiting) for _ in range(looks)]


def test_it_climbs_while_more_handlers_do_more() -> None:
    limits = run(AdaptiveLimit(high=256), lambda handlers: 10.0 * handlers, 30)
    assert max(limits) == 256
    assert limits[:8] == sorted(limits[:8])
    assert min(limits[8:]) > 100


@pytest.mark.parametrize("capacity", [5, 20, 60])
def test_it_stays_near_what_the_system_behind_can_serve(capacity: int) -> None:
    limits = run(AdaptiveLimit(high=1000), lambda handlers: 100.0 * min(handlers, capacity), 200)
    settled = limits[50:]
    assert max(settled) <= capacity * 3
    assert min(settled) >= capacity / 3
    # It does its work: the mean is close to all that can be done.
    mean = sum(min(value, capacity) for value in settled) / len(settled)
    assert mean >= capacity * 0.6


def test_it_goes_back_when_more_handlers_do_less() -> None:
    limits = run(AdaptiveLimit(high=256, start=64), lambda handlers: 1000.0 / handlers, 60)
    assert min(limits) < 16


def test_nothing_changes_while_nothing_waits() -> None:
    limit = AdaptiveLimit(start=8)
    assert run(limit, lambda _: 50.0, 20, waiting=0) == [8] * 20


def test_it_never_leaves_its_bounds() -> None:
    limit = AdaptiveLimit(low=2, high=9, start=4)
    found = [limit.look(rate, 1.0, 1) for rate in [1, 100, 10_000, 1, 0, 0, 5, 1000, 1, 1, 1] * 20]
    assert min(found) >= 2
    assert max(found) <= 9


def test_a_look_without_time_says_nothing() -> None:
    limit = AdaptiveLimit(start=8)
    assert limit.look(100, 0.0, 5) == 8
