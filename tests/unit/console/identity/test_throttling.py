"""Failed log-ins wait, by address and by user, in bounded memory."""

from __future__ import annotations

import pytest

from eruca._console.identity import throttling
from eruca._console.identity.throttling import LoginThrottle, name_network
from eruca._ground import limits
from eruca._testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def count_attempts(throttle: LoginThrottle, clock: VirtualClock, address: str, user: str, seconds: int) -> int:
    """How many wrong passwords can be tried in some seconds by somebody who tries every second."""
    tried = 0
    for _ in range(seconds):
        tried += throttle.begin(address, user) == 0
        clock.advance(1000)
    return tried


def test_a_user_has_a_few_attempts_and_then_waits_longer_each_time(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    assert [throttle.begin("10.0.0.1", "ann") for _ in range(5)] == [0] * 5
    assert throttle.begin("10.0.0.1", "ann") == 1
    waits = []
    for _ in range(4):
        clock.advance(round(throttle.wait_s("10.0.0.1", "ann") * 1000))
        assert throttle.begin("10.0.0.1", "ann") == 0
        waits.append(throttle.wait_s("10.0.0.1", "ann"))
    assert waits == [2, 4, 8, 16]


def test_a_day_of_guessing_is_short_of_any_password(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    assert count_attempts(throttle, clock, "10.0.0.1", "ann", 86_400) < 150


def test_many_addresses_do_not_help_against_one_user(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    tried = 0
    for number in range(3600):
        tried += throttle.begin(f"10.0.{number // 250}.{number % 250}", "ann") == 0
        clock.advance(1000)
    assert tried < 80
    # But nobody is locked out for longer than a minute.
    assert throttle.wait_s("192.0.2.1", "ann") <= 60


def test_others_lock_nobody_out_at_their_own_address(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    assert throttle.begin("192.0.2.1", "ann") == 0
    throttle.succeed("192.0.2.1", "ann")
    for number in range(600):
        throttle.begin(f"10.0.{number // 250}.{number % 250}", "ann")
        assert throttle.wait_s("192.0.2.1", "ann") == 0
        clock.advance(1000)
    assert throttle.wait_s("10.0.0.1", "ann") > 0
    # There, attempts are limited by the address.
    assert count_attempts(throttle, clock, "192.0.2.1", "ann", 86_400) < 150


def test_many_names_do_not_help_from_one_address(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    tried = 0
    for number in range(86_400):
        tried += throttle.begin("10.0.0.1", f"user-{number}") == 0
        clock.advance(1000)
    assert tried < 150
    assert throttle.wait_s("10.0.0.2", "ann") <= 0


def test_a_log_in_is_forgiven_but_not_the_attempts_at_others(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    for _ in range(9):
        assert throttle.begin("10.0.0.1", f"victim-{_}") == 0
        assert throttle.begin("10.0.0.1", "own") == 0 or _ == 8
        throttle.succeed("10.0.0.1", "own")
    assert throttle.begin("10.0.0.1", "victim") == 0
    assert throttle.begin("10.0.0.1", "victim") > 0


def test_attempts_at_the_same_moment_all_count(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    assert sum(throttle.begin("10.0.0.1", "ann") == 0 for _ in range(100)) == 5


def test_failures_are_forgotten(clock: VirtualClock) -> None:
    throttle = LoginThrottle(clock)
    for _ in range(5):
        throttle.begin("10.0.0.1", "ann")
    clock.advance(3_600_001)
    assert [throttle.begin("10.0.0.1", "ann") for _ in range(4)] == [0] * 4


def test_memory_is_bounded(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSOLE_FAILURES_MAX", 100)
    throttle = LoginThrottle(clock)
    for number in range(1000):
        throttle.begin(f"10.{number // 250}.0.{number % 250}", f"{number}" + "x" * 5000)
    assert len(throttle._records) == 100
    assert max(len(key[1]) for key in throttle._records) <= limits.CONSOLE_USER_CHARS_MAX


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_ipv6_counts_by_network(address: str, network: str) -> None:
    assert name_network(address) == network
    assert throttling.name_network(network.partition("/")[0]) == network
