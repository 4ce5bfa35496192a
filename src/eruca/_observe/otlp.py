"""Sends figures to a collector of OpenTelemetry (OTLP over HTTP), where the extra `otel` is installed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from eruca._observe.figures import Buckets, Description, Figures, Kind
from eruca.errors import ConfigError, ConnectFailed

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import Gauge, HistogramDataPoint, Metric, NumberDataPoint, Sum
    from opentelemetry.sdk.metrics.export import Histogram as HistogramData

    Data: TypeAlias = Gauge | Sum | HistogramData

_TIMEOUT_S: Final = 10.0
_SERVICE: Final = "eruca"


class OtlpExporter:
    """Sends to one collector. Its methods block, so they run in a thread."""

    def __init__(self, exporter: OTLPMetricExporter) -> None:
        self._exporter = exporter
        self._started_ns = time.time_ns()

    def send(self, figures: Iterable[Figures]) -> None:
        """Send figures. Raises ConnectFailed if the collector does not accept them."""
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from eruca import __version__

        now_ns = time.time_ns()
        metrics = [self._convert(each, now_ns) for each in figures]
        scope = ScopeMetrics(InstrumentationScope(_SERVICE, __version__), metrics, "")
        # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME set overrides the name.
        resource = Resource.create({"service.name": _SERVICE, "service.version": __version__})
        data = MetricsData([ResourceMetrics(resource, [scope], "")])
        if self._exporter.export(data, _TIMEOUT_S * 1000) is not MetricExportResult.SUCCESS:
            raise ConnectFailed(
                "the collector of OpenTelemetry did not accept the metrics",
                hint="is metricsOtlpEndpoint right, with the path /v1/metrics?",
            )

    def _convert(self, figures: Figures, now_ns: int) -> Metric:
        from opentelemetry.sdk.metrics.export import Metric

        about = figures.about
        return Metric(about.name, about.help_text, "", self._make_data(figures, now_ns))

    def _make_data(self, figures: Figures, now_ns: int) -> Data:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Sum

        cumulative = AggregationTemporality.CUMULATIVE
        if figures.about.kind is Kind.HISTOGRAM:
            return Histogram(list(self._list_histograms(figures, now_ns)), cumulative)
        numbers = list(self._list_numbers(figures, now_ns))
        return Gauge(numbers) if figures.about.kind is Kind.GAUGE else Sum(numbers, cumulative, is_monotonic=True)

    def _list_numbers(self, figures: Figures, now_ns: int) -> Iterator[NumberDataPoint]:
        from opentelemetry.sdk.metrics.export import NumberDataPoint

        for values, value in figures.rows:
            assert not isinstance(value, Buckets)
            yield NumberDataPoint(_name_labels(figures.about, values), self._started_ns, now_ns, value)

    def _list_histograms(self, figures: Figures, now_ns: int) -> Iterator[HistogramDataPoint]:
        from opentelemetry.sdk.metrics.export import HistogramDataPoint

        for values, value in figures.rows:
            assert isinstance(value, Buckets)
            counts = [count for _, count in value.counts]
            own = [counts[0], *[after - before for before, after in pairwise(counts)]]
            bounds = [float(upper) for upper, _ in value.counts[:-1]]
            yield HistogramDataPoint(
                attributes=_name_labels(figures.about, values),
                start_time_unix_nano=self._started_ns,
                time_unix_nano=now_ns,
                count=counts[-1],
                sum=value.sum,
                bucket_counts=own,
                explicit_bounds=bounds,
                min=cast(float, None),  # not known, and the field is optional
                max=cast(float, None),
            )

    def close(self) -> None:
        """End."""
        self._exporter.shutdown()


def _name_labels(about: Description, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(about.labels, values, strict=True))


def open_exporter(endpoint: str) -> OtlpExporter:
    """Return an exporter to a collector; blocks. Raises ConfigError where the extra `otel` is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise ConfigError(
            f"metricsOtlpEndpoint={endpoint} needs the SDK of OpenTelemetry", hint="pip install 'eruca[otel]'"
        ) from error
    return OtlpExporter(OTLPMetricExporter(endpoint=endpoint, timeout=_TIMEOUT_S))
