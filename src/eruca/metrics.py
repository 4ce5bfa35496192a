"""Metrics of this process: `CLIENT` has those of producers and consumers, `BROKER` those of a broker that runs in it,
and `SERVER` what peers of its servers use of each limit.

>>> import prometheus_client
>>> prometheus_client.REGISTRY.register(PrometheusCollector(CLIENT))
"""

from __future__ import annotations

from eruca._observe.metrics import (
    BROKER,
    CLIENT,
    SERVER,
    Counter,
    Family,
    Gauge,
    Histogram,
    PrometheusCollector,
    Registry,
)

__all__ = ["BROKER", "CLIENT", "SERVER", "Counter", "Family", "Gauge", "Histogram", "PrometheusCollector", "Registry"]
