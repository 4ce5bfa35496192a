"""Metrics of the clients of this process, by group: messages sent and consumed, durations, and failures.

>>> from eruca.metrics import CLIENT
>>> CLIENT.snapshot()['eruca_client_sent_total{group="shop"}']

With the `telemetry` extra, `prometheus_client.REGISTRY.register(PrometheusCollector(CLIENT))` exports them.
"""

from __future__ import annotations

from typing import Final

from eruca._observe.metrics import CLIENT

REGISTRY: Final = CLIENT


class SendMeter:
    """Counts what one producer group sends."""

    def __init__(self, group: str) -> None:
        sent = REGISTRY.counter("sent_total", "Requests whose messages a broker stored", group=group)
        self._failed = REGISTRY.counter("send_failures_total", "Sends that failed finally", group=group)
        self._retries = REGISTRY.counter("send_retries_total", "Tries after the first of a send", group=group)
        seconds = REGISTRY.histogram("send_seconds", "Time from a send to its receipt", group=group)
        sent.read_from(lambda: seconds.count)
        #: Counts one send that has its receipt, with its duration.
        self.add_sent: Final = seconds.observe

    def add_tries(self, tries: int) -> None:
        """Count the tries of one send."""
        if tries > 1:
            self._retries.add(tries - 1)

    def add_failed(self) -> None:
        """Count one send that was given up."""
        self._failed.add()


class ConsumeMeter:
    """Counts what one consumer group consumes from a topic."""

    def __init__(self, group: str, topic: str) -> None:
        done = REGISTRY.counter("consumed_total", "Messages handled successfully", group=group, topic=topic)
        failed = REGISTRY.counter("consume_failures_total", "Messages whose handler failed", group=group, topic=topic)
        seconds = REGISTRY.histogram("handle_seconds", "Time a handler takes", group=group, topic=topic)
        #: Count messages that were handled, and messages whose handler failed.
        self.add_done: Final = done.add
        self.add_failed: Final = failed.add
        #: Counts one call of a handler, with its duration.
        self.add_call: Final = seconds.observe
