"""The options of the port for metrics and health, and of the export of metrics."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground.config import option
from eruca._ground.urls import check_url

#: The value of `metricsPort` that means no port.
NO_PORT = -1
#: The port of rocketmq-exporter, which `eruca up` uses.
USUAL_PORT = 5557


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where a server shows its metrics and its health."""

    port: int = option(
        NO_PORT,
        "metricsPort",
        f"HTTP port for `/metrics`, `/healthz` and `/readyz`; -1: none (`eruca up`: {USUAL_PORT}), 0: chosen by the "
        "system",
        low=NO_PORT,
        high=65_535,
    )
    bind: str = option(
        "127.0.0.1",
        "metricsBindAddress",
        "the address of that port; an address that other machines can reach needs metricsToken or --insecure",
    )
    token: str = option(
        "",
        "metricsToken",
        "a request for `/metrics` has to present this, as `Authorization: Bearer TOKEN`; empty: it need not. "
        "`/healthz` and `/readyz` never need it, but `/readyz` names its reasons only to those who do",
        secret=True,
    )
    rows_max: int = option(
        5000,
        "metricsMaxLabelSets",
        "maximum number of label sets of one metric, for example of topics; `eruca_metrics_left_out` counts the others",
        low=1,
        high=1_000_000,
    )
    otlp_endpoint: str = option(
        "",
        "metricsOtlpEndpoint",
        "send the same metrics to this collector of OpenTelemetry over HTTP (http://host:4318/v1/metrics); needs the "
        "extra `otel`; empty: none",
    )
    otlp_interval_ms: int = option(
        60_000, "metricsOtlpInterval", "how often they are sent", unit="ms", low=1000, high=3_600_000
    )

    def __post_init__(self) -> None:
        if self.otlp_endpoint:
            check_url("metricsOtlpEndpoint", self.otlp_endpoint, "set OTEL_EXPORTER_OTLP_HEADERS for credentials")
