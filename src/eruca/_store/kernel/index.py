"""Entries of an index file, whose layout is drawn in `store.queues.indexfile`."""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._store.kernel.sizes import *
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
else:
    from eruca._store.kernel.sizes import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, write_index_entry
    from eruca._wire.kernel.memory import read_i32, read_i64, read_u32, write_i64, write_u32
    from eruca._wire.kernel.record import HASHES_MAX

compiled: bool = cython.compiled

# C constants: a literal above 2**31 would otherwise be a Python integer in the middle of a loop.
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


@cython.cfunc
@cython.exceptval(check=False)
def put_entries(
    p: cython.p_uchar,
    room: cython.Py_ssize_t,
    slots: cython.longlong,
    hashes: cython.p_longlong,
    count: cython.Py_ssize_t,
    position: cython.longlong,
    store_time: cython.longlong,
) -> cython.bint:
    """As `put_index_entries`, for `hashes[1]` and those after it; False when the file has no room for them."""
    entries_at: cython.longlong = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots
    if room < entries_at or slots <= 0:
        return False
    used: cython.uint = read_u32(p, 32)
    number: cython.longlong = read_i32(p, 36)
    begin_time: cython.longlong = read_i64(p, 0)
    seconds: cython.longlong = 0
    slot_at: cython.longlong
    at: cython.longlong
    previous: cython.uint
    h: cython.longlong
    n: cython.Py_ssize_t
    number = max(number, 1)
    # The only check between a damaged number and the memory beyond the file.
    if entries_at + (number + count) * INDEX_ENTRY_BYTES > room:
        return False
    if number == 1:
        begin_time = store_time
        write_i64(p, 0, store_time)
        write_i64(p, 16, position)
    if begin_time > 0 and store_time > begin_time:
        seconds = min((store_time - begin_time) // 1000, _INT_MAX)
    for n in range(1, count + 1):
        h = hashes[n]
        slot_at = INDEX_HEADER_BYTES + ((h & _INT_MAX) % slots) * INDEX_SLOT_BYTES
        previous = read_u32(p, slot_at)
        if previous > number or previous > _INT_MAX:
            previous = 0
        if previous == 0:
            used += 1
        at = entries_at + number * INDEX_ENTRY_BYTES
        write_index_entry(p, at, h, position, seconds, previous)
        write_u32(p, slot_at, number)
        number += 1
    write_i64(p, 8, store_time)
    write_i64(p, 24, position)
    write_u32(p, 32, used)
    write_u32(p, 36, number)
    return True


def put_index_entries(
    buffer: Any,
    slots: cython.longlong,
    hashes: list[int],
    position: cython.longlong,
    store_time: cython.longlong,
) -> None:
    """Write one entry for each hash of a record into an index file, and the file's header."""
    view: cython.uchar[::1] = buffer
    p: cython.p_uchar
    many: cython.longlong[::1]
    told: cython.p_longlong
    if cython.compiled:
        p = cython.address(view[0])
        few: cython.longlong[33]
    else:
        p = view
        few = [0] * 33
    count: cython.Py_ssize_t = len(hashes)
    n: cython.Py_ssize_t
    if count > HASHES_MAX:
        many = array("q", [0, *hashes])
        told = cython.address(many[0]) if cython.compiled else many
    else:
        told = few
        for n in range(count):
            told[n + 1] = hashes[n]
    if not put_entries(p, len(view), slots, told, count, position, store_time):
        raise ValueError(f"{count} more entries do not fit in an index file of {len(view)} bytes")
