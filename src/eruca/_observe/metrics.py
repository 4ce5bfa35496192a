"""Counters, gauges and histograms in plain Python, and a way to show them to Prometheus.

    metrics = Registry("eruca_client_")
    sent = metrics.counter("sent_total", "Messages that a broker took.", topic="orders")
    sent.add()
    metrics.snapshot()      # {'eruca_client_sent_total{topic="orders"}': 1}

Whoever counts keeps the metric at hand: looking it up by name costs more than counting. Counting is for one thread,
that of the loop; a snapshot may be taken on any.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from prometheus_client import Metric

# Seconds, from half a millisecond to the time after which a call is given up.
SECONDS_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Count."""
        self.value += amount


class Gauge:
    """A number that goes up and down; it is set, or read from a function when someone looks."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: float = 0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Set it."""
        self._value = value

    def add(self, amount: float = 1) -> None:
        """Move it, down if the amount is negative."""
        self._value += amount

    def read_from(self, read: Callable[[], float]) -> None:
        """Let a function say the value whenever someone looks."""
        self._read = read

    @property
    def value(self) -> float:
        """The value now."""
        return self._value if self._read is None else self._read()


class Histogram:
    """How many values there were up to each of some bounds, and their sum."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds must grow: {bounds}")
        self.bounds: Final = tuple(bounds)
        self.sum: float = 0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Take a value; one that is equal to a bound is within it."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def list_buckets(self) -> list[tuple[str, int]]:
        """Each bound with how many values were not above it; the last is `+Inf`."""
        return list(zip([*map(str, self.bounds), "+Inf"], accumulate(self._counts), strict=True))

    def describe(self) -> dict[str, Any]:
        """It as a dict."""
        buckets = self.list_buckets()
        return {"count": buckets[-1][1], "sum": self.sum, "buckets": dict(buckets)}


MetricT = TypeVar("MetricT", bound=Counter | Gauge | Histogram)


class Family(Generic[MetricT]):
    """All metrics of one name: one for each combination of values of its labels."""

    def __init__(self, name: str, help_text: str, kind: type[MetricT], labels: tuple[str, ...]) -> None:
        self.name = name
        self.help_text = help_text
        self.kind = kind
        self.labels = labels
        self.metrics: dict[tuple[str, ...], MetricT] = {}


class Registry:
    """The metrics of one client or server; every name begins with the prefix."""

    def __init__(self, prefix: str = "eruca_client_") -> None:
        self.prefix = prefix
        self._families: dict[str, Family[Any]] = {}

    def counter(self, name: str, help_text: str, /, **labels: str) -> Counter:
        """The counter of that name and these labels, made when it is asked for first; the name ends with `_total`."""
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends with _total: {name}")
        return self._find(name, help_text, Counter, labels, Counter)

    def gauge(self, name: str, help_text: str, /, **labels: str) -> Gauge:
        """The gauge of that name and these labels, made when it is asked for first."""
        return self._find(name, help_text, Gauge, labels, Gauge)

    def histogram(
        self, name: str, help_text: str, /, bounds: Sequence[float] = SECONDS_BOUNDS, **labels: str
    ) -> Histogram:
        """The histogram of that name and these labels, made when it is asked for first; its bounds stay."""
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
                raise ValueError(f"names have small letters, digits and _: {name} {names}")
            family = self._families[name] = Family(self.prefix + name, help_text, kind, names)
        elif family.kind is not kind or family.labels != names:
            raise ValueError(f"{name} is a {family.kind.__name__} with the labels {family.labels} already")
        values = tuple([labels[each] for each in names])
        metric = family.metrics.get(values)
        if metric is None:
            metric = family.metrics[values] = make()
        return metric

    def drop(self, name: str, /, **labels: str) -> None:
        """Forget the metric of that name and these labels: what it was about is gone."""
        family = self._families.get(name)
        if family is not None:
            family.metrics.pop(tuple([labels.get(each, "") for each in family.labels]), None)

    def list_families(self) -> Iterator[Family[Any]]:
        """All families, in the order in which they were made."""
        yield from list(self._families.values())

    def snapshot(self) -> dict[str, Any]:
        """All values by name and labels, as Prometheus writes them; a histogram is a dict of count, sum and buckets."""
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
#: Metrics of the brokers of this process.
BROKER: Final = Registry("eruca_broker_")


class PrometheusCollector:
    """Shows a registry to prometheus-client, if that is installed: `REGISTRY.register(PrometheusCollector(ours))`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def describe(self) -> list[Metric]:
        """Nothing: families come and go, so that no name is taken before it has a value."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family with its values now."""
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
