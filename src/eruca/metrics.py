"""Metrics of this process: `CLIENT` has those of producers and consumers, `BROKER` those of a broker that runs in it.

>>> import prometheus_client
>>> prometheus_client.REGISTRY.register(PrometheusCollector(CLIENT))
"""

from __future__ import annotations

from eruca._observe.metrics import BROKER, CLIENT, PrometheusCollector, Registry

__all__ = ["BROKER", "CLIENT", "PrometheusCollector", "Registry"]
