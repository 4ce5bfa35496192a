"""Figures as text: the format of Prometheus (0.0.4), and OpenMetrics (1.0.0)."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import Final

from eruca._observe.figures import Buckets, Figures, Kind

_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_TOTAL: Final = "_total"
_OPENMETRICS: Final = "application/openmetrics-text"


class TextFormat(enum.Enum):
    """A format, by its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"

    @property
    def end(self) -> str:
        """The last line."""
        return "# EOF\n" if self is TextFormat.OPENMETRICS else ""


def choose_format(accept: str) -> TextFormat:
    """Return the format that a client prefers by its `Accept` header."""
    best, chosen = 0.0, TextFormat.PROMETHEUS
    for part in accept.lower().split(","):
        kind, *parameters = [word.strip() for word in part.split(";")]
        quality = _read_quality(parameters)
        if kind == _OPENMETRICS and quality > best:
            best, chosen = quality, TextFormat.OPENMETRICS
        elif kind.startswith("text/") and quality > best:
            best, chosen = quality, TextFormat.PROMETHEUS
    return chosen


def _read_quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, text = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(text)
            except ValueError:
                return 0.0
    return 1.0


def write_figures(figures: Figures, form: TextFormat) -> Iterator[str]:
    """Yield the lines of one metric; each ends with a line feed."""
    name, kind, help_text, labels = figures.about
    family = name
    if form is TextFormat.OPENMETRICS and kind is Kind.COUNTER:
        family = name.removesuffix(_TOTAL)
    yield f"# HELP {family} {help_text.translate(_HELP_ESCAPES)}\n# TYPE {family} {kind.value}\n"
    for values, value in figures.rows:
        pairs = [f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in zip(labels, values, strict=True)]
        if isinstance(value, Buckets):
            yield from _write_buckets(name, pairs, value)
        elif pairs:
            yield f"{name}{{{','.join(pairs)}}} {write_number(value)}\n"
        else:
            yield f"{name} {write_number(value)}\n"


def _write_buckets(name: str, pairs: list[str], buckets: Buckets) -> Iterator[str]:
    for upper, count in buckets.counts:
        bounded = ",".join([*pairs, f'le="{upper}"'])
        yield f"{name}_bucket{{{bounded}}} {count}\n"
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    yield f"{name}_sum{labels} {write_number(buckets.sum)}\n{name}_count{labels} {buckets.counts[-1][1]}\n"


def write_number(value: float) -> str:
    """Format a value: a whole number without a fraction, and the words for what is not a number."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
