"""What the store keeps of a message's properties, in one pass: the hash of the tag and those of the keys."""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
else:
    from eruca._wire.kernel.memory import equals, find_near, hash_text
    from eruca._wire.kernel.record import HASHES_MAX

compiled: bool = cython.compiled

# C constants: a literal above 2**31 would otherwise be a Python integer in the middle of a loop.
_WRAP = cython.declare(cython.longlong, 0x100000000)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fold(h: cython.longlong) -> cython.longlong:
    """The absolute value of the hash as in Java's index: 0 where it does not fit."""
    return (_WRAP - h) & _INT_MAX if h > _INT_MAX else h


@cython.cfunc
@cython.exceptval(-1, check=False)
def find_hashes(
    p: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    prefix: cython.uint,
    with_keys: cython.bint,
    out: cython.p_longlong,
    room: cython.int,
) -> cython.int:
    """As `digest_properties`, for properties from `start` to `size`.

    The hash of the tag goes to `out[0]`, those of the keys after it, as many as there is `room` for. Returns how
    many keys there are.
    """
    end: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    tags_at: cython.Py_ssize_t = 0
    tags_end: cython.Py_ssize_t = 0
    unique_at: cython.Py_ssize_t = 0
    unique_end: cython.Py_ssize_t = 0
    keys_at: cython.Py_ssize_t = 0
    keys_end: cython.Py_ssize_t = 0
    while start < size:
        end = find_near(p, start, size, 2)
        middle = find_near(p, start, end, 1)
        if middle + 1 < end:
            if middle - start == 4:
                if equals(p, start, b"TAGS", 0, 4):
                    tags_at, tags_end = middle + 1, end
                elif equals(p, start, b"KEYS", 0, 4):
                    keys_at, keys_end = middle + 1, end
            elif middle - start == 8 and equals(p, start, b"UNIQ_KEY", 0, 8):
                unique_at, unique_end = middle + 1, end
        start = end + 1
    h: cython.longlong = hash_text(p, tags_at, tags_end, 0) if tags_end > 0 else 0
    out[0] = h - _WRAP if h > _INT_MAX else h
    if not with_keys:
        return 0
    count: cython.int = 0
    if unique_end > 0:
        count = 1
        out[1] = _fold(hash_text(p, unique_at, unique_end, prefix))
    start = keys_at
    while start < keys_end:
        end = find_near(p, start, keys_end, 0x20)
        if end > start:
            count += 1
            if count <= room:
                out[count] = _fold(hash_text(p, start, end, prefix))
        start = end + 1
    return count


def digest_properties(properties: bytes, prefix: cython.uint, with_keys: cython.bint) -> tuple[int, list[int]]:
    """Return the hash of the TAGS property (0 for none) and the index hashes of UNIQ_KEY and KEYS, in one pass.

    `prefix` is the hash of `topic + "#"`, unsigned. As in Java the last entry of a name wins, and entries without
    name or value are ignored.
    """
    p: cython.p_const_uchar = properties
    if cython.compiled:
        out: cython.longlong[33]
    else:
        out = [0] * 33
    count: cython.int = find_hashes(p, 0, len(properties), prefix, with_keys, out, HASHES_MAX)
    if count > HASHES_MAX:
        return _digest_many(properties, prefix, count)
    hashes: list[int] = []
    n: cython.int
    for n in range(1, count + 1):
        hashes.append(out[n])
    return out[0], hashes


@cython.cfunc
def _digest_many(properties: bytes, prefix: cython.uint, count: cython.int) -> tuple[int, list[int]]:
    """Digest properties with `count` keys."""
    p: cython.p_const_uchar = properties
    many = array("q", bytes(8 * count + 8))
    view: cython.longlong[::1] = many
    find_hashes(p, 0, len(properties), prefix, True, cython.address(view[0]) if cython.compiled else view, count)
    return many[0], many[1:].tolist()
