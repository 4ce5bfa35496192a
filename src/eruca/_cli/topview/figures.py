"""Numbers in few characters."""

from __future__ import annotations

_UNITS = ("", "k", "M", "G", "T", "P")
_STEP = 1000
# Beyond this many, a unit is used.
_PLAIN_MAX = 100_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def show_count(count: int | None) -> str:
    """Return a number in at most seven characters: 99,999 or 1.23M."""
    if count is None:
        return "-"
    return f"{count:,}" if abs(count) < _PLAIN_MAX else _scale(float(count))


def show_rate(rate: float | None, *, signed: bool = False) -> str:
    """Return a rate per second in at most seven characters: 0.3, 12, 1.23M; with a sign if it is a change."""
    if rate is None:
        return "-"
    small = abs(rate) < 10 and round(rate, 1) != round(rate)
    text = f"{rate:.1f}" if small else f"{rate:,.0f}" if abs(rate) < _PLAIN_MAX else _scale(rate)
    return f"+{text}" if signed and rate > 0 and text != "0" else "0" if text == "-0" else text


def _scale(value: float) -> str:
    for unit in _UNITS:
        if abs(value) < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}{unit}"


def show_span(seconds: float | None) -> str:
    """Return a time span in at most six characters: 0.4s, 59s, 12m05s, 3h20m, 12d4h."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds else "0s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    days = whole // _DAY
    return f"{days}d{whole % _DAY // _HOUR}h" if days < 1000 else f"{days}d"


def show_share(ratio: float | None) -> str:
    """Return a share as percent."""
    return "-" if ratio is None or ratio < 0 else f"{ratio:.0%}"
