"""The inner loops of reading records into columns, typed for Cython: from bytes to the buffers of an Arrow batch.

As with `hot`, the same file runs as plain Python or compiled. Every function fills buffers that its caller made large
enough; `spark.parsing` knows how large that is and makes columns of them. `find_records` goes first: it notes where the
parts of each record lie, five numbers a record, and all others follow these spans.

    | record begins | body begins | body ends | properties begin | record ends |

`hotproperties` goes on with what lies in properties.
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
    from cython.cimports.eruca.wire.hotbytes import copy, equals, read_i32, read_i64, read_u32  # type: ignore[import-untyped]
else:
    from eruca.wire.hotbytes import copy, equals, read_i32, read_i64, read_u32

compiled: bool = cython.compiled

# Numbers noted of a record.
SPAN = 5
# The text of an IPv4 host, at its longest: 255.255.255.255:-2147483648
HOST_CHARS_MAX = 27
# The text of an offset id with an IPv6 host.
OFFSET_ID_CHARS_MAX = 56

_RECORD_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_CRC_MASK = cython.declare(cython.ulonglong, 0x7FFFFFFF)
_FIXED_BYTES = cython.declare(cython.int, 91)
_HEAD_BYTES = cython.declare(cython.int, 88)
_HEX = b"0123456789ABCDEF"
_CRC_BYTES_HERE = cython.declare(cython.int, 512)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_shift(flag: cython.uint, behind: cython.int) -> cython.Py_ssize_t:
    """How much further back a field lies than with two IPv4 hosts: behind no host, one, or both."""
    shift: cython.Py_ssize_t = 0
    if behind > 0 and flag & 0x10:
        shift += 12
    if behind > 1 and flag & 0x20:
        shift += 12
    return shift


# -- where things are --------------------------------------------------------------------------------------------------


def find_records(
    buffer: Any,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base: cython.longlong,
    spans: cython.longlong[::1],
    count_max: cython.longlong,
    topics: Any = None,
) -> tuple[int, int]:
    """Note the spans of up to `count_max` records from `at` on; gives how many, and where the first bytes lie that are
    none or were left.

    `base` is the position of the buffer's first byte in the log, which each record must agree with; -1 for records that
    came over the wire. With `topics` (a set of bytes) only their records are noted. CRCs are not looked at, nor whether
    a power loss cut a record short: a record of the log that ends with a zero, or has one at the begin of a sector
    behind its body, ends the walk, and its caller looks more closely.
    """
    if len(buffer) == 0:
        return 0, at
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    if end > len(view):
        end = len(view)
    count: cython.longlong = 0
    noted: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    sector: cython.Py_ssize_t
    filtered: cython.bint = topics is not None
    last_at: cython.Py_ssize_t = -1
    last_size: cython.Py_ssize_t = -1
    wanted: cython.bint = True
    while count < count_max and end - at >= _FIXED_BYTES:
        size = read_u32(p, at)
        if read_u32(p, at + 4) != _RECORD_MAGIC or size > end - at or size < _FIXED_BYTES:
            break
        if base >= 0 and read_i64(p, at + 28) != base + at:
            break
        body_at = at + _HEAD_BYTES + _find_shift(read_u32(p, at + 36), 2)
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
        if base >= 0:
            # The last letter: of the properties, or of the topic when there are none.
            if p[at + size - 1 if topic_end + 2 < at + size else topic_end - 1] == 0:
                break
            sector = (body_end + 512) // 512 * 512
            while sector + 512 <= at + size and p[sector] != 0:
                sector += 512
            if sector + 512 <= at + size:
                break
        if filtered and (last_size != topic_end - body_end - 1 or not equals(p, body_end + 1, p, last_at, last_size)):
            # Neighbours are often of one topic.
            last_at, last_size = body_end + 1, topic_end - body_end - 1
            wanted = bytes(view[body_end + 1 : topic_end]) in topics
        if wanted:
            spans[noted] = at
            spans[noted + 1] = body_at
            spans[noted + 2] = body_end
            spans[noted + 3] = topic_end + 2
            spans[noted + 4] = at + size
            noted += 5
            count += 1
        at += size
    return count, at


# -- numbers -----------------------------------------------------------------------------------------------------------


def take_int32(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    where: cython.Py_ssize_t,
    behind: cython.int,
    out: cython.int[::1],
) -> None:
    """Fill a column of 4 bytes: `where` it lies with IPv4 hosts, and behind how many hosts."""
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    for row in range(count):
        at = spans[row * 5]
        out[row] = cython.cast(cython.int, read_i32(p, at + where + _find_shift(read_u32(p, at + 36), behind)))


def take_int64(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    where: cython.Py_ssize_t,
    behind: cython.int,
    out: cython.longlong[::1],
) -> None:
    """Fill a column of 8 bytes."""
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
    else:
        p = view
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    for row in range(count):
        at = spans[row * 5]
        out[row] = read_i64(p, at + where + _find_shift(read_u32(p, at + 36), behind))


def _make_crc_tables() -> array[int]:
    """What each byte does to a CRC-32, one to sixteen bytes before its end: sixteen tables of 256."""
    tables = array("I", bytes(16 * 256 * 4))
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        tables[byte] = crc
    for at in range(256, 16 * 256):
        tables[at] = tables[tables[at - 256] & 255] ^ (tables[at - 256] >> 8)
    return tables


_CRC_TABLES: array[int] = _make_crc_tables()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fold(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, crc: cython.uint, t: cython.p_const_uint, before: cython.Py_ssize_t
) -> cython.uint:
    """What eight bytes do to a CRC, by the tables for as many bytes before the end of those that are summed at once."""
    low: cython.uint = crc ^ _read_back(p, at)
    high: cython.uint = _read_back(p, at + 4)
    return (
        t[before + 1792 + (low & 255)]
        ^ t[before + 1536 + ((low >> 8) & 255)]
        ^ t[before + 1280 + ((low >> 16) & 255)]
        ^ t[before + 1024 + (low >> 24)]
        ^ t[before + 768 + (high & 255)]
        ^ t[before + 512 + ((high >> 8) & 255)]
        ^ t[before + 256 + ((high >> 16) & 255)]
        ^ t[before + (high >> 24)]
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_back(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.uint:
    """Four bytes, the first one the lowest."""
    return (
        cython.cast(cython.uint, p[at])
        | (cython.cast(cython.uint, p[at + 1]) << 8)
        | (cython.cast(cython.uint, p[at + 2]) << 16)
        | (cython.cast(cython.uint, p[at + 3]) << 24)
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _sum_crc(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, t: cython.p_const_uint
) -> cython.uint:
    """The CRC-32 of some bytes, sixteen at a time: half of them do not wait for what came before."""
    crc: cython.uint = 0xFFFFFFFF
    while end - at >= 16:
        crc = _fold(p, at, crc, t, 2048) ^ _fold(p, at + 8, 0, t, 0)
        at += 16
    if end - at >= 8:
        crc = _fold(p, at, crc, t, 0)
        at += 8
    while at < end:
        crc = t[(crc ^ p[at]) & 255] ^ (crc >> 8)
        at += 1
    return crc ^ 0xFFFFFFFF


def check_crcs(buffer: Any, spans: cython.longlong[::1], count: cython.Py_ssize_t, out: cython.uchar[::1]) -> int:
    """Fill a column with 1 where the CRC of the body is right, and 0 where not; gives how many are wrong."""
    view: cython.const[cython.uchar][::1] = buffer
    tables: cython.const[cython.uint][::1] = _CRC_TABLES
    p: cython.p_const_uchar
    t: cython.p_const_uint
    if cython.compiled:
        p = cython.address(view[0])
        t = cython.address(tables[0])
    else:
        p = view
        t = tables
    whole = memoryview(buffer)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    found: cython.ulonglong
    wrong: cython.Py_ssize_t = 0
    for row in range(count):
        at, end = spans[row * 5 + 1], spans[row * 5 + 2]
        # Measured: a call of zlib's costs as much as some hundred bytes do here, and then it is the faster one.
        if end - at < _CRC_BYTES_HERE:
            found = _sum_crc(p, at, end, t)
        else:
            found = crc32(whole[at:end])
        found &= _CRC_MASK
        # A record without body has whatever CRC its writer left there.
        out[row] = found == read_u32(p, spans[row * 5] + 8) or at == end
        wrong += 1 - out[row]
    return wrong


# -- bytes and text ----------------------------------------------------------------------------------------------------


def take_bytes(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    begins: cython.Py_ssize_t,
    skip: cython.Py_ssize_t,
    ends: cython.Py_ssize_t,
    cut: cython.Py_ssize_t,
    offsets: cython.int[::1],
    data: cython.uchar[::1],
) -> int:
    """Fill a column with the bytes from one number of the spans (plus `skip`) to another (minus `cut`).

    Gives how many bytes it has.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    q: cython.p_uchar
    if cython.compiled:
        p = cython.address(view[0])
        q = cython.address(data[0])
    else:
        p = view
        q = data
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = cython.cast(cython.int, to)
        at = spans[row * 5 + begins] + skip
        to = copy(q, to, p, at, spans[row * 5 + ends] - cut - at)
    offsets[count] = cython.cast(cython.int, to)
    return to


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_number(q: cython.p_uchar, to: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    """Write a number in decimal; gives where the next character goes."""
    divisor: cython.longlong = 1
    if number < 0:
        q[to] = 45
        to += 1
        number = -number
    while number // divisor >= 10:
        divisor *= 10
    while divisor > 0:
        q[to] = 48 + number // divisor % 10
        to += 1
        divisor //= 10
    return to


def take_hosts(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    stored: cython.bint,
    offsets: cython.int[::1],
    data: cython.uchar[::1],
) -> int:
    """Fill a column with the hosts of senders, or of brokers if `stored`, as address:port.

    Gives how many bytes it has, or -1 when there is an IPv6 host: then it is for the caller to write them.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar
    q: cython.p_uchar
    if cython.compiled:
        p = cython.address(view[0])
        q = cython.address(data[0])
    else:
        p = view
        q = data
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    part: cython.Py_ssize_t
    flag: cython.uint
    to: cython.Py_ssize_t = 0
    last_at: cython.Py_ssize_t = -1
    last_to: cython.Py_ssize_t = 0
    last_size: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = cython.cast(cython.int, to)
        at = spans[row * 5]
        flag = read_u32(p, at + 36)
        if flag & (0x20 if stored else 0x10):
            return -1
        at += 64 + _find_shift(flag, 1) if stored else 48
        if last_at >= 0 and equals(p, at, p, last_at, 8):
            # Neighbours often have one sender, and nearly always one broker.
            to = copy(q, to, q, last_to, last_size)
            continue
        last_at, last_to = at, to
        for part in range(4):
            to = _put_number(q, to, p[at + part])
            q[to] = 46 if part < 3 else 58
            to += 1
        to = _put_number(q, to, read_i32(p, at + 4))
        last_size = to - last_to
    offsets[count] = cython.cast(cython.int, to)
    return to


def take_offset_ids(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    offsets: cython.int[::1],
    data: cython.uchar[::1],
) -> int:
    """Fill a column with the offset ids: store host and position in hexadecimal. Gives how many bytes it has."""
    view: cython.const[cython.uchar][::1] = buffer
    digits_view: cython.const[cython.uchar][::1] = _HEX
    p: cython.p_const_uchar
    q: cython.p_uchar
    digits: cython.p_const_uchar
    if cython.compiled:
        p = cython.address(view[0])
        q = cython.address(data[0])
        digits = cython.address(digits_view[0])
    else:
        p = view
        q = data
        digits = digits_view
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    host_at: cython.Py_ssize_t
    part: cython.Py_ssize_t
    flag: cython.uint
    host_bytes: cython.Py_ssize_t
    byte: cython.uchar
    to: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = cython.cast(cython.int, to)
        at = spans[row * 5]
        flag = read_u32(p, at + 36)
        host_at = at + 64 + _find_shift(flag, 1)
        host_bytes = 20 if flag & 0x20 else 8
        for part in range(host_bytes + 8):
            byte = p[host_at + part] if part < host_bytes else p[at + 28 + part - host_bytes]
            q[to] = digits[byte >> 4]
            q[to + 1] = digits[byte & 15]
            to += 2
    offsets[count] = cython.cast(cython.int, to)
    return to
