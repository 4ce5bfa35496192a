"""What one peer can make us write into the log."""

from __future__ import annotations

import logging

import pytest

from eruca._net.guards import Reporter
from eruca._testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def reporter(clock: VirtualClock) -> Reporter:
    return Reporter(logging.getLogger("eruca.test"), clock.monotonic)


def test_peer_is_named_once_a_minute_with_the_count(
    reporter: Reporter, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        reporter.report("10.0.0.1", "10.0.0.1:5 sent a bad frame")
    assert caplog.messages == ["10.0.0.1:5 sent a bad frame"]
    clock.advance(59_999)
    reporter.report("10.0.0.1", "10.0.0.1:6 sent a bad frame")
    assert len(caplog.messages) == 1
    clock.advance(1)
    reporter.report("10.0.0.1", "10.0.0.1:7 sent a bad frame")
    assert caplog.messages[1:] == ["10.0.0.1:7 sent a bad frame (1000 more since the last line)"]


def test_several_lines_a_minute(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(logging.getLogger("eruca.test"), clock.monotonic, lines_max=3)
    for number in range(10):
        reporter.report("groups", f"problem {number}")
    assert caplog.messages == ["problem 0", "problem 1", "problem 2"]
    clock.advance(60_000)
    reporter.report("groups", "problem 10")
    reporter.report("groups", "problem 11")
    assert caplog.messages[3:] == ["problem 10 (7 more since the last line)", "problem 11"]


def test_peers_do_not_hide_each_other(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    reporter.report("10.0.0.1", "first")
    reporter.report("10.0.0.2", "second")
    assert caplog.messages == ["first", "second"]


def test_an_ipv6_network_is_one_peer(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    """Its owner can use any number of addresses."""
    for number in range(1, 1000):
        reporter.report_peer(f"2001:db8:1:2::{number:x}", f"{number} sent a bad frame")
    reporter.report_peer("2001:db8:1:3::1", "another network")
    assert caplog.messages == ["1 sent a bad frame", "another network"]


def test_memory_and_lines_of_a_crowd_are_bounded(
    reporter: Reporter, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for minute in range(1, 4):
        for number in range(5000):
            reporter.report(f"10.0.{number // 256}.{number % 256}", "x")
            clock.advance(1)
        assert len(reporter._said) <= 1025
        assert minute * 1024 <= len(caplog.messages) <= minute * 1025
        clock.advance(60_000)
