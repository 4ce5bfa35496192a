"""Properties to columns: a single property, the words of one, or all as a map.

These functions use the spans of `columns`; as there, each fills buffers that its caller made large enough.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
    from cython.cimports.eruca._wire.kernel.views import *
else:
    from eruca._wire.kernel.memory import copy, equals, find_byte, find_near
    from eruca._wire.kernel.record import END, PARTS, PROPERTIES
    from eruca._wire.kernel.views import open_to_read, open_to_write

compiled: bool = cython.compiled

_NAMED = cython.declare(cython.int, 1)
_NEXT = cython.declare(cython.int, 2)
_SPACE = cython.declare(cython.int, 32)


def find_values(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    first: bytes,
    second: bytes,
    third: bytes,
    places: cython.longlong[::1],
) -> None:
    """Find where the values of three properties start and end, six numbers per record: -1 for a missing property.

    If a name occurs several times, the last one counts.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    first_p: cython.p_const_uchar = first
    second_p: cython.p_const_uchar = second
    third_p: cython.p_const_uchar = third
    first_bytes: cython.Py_ssize_t = len(first)
    second_bytes: cython.Py_ssize_t = len(second)
    third_bytes: cython.Py_ssize_t = len(third)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    next_at: cython.Py_ssize_t
    to: cython.Py_ssize_t
    for row in range(count):
        to = row * 6
        places[to] = places[to + 2] = places[to + 4] = -1
        at, end = spans[row * PARTS + PROPERTIES], spans[row * PARTS + END]
        while at < end:
            next_at = find_byte(p, at, end, _NEXT)
            if _is_named(p, at, next_at, first_p, first_bytes):
                places[to] = at + first_bytes + 1
                places[to + 1] = next_at
            elif _is_named(p, at, next_at, second_p, second_bytes):
                places[to + 2] = at + second_bytes + 1
                places[to + 3] = next_at
            elif _is_named(p, at, next_at, third_p, third_bytes):
                places[to + 4] = at + third_bytes + 1
                places[to + 5] = next_at
            at = next_at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_named(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    name: cython.p_const_uchar,
    name_bytes: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether a property has this name, and a value."""
    return end - at > name_bytes + 1 and p[at + name_bytes] == _NAMED and equals(p, at, name, 0, name_bytes)


def take_property(
    buffer: Any,
    places: cython.longlong[::1],
    count: cython.Py_ssize_t,
    which: cython.Py_ssize_t,
    offsets: cython.int[::1],
    data: cython.uchar[::1],
    valid: cython.uchar[::1],
) -> tuple[int, int]:
    """Fill a column with one of the three properties, and `valid` with 1 where there is one.

    Return its bytes, and how many records have it.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    q: cython.p_uchar = open_to_write(data)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    having: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = to
        at = places[row * 6 + which * 2]
        valid[row] = at >= 0
        if at >= 0:
            having += 1
            to = copy(q, to, p, at, places[row * 6 + which * 2 + 1] - at)
    offsets[count] = to
    return to, having


def take_keys(
    buffer: Any,
    places: cython.longlong[::1],
    count: cython.Py_ssize_t,
    which: cython.Py_ssize_t,
    rows: cython.int[::1],
    offsets: cython.int[::1],
    data: cython.uchar[::1],
) -> tuple[int, int]:
    """Fill a column of lists with the words of one of the three; return the number of words, and their bytes."""
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    q: cython.p_uchar = open_to_write(data)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    next_at: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    words: cython.Py_ssize_t = 0
    for row in range(count):
        rows[row] = words
        at = places[row * 6 + which * 2]
        if at < 0:
            continue
        end = places[row * 6 + which * 2 + 1]
        while at < end:
            next_at = find_byte(p, at, end, _SPACE)
            if next_at > at:
                offsets[words] = to
                words += 1
                to = copy(q, to, p, at, next_at - at)
            at = next_at + 1
    rows[count] = words
    offsets[words] = to
    return words, to


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_named_again(
    p: cython.p_const_uchar, places: cython.p_longlong, entry: cython.Py_ssize_t, entries: cython.Py_ssize_t
) -> cython.bint:
    """Return whether a later property has the same name: the last one counts."""
    at: cython.Py_ssize_t = places[entry * 3]
    size: cython.Py_ssize_t = places[entry * 3 + 1] - at
    other: cython.Py_ssize_t
    for other in range(entry + 1, entries):
        if places[other * 3 + 1] - places[other * 3] == size and equals(p, at, p, places[other * 3], size):
            return True
    return False


def take_map(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    scratch: cython.longlong[::1],
    rows: cython.int[::1],
    name_offsets: cython.int[::1],
    names: cython.uchar[::1],
    value_offsets: cython.int[::1],
    values: cython.uchar[::1],
) -> tuple[int, int, int]:
    """Fill a column of maps with all properties; return the number of entries, and the bytes of names and values.

    To find repeated names, each is compared with all others. `scratch` has room for three numbers per property of one
    record. A record with more properties would take long, so the count is -1 then, and the caller must parse them.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    places: cython.p_longlong = cython.address(scratch[0]) if cython.compiled else scratch
    name_q: cython.p_uchar = open_to_write(names)
    value_q: cython.p_uchar = open_to_write(values)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    name_end: cython.Py_ssize_t
    next_at: cython.Py_ssize_t
    name_to: cython.Py_ssize_t = 0
    value_to: cython.Py_ssize_t = 0
    entries: cython.Py_ssize_t = 0
    crowd: cython.Py_ssize_t = len(scratch) // 3
    seen: cython.Py_ssize_t
    one: cython.Py_ssize_t
    for row in range(count):
        rows[row] = entries
        at, end, seen = spans[row * PARTS + PROPERTIES], spans[row * PARTS + END], 0
        while at < end:
            next_at = find_byte(p, at, end, _NEXT)
            # Names are short.
            name_end = find_near(p, at, next_at, _NAMED)
            if name_end > at and name_end + 1 < next_at:
                if seen >= crowd:
                    return -1, 0, 0
                places[seen * 3] = at
                places[seen * 3 + 1] = name_end
                places[seen * 3 + 2] = next_at
                seen += 1
            at = next_at + 1
        for one in range(seen):
            if _is_named_again(p, places, one, seen):
                continue
            at, name_end, next_at = places[one * 3], places[one * 3 + 1], places[one * 3 + 2]
            name_offsets[entries] = name_to
            value_offsets[entries] = value_to
            entries += 1
            name_to = copy(name_q, name_to, p, at, name_end - at)
            value_to = copy(value_q, value_to, p, name_end + 1, next_at - name_end - 1)
    rows[count] = entries
    name_offsets[entries] = name_to
    value_offsets[entries] = value_to
    return entries, name_to, value_to
