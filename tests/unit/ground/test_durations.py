"""Durations: what is taken, and what the error for the rest says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eruca._ground.durations import to_ms, to_seconds
from eruca.errors import ConfigError


def test_a_timedelta_and_a_number_of_seconds_are_the_same() -> None:
    assert to_seconds("drain", timedelta(minutes=1)) == to_seconds("drain", 60) == to_seconds("drain", 60.0) == 60.0
    assert to_ms("timeout", timedelta(milliseconds=1500)) == to_ms("timeout", 1.5) == 1500


def test_a_duration_is_at_least_a_millisecond() -> None:
    assert to_ms("timeout", 0.0) == to_ms("timeout", timedelta(microseconds=1)) == 1


@pytest.mark.parametrize("value", ["3", None, True, b"3", [3], 3j])
def test_another_type_is_refused_with_the_name_of_the_argument(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"drain=.*expected a duration"):
        to_seconds("drain", value)


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1), float("nan"), float("inf"), 1e12])
def test_a_duration_out_of_bounds_is_refused_with_the_name_of_the_argument(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"drain=.*between 0 and"):
        to_seconds("drain", value)


def test_the_lower_bound_is_the_callers() -> None:
    with pytest.raises(ConfigError, match=r"interval=0\.01: must be between 0\.1 and"):
        to_seconds("interval", 0.01, at_least=0.1)
