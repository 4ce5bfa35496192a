"""Times, durations, numbers and sizes as the console shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eruca._console.pages.texts import Texts

#: Shown where a value is not known.
NONE = "–"  # noqa: RUF001
# The letter in keys of texts, and the seconds.
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_KILO = 1000
_KIBI = 1024


def show_number(value: float | None) -> str:
    """Return a number with its thousands apart: `1,234,567`, `0.25`."""
    if value is None:
        return NONE
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"


def show_short(value: float | None) -> str:
    """Return a number in at most five characters: `1.2M`."""
    if value is None:
        return NONE
    size, unit = float(value), ""
    for unit in ("", "k", "M", "G", "T"):
        if abs(size) < _KILO or unit == "T":
            break
        size /= _KILO
    if not unit:
        return show_number(round(size, 1))
    return f"{size:.1f}".removesuffix(".0") + unit if abs(size) < 100 else f"{size:.0f}{unit}"


def show_bytes(value: float | None) -> str:
    """Return a size: `1.5 GiB`."""
    if value is None:
        return NONE
    size, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(size) < _KIBI or unit == "PiB":
            break
        size /= _KIBI
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def show_percent(ratio: float | None) -> str:
    """Return a ratio of 0 to 1 as percent."""
    return NONE if ratio is None else f"{ratio * 100:.0f} %"


def show_rate(value: float | None) -> str:
    """Return a rate per second; the unit stands in the header of its column."""
    return NONE if value is None else show_short(round(value, 1) if value < 100 else round(value))


def show_duration(texts: Texts, value: timedelta | float | None) -> str:
    """Return a duration in its two largest units: `2 h 5 min`."""
    if value is None:
        return NONE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if abs(seconds) < 1:
        return texts("times.s", n=0) if seconds == 0 else texts("times.ms", n=f"{seconds * 1000:.0f}")
    left = int(abs(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
        if len(parts) == 2:
            break
    sign = "-" if seconds < 0 else ""
    return sign + " ".join(texts(f"times.{unit}", n=count) for count, unit in parts if count)


def show_exact(moment: datetime | None) -> str:
    """Return a time to the millisecond, in UTC."""
    if moment is None:
        return NONE
    return moment.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def show_ago(texts: Texts, moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time is, or in how long it will be: `5 min ago`."""
    if moment is None:
        return NONE
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    where = "ago" if seconds >= 0 else "ahead"
    for unit, size in _UNITS:
        if abs(seconds) >= size:
            return texts(f"times.{where}.{unit}", n=int(abs(seconds) // size))
    return texts("times.now")
