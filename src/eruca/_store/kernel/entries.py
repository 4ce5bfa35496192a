"""Entries of a consume queue and the records they point at."""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

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
    from eruca._store.kernel.sizes import ENTRY_BYTES, FILLER_SIZE
    from eruca._wire.kernel.memory import copy, equals, read_i32, read_i64
    from eruca._wire.kernel.record import (
        BODY_END,
        END,
        POSITION_AT,
        QUEUE_ID_AT,
        QUEUE_OFFSET_AT,
        VALID,
        find_parts,
    )

compiled: bool = cython.compiled


def find_disorder(
    entries: Any,
    stop: cython.Py_ssize_t,
    last_position: cython.longlong,
    last_size: cython.longlong,
    log_end: cython.longlong,
) -> tuple[int, int, int]:
    """Walk entries of a consume queue up to a byte; returns where the first bad entry is, and the last one before it.

    An entry is good when it points after the record of the previous entry and not beyond the log. Entries for messages
    that were lost together are equal, and fillers are ignored.
    """
    view: cython.const[cython.uchar][::1] = entries
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    stop = min(stop, len(view))
    at: cython.Py_ssize_t = 0
    position: cython.longlong
    size: cython.longlong
    while at + ENTRY_BYTES <= stop:
        position = read_i64(p, at)
        size = read_i32(p, at + 8)
        if position < 0 or size <= 0:
            break
        if size != FILLER_SIZE:
            if position < last_position + last_size and (position != last_position or size != last_size):
                break
            if position > log_end - size:
                break
            last_position = position
            last_size = size
        at += ENTRY_BYTES
    return at, last_position, last_size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_message(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    position: cython.longlong,
    queue_id: cython.int,
    offset: cython.longlong,
    topic: cython.p_const_uchar,
    topic_size: cython.Py_ssize_t,
) -> cython.bint:
    """Is this the record of a queue and offset at a position? Its CRC is not checked."""
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    if find_parts(p, at, at + size, parts) != VALID or parts[END] != at + size:
        return False
    if read_i64(p, at + POSITION_AT) != position or read_i64(p, at + QUEUE_OFFSET_AT) != offset:
        return False
    if read_i32(p, at + QUEUE_ID_AT) != queue_id or p[parts[BODY_END]] != topic_size:
        return False
    return equals(p, parts[BODY_END] + 1, topic, 0, topic_size)


def is_message(
    record: Any, position: cython.longlong, queue_id: cython.int, offset: cython.longlong, topic: bytes
) -> bool:
    """Is this the record of that queue and offset? Its CRC is not checked."""
    view: cython.const[cython.uchar][::1] = record
    name: cython.const[cython.uchar][::1] = topic
    if len(view) == 0 or len(name) == 0:
        return False
    if cython.compiled:
        return _is_message(
            cython.address(view[0]), 0, len(view), position, queue_id, offset, cython.address(name[0]), len(name)
        )
    return _is_message(view, 0, len(view), position, queue_id, offset, name, len(name))


def count_messages(
    entries: Any,
    log: Any,
    start: cython.longlong,
    end: cython.longlong,
    count_max: cython.longlong,
    bytes_max: cython.longlong,
    queue_id: cython.int,
    offset: cython.longlong,
    topic: bytes,
) -> tuple[int, int]:
    """Count the first entries of a consume queue that point at their own records; returns their number and total bytes.

    `log` is the segment whose first byte has the position `start`; records end before `end`. The first entry belongs to
    `offset`. Counting stops at an entry that does not point at its record, or whose record would exceed `bytes_max`
    in total; the first record is counted whatever its size.
    """
    entries_view: cython.const[cython.uchar][::1] = entries
    log_view: cython.const[cython.uchar][::1] = log
    name: cython.const[cython.uchar][::1] = topic
    p: cython.p_const_uchar
    q: cython.p_const_uchar
    t: cython.p_const_uchar
    entry_count: cython.Py_ssize_t = len(entries_view) // ENTRY_BYTES
    if entry_count == 0 or len(log_view) == 0 or len(name) == 0:
        return 0, 0
    if cython.compiled:
        p = cython.address(entries_view[0])
        q = cython.address(log_view[0])
        t = cython.address(name[0])
    else:
        p = entries_view
        q = log_view
        t = name
    entry_count = min(entry_count, count_max)
    end = min(end, start + len(log_view))
    topic_size: cython.Py_ssize_t = len(name)
    count: cython.Py_ssize_t = 0
    total: cython.longlong = 0
    position: cython.longlong
    size: cython.longlong
    while count < entry_count:
        position = read_i64(p, count * ENTRY_BYTES)
        size = read_i32(p, count * ENTRY_BYTES + 8)
        if size <= 0 or position < start or position > end - size or (count > 0 and total + size > bytes_max):
            break
        if not _is_message(q, position - start, size, position, queue_id, offset + count, t, topic_size):
            break
        total += size
        count += 1
    return count, total


def gather_records(entries: Any, log: Any, start: cython.longlong, count: cython.Py_ssize_t, total: int) -> bytearray:
    """Copy the records that entries of a consume queue point at into one buffer; `count_messages` counted them."""
    joined = bytearray(total)
    if total == 0:
        return joined
    entries_view: cython.const[cython.uchar][::1] = entries
    log_view: cython.const[cython.uchar][::1] = log
    out_view: cython.uchar[::1] = joined
    p: cython.p_const_uchar
    q: cython.p_const_uchar
    out: cython.p_uchar
    if cython.compiled:
        p = cython.address(entries_view[0])
        q = cython.address(log_view[0])
        out = cython.address(out_view[0])
    else:
        p = entries_view
        q = log_view
        out = out_view
    row: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    length: cython.Py_ssize_t
    for row in range(count):
        at = read_i64(p, row * ENTRY_BYTES) - start
        length = read_i32(p, row * ENTRY_BYTES + 8)
        to = copy(out, to, q, at, length)
    return joined
