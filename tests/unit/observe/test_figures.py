"""Figures: bounded rows, and what a registry becomes."""

from __future__ import annotations

from eruca._observe.figures import Buckets, Description, Figures, Kind, bound, read_registry
from eruca._observe.metrics import Registry

ABOUT = Description("length", Kind.GAUGE, "Length.", ("topic",))


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = [((str(number),), number) for number in range(5)]
    assert bound(Figures(ABOUT, rows), 5) == Figures(ABOUT, rows)
    assert bound(Figures(ABOUT, iter(rows), 7), 3) == Figures(ABOUT, rows[:3], 9)


def test_a_registry() -> None:
    metrics = Registry("eruca_test_")
    metrics.counter("sent_total", "Sent.", topic="a").add(2)
    metrics.gauge("is_master", "Whether.").read_from(lambda: True)
    metrics.histogram("seconds", "Time.", (0.5,)).observe(1)
    counter, gauge, histogram = read_registry(metrics)
    assert counter == Figures(Description("eruca_test_sent_total", Kind.COUNTER, "Sent.", ("topic",)), [(("a",), 2)])
    assert [str(value) for _, value in gauge.rows] == ["1"]
    assert list(histogram.rows) == [((), Buckets([("0.5", 0), ("+Inf", 1)], 1))]
