"""Metrics in plain Python, and what Prometheus is shown of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eruca._observe.metrics import Histogram, PrometheusCollector, Registry


def fill(metrics: Registry) -> None:
    metrics.counter("sent_total", "Messages that a broker took.", topic="orders", result="ok").add(3)
    metrics.counter("sent_total", "Messages that a broker took.", result="failed", topic="orders").add()
    metrics.gauge("buffered_messages", "Messages that wait for a handler.").set(7)
    seconds = metrics.histogram("send_seconds", "How long sends took.", (0.1, 1.0), topic='a"b\\c\nd')
    for value in (0.05, 0.1, 0.5, 30):
        seconds.observe(value)


def test_a_snapshot_has_everything() -> None:
    metrics = Registry()
    assert metrics.snapshot() == {}
    fill(metrics)
    assert metrics.snapshot() == {
        'eruca_client_sent_total{result="ok",topic="orders"}': 3,
        'eruca_client_sent_total{result="failed",topic="orders"}': 1,
        "eruca_client_buffered_messages": 7,
        r'eruca_client_send_seconds{topic="a\"b\\c\nd"}': {
            "count": 4,
            "sum": 30.65,
            "buckets": {"0.1": 2, "1.0": 3, "+Inf": 4},
        },
    }


def test_the_same_name_and_labels_are_the_same_metric() -> None:
    metrics = Registry("eruca_broker_")
    first = metrics.counter("pulls_total", "Pulls.", topic="a", group="b")
    assert metrics.counter("pulls_total", "Pulls.", group="b", topic="a") is first
    assert metrics.counter("pulls_total", "Pulls.", group="c", topic="a") is not first
    assert list(metrics.snapshot()) == [
        'eruca_broker_pulls_total{group="b",topic="a"}',
        'eruca_broker_pulls_total{group="c",topic="a"}',
    ]


def test_a_counter_counts_or_is_read() -> None:
    metrics = Registry()
    metrics.counter("sent_total", "Messages.").add(2)
    seconds = metrics.histogram("send_seconds", "Durations.", (1.0,))
    metrics.counter("timed_total", "Messages.").read_from(lambda: seconds.count)
    seconds.observe(0.5)
    seconds.observe(2)
    found = metrics.snapshot()
    assert (found["eruca_client_sent_total"], found["eruca_client_timed_total"]) == (2, 2)


def test_a_gauge_moves_or_is_read() -> None:
    metrics = Registry()
    gauge = metrics.gauge("in_flight", "Sends without an answer.")
    gauge.add(5)
    gauge.add(-2)
    assert gauge.value == 3
    waiting = [1, 2]
    gauge.read_from(lambda: len(waiting))
    waiting.append(3)
    assert metrics.snapshot() == {"eruca_client_in_flight": 3}


def test_a_value_equal_to_a_bound_is_within() -> None:
    histogram = Histogram((1, 2))
    for value in (0, 1, 1.5, 2, 3):
        histogram.observe(value)
    assert histogram.list_buckets() == [("1", 2), ("2", 4), ("+Inf", 5)]
    assert (histogram.count, histogram.sum) == (5, 7.5)


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1)])
def test_bounds_grow(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds must be increasing"):
        Histogram(bounds)


def test_names_have_rules() -> None:
    metrics = Registry()
    with pytest.raises(ValueError, match="must end with _total"):
        metrics.counter("sent", "Messages.")
    with pytest.raises(ValueError, match="lowercase letters"):
        metrics.gauge("in-flight", "Sends.")
    with pytest.raises(ValueError, match="lowercase letters"):
        metrics.gauge("in_flight", "Sends.", Topic="a")
    metrics.gauge("in_flight", "Sends.", topic="a")
    with pytest.raises(ValueError, match=r"is already a Gauge with the labels \('topic',\)"):
        metrics.gauge("in_flight", "Sends.")
    with pytest.raises(ValueError, match="is already a Gauge"):
        metrics.histogram("in_flight", "Sends.", topic="a")


def test_prometheus_is_shown_everything() -> None:
    metrics, shown = Registry(), CollectorRegistry()
    shown.register(PrometheusCollector(metrics))
    assert generate_latest(shown) == b""
    fill(metrics)
    assert generate_latest(shown).decode().splitlines() == [
        "# HELP eruca_client_sent_total Messages that a broker took.",
        "# TYPE eruca_client_sent_total counter",
        'eruca_client_sent_total{result="ok",topic="orders"} 3.0',
        'eruca_client_sent_total{result="failed",topic="orders"} 1.0',
        "# HELP eruca_client_buffered_messages Messages that wait for a handler.",
        "# TYPE eruca_client_buffered_messages gauge",
        "eruca_client_buffered_messages 7.0",
        "# HELP eruca_client_send_seconds How long sends took.",
        "# TYPE eruca_client_send_seconds histogram",
        r'eruca_client_send_seconds_bucket{le="0.1",topic="a\"b\\c\nd"} 2.0',
        r'eruca_client_send_seconds_bucket{le="1.0",topic="a\"b\\c\nd"} 3.0',
        r'eruca_client_send_seconds_bucket{le="+Inf",topic="a\"b\\c\nd"} 4.0',
        r'eruca_client_send_seconds_count{topic="a\"b\\c\nd"} 4.0',
        r'eruca_client_send_seconds_sum{topic="a\"b\\c\nd"} 30.65',
    ]


def test_prometheus_is_not_needed() -> None:
    code = "import sys, eruca._observe.metrics; sys.exit(any(name.startswith('prometheus') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
