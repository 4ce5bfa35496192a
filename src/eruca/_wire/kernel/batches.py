"""Storing an encoded batch: from the body of a request to records of the log.

A batch with anything unusual takes the slow path: `batch.decode_batch`, and `record.write_record` for each message.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
    from cython.cimports.eruca._wire.kernel.views import *
else:
    from eruca._wire.kernel.memory import (
        copy,
        count_byte,
        has_word,
        read_i32,
        read_u32,
        take,
        write_hex,
        write_i64,
        write_u32,
    )
    from eruca._wire.kernel.record import (
        BODY_BYTES_BEFORE,
        BORN_HOST_V6,
        CRC_AT,
        CRC_MASK,
        FLAG_AT,
        HEAD_BYTES,
        POSITION_AT,
        QUEUE_OFFSET_AT,
        STORE_HOST_AT,
        STORE_HOST_V6,
        TOPIC_BYTES_MAX,
        V4_HOST_BYTES,
        write_head,
    )
    from eruca._wire.kernel.views import open_to_write

compiled: bool = cython.compiled

_ITEM_BYTES = cython.declare(cython.int, 22)
_ITEM_HEAD_BYTES = cython.declare(cython.int, 20)
_COPIED_BYTES_MAX = cython.declare(cython.int, 8192)


def measure_batch(
    data: bytes, shared_bytes: cython.Py_ssize_t, fixed_bytes: cython.Py_ssize_t, properties_max: cython.Py_ssize_t
) -> tuple[int, int, int, int, int]:
    """Check whether a batch is ordinary, as `write_batch` requires.

    Returns the number of messages, the bytes of their records, the bytes of their bodies, the most index entries they
    need, and where the last one starts. A count of -1 means that it is not ordinary: a size is wrong, properties are
    too long or may need the timer; the slow path reports what is wrong. `shared_bytes` is the size of the properties
    that every message gets, `fixed_bytes` that of a record without body and properties.
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
    while at < end:
        if end - at < _ITEM_BYTES:
            return -1, 0, 0, 0, 0
        total = read_i32(p, at)
        body = read_i32(p, at + 16)
        if total < _ITEM_BYTES or total > end - at or body < 0 or body > total - _ITEM_BYTES:
            return -1, 0, 0, 0, 0
        start = at + _ITEM_HEAD_BYTES + body
        properties = (p[start] << 8) | p[start + 1]
        start += 2
        if start + properties != at + total or properties + 1 + shared_bytes > properties_max:
            return -1, 0, 0, 0, 0
        # UNIQ_KEY is one; every word of KEYS but the last is followed by a space.
        words += 2
        last = at
        at += total
        records += fixed_bytes + body + properties + shared_bytes
        if properties > 0 and p[at - 1] != 2:
            records += 1
        bodies += body
        count += 1
        words += count_byte(p, start, at, 0x20)
        # The common prefix of all timer properties that clients use.
        if has_word(p, start, at, b"TIMER_D", 7):
            return -1, 0, 0, 0, 0
    return count, records, bodies, words, last


def cut_batch(data: bytes, messages_max: cython.Py_ssize_t, bytes_max: cython.Py_ssize_t) -> list[int]:
    """Where to cut a measured batch: the ends of pieces with at most this many messages and bytes.

    A message that alone exceeds this is a piece of its own.
    """
    p: cython.p_const_uchar = data
    end: cython.Py_ssize_t = len(data)
    at: cython.Py_ssize_t = 0
    began: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t
    ends: list[int] = []
    while at < end:
        total = read_u32(p, at) if end - at >= _ITEM_BYTES else 0
        if total < _ITEM_BYTES or total > end - at:
            raise ValueError(f"there is no message at {at}")
        if count == messages_max or (count > 0 and at + total - began > bytes_max):
            ends.append(at)
            began = at
            count = 0
        at += total
        count += 1
    if count > 0:
        ends.append(end)
    return ends


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
    """Write the length of all properties, those of a message, a separator if there is none, and the shared ones."""
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
    """The common part of the heads of all records of a batch; varying fields are 0."""
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6) or len(born_host) != V4_HOST_BYTES or len(store_host) != V4_HOST_BYTES:
        raise ValueError("a batch can only be written for IPv4 hosts")
    head = bytearray(HEAD_BYTES)
    view: cython.uchar[::1] = head
    q: cython.p_uchar = open_to_write(view)
    write_head(
        q, 0, 0, 0, queue_id, 0, 0, 0, sys_flag, born_timestamp, born_host, store_timestamp, store_host,
        reconsume_times, 0, 0,
    )  # fmt: skip
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
    ids: Any,
) -> None:
    """Write the messages of a measured batch: records of `size` bytes in total, and their offset ids.

    `head` is the result of `make_head`, `tail` the topic preceded by its length, `shared` the properties every message
    gets.
    """
    log_view: cython.uchar[::1] = log
    ids_view: cython.uchar[::1] = ids
    p: cython.p_const_uchar = data
    head_p: cython.p_const_uchar = head
    tail_p: cython.p_const_uchar = tail
    shared_p: cython.p_const_uchar = shared
    q: cython.p_uchar = open_to_write(log_view)
    text: cython.p_uchar = open_to_write(ids_view)
    stop: cython.Py_ssize_t = at + size
    if len(head) != HEAD_BYTES or len(tail) > TOPIC_BYTES_MAX + 1 or at < 0 or stop > len(log_view):
        raise ValueError(f"{size} bytes at {at} do not fit in {len(log_view)} bytes, or head or topic are wrong")
    whole = memoryview(data)
    item: cython.Py_ssize_t = 0
    body: cython.Py_ssize_t
    at_body: cython.Py_ssize_t
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
        record = HEAD_BYTES + body + len(tail) + 2 + joined
        if at + record > stop or ids_at + 33 > len(ids_view) + 1:
            raise ValueError("the batch is larger than it was measured")
        # Copying a body, if it is not large, is cheaper than a view of it.
        at_body = item + _ITEM_HEAD_BYTES
        crc = crc32(take(p, at_body, at_body + body) if body <= _COPIED_BYTES_MAX else whole[at_body : at_body + body])
        copy(q, at, head_p, 0, HEAD_BYTES)
        write_u32(q, at, record)
        write_u32(q, at + CRC_AT, crc & CRC_MASK)
        copy(q, at + FLAG_AT, p, item + 12, 4)
        write_i64(q, at + QUEUE_OFFSET_AT, queue_offset)
        write_i64(q, at + POSITION_AT, position)
        write_u32(q, at + HEAD_BYTES - BODY_BYTES_BEFORE, body)
        to = copy(q, at + HEAD_BYTES, p, item + _ITEM_HEAD_BYTES, body)
        to = copy(q, to, tail_p, 0, len(tail))
        _put_properties(q, to, p, own_at, own, shared_p, len(shared), joined)
        if item:
            text[ids_at - 1] = 44
        # An offset id is store host and position in hexadecimal.
        ids_at = write_hex(text, ids_at, q, at + STORE_HOST_AT, V4_HOST_BYTES)
        ids_at = write_hex(text, ids_at, q, at + POSITION_AT, 8) + 1
        at += record
        position += record
        queue_offset += 1
        item = own_at + own
    if at != stop:
        raise ValueError("the batch is smaller than it was measured")
