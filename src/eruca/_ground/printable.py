"""Text for people: what others chose, how many there are of something, and how long it took."""

from __future__ import annotations

from datetime import timedelta


def show_safely(text: str, keep: str = "") -> str:
    """Return text with visible control characters, except those to keep.

    What others sent must neither control a terminal nor look like another line of a log.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text])


def say_count(number: int, noun: str, verb: str = "") -> str:
    """Return how many there are: `1 message`, `1,200 messages`, and with a verb `1 message waits`."""
    is_one = number == 1
    words = f"{number:,} {noun}" + ("" if is_one else "s")
    return f"{words} {verb}{'s' if is_one else ''}" if verb else words


def format_duration(duration: timedelta | float | None) -> str:
    """Return a duration in its two largest units: 350 ms, 12.3 s, 5 min 3 s, 2 h 5 min, 3 d 4 h."""
    if duration is None:
        return "-"
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 else ""
    for unit, size, smaller, small_size in _DURATION_UNITS:
        if whole >= size:
            return f"{sign}{whole // size} {unit} {whole % size // small_size} {smaller}"
    return f"{sign}{whole} s"


_DURATION_UNITS = (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
