"""Durations as users pass them: a timedelta, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite
from typing import TypeAlias

from eruca.errors import ConfigError, WrongType

#: A timedelta, or a number of seconds.
Duration: TypeAlias = timedelta | float

# About three years. Timers of an event loop do not accept much more, and no one means more.
_SECONDS_MAX = 100_000_000.0
_SPAN = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def to_seconds(name: str, value: Duration, *, at_least: float = 0.0) -> float:
    """A duration in seconds. Raises ConfigError, naming the argument, for anything that is not a duration."""
    given: object = value
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    else:
        raise WrongType(
            f"{name}={value!r}: expected a duration, not {type(value).__name__}",
            hint="pass a timedelta, or a number of seconds",
        )
    if not isfinite(seconds) or not at_least <= seconds <= _SECONDS_MAX:
        raise ConfigError(f"{name}={value!r}: must be between {at_least:g} and {_SECONDS_MAX:g} seconds")
    return seconds


def to_ms(name: str, value: Duration, *, at_least: float = 0.0) -> int:
    """A duration in whole milliseconds, at least one. Raises ConfigError as `to_seconds`."""
    return max(1, round(to_seconds(name, value, at_least=at_least) * 1000))


def read_span(text: str) -> timedelta:
    """Read a duration as people write it: 30s, 10m, 2h, 1d. Raises ConfigError."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text[:40]!r} is not a number followed by s, m, h or d")
    try:
        span = timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ConfigError(f"{text[:40]!r} is too long") from None
    to_seconds("a duration", span)
    return span
