"""How long ago the log was where a slave is now."""

from __future__ import annotations

from eruca._broker.replication.lag import LagMeter


def test_a_slave_that_has_everything_is_not_behind() -> None:
    meter = LagMeter()
    assert meter.measure_ms(0, 100, 5.0) == 0  # not known yet
    meter.note(100, 1.0, 0)
    assert meter.measure_ms(100, 100, 5.0) == 0
    assert meter.measure_ms(150, 100, 5.0) == 0


def test_the_lag_is_the_time_since_the_log_went_beyond_the_slave() -> None:
    meter = LagMeter()
    for second in range(10):
        meter.note(100 * (second + 1), float(second), 0)
    assert meter.measure_ms(0, 1000, 9.5) == 9500
    assert meter.measure_ms(450, 1000, 9.5) == 5500
    assert meter.measure_ms(999, 1000, 9.5) == 500


def test_what_came_right_after_a_mark_counts_from_that_mark() -> None:
    meter = LagMeter()
    meter.note(100, 1.0, 0)
    meter.note(200, 1.001, 0)  # too soon for another mark
    assert meter.measure_ms(100, 200, 3.0) == 2000


def test_a_long_lag_is_remembered_more_coarsely() -> None:
    meter = LagMeter()
    for second in range(100_000):
        meter.note(second + 1, float(second), 0)
    assert meter.measure_ms(0, 100_000, 100_000.0) == 100_000_000
    for position in (1000, 50_000, 99_000):
        exact = (100_000 - position) * 1000
        assert abs(exact - meter.measure_ms(position, 100_000, 100_000.0)) <= 500_000
    assert len(meter._times) <= 1024
    meter.note(100_000, 100_001.0, 100_000)  # it has caught up
    assert not meter._times
    meter.note(100_100, 100_002.0, 100_000)
    assert meter.measure_ms(100_000, 100_100, 100_002.5) == 500


def test_another_log_begins_anew() -> None:
    meter = LagMeter()
    meter.note(1000, 1.0, 0)
    meter.forget()
    meter.note(10, 2.0, 0)
    assert meter.measure_ms(0, 10, 3.0) == 1000
