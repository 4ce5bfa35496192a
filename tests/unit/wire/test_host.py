"""Packed hosts."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._wire.host import pack_host, pack_ip, unpack_host, unpack_ip
from eruca.errors import WireError


def test_known_bytes() -> None:
    assert pack_host("127.0.0.1", 10911) == bytes.fromhex("7f00000100002a9f")
    assert pack_host("::1", 10911) == bytes.fromhex("0000000000000000000000000000000100002a9f")


def test_a_mapped_address_is_the_ipv4_address() -> None:
    assert pack_host("::ffff:10.1.2.3", 7) == pack_host("10.1.2.3", 7)


def test_a_zone_is_dropped() -> None:
    assert pack_host("fe80::1%eth0", 7) == pack_host("fe80::1", 7)


@given(st.ip_addresses(), st.integers(0, 0x7FFFFFFF))
def test_hosts_come_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    packed = pack_host(str(address), port)
    ip, back = unpack_host(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    assert ipaddress.ip_address(ip) == (mapped or address)
    assert back == port
    assert len(packed) == (8 if ipaddress.ip_address(ip).version == 4 else 20)


@pytest.mark.parametrize("ip", ["", "localhost", "1.2.3", "1.2.3.4.5", "256.1.1.1", "::g", "1:2", "127.0.0.1\0"])
def test_what_is_no_address_is_refused(ip: str) -> None:
    with pytest.raises(WireError, match="is not an IPv4 or IPv6 address"):
        pack_ip(ip)


def test_ports_outside_the_field_are_refused() -> None:
    for port in (-1, 1 << 31):
        with pytest.raises(WireError, match="does not fit"):
            pack_host("127.0.0.1", port)


@given(st.binary(max_size=30).filter(lambda raw: len(raw) not in (8, 20)))
def test_other_lengths_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        unpack_host(raw)


def test_an_address_has_4_or_16_bytes() -> None:
    with pytest.raises(WireError):
        unpack_ip(b"12345")
