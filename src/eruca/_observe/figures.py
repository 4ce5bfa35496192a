"""Metrics in the form in which servers show them: a description, and the current value of each set of labels.

A server collects its figures when somebody asks. Most are numbers that it has anyway, read from its tables. Whatever
shows them (`exposition`, `otlp`) takes any source of figures.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence, Sized
from typing import NamedTuple, Protocol, TypeAlias

from eruca._observe.metrics import Counter, Histogram, Registry


class Kind(enum.Enum):
    """What the values of a metric mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Description(NamedTuple):
    """One metric: its name, what it means, and the names of its labels."""

    name: str
    kind: Kind
    help_text: str
    labels: tuple[str, ...] = ()


class Buckets(NamedTuple):
    """The value of a histogram: how many values are not above each bound (the last is `+Inf`), and their sum."""

    counts: Sequence[tuple[str, int]]
    sum: float


#: The values of the labels, and the value of the metric.
Row: TypeAlias = tuple[tuple[str, ...], "float | Buckets"]


class Figures(NamedTuple):
    """A metric and its current values. `left_out` is how many sets of labels were left out because of the limit."""

    about: Description
    rows: Iterable[Row]
    left_out: int = 0


class Observed(Protocol):
    """A server that has figures, and that knows whether it can do its work."""

    def collect_figures(self, rows_max: int) -> AsyncIterator[Figures]:
        """Yield the figures, with at most this many rows each. It gives others a turn of the loop in between."""

    def list_obstacles(self) -> list[str]:
        """List the reasons why it is not ready; empty if it is."""


def bound(figures: Figures, rows_max: int) -> Figures:
    """Return figures with at most this many rows, and how many were left out."""
    rows = figures.rows
    if not isinstance(rows, Sized):
        rows = list(rows)
    if len(rows) <= rows_max:
        return Figures(figures.about, rows, figures.left_out)
    return Figures(figures.about, list(rows)[:rows_max], figures.left_out + len(rows) - rows_max)


def read_registry(registry: Registry) -> Iterator[Figures]:
    """Yield the current figures of a registry."""
    for family in registry.list_families():
        kind = Kind.COUNTER if family.kind is Counter else Kind.GAUGE
        if family.kind is Histogram:
            kind = Kind.HISTOGRAM
        rows = [(values, read_value(metric)) for values, metric in list(family.metrics.items())]
        yield Figures(Description(family.name, kind, family.help_text, family.labels), rows)


def read_value(metric: object) -> float | Buckets:
    """Return the current value of a metric of a registry."""
    if isinstance(metric, Histogram):
        return Buckets(metric.list_buckets(), metric.sum)
    value: float = getattr(metric, "value")  # noqa: B009 - a counter and a gauge both have it
    return value + 0  # a truth value becomes a number
