"""Points in time in options: epoch seconds or milliseconds, ISO 8601, or relative to now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from eruca._spark.optiontable import read_duration_ms

# A number below this is seconds: as milliseconds it would be a day before March 1973.
_SECONDS_BELOW: Final = 100_000_000_000
_HINT: Final = "expected epoch milliseconds or seconds, ISO 8601 (2026-11-15T08:00:00Z), or relative (-10m)"


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, absolute or relative to now."""

    at_ms: int
    is_relative: bool = False

    def resolve(self, now_ms: int) -> int:
        """Return milliseconds since the epoch."""
        return max(0, now_ms + self.at_ms) if self.is_relative else self.at_ms


def read_timestamp(given: Any) -> Timestamp:
    """Parse a point in time; without a zone it is in UTC. Raises ValueError."""
    text = str(given).strip()
    if text.lower() == "now":
        return Timestamp(0, is_relative=True)
    if text.startswith("-"):
        try:
            if text[1:].strip().isdecimal():
                raise ValueError  # the unit is missing
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
