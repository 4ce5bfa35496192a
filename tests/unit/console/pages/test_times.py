"""Times, numbers and sizes as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._console.pages import times
from eruca._console.pages.texts import texts_of


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, times.NONE), (0, "0"), (1234567, "1,234,567"), (0.25, "0.25"), (12.345, "12.3"), (3.0, "3")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert times.show_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, times.NONE), (950, "950"), (1500, "1.5k"), (2_000, "2k"), (250_000, "250k"), (3_200_000, "3.2M")],
)
def test_short_numbers(value: float | None, text: str) -> None:
    assert times.show_short(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, times.NONE), (0, "0 B"), (1536, "1.5 KiB"), (300 * 2**30, "300 GiB"), (2**70, "1048576 PiB")],
)
def test_sizes(value: float | None, text: str) -> None:
    assert times.show_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, times.NONE),
        (0, "0 s"),
        (0.25, "250 ms"),
        (75, "1 min 15 s"),
        (timedelta(hours=2), "2 h"),
        (timedelta(days=3, hours=4, minutes=5), "3 d 4 h"),
        (-90, "-1 min 30 s"),
    ],
)
def test_durations(value: timedelta | float | None, text: str) -> None:
    assert times.show_duration(texts_of("en"), value) == text


def test_durations_are_in_the_language_of_the_page() -> None:
    assert times.show_duration(texts_of("zh"), 75) == "1 分 15 秒"
    assert times.show_duration(texts_of("zh"), 0.25) == "250 毫秒"


def test_how_long_ago() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    english, chinese = texts_of("en"), texts_of("zh")
    assert times.show_ago(english, now - timedelta(minutes=5), now) == "5 min ago"
    assert times.show_ago(chinese, now - timedelta(minutes=5), now) == "5 分钟前"
    assert times.show_ago(english, now + timedelta(hours=3), now) == "in 3 h"
    assert times.show_ago(english, now, now) == "just now"
    assert times.show_ago(english, None) == times.NONE
