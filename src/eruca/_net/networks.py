"""Peers by their address: what counts as one address, and who needs no account because of it."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any, Final

#: `Link.account` of a peer that needs none because of its address. An access key has more than six characters.
WHITE_LISTED: Final = "*"
# An IPv6 network of this size has one owner, who can use any number of addresses in it.
_NETWORK_BITS: Final = 64


def find_network(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or the first 64 bits of an IPv6 address."""
    if ":" not in host:
        return host
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> _NETWORK_BITS << _NETWORK_BITS
    return f"{IPv6Address(network)}/{_NETWORK_BITS}" if network else str(address)


def name_peer(address: Any) -> tuple[str, tuple[str, int]]:
    """Return an address as text, the way RocketMQ writes it, and as host and port."""
    if not isinstance(address, tuple):
        return str(address or "?"), ("", 0)
    host, port = str(address[0]), int(address[1])
    return f"{host}:{port}", (host, port)
