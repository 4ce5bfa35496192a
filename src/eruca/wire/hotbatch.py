"""The inner loops of storing an encoded batch, typed for Cython: from the body of a request to records of the log.

As with `hot`, the same file runs as plain Python or compiled. The readable statement is the long way that a broker goes
with a batch that has anything unusual: `batch.decode_batch`, and `record.write_record` for each message.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import Any
from zlib import crc32

try:
    import cython  # type: ignore[import-untyped]
except ImportError:  # an installation without compiler and without Cython
    from eruca.wire import nocython as cython

if cython.compiled:
    from cython.cimports.eruca.wire.hotbytes import copy, equals, read_i32, read_u32, write_i64, write_u32  # type: ignore[import-untyped]
else:
    from eruca.wire.hotbytes import copy, equals, read_i32, read_u32, write_i64, write_u32

compiled: bool = cython.compiled

_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_RECORD_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_CRC_MASK = cython.declare(cython.ulonglong, 0x7FFFFFFF)
_FIXED_BYTES = cython.declare(cython.int, 91)
_HEAD_BYTES = cython.declare(cython.int, 88)
_ITEM_BYTES = cython.declare(cython.int, 22)
_ITEM_HEAD_BYTES = cython.declare(cython.int, 20)
_TOPIC_BYTES_MAX = cython.declare(cython.int, 255)
_HEX = b"0123456789ABCDEF"
# What every name of the timer that clients use begins with.
_TIMER = b"TIMER_D"


def measure_batch(
    data: bytes, shared_bytes: cython.Py_ssize_t, fixed_bytes: cython.Py_ssize_t, properties_max: cython.Py_ssize_t
) -> tuple[int, int, int, int, int]:
    """Look whether a batch is an ordinary one, as `write_batch` wants it.

    Gives how many messages it has, the bytes of their records, the bytes of their bodies, the most index entries they
    need, and where the last one lies. A count of -1 says that it is not: a size lies, properties are too long or may
    want the timer; what is wrong is for the long way to say. `shared_bytes` are those of the properties that all get,
    `fixed_bytes` those of a record without body and properties.
    """
    p: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    records: cython.longlong = 0
    bodies: cython.longlong = 0
    words: cython.longlong = 0
    last: cython.Py_ssize_t = 0
    total: cython.longlong
    body: cython.longlong
    properties: cython.longlong
    start: cython.Py_ssize_t
    timer: cython.p_const_uchar = _TIMER
    while at < end:
        if end - at < _ITEM_BYTES:
            return -1, 0, 0, 0, 0
        total = read_i32(p, at)
        body = read_i32(p, at + 16)
        if total < _ITEM_BYTES or total > end - at or body < 0 or body > total - _ITEM_BYTES:
            return -1, 0, 0, 0, 0
        start = at + _ITEM_HEAD_BYTES + body
        properties = (cython.cast(cython.longlong, p[start]) << 8) | p[start + 1]
        start += 2
        if start + properties != at + total or properties + 1 + shared_bytes > properties_max:
            return -1, 0, 0, 0, 0
        # UNIQ_KEY is one; every word of KEYS but for the last has a blank behind it.
        words += 2
        last = at
        at += total
        records += fixed_bytes + body + properties + shared_bytes
        if properties > 0 and p[at - 1] != 2:
            records += 1
        bodies += body
        count += 1
        while start < at:
            if p[start] == 0x20:
                words += 1
            elif p[start] == 0x54 and at - start >= 7 and equals(p, start, timer, 0, 7):
                return -1, 0, 0, 0, 0
            start += 1
    return count, records, bodies, words, last


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_id(
    q: cython.p_uchar, to: cython.Py_ssize_t, host: cython.p_const_uchar, position: cython.longlong
) -> cython.Py_ssize_t:
    """Write an offset id; gives where the next character goes."""
    digits: cython.p_const_uchar = _HEX
    part: cython.Py_ssize_t
    byte: cython.uchar
    for part in range(16):
        if part < 8:
            byte = host[part]
        else:
            byte = cython.cast(cython.uchar, (position >> (120 - 8 * part)) & 0xFF)
        q[to] = digits[byte >> 4]
        q[to + 1] = digits[byte & 15]
        to += 2
    return to


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_properties(
    q: cython.p_uchar,
    to: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    own_at: cython.Py_ssize_t,
    own: cython.Py_ssize_t,
    shared: cython.p_const_uchar,
    shared_size: cython.Py_ssize_t,
    joined: cython.Py_ssize_t,
) -> cython.void:
    """Write the length of all properties, those of a message, a separator if there is none, and those that all get."""
    q[to] = joined >> 8
    q[to + 1] = joined & 0xFF
    to = copy(q, to + 2, p, own_at, own)
    if joined > own + shared_size:
        q[to] = 2
        to += 1
    copy(q, to, shared, 0, shared_size)


def make_head(
    queue_id: cython.int,
    sys_flag: cython.int,
    born_timestamp: cython.longlong,
    born_host: bytes,
    store_timestamp: cython.longlong,
    store_host: bytes,
    reconsume_times: cython.int,
) -> bytes:
    """What the heads of all records of a batch have in common; what differs is 0 in it."""
    if len(born_host) != 8 or len(store_host) != 8:
        raise ValueError("a batch is written for IPv4 hosts")
    head = bytearray(88)
    view: cython.uchar[::1] = head
    q: cython.p_uchar
    born: cython.p_const_uchar = born_host
    store: cython.p_const_uchar = store_host
    if cython.compiled:
        q = cython.address(view[0])
    else:
        q = view
    write_u32(q, 4, _RECORD_MAGIC)
    write_u32(q, 12, cython.cast(cython.uint, queue_id & _MASK))
    write_u32(q, 36, cython.cast(cython.uint, sys_flag & _MASK))
    write_i64(q, 40, born_timestamp)
    copy(q, 48, born, 0, 8)
    write_i64(q, 56, store_timestamp)
    copy(q, 64, store, 0, 8)
    write_u32(q, 72, cython.cast(cython.uint, reconsume_times & _MASK))
    return bytes(head)


def write_batch(
    log: Any,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    data: bytes,
    head: bytes,
    tail: bytes,
    shared: bytes,
    queue_offset: cython.longlong,
    position: cython.longlong,
    entries: Any,
    entries_at: cython.Py_ssize_t,
    ids: Any,
) -> None:
    """Write the messages of a batch that was measured: records of `size` bytes, positions and sizes of their entries of
    the consume queue, and their offset ids.

    `head` is what `make_head` gives, `tail` the topic with its length before it, `shared` the properties that all get.
    """
    log_view: cython.uchar[::1] = log
    entries_view: cython.uchar[::1] = entries
    ids_view: cython.uchar[::1] = ids
    p: cython.p_const_uchar = data
    head_p: cython.p_const_uchar = head
    tail_p: cython.p_const_uchar = tail
    shared_p: cython.p_const_uchar = shared
    q: cython.p_uchar
    e: cython.p_uchar
    text: cython.p_uchar
    if cython.compiled:
        q, e, text = cython.address(log_view[0]), cython.address(entries_view[0]), cython.address(ids_view[0])
    else:
        q, e, text = log_view, entries_view, ids_view
    stop: cython.Py_ssize_t = at + size
    if len(head) != 88 or len(tail) > _TOPIC_BYTES_MAX + 1 or at < 0 or stop > len(log_view) or entries_at < 0:
        raise ValueError(f"{size} bytes at {at} do not fit in {len(log_view)} bytes, or head or topic are wrong")
    whole = memoryview(data)
    item: cython.Py_ssize_t = 0
    body: cython.Py_ssize_t
    own: cython.Py_ssize_t
    own_at: cython.Py_ssize_t
    joined: cython.Py_ssize_t
    record: cython.Py_ssize_t
    to: cython.Py_ssize_t
    ids_at: cython.Py_ssize_t = 0
    crc: cython.ulonglong
    while item < len(data):
        body = read_u32(p, item + 16)
        own_at = item + _ITEM_BYTES + body
        own = item + read_u32(p, item) - own_at
        joined = own + len(shared) + (1 if own > 0 and p[own_at + own - 1] != 2 else 0)
        record = _HEAD_BYTES + body + len(tail) + 2 + joined
        if at + record > stop or entries_at + 20 > len(entries_view) or ids_at + 33 > len(ids_view) + 1:
            raise ValueError("the batch is larger than it was measured")
        crc = crc32(whole[item + _ITEM_HEAD_BYTES : item + _ITEM_HEAD_BYTES + body])
        copy(q, at, head_p, 0, _HEAD_BYTES)
        write_u32(q, at, cython.cast(cython.uint, record))
        write_u32(q, at + 8, cython.cast(cython.uint, crc & _CRC_MASK))
        copy(q, at + 16, p, item + 12, 4)
        write_i64(q, at + 20, queue_offset)
        write_i64(q, at + 28, position)
        write_u32(q, at + 84, cython.cast(cython.uint, body))
        to = copy(q, at + _HEAD_BYTES, p, item + _ITEM_HEAD_BYTES, body)
        to = copy(q, to, tail_p, 0, len(tail))
        _put_properties(q, to, p, own_at, own, shared_p, len(shared), joined)
        write_i64(e, entries_at, position)
        write_u32(e, entries_at + 8, cython.cast(cython.uint, record))
        if item:
            text[ids_at - 1] = 44
        ids_at = _put_id(text, ids_at, head_p + 64 if cython.compiled else head_p[64:], position) + 1
        at += record
        position += record
        queue_offset += 1
        entries_at += 20
        item = own_at + own
    if at != stop:
        raise ValueError("the batch is smaller than it was measured")
