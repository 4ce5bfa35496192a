"""Points in time as users give and get them: datetimes with a time zone. Inside, they are milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eruca.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


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
