"""Cutting frames out of what was read. Their layout is drawn in `http2.frames`."""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
else:
    from eruca._wire.kernel.memory import read_u32, take

compiled: bool = cython.compiled

_HEAD_BYTES = cython.declare(cython.int, 9)
_STREAM_MASK = cython.declare(cython.uint, 0x7FFFFFFF)


def cut_frames(
    data: bytes, at: cython.Py_ssize_t, count_max: cython.Py_ssize_t, payload_max: cython.Py_ssize_t
) -> tuple[list[tuple[int, int, int, bytes]], int]:
    """Cut up to `count_max` frames out of `data`, from `at` on.

    Returns type, flags, stream and payload of each, and the place after the last. What follows there is not a whole
    frame, or one that is longer than it may be.
    """
    p: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    found: list[tuple[int, int, int, bytes]] = []
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    kind: cython.uint
    while count < count_max and end - at >= _HEAD_BYTES:
        kind = read_u32(p, at)
        size = kind >> 8
        body_at = at + _HEAD_BYTES
        if size > payload_max or size > end - body_at:
            break
        found.append((kind & 0xFF, p[at + 4], read_u32(p, at + 5) & _STREAM_MASK, take(p, body_at, body_at + size)))
        at = body_at + size
        count += 1
    return found, at
