"""The inner loops of append, typed for Cython; `hotread` has those that read.

The same file runs as plain Python (slowly) or compiled (`compiled` is True then). The readable statement of each loop
is elsewhere: `javahash`, `properties`, `record` and the store's index; those rooms use these functions only when they
are compiled, and a test holds both to the same answers.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from array import array
from typing import Any
from zlib import crc32

try:
    import cython  # type: ignore[import-untyped]
except ImportError:  # an installation without compiler and without Cython
    from eruca.wire import nocython as cython

if cython.compiled:
    from cython.cimports.eruca.wire.hotbytes import (  # type: ignore[import-untyped]
        copy,
        equals,
        read_i32,
        read_i64,
        read_u32,
        take,
        write_i64,
        write_u32,
    )
else:
    from eruca.wire.hotbytes import copy, equals, read_i32, read_i64, read_u32, take, write_i64, write_u32

compiled: bool = cython.compiled

# C constants: a literal above 2**31 would otherwise be a Python integer in the middle of a loop.
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_WRAP = cython.declare(cython.longlong, 0x100000000)
_TRANSACTION_MASK = cython.declare(cython.uint, 0xC)
_RECORD_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_CRC_MASK = cython.declare(cython.ulonglong, 0x7FFFFFFF)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_FIXED_BYTES = cython.declare(cython.int, 91)
_HEAD_BYTES = cython.declare(cython.int, 88)
_TOPIC_BYTES_MAX = cython.declare(cython.int, 255)
_PROPERTIES_BYTES_MAX = cython.declare(cython.int, 65535)
# Hashes of keys for which there is memory at hand; more are the exception.
_HASHES_MAX = cython.declare(cython.int, 32)


# --- hashes ---------------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _hash_text(
    p: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t, begun: cython.uint
) -> cython.longlong:
    """Continue Java's string hash over UTF-8 text; gives it without sign."""
    h: cython.uint = begun
    seen: cython.uint = 0
    at: cython.Py_ssize_t
    for at in range(start, end):
        seen |= p[at]
        h = (h * 31 + p[at]) & _MASK
    if seen < 0x80:
        return h
    units: bytes = take(p, start, end).decode("utf-8", "replace").encode("utf-16-be")
    h = begun
    for at in range(0, len(units), 2):
        h = (h * 31 + ((cython.cast(cython.uint, units[at]) << 8) | units[at + 1])) & _MASK
    return h


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fold(h: cython.longlong) -> cython.longlong:
    """The absolute value of the hash as Java's index has it: 0 where it does not fit."""
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
    """What `digest_properties` does, with properties that lie from `start` to `size`.

    The hash of the tag goes to `out[0]`, those of the keys behind it, as many as there is `room` for. Gives how many
    keys there are.
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
        middle = start
        while middle < size and p[middle] != 1 and p[middle] != 2:
            middle += 1
        end = middle
        while end < size and p[end] != 2:
            end += 1
        if end > middle + 1 and p[middle] == 1:
            if middle - start == 4:
                if equals(p, start, b"TAGS", 0, 4):
                    tags_at, tags_end = middle + 1, end
                elif equals(p, start, b"KEYS", 0, 4):
                    keys_at, keys_end = middle + 1, end
            elif middle - start == 8 and equals(p, start, b"UNIQ_KEY", 0, 8):
                unique_at, unique_end = middle + 1, end
        start = end + 1
    h: cython.longlong = _hash_text(p, tags_at, tags_end, 0)
    out[0] = h - _WRAP if h > _INT_MAX else h
    if not with_keys:
        return 0
    count: cython.int = 0
    if unique_end > 0:
        count = 1
        out[1] = _fold(_hash_text(p, unique_at, unique_end, prefix))
    start = keys_at
    while start < keys_end:
        end = start
        while end < keys_end and p[end] != 0x20:
            end += 1
        if end > start:
            count += 1
            if count <= room:
                out[count] = _fold(_hash_text(p, start, end, prefix))
        start = end + 1
    return count


def digest_properties(properties: bytes, prefix: cython.uint, with_keys: cython.bint) -> tuple[int, list[int]]:
    """Give the hash of the TAGS property (0 for none) and the index hashes of UNIQ_KEY and KEYS, in one pass.

    `prefix` is the hash of `topic + "#"`, unsigned. As in Java the last entry of a name wins, and entries without
    name or value do not count.
    """
    p: cython.p_const_uchar = properties
    if cython.compiled:
        out: cython.longlong[33]
    else:
        out = [0] * 33
    count: cython.int = find_hashes(p, 0, len(properties), prefix, with_keys, out, _HASHES_MAX)
    if count > _HASHES_MAX:
        return _digest_many(properties, prefix, count)
    hashes: list[int] = []
    n: cython.int
    for n in range(1, count + 1):
        hashes.append(out[n])
    return out[0], hashes


@cython.cfunc
def _digest_many(properties: bytes, prefix: cython.uint, count: cython.int) -> tuple[int, list[int]]:
    """Digest properties with so many keys."""
    p: cython.p_const_uchar = properties
    many = array("q", bytes(8 * count + 8))
    view: cython.longlong[::1] = many
    find_hashes(p, 0, len(properties), prefix, True, cython.address(view[0]) if cython.compiled else view, count)
    return many[0], many[1:].tolist()


# --- index ----------------------------------------------------------------------------------------------------------


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
    """What `put_index_entries` does, for `hashes[1]` and those behind it; False when the file has no place for them."""
    entries_at: cython.longlong = 40 + 4 * slots
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
    # There is no other check between a damaged number and the memory behind the file.
    if entries_at + (number + count) * 20 > room:
        return False
    if number == 1:
        begin_time = store_time
        write_i64(p, 0, store_time)
        write_i64(p, 16, position)
    if begin_time > 0 and store_time > begin_time:
        seconds = min((store_time - begin_time) // 1000, _INT_MAX)
    for n in range(1, count + 1):
        h = hashes[n]
        slot_at = 40 + ((h & _INT_MAX) % slots) * 4
        previous = read_u32(p, slot_at)
        if previous > number or previous > _INT_MAX:
            previous = 0
        if previous == 0:
            used += 1
        at = entries_at + number * 20
        write_u32(p, at, cython.cast(cython.uint, h))
        write_i64(p, at + 4, position)
        write_u32(p, at + 12, cython.cast(cython.uint, seconds))
        write_u32(p, at + 16, previous)
        write_u32(p, slot_at, cython.cast(cython.uint, number))
        number += 1
    write_i64(p, 8, store_time)
    write_i64(p, 24, position)
    write_u32(p, 32, used)
    write_u32(p, 36, cython.cast(cython.uint, number))
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
    if count > _HASHES_MAX:
        many = array("q", [0, *hashes])
        told = cython.address(many[0]) if cython.compiled else many
    else:
        told = few
        for n in range(count):
            told[n + 1] = hashes[n]
    if not put_entries(p, len(view), slots, told, count, position, store_time):
        raise ValueError(f"{count} entries more are not inside an index file of {len(view)} bytes")


def dispatch_batch(
    log: Any,
    entries: Any,
    entries_at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base: cython.longlong,
    prefix: cython.uint,
    index: Any,
    slots: cython.longlong,
    store_time: cython.longlong,
) -> int:
    """Give records that were just written their tags codes and their index entries; gives how many of these there are.

    `entries` has position and size of each at `entries_at`; `base` is the position of the first byte of `log`. `index`
    is None without an index. All hosts are IPv4, as `hotbatch` writes them.
    """
    view: cython.const[cython.uchar][::1] = log
    entries_view: cython.uchar[::1] = entries
    with_index: cython.bint = index is not None
    index_view: cython.uchar[::1] = index if with_index else entries
    p: cython.p_const_uchar
    e: cython.p_uchar
    x: cython.p_uchar
    if cython.compiled:
        p = cython.address(view[0])
        e = cython.address(entries_view[0])
        x = cython.address(index_view[0])
    else:
        p, e, x = view, entries_view, index_view
    if entries_at < 0 or entries_at + 20 * count > len(entries_view):
        raise ValueError(f"{count} entries at {entries_at} are not inside {len(entries_view)} bytes")
    entries_end: cython.Py_ssize_t = entries_at + 20 * count
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    start: cython.Py_ssize_t
    written: cython.longlong = 0
    found: cython.int
    if cython.compiled:
        out: cython.longlong[33]
    else:
        out = [0] * 33
    while entries_at < entries_end:
        at = cython.cast(cython.Py_ssize_t, read_i64(e, entries_at) - base)
        end = at + read_u32(e, entries_at + 8)
        if at < 0 or end > len(view) or end - at < _FIXED_BYTES:
            raise ValueError(f"the record at {at} is not inside {len(view)} bytes")
        start = at + _HEAD_BYTES + read_u32(p, at + 84)
        if start >= end or start + p[start] + 3 > end:
            raise ValueError(f"at {at} there is no record")
        start += p[start] + 3
        found = find_hashes(p, start, end, prefix, with_index, out, _HASHES_MAX)
        write_i64(e, entries_at + 12, out[0])
        if found > _HASHES_MAX:
            put_index_entries(
                index, slots, digest_properties(take(p, start, end), prefix, True)[1], base + at, store_time
            )
        elif found > 0 and not put_entries(x, len(index_view), slots, out, found, base + at, store_time):
            raise ValueError(f"{found} entries more are not inside an index file of {len(index_view)} bytes")
        written += found
        entries_at += 20
    return written


def dispatch_run(
    run: Any,
    first: cython.Py_ssize_t,
    entries: Any,
    entries_at: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
    offset: cython.longlong,
    prefix: cython.uint,
    index: Any,
    slots: cython.longlong,
    index_room: cython.longlong,
) -> tuple[int, int]:
    """Write the entries of records from `run[first]` on, as long as each is the next one of the same queue.

    They are as `hotread.read_records` gives them; the first has `offset`. There is room for so many entries in queue
    and index; `index` is None without one. Gives how many records are done, and how many index entries they have.
    """
    entries_view: cython.uchar[::1] = entries
    with_index: cython.bint = index is not None
    index_view: cython.uchar[::1] = index if with_index else entries
    p: cython.p_const_uchar
    e: cython.p_uchar
    x: cython.p_uchar
    if cython.compiled:
        e = cython.address(entries_view[0])
        x = cython.address(index_view[0])
    else:
        e, x = entries_view, index_view
    if entries_at < 0 or room < 0 or entries_at + 20 * room > len(entries_view):
        raise ValueError(f"{room} entries at {entries_at} are not inside {len(entries_view)} bytes")
    _, _, topic, queue_id, _, _, _, _ = run[first]
    count: cython.Py_ssize_t = min(room, len(run) - first)
    done: cython.Py_ssize_t = 0
    written: cython.longlong = 0
    found: cython.int
    if cython.compiled:
        out: cython.longlong[33]
    else:
        out = [0] * 33
    while done < count:
        position, size, encoded, its_queue, its_offset, sys_flag, store_time, properties = run[first + done]
        if its_offset != offset + done or its_queue != queue_id or encoded != topic or sys_flag & _TRANSACTION_MASK:
            break
        p = properties
        found = find_hashes(p, 0, len(properties), prefix, with_index, out, _HASHES_MAX)
        if found > _HASHES_MAX or written + found > index_room:
            break
        if found > 0 and not put_entries(x, len(index_view), slots, out, found, position, store_time):
            raise ValueError(f"{found} entries more are not inside an index file of {len(index_view)} bytes")
        written += found
        write_i64(e, entries_at, position)
        write_u32(e, entries_at + 8, size)
        write_i64(e, entries_at + 12, out[0])
        entries_at += 20
        done += 1
    return done, written


# --- records --------------------------------------------------------------------------------------------------------


def write_record(
    buffer: Any,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    queue_id: cython.int,
    flag: cython.int,
    queue_offset: cython.longlong,
    position: cython.longlong,
    sys_flag: cython.int,
    born_timestamp: cython.longlong,
    born_host: bytes,
    store_timestamp: cython.longlong,
    store_host: bytes,
    reconsume_times: cython.int,
    prepared_position: cython.longlong,
    body: bytes,
    topic: bytes,
    properties: bytes,
) -> None:
    """Write one record with two IPv4 hosts into a buffer; its layout is drawn in `record`."""
    view: cython.uchar[::1] = buffer
    p: cython.p_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    body_size: cython.Py_ssize_t = len(body)
    topic_size: cython.Py_ssize_t = len(topic)
    properties_size: cython.Py_ssize_t = len(properties)
    # What is wrong here would be written outside the buffer.
    if size != _FIXED_BYTES + body_size + topic_size + properties_size or len(born_host) != 8 or len(store_host) != 8:
        raise ValueError(f"the parts do not make a record of {size} bytes")
    if topic_size > _TOPIC_BYTES_MAX or properties_size > _PROPERTIES_BYTES_MAX:
        raise ValueError(f"topic of {topic_size} bytes or properties of {properties_size} do not fit in a record")
    if at < 0 or size > len(view) - at:
        raise ValueError(f"a record of {size} bytes at {at} does not fit in {len(view)} bytes")
    crc: cython.ulonglong = crc32(body)
    write_u32(p, at, cython.cast(cython.uint, size))
    write_u32(p, at + 4, _RECORD_MAGIC)
    write_u32(p, at + 8, cython.cast(cython.uint, crc & _CRC_MASK))
    write_u32(p, at + 12, cython.cast(cython.uint, queue_id & _MASK))
    write_u32(p, at + 16, cython.cast(cython.uint, flag & _MASK))
    write_i64(p, at + 20, queue_offset)
    write_i64(p, at + 28, position)
    write_u32(p, at + 36, cython.cast(cython.uint, sys_flag & _MASK))
    write_i64(p, at + 40, born_timestamp)
    copy(p, at + 48, born_host, 0, 8)
    write_i64(p, at + 56, store_timestamp)
    copy(p, at + 64, store_host, 0, 8)
    write_u32(p, at + 72, cython.cast(cython.uint, reconsume_times & _MASK))
    write_i64(p, at + 76, prepared_position)
    write_u32(p, at + 84, cython.cast(cython.uint, body_size))
    at += _HEAD_BYTES
    copy(p, at, body, 0, body_size)
    at += body_size
    p[at] = topic_size
    copy(p, at + 1, topic, 0, topic_size)
    at += 1 + topic_size
    p[at] = properties_size >> 8
    p[at + 1] = properties_size & 0xFF
    copy(p, at + 2, properties, 0, properties_size)
