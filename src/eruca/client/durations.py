"""Durations as users give them: a timedelta, or a number of seconds. Everywhere, and never milliseconds."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import TypeAlias

from eruca.errors import ConfigError

Duration: TypeAlias = timedelta | float


def to_seconds(name: str, time: Duration, *, least: float = 0.0) -> float:
    """Return a duration in seconds. Raises TypeError and ConfigError, both of which name the argument."""
    if isinstance(time, timedelta):
        seconds = time.total_seconds()
    elif isinstance(time, int | float) and not isinstance(time, bool):
        seconds = float(time)
    else:
        raise TypeError(f"{name} must be a timedelta or a number of seconds, not {type(time).__name__}: {time!r:.80}")
    if not isfinite(seconds) or seconds < least:
        raise ConfigError(f"{name}={time}: must be at least {least:g} seconds")
    return seconds


def to_ms(name: str, time: Duration) -> int:
    """Return a duration in whole milliseconds, at least one. Raises like `to_seconds`."""
    return max(1, round(to_seconds(name, time) * 1000))
