"""White-listed addresses: every form of Java's patterns, and what none of them is."""

from __future__ import annotations

import pytest

from eruca._access.accounts import match_any
from eruca._access.addresses import parse_address, parse_pattern
from eruca._ground.limits import ACL_PATTERN_CHARS_MAX
from eruca.errors import ConfigError


def matches(pattern: str, host: str) -> bool:
    return match_any((parse_pattern(pattern),), parse_address(host))


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1"]),
        (" 10.1.1.1 ", ["10.1.1.1"], ["10.1.1.10"]),
        ("127.0.0.1,127.0.0.2, 127.0.0.3", ["127.0.0.1", "127.0.0.3"], ["127.0.0.0", "127.0.0.4"]),
        ("127.0.0.{1,2,3}", ["127.0.0.1", "127.0.0.3"], ["127.0.0.0", "127.0.0.4"]),
        ("127.0.0.1-200", ["127.0.0.1", "127.0.0.200"], ["127.0.0.0", "127.0.0.201", "127.0.1.1"]),
        ("127.0.0.*", ["127.0.0.0", "127.0.0.255"], ["127.0.1.0"]),
        ("127.0.1-200.*", ["127.0.1.0", "127.0.200.255"], ["127.0.0.1", "127.0.201.1"]),
        ("127.*.*.*", ["127.0.0.1", "127.255.255.255"], ["128.0.0.1"]),
        ("192.100-150.*.*", ["192.130.0.2", "192.100.0.0"], ["192.99.1.1", "192.151.1.1"]),
        # Java ignores what follows the first range; here it counts.
        ("10.1.*.5", ["10.1.9.5"], ["10.1.9.6"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "0.0.0.1"]),
        ("1050::5:600:300C:{1,2}", ["1050::5:600:300c:1", "1050:0:0:0:5:600:300c:2"], ["1050::5:600:300c:3"]),
        ("1050::5:600:300c:1,1050::5:600:300c:2", ["1050::5:600:300c:2"], ["1050::5:600:300c:3"]),
        ("1050::5:600:300c:1-200", ["1050::5:600:300c:1", "1050::5:600:300c:200"], ["1050::5:600:300c:201"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:0", "1050::5:600:300c:ffff"], ["1050::5:600:3001:1"]),
        ("1050::5:600:300c:1-200:*", ["1050::5:600:300c:1:0", "1050::5:600:300c:200:ffff"], ["1050::5:600:300c:201:1"]),
        (
            "1050:5:600:300c:3261:*",
            ["1050:5:600:300c:3261::9", "1050:5:600:300c:3261:1:2:3"],
            ["1050:5:600:300c:3262::"],
        ),
        ("fe80::*", ["fe80::7"], ["fe80::1:7"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, inside: list[str], outside: list[str]) -> None:
    assert [host for host in inside if not matches(pattern, host)] == []
    assert [host for host in outside if matches(pattern, host)] == []


@pytest.mark.parametrize("pattern", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_everyone(pattern: str) -> None:
    assert matches(pattern, "10.1.2.3") and matches(pattern, "fe80::1")


def test_nobody() -> None:
    assert not matches("", "10.1.2.3") and not matches("  ", "::1")
    assert not match_any((), parse_address("10.1.2.3"))
    # The peer of a local socket has no address.
    assert not matches("*", "") and parse_address("/tmp/socket") is None


def test_ipv4_in_ipv6_and_zones() -> None:
    assert matches("10.1.2.*", "::ffff:10.1.2.3")
    assert matches("fe80::1", "fe80::1%eth0")


@pytest.mark.parametrize(
    "pattern",
    [
        "256.0.0.1",
        "::1ggg",
        "10.1.1",
        "10.1.*",
        "*.1.1.1",
        "10.1.1.-5",
        "10.1.1.5-",
        "10.1.1.9-5",
        "10.1.1.0-256",
        "10.1.1.1_0",
        "10.1.1.+1-5",
        "127.0.0.1,2,3}",
        "192.168.{1}",
        "{192.168.1.1}",
        "192.168.1.{}",
        "10.1.1.*,10.1.2.3",
        "10.1.1.1,",
        "fe80:*:1",
        "fe80::1::2:*",
        "1:2:3:4:5:6:7:8:*",
        "1:2:3:4:5:6:7::1:*",
        "fe80::1-2:3",
        "fe80::12345-ffff",
        "somewhere",
        "10.1.1.²-5",
        "1" * (ACL_PATTERN_CHARS_MAX + 1),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ConfigError, match="address pattern"):
        parse_pattern(pattern)
