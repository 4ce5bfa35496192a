"""Points in time as options name them: since the epoch, ISO, or so long ago."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from eruca._spark.optiontable import read_duration_ms

# A number below this is seconds: as milliseconds it would be a day before March 1973.
_SECONDS_BELOW: Final = 100_000_000_000
_HINT: Final = "expected epoch milliseconds or seconds, ISO as 2026-11-15T08:00:00Z, or relative as -10m"


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, or how far before now it is."""

    at_ms: int
    is_relative: bool = False

    def resolve(self, now_ms: int) -> int:
        """Milliseconds since the epoch."""
        return max(0, now_ms + self.at_ms) if self.is_relative else self.at_ms


def read_timestamp(given: Any) -> Timestamp:
    """Read a point in time. Raises ValueError. What has no time zone is in UTC."""
    text = str(given).strip()
    if text.lower() == "now":
        return Timestamp(0, is_relative=True)
    if text.startswith("-"):
        try:
            if text[1:].strip().isdecimal():
                raise ValueError  # minutes, or milliseconds? Nobody knows
            return Timestamp(-read_duration_ms(text[1:].strip()), is_relative=True)
        except ValueError:
            raise ValueError(f"{text!r} is not a time: {_HINT}") from None
    if text.isdecimal():
        number = int(text)
        return Timestamp(number * 1000 if number < _SECONDS_BELOW else number)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: {_HINT}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    at_ms = round(time.timestamp() * 1000)
    if at_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return Timestamp(at_ms)
