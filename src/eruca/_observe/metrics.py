"""Counters, gauges and histograms in plain Python, and a way to expose them to Prometheus.

    metrics = Registry("eruca_client_")
    sent = metrics.counter("sent_total", "Messages that a broker accepted.", topic="orders")
    sent.add()
    metrics.snapshot()      # {'eruca_client_sent_total{topic="orders"}': 1}

Keep a reference to a metric you use: looking it up by name costs more than counting. Metrics must be updated in one
thread, that of the loop; a snapshot may be taken in any.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client import Metric

# Seconds, from half a millisecond to the timeout of a call.
SECONDS_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Number:
    """A number that is changed, or read from a function when it is collected."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: float = 0
        self._read: Callable[[], float] | None = None

    def add(self, amount: float = 1) -> None:
        """Change it by an amount."""
        self._value += amount

    def read_from(self, read: Callable[[], float]) -> None:
        """Read the value from a function whenever it is collected."""
        self._read = read

    @property
    def value(self) -> float:
        """The current value."""
        return self._value if self._read is None else self._read()


class Counter(_Number):
    """A number that only grows."""

    __slots__ = ()


class Gauge(_Number):
    """A number that goes up and down."""

    __slots__ = ()

    def set(self, value: float) -> None:
        """Set it."""
        self._value = value


class Histogram:
    """The number of values up to each of some bounds, and their sum."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds must be increasing: {bounds}")
        self.bounds: Final = tuple(bounds)
        self.sum: float = 0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Record a value; a value equal to a bound is within it."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of recorded values."""
        return sum(self._counts)

    def list_buckets(self) -> list[tuple[str, int]]:
        """List each bound with the number of values not above it; the last is `+Inf`."""
        return list(zip([*map(str, self.bounds), "+Inf"], accumulate(self._counts), strict=True))

    def describe(self) -> dict[str, Any]:
        """Return it as a dict."""
        buckets = self.list_buckets()
        return {"count": buckets[-1][1], "sum": self.sum, "buckets": dict(buckets)}


MetricT = TypeVar("MetricT", bound=Counter | Gauge | Histogram)


class Family(Generic[MetricT]):
    """All metrics of one name: one for each combination of label values."""

    def __init__(self, name: str, help_text: str, kind: type[MetricT], labels: tuple[str, ...]) -> None:
        self.name = name
        self.help_text = help_text
        self.kind = kind
        self.labels = labels
        self.metrics: dict[tuple[str, ...], MetricT] = {}


class Registry:
    """The metrics of one client or server; every name starts with the prefix."""

    def __init__(self, prefix: str = "eruca_client_") -> None:
        self.prefix = prefix
        self._families: dict[str, Family[Any]] = {}

    def counter(self, name: str, help_text: str, /, **labels: str) -> Counter:
        """Return the counter with this name and labels, created on first use; the name ends with `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter must end with _total: {name}")
        return self._find(name, help_text, Counter, labels, Counter)

    def gauge(self, name: str, help_text: str, /, **labels: str) -> Gauge:
        """Return the gauge with this name and labels, created on first use."""
        return self._find(name, help_text, Gauge, labels, Gauge)

    def histogram(
        self, name: str, help_text: str, /, bounds: Sequence[float] = SECONDS_BOUNDS, **labels: str
    ) -> Histogram:
        """Return the histogram with this name and labels, created on first use; its bounds do not change."""
        return self._find(name, help_text, Histogram, labels, lambda: Histogram(bounds))

    def _find(
        self,
        name: str,
        help_text: str,
        kind: type[MetricT],
        labels: dict[str, str],
        make: Callable[[], MetricT],
    ) -> MetricT:
        names = tuple(sorted(labels))
        family: Family[MetricT] | None = self._families.get(name)
        if family is None:
            if not all(_NAME.fullmatch(each) for each in (self.prefix + name, *names)):
                raise ValueError(f"names must consist of lowercase letters, digits and _: {name} {names}")
            family = self._families[name] = Family(self.prefix + name, help_text, kind, names)
        elif family.kind is not kind or family.labels != names:
            raise ValueError(f"{name} is already a {family.kind.__name__} with the labels {family.labels}")
        values = tuple([labels[each] for each in names])
        metric = family.metrics.get(values)
        if metric is None:
            metric = family.metrics[values] = make()
        return metric

    def drop(self, name: str, /, **labels: str) -> None:
        """Remove the metric with this name and labels, because its subject is gone."""
        family = self._families.get(name)
        if family is not None:
            family.metrics.pop(tuple([labels.get(each, "") for each in family.labels]), None)

    def list_families(self) -> Iterator[Family[Any]]:
        """Iterate over all families, in order of creation."""
        yield from list(self._families.values())

    def snapshot(self) -> dict[str, Any]:
        """Return all values by name and labels, as in Prometheus; a histogram is a dict of count, sum and buckets."""
        result: dict[str, Any] = {}
        for family in self.list_families():
            for values, metric in list(family.metrics.items()):
                pairs = zip(family.labels, values, strict=True)
                inside = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs])
                key = f"{family.name}{{{inside}}}" if inside else family.name
                result[key] = metric.describe() if isinstance(metric, Histogram) else metric.value
        return result


#: Metrics of the producers and consumers of this process.
CLIENT: Final = Registry("eruca_client_")
#: Metrics of all servers of this process: what peers use of each limit.
SERVER: Final = Registry("eruca_server_")
#: Metrics of the brokers of this process.
BROKER: Final = Registry("eruca_broker_")


class PrometheusCollector:
    """Exposes a registry to prometheus-client, if that is installed: `REGISTRY.register(PrometheusCollector(ours))`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def describe(self) -> list[Metric]:
        """Return nothing: families come and go, so that no name is claimed before it has a value."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every family with its current values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for family in self._registry.list_families():
            about = (family.name, family.help_text)
            metrics = list(family.metrics.items())
            if family.kind is Histogram:
                histograms = HistogramMetricFamily(*about, labels=family.labels)
                for values, metric in metrics:
                    histograms.add_metric(values, metric.list_buckets(), metric.sum)
                yield histograms
                continue
            maker = CounterMetricFamily if family.kind is Counter else GaugeMetricFamily
            numbers = maker(*about, labels=family.labels)
            for values, metric in metrics:
                numbers.add_metric(values, metric.value)
            yield numbers
