"""Which addresses a webhook may reach, so that nobody makes the console call services that only it can reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from eruca._ground.digits import read_digits
from eruca.errors import ConfigError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Addresses in which an IPv4 address is wrapped, which a router may deliver to.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
# Of IPv6 only this is routed on the internet; Python counts as global whatever is not on a list of exceptions.
_ROUTED = ipaddress.IPv6Network("2000::/3")
# A network that has a special meaning, which Python's lists leave out in some releases.
_SPECIAL = ipaddress.IPv4Network("192.0.0.0/24")
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class _Host:
    """A host that is allowed whatever its address is."""

    name: str
    port: int | None

    def matches(self, host: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return host == self.name


class Targets:
    """The option `alarmWebhookTargets`."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._hosts: list[_Host] = []
        self._networks: list[Network] = []
        for part in (part.strip().lower() for part in text.split(";")):
            if "/" in part:
                self._networks.append(_read_network(part))
            elif part:
                self._hosts.append(_read_host(part))

    @property
    def is_open(self) -> bool:
        """Whether every public address is allowed."""
        return not self._hosts and not self._networks

    def choose(self, host: str, port: int, addresses: Iterable[str]) -> str:
        """Return the address to connect to. Raises ConfigError if the host may not be reached at any of them."""
        host = host.lower().rstrip(".")
        is_named = any(each.matches(host, port) for each in self._hosts)
        for text in addresses:
            address = unwrap(ipaddress.ip_address(text.partition("%")[0]))
            if is_named or any(address in network for network in self._networks):
                return text
            if self.is_open and is_public(address):
                return text
        raise ConfigError(
            f"webhooks may not reach {host}:{port}",
            hint="whoever starts the console allows it with alarmWebhookTargets; public addresses are allowed without",
        )


def unwrap(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None) or address


def is_public(address: Address) -> bool:
    """Whether an address is on the internet: not of this host, a private network, or a group of hosts."""
    if isinstance(address, ipaddress.IPv6Address) and address not in _ROUTED:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address in _SPECIAL)


def _read_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(f"alarmWebhookTargets: {text!r} is not a network: {error}") from None


def _read_host(text: str) -> _Host:
    name, colon, digits = text.rpartition(":") if text.count(":") == 1 else (text, "", "")
    port = read_digits(digits) if colon else None
    if colon and (port is None or not 0 < port <= _PORT_MAX):
        raise ConfigError(f"alarmWebhookTargets: {text!r} has no valid port")
    name = name.strip("[]").rstrip(".")
    if not name or " " in name or "*" in name.removeprefix("*."):
        raise ConfigError(f"alarmWebhookTargets: {text!r} is not a host", hint="hooks.example.com or *.example.com")
    return _Host(name, port)


def list_hosts(rows: Sequence[tuple[object, ...]]) -> list[str]:
    """Return the addresses of an answer of `getaddrinfo`."""
    return list(dict.fromkeys(str(row[4][0]) for row in rows if isinstance(row[4], tuple)))
