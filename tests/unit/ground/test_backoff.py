"""Pauses between tries grow up to a bound, and differ."""

from __future__ import annotations

import pytest

from eruca._ground.backoff import Backoff, spread


def test_each_pause_is_longer_than_the_last_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 5.0, jitter=0.0)
    assert [backoff.after(failures) for failures in range(1, 8)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
    assert Backoff(1.0, 100.0, factor=3.0, jitter=0.0).after(3) == 9.0


@pytest.mark.parametrize(("failures", "pause_s"), [(0, 0.25), (1, 0.25), (10**9, 60.0)])
def test_no_number_of_failures_is_too_small_or_too_large(failures: int, pause_s: float) -> None:
    assert Backoff(0.25, 60.0, jitter=0.0).after(failures) == pause_s
    assert Backoff(0.25, 60.0, factor=1.1, jitter=0.0).after(failures) == pause_s


def test_chance_takes_away_its_share_and_not_more() -> None:
    pauses = [Backoff(1.0, 1.0, jitter=0.25).after(1) for _ in range(1000)]
    assert 0.75 <= min(pauses) < 0.8
    assert 0.95 < max(pauses) <= 1.0
    assert spread(8.0, 0.0) == 8.0
    assert all(4.0 <= spread(8.0, 0.5) <= 8.0 for _ in range(1000))
