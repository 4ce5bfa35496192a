"""The inner loops of recovery and of consuming, typed for Cython: reading records.

As with `hot`, the same file runs as plain Python or compiled; `record` and the store's scan have the readable statement
of each loop, and a test holds all to the same answers.
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
    from cython.cimports.eruca.wire.hotbytes import copy, read_i32, read_i64, read_u32, take  # type: ignore[import-untyped]
else:
    from eruca.wire.hotbytes import copy, read_i32, read_i64, read_u32, take

compiled: bool = cython.compiled

# C constants: a literal above 2**31 would otherwise be a Python integer in the middle of a loop.
_RECORD_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_CRC_MASK = cython.declare(cython.ulonglong, 0x7FFFFFFF)
_FIXED_BYTES = cython.declare(cython.int, 91)
_HEAD_BYTES = cython.declare(cython.int, 88)
_ENTRY_BYTES = cython.declare(cython.int, 20)
_FILLER_SIZE = cython.declare(cython.int, 0x7FFFFFFF)
_COPY_BYTES_MAX = cython.declare(cython.int, 2048)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _differs(crc: cython.ulonglong, stored: cython.uint) -> cython.bint:
    return (crc & _CRC_MASK) != stored


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_properties(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, position: cython.longlong
) -> cython.Py_ssize_t:
    """Where the properties of the record at `at` begin, or -1 when there is no valid record (but for its CRC)."""
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    properties_size: cython.Py_ssize_t
    sector: cython.Py_ssize_t
    if end - at < _FIXED_BYTES:
        return -1
    size = read_u32(p, at)
    if read_u32(p, at + 4) != _RECORD_MAGIC or size > end - at or size < _FIXED_BYTES:
        return -1
    if read_i64(p, at + 28) != position:
        return -1
    body_at = at + _HEAD_BYTES + _host_shift(read_u32(p, at + 36))
    if body_at + 3 > at + size:
        return -1
    body_end = body_at + read_u32(p, body_at - 4)
    if body_end + 3 > at + size:
        return -1
    topic_end = body_end + 1 + p[body_end]
    if topic_end + 2 > at + size:
        return -1
    properties_size = (cython.cast(cython.Py_ssize_t, p[topic_end]) << 8) | p[topic_end + 1]
    if topic_end + 2 + properties_size != at + size:
        return -1
    # Topic and properties have no checksum. Where a zero makes it possible that a power loss took their end, the
    # caller looks more closely (`scan.is_cut_short`).
    if p[at + size - 1] == 0:
        return -1
    sector = (body_end + 512) // 512 * 512
    while sector + 512 <= at + size:
        if p[sector] == 0:
            return -1
        sector += 512
    return topic_end + 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _host_shift(flag: cython.uint) -> cython.Py_ssize_t:
    """How much longer than two IPv4 hosts the hosts are."""
    return (12 if flag & 0x10 else 0) + (12 if flag & 0x20 else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _store_time(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    return read_i64(p, at + 56 + (12 if read_u32(p, at + 36) & 0x10 else 0))


def skip_records(
    buffer: Any, at: cython.Py_ssize_t, end: cython.Py_ssize_t, base: cython.longlong, check_crc: cython.bint
) -> tuple[int, int, int, int]:
    """Walk valid records from `at`; give where the first bytes that are none lie, how many were passed, and the store
    time of the first and of the last one.

    `base` is the position of the buffer's first byte. Valid means what `record.inspect_record` means by it.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    whole = memoryview(buffer)
    if end > len(view):
        end = len(view)
    body_at: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    count: cython.longlong = 0
    first_time: cython.longlong = 0
    last_time: cython.longlong = 0
    while _find_properties(p, at, end, base + at) >= 0:
        body_at = at + _HEAD_BYTES + _host_shift(read_u32(p, at + 36))
        body_end = body_at + read_u32(p, body_at - 4)
        if check_crc and body_end > body_at:
            # A copy of a short body costs less than a view of it.
            body = take(p, body_at, body_end) if body_end - body_at <= _COPY_BYTES_MAX else whole[body_at:body_end]
            if _differs(crc32(body), read_u32(p, at + 8)):
                break
        last_time = _store_time(p, at)
        if count == 0:
            first_time = last_time
        count += 1
        at += read_u32(p, at)
    return at, count, first_time, last_time


