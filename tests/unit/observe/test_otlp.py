"""Metrics sent to a collector: what arrives, as the protocol's own classes decode it."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from eruca._observe.figures import Buckets, Description, Figures, Kind
from eruca._observe.otlp import open_exporter
from eruca.errors import ConfigError, ConnectFailed

FIGURES = [
    Figures(Description("sent_total", Kind.COUNTER, "Sent.", ("topic",)), [(("orders",), 3)]),
    Figures(Description("waiting", Kind.GAUGE, "Waiting."), [((), 0.5)]),
    Figures(
        Description("seconds", Kind.HISTOGRAM, "Time."), [((), Buckets([("0.1", 2), ("1.0", 3), ("+Inf", 4)], 9.5))]
    ),
]


@contextmanager
def run_collector(status: int = 200) -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """A collector on loopback, and what it was sent."""
    received: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
        finally:
            server.shutdown()
            thread.join()


def test_every_kind_arrives() -> None:
    with run_collector() as (endpoint, received):
        exporter = open_exporter(endpoint)
        exporter.send(FIGURES)
        exporter.close()
    ((resource,),) = [request.resource_metrics for request in received]
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "eruca"
    sent, waiting, seconds = resource.scope_metrics[0].metrics
    (point,) = sent.sum.data_points
    assert (sent.name, sent.sum.is_monotonic, point.as_int) == ("sent_total", True, 3)
    assert [(each.key, each.value.string_value) for each in point.attributes] == [("topic", "orders")]
    assert [each.as_double for each in waiting.gauge.data_points] == [0.5]
    (histogram,) = seconds.histogram.data_points
    assert (histogram.count, histogram.sum, list(histogram.bucket_counts)) == (4, 9.5, [2, 1, 1])
    assert list(histogram.explicit_bounds) == [0.1, 1.0]
    assert not histogram.HasField("min")


def test_a_collector_that_refuses(caplog: pytest.LogCaptureFixture) -> None:
    with run_collector(400) as (endpoint, received):
        exporter = open_exporter(endpoint)
        with pytest.raises(ConnectFailed, match="did not accept"):
            exporter.send(FIGURES)
        exporter.close()
    assert len(received) == 1


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(ConfigError, match="metricsOtlpEndpoint=http://x needs the SDK") as raised:
        open_exporter("http://x")
    assert raised.value.hint == "pip install 'eruca[otel]'"
