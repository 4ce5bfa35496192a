"""Points in time as users give and get them: datetimes with a time zone. Inside, they are milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from eruca.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_AGO = re.compile(r"-(\d{1,9})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def to_epoch_ms(name: str, value: datetime) -> int:
    """A time in milliseconds since 1970. Raises ConfigError, naming the argument, without a time zone."""
    given: object = value
    if not isinstance(given, datetime):
        raise ConfigError(f"{name}={value!r}: expected a datetime, not {type(value).__name__}")
    if given.utcoffset() is None:
        raise ConfigError(
            f"{name}={value!r}: the time has no time zone", hint="datetime.now(UTC) has one; .astimezone() adds yours"
        )
    # Exact, where a float of seconds would not be.
    return round((given - _EPOCH) / _MILLISECOND)


def from_epoch_ms(time_ms: int) -> datetime | None:
    """The time this many milliseconds after 1970, in UTC; None if it cannot be represented."""
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def read_time(text: str) -> datetime:
    """Read a time: milliseconds since 1970, 2026-11-15, or 2026-11-15T07:21:06; without a zone it is local time.

    Raises ConfigError.
    """
    try:
        if re.fullmatch(r"-?\d{5,}", text):
            return _EPOCH + timedelta(milliseconds=int(text))
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{text!r} is neither milliseconds nor a time like 2026-11-15T07:21:06") from None


def read_moment(text: str) -> datetime | Literal["earliest", "latest"]:
    """Read a place in time: `earliest`, `latest`, `now`, `-2h` (ago) or a time. Raises ConfigError."""
    if text == "earliest":
        return "earliest"
    if text in ("latest", "now"):
        return "latest"
    if match := _AGO.fullmatch(text):
        try:
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            return "earliest"
    try:
        moment = read_time(text)
    except ConfigError:
        raise ConfigError(
            f"{text!r} is not a time",
            hint="earliest, latest, an age such as -2h or -30m, a time such as 2026-11-15T07:21:06, or milliseconds",
        ) from None
    if moment < _EPOCH:
        raise ConfigError(f"{text!r} is before 1970")
    return moment
