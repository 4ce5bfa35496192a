"""When a message is delivered again: levels that every broker has, and any other delay beside the next longer level."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eruca import Consumer, Retry
from eruca._client.later import DEAD, LATER, Later, choose_later, find_delay, make_later
from eruca.errors import ConfigError


@pytest.mark.parametrize(
    ("delay", "later"),
    [
        (None, LATER),
        (1, Later(1)),
        (timedelta(minutes=1), Later(5)),
        (7200, Later(18)),
        (0, Later(1, 1)),
        (0.25, Later(1, 250)),
        (2.5, Later(2, 2500)),
        (timedelta(hours=3), Later(18, 10_800_000)),
    ],
)
def test_a_delay_is_a_level_or_exact(delay: Any, later: Later) -> None:
    assert make_later(delay) == later


def test_a_level_is_a_level() -> None:
    assert (make_later(None, 5), make_later(None, -1)) == (Later(5), DEAD)


@pytest.mark.parametrize(
    ("delay", "level", "said"),
    [
        (2.5, 3, "delay and delay_level are mutually exclusive"),
        ("2", 0, "delay='2': expected a duration"),
        (-1, 0, "delay=-1: must be between"),
        (40 * 86_400 + 1, 0, r"must be at most .* \(40 days\)"),
        (None, 2.5, "delay_level=2.5: expected an int; seconds are delay="),
        (None, True, "delay_level=True"),
    ],
)
def test_what_is_neither_is_refused(delay: Any, level: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_later(delay, level)


def test_back_off_has_an_entry_for_each_delivery_and_repeats_the_last() -> None:
    backoff = (0.5, 1, timedelta(minutes=90))
    chosen = [choose_later(LATER, delivery, backoff) for delivery in (1, 2, 3, 4, 100)]
    assert chosen == [Later(1, 500), Later(1), Later(18, 5_400_000), Later(18, 5_400_000), Later(18, 5_400_000)]
    # What a handler or a caller says counts more; without a list, the broker chooses. A record may say anything.
    assert choose_later(Later(7), 1, backoff) == Later(7)
    assert choose_later(DEAD, 1, backoff) == DEAD
    assert choose_later(LATER, 1, ()) == LATER
    assert choose_later(LATER, -5, backoff) == Later(1, 500)


def test_the_delay_for_the_log() -> None:
    assert find_delay(LATER, 1) == (3, timedelta(seconds=10))
    assert find_delay(Later(5), 9) == (5, timedelta(minutes=1))
    assert find_delay(Later(2, 2500), 1) == (2, timedelta(seconds=2.5))
    assert find_delay(LATER, 2**31) == (18, timedelta(hours=2))


@pytest.mark.parametrize(
    ("backoff", "said"),
    [
        (5, r"Retry.backoff=5: expected a list of durations"),
        (["5"], r"Retry.backoff='5': expected a duration"),
        ([1, 40 * 86_401], r"must be at most"),
    ],
)
def test_a_back_off_is_checked_when_it_is_given(backoff: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Retry(backoff=backoff)


def test_an_ordered_queue_has_a_pause_instead() -> None:
    consumer = Consumer(group="billing", retry=Retry(backoff=[1]))
    with pytest.raises(ConfigError, match=r"Retry.backoff is for concurrent handlers .*Retry.suspend"):
        consumer.handler("orders", ordered=True)(print)
    consumer.handler("orders")(print)
