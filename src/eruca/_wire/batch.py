"""The body of a batch send: several messages for one queue, one after the other.

    0          4          8          12         16         20        20+b            22+b       22+b+p
    | total 4  | magic 4  | crc 4    | flag 4   | body b 4 | body b  | properties 2  | properties p |

`total` counts itself. Java writes 0 for magic and crc and never reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from eruca._ground.limits import RECORD_PROPERTIES_BYTES_MAX
from eruca._wire.kernel import batches
from eruca.errors import WireError

_HEAD: Final = struct.Struct(">iiiii")
_LENGTH: Final = struct.Struct(">H")
_FIXED_BYTES: Final = _HEAD.size + _LENGTH.size


class BatchItem(msgspec.Struct, gc=False):
    """One message of a batch: its own fields; the rest is in the request's header."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode messages into a batch body."""
    parts: list[bytes] = []
    for item in items:
        body = item.body
        properties = item.properties
        if len(properties) > RECORD_PROPERTIES_BYTES_MAX:
            raise WireError(f"properties of {len(properties)} bytes in a batch: at most {RECORD_PROPERTIES_BYTES_MAX}")
        total = _FIXED_BYTES + len(body) + len(properties)
        parts += (_HEAD.pack(total, 0, 0, item.flag, len(body)), body, _LENGTH.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchItem]:
    """Decode a batch body; raise WireError when a size is wrong or bytes are left over."""
    items: list[BatchItem] = []
    at = 0
    end = len(data)
    while at < end:
        if end - at < _FIXED_BYTES:
            raise WireError(f"batch item {len(items)} at byte {at}: {end - at} bytes left, it needs {_FIXED_BYTES}")
        total, _, _, flag, body_size = _HEAD.unpack_from(data, at)
        if total < _FIXED_BYTES or total > end - at:
            raise WireError(f"batch item {len(items)} at byte {at}: size {total}, but {end - at} bytes are left")
        if body_size < 0 or body_size > total - _FIXED_BYTES:
            raise WireError(f"batch item {len(items)} at byte {at}: body of {body_size} bytes in an item of {total}")
        body_at = at + _HEAD.size
        body_end = body_at + body_size
        properties_size = data[body_end] << 8 | data[body_end + 1]
        properties_at = body_end + _LENGTH.size
        if properties_at + properties_size != at + total:
            raise WireError(
                f"batch item {len(items)} at byte {at}: body {body_size} and properties {properties_size} "
                f"do not add up to size {total}"
            )
        at += total
        items.append(BatchItem(flag, data[body_at:body_end], data[properties_at:at]))
    return items


def find_ends(data: bytes) -> tuple[BatchItem, BatchItem, int] | None:
    """The first and the last message of a batch, and the number of messages; None when it needs `decode_batch`."""
    count, _, _, _, last = batches.measure_batch(data, 0, 0, RECORD_PROPERTIES_BYTES_MAX)
    if count <= 0:
        return None
    first_size = _HEAD.unpack_from(data)[0]
    return decode_batch(data[:first_size])[0], decode_batch(data[last:])[0], count
