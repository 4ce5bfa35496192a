"""The bits of the numbers called `sysFlag`: of messages, of pulls and of topics.

Bits of a message, including those that determine the record's layout:

bit 10 9 8 | 7            6            5              4             3 2          1           0
    type   | inner batch  need unwrap  store host v6  born host v6  transaction  multi tags  compressed
"""

from __future__ import annotations

from typing import Final

from eruca._wire.host import V6_HOST_BYTES

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6_MASK: Final = 0x30

NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80

# Clients before 4.9.4 know only zlib and leave the type bits 0.
COMPRESSION_MASK: Final = 0x700
COMPRESSION_LEGACY_ZLIB: Final = 0x000
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

# Of a pull: commit an offset with it; hold it until there are messages; its header has the subscription, not only the
# heartbeat; filter with the class that the group uploaded; it comes from a pull consumer.
PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

# Of a topic: it belongs to a unit of a larger whole, and it is subscribed to by units.
TOPIC_UNIT: Final = 0x1
TOPIC_UNIT_SUBSCRIBED: Final = 0x2


def is_compressed(sys_flag: int) -> bool:
    """Is the stored body compressed?"""
    return sys_flag & COMPRESSED != 0


def set_compression(sys_flag: int, kind: int) -> int:
    """Mark the body as compressed with `kind` (one of COMPRESSION_*)."""
    return (sys_flag & ~COMPRESSION_MASK) | COMPRESSED | (kind & COMPRESSION_MASK)


def clear_compression(sys_flag: int) -> int:
    """Mark the body as not compressed."""
    return sys_flag & ~(COMPRESSION_MASK | COMPRESSED)


def get_transaction(sys_flag: int) -> int:
    """Return the transaction type bits (one of TRANSACTION_*)."""
    return sys_flag & TRANSACTION_MASK


def set_transaction(sys_flag: int, kind: int) -> int:
    """Replace the transaction type bits by `kind` (one of TRANSACTION_*)."""
    return (sys_flag & ~TRANSACTION_MASK) | (kind & TRANSACTION_MASK)


def set_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """Make the two IPv6 bits agree with the lengths of the packed hosts."""
    if sys_flag & HOSTS_V6_MASK:
        sys_flag &= ~HOSTS_V6_MASK
    if len(born_host) == V6_HOST_BYTES:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == V6_HOST_BYTES:
        sys_flag |= STORE_HOST_V6
    return sys_flag
