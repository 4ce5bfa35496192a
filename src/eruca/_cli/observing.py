"""The port for metrics and health of a server command: its options, its rules, and the service that runs it."""

from __future__ import annotations

from collections.abc import Mapping

from eruca._cli.running import Service
from eruca._cli.settings import Settings, is_loopback
from eruca._net.metricsoptions import NO_PORT, MetricsOptions
from eruca._net.observing import MetricsPort
from eruca._net.tlsoptions import TlsOptions
from eruca._observe.figures import Observed
from eruca.errors import ConfigError

_KEY = "metricsPort"


def build_metrics_options(settings: Settings, *, insecure: bool) -> MetricsOptions:
    """Return the options of the port. Raises ConfigError for an address that others can reach without a token."""
    options = settings.build(MetricsOptions)
    if options.port != NO_PORT and not (options.token or insecure or is_loopback(options.bind)):
        raise ConfigError(
            f"other machines can reach {options.bind or 'all addresses'}, and the metrics show names of topics and"
            " groups and addresses of clients",
            hint="set metricsToken to a secret that Prometheus presents; --insecure allows everyone in that network",
        )
    return options


def make_metrics_service(
    settings: Settings, options: MetricsOptions, tls: TlsOptions, observed: Mapping[str, Observed]
) -> tuple[list[Service], MetricsPort]:
    """Return the service that shows metrics, none if it is off, and the port.

    It starts before the servers it shows, so that it answers while they start.
    """
    port = MetricsPort(options, observed, tls=tls)
    if options.port == NO_PORT and not options.otlp_endpoint:
        return [], port
    hint = f"is another server running? Choose another port: --metrics-port {options.port + 1}, or -1 for none"
    # Nobody asked for a port that only this command opens: the servers run without it.
    return [Service(port, hint, is_optional=not settings.is_set(_KEY))], port
