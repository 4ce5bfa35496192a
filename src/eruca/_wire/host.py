"""Hosts as records store them: an address and a port, packed.

IPv4 (8 bytes)
    0        4        8
    | ip 4   | port 4 |

IPv6 (20 bytes)
    0        16       20
    | ip 16  | port 4 |
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from typing import Final

from eruca.errors import WireError

V4_HOST_BYTES: Final = 8
V6_HOST_BYTES: Final = 20
# What a record has when no host was set.
NO_HOST: Final = bytes(V4_HOST_BYTES)

_PORT = struct.Struct(">i")
_PORT_MAX = 0x7FFFFFFF
# ::ffff:a.b.c.d, an IPv4 peer as seen by a dual-stack socket.
_MAPPED_PREFIX = bytes(10) + b"\xff\xff"
_V4_BYTES = 4
_V6_BYTES = 16


def pack_ip(ip: str) -> bytes:
    """Convert a textual address to 4 or 16 bytes; an IPv4 address mapped into IPv6 becomes its 4 bytes."""
    try:
        if ":" not in ip:
            return socket.inet_pton(socket.AF_INET, ip)
        # The zone ("%eth0") is only meaningful on one machine, and the record has no room for it.
        packed = socket.inet_pton(socket.AF_INET6, ip.partition("%")[0])
    except (OSError, ValueError):
        raise WireError(f"{ip!r} is not an IPv4 or IPv6 address") from None
    return packed[12:] if packed.startswith(_MAPPED_PREFIX) else packed


def unpack_ip(packed: bytes) -> str:
    """Convert 4 or 16 bytes to the textual address."""
    if len(packed) == _V4_BYTES:
        return socket.inet_ntop(socket.AF_INET, packed)
    if len(packed) == _V6_BYTES:
        return socket.inet_ntop(socket.AF_INET6, packed)
    raise WireError(f"an address has 4 or 16 bytes, not {len(packed)}")


# Born hosts are few (one per client connection) and recur with every message, so both directions are cached; the bound
# keeps a peer that reconnects from ever new ports from growing the cache.
@lru_cache(maxsize=4096)
def pack_host(ip: str, port: int) -> bytes:
    """Pack an address and a port into the 8 (IPv4) or 20 (IPv6) bytes of a record."""
    if not 0 <= port <= _PORT_MAX:
        raise WireError(f"port {port} of {ip} does not fit a record")
    return pack_ip(ip) + _PORT.pack(port)


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    """Unpack the 8 or 20 bytes of a record into an address and a port."""
    if len(packed) not in (V4_HOST_BYTES, V6_HOST_BYTES):
        raise WireError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    return unpack_ip(packed[:-4]), _PORT.unpack(packed[-4:])[0]
