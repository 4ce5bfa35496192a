"""White-listed addresses: the patterns of `plain_acl.yml`.

    10.1.2.3            one address                  fe80::1            one address
    10.1.2.3,10.1.2.4   several                      fe80::1,fe80::2    several
    10.1.2.{3,4}        the same                     fe80::{1,2}        the same
    10.1.*.*            any number in these places   fe80:1:*           everything with this prefix
    10.1.2-5.*          a range                      fe80::1:1-ff       a range in the last group
    *                   everyone                     fe80::1-ff:*       a range in the last but one

An empty pattern matches nobody, as in Java.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca._ground.config import shorten
from eruca._ground.limits import ACL_PATTERN_CHARS_MAX
from eruca.errors import ConfigError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# The numbers an address may have in one place: the lowest and the highest.
_Range: TypeAlias = tuple[int, int]
# IP version, and the ranges from the first place on; places after the last range do not matter.
_Form: TypeAlias = tuple[int, tuple[_Range, ...]]

_EVERYONE: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_OCTETS: Final = 4
_OCTET_MAX: Final = 255
_GROUPS: Final = 8
_GROUP_MAX: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """One pattern."""

    text: str
    forms: tuple[_Form, ...]

    def matches(self, address: Address) -> bool:
        """Return whether an address matches."""
        places = _split(address)
        return any(
            version == address.version
            and all(low <= place <= high for place, (low, high) in zip(places, ranges, strict=False))
            for version, ranges in self.forms
        )


#: An empty pattern.
NOBODY: Final = AddressPattern("", ())


def parse_address(host: str) -> Address | None:
    """Read the address of a peer; None if it is not an IP address. IPv4 in IPv6 counts as IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def parse_pattern(text: str) -> AddressPattern:
    """Read a pattern. Raises ConfigError."""
    if len(text) > ACL_PATTERN_CHARS_MAX:
        raise ConfigError(f"an address pattern has {len(text)} characters, at most {ACL_PATTERN_CHARS_MAX} are allowed")
    text = text.strip()
    if not text:
        return NOBODY
    if text in _EVERYONE:
        return AddressPattern(text, ((4, ()), (6, ())))
    try:
        return AddressPattern(text, tuple([_parse_form(part) for part in _list_parts(text)]))
    except ValueError:
        raise ConfigError(
            f"{shorten(text)!r} is not an address pattern",
            hint="examples: 10.1.2.3 or 10.1.2.3,10.1.2.4 or 10.1.2.{3,4} or 10.1.*.* or 10.1.2-5.* or fe80::1:* or *",
        ) from None


def _list_parts(text: str) -> list[str]:
    """Split a list; only whole addresses can be listed."""
    if text.endswith("}"):
        head, brace, last = text[:-1].partition("{")
        if not brace or not head.endswith((".", ":")):
            raise ValueError(text)
        parts = [head + item.strip() for item in last.split(",")]
    elif "," in text:
        parts = [item.strip() for item in text.split(",")]
    else:
        return [text]
    for part in parts:
        ipaddress.ip_address(part)
    return parts


def _parse_form(text: str) -> _Form:
    if "*" not in text and "-" not in text:
        address = ipaddress.ip_address(text)
        return address.version, tuple([(place, place) for place in _split(address)])
    if ":" in text:
        return 6, _parse_groups(text)
    places = [place.strip() for place in text.split(".")]
    if len(places) != _OCTETS or not places[0].isdigit():
        raise ValueError(text)
    return 4, tuple([_parse_place(place, 10, _OCTET_MAX) for place in places])


def _parse_groups(text: str) -> tuple[_Range, ...]:
    """Read an IPv6 pattern: groups, a range at the end or before a last `*`."""
    head, _, last = text.rpartition(":")
    tail = [last]
    if last == "*" and "-" in head:
        head, _, last = head.rpartition(":")
        tail.insert(0, last)
    if "*" in head or "-" in head:
        raise ValueError(text)
    if head.endswith(":"):
        head += ":"  # `fe80::*`
    if head.count("::") == 1:
        # The groups left out are those missing to a full address with this tail.
        left, _, right = head.partition("::")
        before, after = _list_groups(left), _list_groups(right)
        missing = _GROUPS - len(tail) - len(before) - len(after)
        if missing < 1:
            raise ValueError(text)
        groups = [*before, *["0"] * missing, *after]
    else:
        groups = _list_groups(head)
    if not groups or len(groups) + len(tail) > _GROUPS:
        raise ValueError(text)
    return tuple([_parse_place(group, 16, _GROUP_MAX) for group in (*groups, *tail)])


def _list_groups(text: str) -> list[str]:
    return text.split(":") if text else []


def _parse_place(text: str, base: int, most: int) -> _Range:
    if text == "*":
        return 0, most
    low, minus, high = text.partition("-")
    found = _parse_number(low, base), _parse_number(high if minus else low, base)
    if not 0 <= found[0] <= found[1] <= most:
        raise ValueError(text)
    return found


def _parse_number(text: str, base: int) -> int:
    # `int` would also accept signs, spaces and underscores.
    if not text.isascii() or not text.isalnum() or len(text) > _OCTETS:
        raise ValueError(text)
    return int(text, base)


def _split(address: Address) -> list[int]:
    """The octets of an IPv4 address, or the groups of an IPv6 address."""
    packed = address.packed
    if len(packed) == _OCTETS:
        return list(packed)
    return [int.from_bytes(packed[at : at + 2]) for at in range(0, len(packed), 2)]
