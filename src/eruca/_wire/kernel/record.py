"""What a valid record is, for kernels that run as plain Python; compiled ones use `record.pxd` instead.

The layout is drawn in `wire.record`.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC = 0xDAA320A7
# Bytes of a record apart from body, topic and properties, and those before the body, with two IPv4 hosts.
FIXED_BYTES = 91
HEAD_BYTES = 88
V4_HOST_BYTES = 8
V6_HOST_BYTES = 20
TOPIC_BYTES_MAX = 255
PROPERTIES_BYTES_MAX = 65535
# Offsets of fields.
CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
POSITION_AT = 28
SYS_FLAG_AT = 36
BORN_TIME_AT = 40
BORN_HOST_AT = 48
# The same, with an IPv4 host of the sender.
STORE_TIME_AT = 56
STORE_HOST_AT = 64
# Counted back from the body.
RECONSUME_BEFORE = 16
PREPARED_BEFORE = 12
BODY_BYTES_BEFORE = 4
# Bits of sysFlag. Both kinds of transaction records that have no entry in a queue have the hidden bit.
HIDDEN = 0x4
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
CRC_MASK = 0x7FFFFFFF
# Indexes of the parts of a record that `find_parts` fills in.
BEGIN = 0
BODY = 1
BODY_END = 2
PROPERTIES = 3
END = 4
PARTS = 5
# How many key hashes of one record fit the memory at hand; more are the exception.
HASHES_MAX = 32
# Results of `find_parts`.
VALID = 0
NOT_A_RECORD = 1
HEAD_TOO_LARGE = 2
BODY_TOO_LARGE = 3
TOPIC_TOO_LARGE = 4
WRONG_SUM = 5
# Further results of readers.
WRONG_POSITION = 6
WRONG_CRC = 7
WRONG_TOPIC = 8

# The head up to the body, by the two host bits of sysFlag: none, born, store, both.
_HEADS = (
    struct.Struct(">iIIiiqqiq8sq8siqi"),
    struct.Struct(">iIIiiqqiq20sq8siqi"),
    struct.Struct(">iIIiiqqiq8sq20siqi"),
    struct.Struct(">iIIiiqqiq20sq20siqi"),
)
# Size, magic, sysFlag and, with two IPv4 hosts, length of the body.
_unpack_bounds = struct.Struct(">iI28xi44xi").unpack_from
_unpack_i32 = struct.Struct(">i").unpack_from
_unpack_i64 = struct.Struct(">q").unpack_from


def find_shift(sys_flag: int) -> int:
    """How many bytes longer the hosts are than two IPv4 hosts."""
    return (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)


def find_parts(p: Any, at: int, end: int, parts: Any) -> int:
    """Is there a record at `at` that ends before `end`? Fills in the places of its parts, or returns why there is none.

    The caller checks the record's claimed position and the CRC of its body.
    """
    if at < 0 or end - at < FIXED_BYTES:
        return NOT_A_RECORD
    size, magic, sys_flag, body_size = _unpack_bounds(p, at)
    if magic != MAGIC or size > end - at or size < FIXED_BYTES:
        return NOT_A_RECORD
    end = at + size
    body_at = at + HEAD_BYTES
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        body_at += find_shift(sys_flag)
        if body_at + 3 > end:
            return HEAD_TOO_LARGE
        (body_size,) = _unpack_i32(p, body_at - BODY_BYTES_BEFORE)
    body_end = body_at + body_size
    if body_size < 0 or body_end + 3 > end:
        return BODY_TOO_LARGE
    properties_at = body_end + 3 + p[body_end]
    if properties_at > end:
        return TOPIC_TOO_LARGE
    # This also bounds the properties to 65535 bytes.
    if properties_at + (p[properties_at - 2] << 8 | p[properties_at - 1]) != end:
        return WRONG_SUM
    parts[BEGIN] = at
    parts[BODY] = body_at
    parts[BODY_END] = body_end
    parts[PROPERTIES] = properties_at
    parts[END] = end
    return VALID


def may_be_cut(p: Any, parts: Any) -> bool:
    """Might a power loss have taken the end of a valid record? Readers of the log then look more closely.

    Topic and properties have no checksum. Their last byte is not zero, and neither is the first byte of a sector
    that lies entirely inside them, unless it was lost (or another writer was unusual).
    """
    end = parts[END]
    if p[end - 1 if end > parts[PROPERTIES] else end - 3] == 0:
        return True
    sector = (parts[BODY_END] + 512) & ~511
    while sector + 512 <= end:
        if p[sector] == 0:
            return True
        sector += 512
    return False


def read_store_time(p: Any, at: int) -> int:
    """When the record at `at` was stored."""
    shift = 12 if p[at + SYS_FLAG_AT + 3] & BORN_HOST_V6 else 0
    return _unpack_i64(p, at + STORE_TIME_AT + shift)[0]  # type: ignore[no-any-return]


def write_head(
    q: Any,
    at: int,
    size: int,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    position: int,
    sys_flag: int,
    born_time: int,
    born_host: bytes,
    store_time: int,
    store_host: bytes,
    reconsume_times: int,
    prepared: int,
    body_size: int,
) -> int:
    """Write the head of a record whose hosts are as long as sysFlag says; returns the place of the body."""
    head = _HEADS[sys_flag >> 4 & 3]
    head.pack_into(
        q,
        at,
        size,
        MAGIC,
        crc & CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born_time,
        born_host,
        store_time,
        store_host,
        reconsume_times,
        prepared,
        body_size,
    )
    return at + head.size
