"""Frames of the remoting protocol: cutting them out of what was read, and writing the most frequent request.

Their layout is drawn in `wire.frame`.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING

from eruca._ground import limits

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
else:
    from eruca._wire.kernel.memory import format_number, format_two_u32, read_i32, read_u32, take

compiled: bool = cython.compiled

_PREFIX_BYTES = cython.declare(cython.int, 8)
_HEADER_MASK = cython.declare(cython.uint, 0xFFFFFF)
_TYPE_MAX = cython.declare(cython.int, 1)
# The largest value of `total`: the limit includes the length field, as in Java's decoder.
_TOTAL_MAX = cython.declare(cython.longlong, limits.FRAME_BYTES_MAX - 4)
_HEADER_BYTES_MAX = cython.declare(cython.longlong, limits.HEADER_BYTES_MAX)


def cut_frames(
    data: bytes, at: cython.Py_ssize_t, count_max: cython.Py_ssize_t
) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """Cut up to `count_max` frames out of `data`, from `at` on.

    Returns the type of the header, the header and the body of each, and the place after the last. What follows there
    is not a whole frame, or not a frame at all.
    """
    p: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    found: list[tuple[int, bytes, bytes]] = []
    count: cython.Py_ssize_t = 0
    total: cython.longlong
    header_bytes: cython.longlong
    word: cython.uint
    header_at: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    while count < count_max and end - at >= _PREFIX_BYTES:
        total = read_i32(p, at)
        word = read_u32(p, at + 4)
        header_bytes = word & _HEADER_MASK
        if not header_bytes + 4 <= total <= _TOTAL_MAX or header_bytes > _HEADER_BYTES_MAX or word >> 24 > _TYPE_MAX:
            break
        if total + 4 > end - at:
            break
        header_at = at + _PREFIX_BYTES
        body_at = header_at + header_bytes
        at += total + 4
        found.append((word >> 24, take(p, header_at, body_at), take(p, body_at, at)))
        count += 1
    return found, at


def encode_send(
    before: bytes,
    born_timestamp: cython.longlong,
    between: bytes,
    properties: bytes,
    behind: bytes,
    opaque: cython.int,
    last: bytes,
    body: bytes,
) -> bytes:
    """The request of a send as a frame with a JSON header; `properties` are quoted, other texts are its fixed parts."""
    born: bytes = format_number(born_timestamp)
    number: bytes = format_number(opaque)
    header_bytes: cython.Py_ssize_t = len(before) + len(born) + len(between) + len(properties) + len(behind)
    header_bytes += len(number) + len(last)
    prefix: bytes = format_two_u32(4 + header_bytes + len(body), header_bytes)
    return b"".join((prefix, before, born, between, properties, behind, number, last, body))