def read_records(
    buffer: Any, at: cython.Py_ssize_t, end: cython.Py_ssize_t, base: cython.longlong, count_max: cython.longlong
) -> list[tuple[int, int, bytes, int, int, int, int, bytes]]:
    """Give what dispatch needs of up to `count_max` valid records from `at` on, without a look at their CRCs.

    Each is (position, size, topic, queue id, queue offset, sysFlag, store time, properties).
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    if end > len(view):
        end = len(view)
    found: list[tuple[int, int, bytes, int, int, int, int, bytes]] = []
    properties_at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    topic_at: cython.Py_ssize_t
    flag: cython.uint
    while len(found) < count_max:
        properties_at = _find_properties(p, at, end, base + at)
        if properties_at < 0:
            break
        size = read_u32(p, at)
        flag = read_u32(p, at + 36)
        topic_at = at + _HEAD_BYTES + _host_shift(flag)
        topic_at += read_u32(p, topic_at - 4) + 1
        found.append(
            (
                base + at,
                size,
                take(p, topic_at, properties_at - 2),
                read_i32(p, at + 12),
                read_i64(p, at + 20),
                read_i32(p, at + 36),
                _store_time(p, at),
                take(p, properties_at, at + size),
            )
        )
        at += size
    return found


def find_disorder(
    entries: Any,
    stop: cython.Py_ssize_t,
    last_position: cython.longlong,
    last_size: cython.longlong,
    log_end: cython.longlong,
) -> tuple[int, int, int]:
    """Walk entries of a consume queue up to a byte; gives where the first lies that is not one, and the last before it.

    An entry is right when it points behind the record of the one before and not beyond the log. Entries for messages
    that were lost together are equal, and fillers say nothing.
    """
    view: cython.const[cython.uchar][::1] = entries
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    if stop > len(view):
        stop = len(view)
    at: cython.Py_ssize_t = 0
    position: cython.longlong
    size: cython.longlong
    while at + _ENTRY_BYTES <= stop:
        position = read_i64(p, at)
        size = read_i32(p, at + 8)
        if position < 0 or size <= 0:
            break
        if size != _FILLER_SIZE:
            if position < last_position + last_size and (position != last_position or size != last_size):
                break
            if position > log_end - size:
                break
            last_position = position
            last_size = size
        at += _ENTRY_BYTES
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
    """Do these bytes say that they are the record of a queue and offset at a position? Only the head and the topic."""
    topic_at: cython.Py_ssize_t
    number: cython.Py_ssize_t
    if size < _FIXED_BYTES or read_u32(p, at) != size or read_u32(p, at + 4) != _RECORD_MAGIC:
        return False
    if read_i64(p, at + 28) != position or read_i64(p, at + 20) != offset or read_i32(p, at + 12) != queue_id:
        return False
    topic_at = at + _HEAD_BYTES + _host_shift(read_u32(p, at + 36))
    if topic_at > at + size:
        return False
    topic_at += read_u32(p, topic_at - 4)
    if topic_at + 3 + topic_size > at + size or p[topic_at] != topic_size:
        return False
    for number in range(topic_size):
        if p[topic_at + 1 + number] != topic[number]:
            return False
    return True


def is_message(
    record: Any, position: cython.longlong, queue_id: cython.int, offset: cython.longlong, topic: bytes
) -> bool:
    """Is this the record of that queue and offset, as far as head and topic tell?"""
    view: cython.const[cython.uchar][::1] = record
    name: cython.const[cython.uchar][::1] = topic
    if len(view) < _FIXED_BYTES or len(name) == 0:
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
    """Count the first entries of a consume queue that point at their own records; gives how many, and their bytes.

    `log` is the segment whose first byte has the position `start`; records lie before `end`. The first entry belongs to
    `offset`. One that does not point at its record ends it, or one whose record would make them more than `bytes_max`,
    unless it is the only one.
    """
    entries_view: cython.const[cython.uchar][::1] = entries
    log_view: cython.const[cython.uchar][::1] = log
    name: cython.const[cython.uchar][::1] = topic
    p: cython.p_const_uchar
    q: cython.p_const_uchar
    t: cython.p_const_uchar
    entry_count: cython.Py_ssize_t = len(entries_view) // _ENTRY_BYTES
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
    if entry_count > count_max:
        entry_count = count_max
    if end > start + len(log_view):
        end = start + len(log_view)
    topic_size: cython.Py_ssize_t = len(name)
    count: cython.Py_ssize_t = 0
    total: cython.longlong = 0
    position: cython.longlong
    size: cython.longlong
    while count < entry_count:
        position = read_i64(p, count * _ENTRY_BYTES)
        size = read_i32(p, count * _ENTRY_BYTES + 8)
        if size <= 0 or position < start or position > end - size or (count > 0 and total + size > bytes_max):
            break
        if not _is_message(q, position - start, size, position, queue_id, offset + count, t, topic_size):
            break
        total += size
        count += 1
    return count, total


def gather_records(entries: Any, log: Any, start: cython.longlong, count: cython.Py_ssize_t, total: int) -> bytearray:
    """Copy the records that entries of a consume queue point at into one piece; `count_messages` counted them."""
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
        at = read_i64(p, row * _ENTRY_BYTES) - start
        length = read_i32(p, row * _ENTRY_BYTES + 8)
        to = copy(out, to, q, at, length)
    return joined


def decode_records(data: bytes, make: Any, check_crc: cython.bint) -> tuple[list[Any], int]:
    """Decode records that lie one after the other; gives them and where the first bytes lie that are none.

    `make` is called with what `record.Message` takes. What is wrong with the rest is for `record` to say.
    """
    end: cython.Py_ssize_t = len(data)
    found: list[Any] = []
    if end == 0:
        return found, 0
    view: cython.const[cython.uchar][::1] = data
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    whole = memoryview(data)
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    born_bytes: cython.Py_ssize_t
    store_bytes: cython.Py_ssize_t
    born_at: cython.Py_ssize_t
    store_at: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    flag: cython.uint
    raw_topic: bytes = b""
    topic: str = ""
    while end - at >= _FIXED_BYTES:
        size = read_u32(p, at)
        if read_u32(p, at + 4) != _RECORD_MAGIC or size > end - at or size < _FIXED_BYTES:
            break
        flag = read_u32(p, at + 36)
        born_bytes = 20 if flag & 0x10 else 8
        store_bytes = 20 if flag & 0x20 else 8
        born_at = at + 48
        store_at = born_at + born_bytes + 8
        body_at = store_at + store_bytes + 16
        if body_at + 3 > at + size:
            break
        body_end = body_at + read_u32(p, body_at - 4)
        if body_end + 3 > at + size:
            break
        topic_end = body_end + 1 + p[body_end]
        if topic_end + 2 > at + size:
            break
        if topic_end + 2 + ((cython.cast(cython.Py_ssize_t, p[topic_end]) << 8) | p[topic_end + 1]) != at + size:
            break
        if check_crc and body_end > body_at and _differs(crc32(whole[body_at:body_end]), read_u32(p, at + 8)):
            break
        name = take(p, body_end + 1, topic_end)
        if name != raw_topic:
            try:
                topic = name.decode()
            except UnicodeDecodeError:
                break
            raw_topic = name
        found.append(
            make(
                topic,
                read_i32(p, at + 12),
                read_i32(p, at + 16),
                take(p, body_at, body_end),
                take(p, topic_end + 2, at + size),
                read_i32(p, at + 36),
                read_i64(p, at + 40),
                take(p, born_at, born_at + born_bytes),
                read_i64(p, born_at + born_bytes),
                take(p, store_at, store_at + store_bytes),
                read_i32(p, body_at - 16),
                read_i64(p, body_at - 12),
                read_i64(p, at + 20),
                read_i64(p, at + 28),
                read_u32(p, at + 8),
                size,
            )
        )
        at += size
    return found, at
