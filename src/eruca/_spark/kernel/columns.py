"""Records to columns: from bytes to the buffers of an Arrow batch.

Every function fills buffers that its caller made large enough; `spark.parsing` knows how large they must be and turns
them into columns. `find_records` runs first: it records where the parts of each record are, as five numbers per record.
All other functions use these spans.

    | record begins | body begins | body ends | properties begin | record ends |

The module `properties` reads the properties.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from array import array
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
    from eruca._wire.kernel.memory import copy, equals, read_i32, read_i64, read_u32, take, write_hex, write_number
    from eruca._wire.kernel.record import (
        BODY,
        BODY_END,
        BORN_HOST_AT,
        BORN_HOST_V6,
        CRC_AT,
        CRC_MASK,
        END,
        PARTS,
        POSITION_AT,
        PROPERTIES,
        STORE_HOST_AT,
        STORE_HOST_V6,
        SYS_FLAG_AT,
        V4_HOST_BYTES,
        V6_HOST_BYTES,
        VALID,
        find_parts,
        find_shift,
        may_be_cut,
    )
    from eruca._wire.kernel.views import open_to_read, open_to_write

compiled: bool = cython.compiled

# The number of positions per record, as `find_parts` returns them.
SPAN: int = PARTS
# The longest text of an IPv4 host: 255.255.255.255:-2147483648
HOST_CHARS_MAX = 27
# The text of an offset id with an IPv6 host.
OFFSET_ID_CHARS_MAX = 56

# In plain Python, zlib computes all sums.
_CRC_BYTES_HERE = cython.declare(cython.int, 512 if cython.compiled else 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find_shift(flag: cython.uint, behind: cython.int) -> cython.Py_ssize_t:
    """Return how many bytes later a field is than with two IPv4 hosts: after no host, one, or both."""
    if behind == 0:
        return 0
    return find_shift(flag if behind > 1 else flag & BORN_HOST_V6)


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
    """Find the spans of at most `count_max` records from `at` on; return their number, and where it stopped.

    `base` is the position of the buffer's first byte in the log, which each record must match; -1 for records from the
    network. With `topics` (a set of bytes) only records of these topics are returned. CRCs are not checked, nor whether
    a power loss cut a record short: a record of the log that ends with a zero, or has a zero at the start of a sector
    after its body, ends the walk, and the caller checks it more closely.
    """
    if len(buffer) == 0:
        return 0, at
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    end = min(end, len(view))
    count: cython.longlong = 0
    noted: cython.Py_ssize_t = 0
    filtered: cython.bint = topics is not None
    topic_at: cython.Py_ssize_t
    topic_size: cython.Py_ssize_t
    last_at: cython.Py_ssize_t = -1
    last_size: cython.Py_ssize_t = -1
    wanted: cython.bint = True
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    while count < count_max and find_parts(p, at, end, parts) == VALID:
        if base >= 0 and (read_i64(p, at + POSITION_AT) != base + at or may_be_cut(p, parts)):
            break
        if filtered:
            topic_at = parts[BODY_END] + 1
            topic_size = parts[PROPERTIES] - 2 - topic_at
            # Neighbours often have the same topic.
            if last_size != topic_size or not equals(p, topic_at, p, last_at, last_size):
                last_at, last_size = topic_at, topic_size
                wanted = take(p, topic_at, topic_at + topic_size) in topics
        if wanted:
            spans[noted] = at
            spans[noted + 1] = parts[BODY]
            spans[noted + 2] = parts[BODY_END]
            spans[noted + 3] = parts[PROPERTIES]
            spans[noted + 4] = parts[END]
            noted += PARTS
            count += 1
        at = parts[END]
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
    """Fill a column of 4 bytes: `where` it is with IPv4 hosts, and after how many hosts."""
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    for row in range(count):
        at = spans[row * PARTS]
        out[row] = cython.cast(cython.int, read_i32(p, at + where + _find_shift(read_u32(p, at + SYS_FLAG_AT), behind)))


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
    p: cython.p_const_uchar = open_to_read(view)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    for row in range(count):
        at = spans[row * PARTS]
        out[row] = read_i64(p, at + where + _find_shift(read_u32(p, at + SYS_FLAG_AT), behind))


def _make_crc_tables() -> array[int]:
    """Return the effect of each byte on a CRC-32, one to sixteen bytes before its end: sixteen tables of 256."""
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
    """Return the effect of eight bytes on a CRC; the tables depend on how far they are from the end of the block."""
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
    """Return four bytes as a little-endian number."""
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
    """Return the CRC-32 of some bytes, sixteen at a time: half of them do not depend on the previous result."""
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
    """Fill a column with 1 where the CRC of the body is correct and 0 elsewhere; return how many are wrong."""
    view: cython.const[cython.uchar][::1] = buffer
    tables: cython.const[cython.uint][::1] = _CRC_TABLES
    p: cython.p_const_uchar = open_to_read(view)
    t: cython.p_const_uint = cython.address(tables[0]) if cython.compiled else tables
    whole = memoryview(buffer)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    found: cython.ulonglong
    wrong: cython.Py_ssize_t = 0
    for row in range(count):
        at, end = spans[row * PARTS + 1], spans[row * PARTS + 2]
        # Measured: a call to zlib costs as much as about a hundred bytes cost here; for longer bodies zlib is faster.
        if end - at < _CRC_BYTES_HERE:
            found = _sum_crc(p, at, end, t)
        else:
            found = crc32(whole[at:end])
        found &= CRC_MASK
        # A record without a body has any CRC that its writer left there.
        out[row] = found == read_u32(p, spans[row * PARTS] + CRC_AT) or at == end
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

    Return the number of bytes in the column.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    q: cython.p_uchar = open_to_write(data)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = to
        at = spans[row * PARTS + begins] + skip
        to = copy(q, to, p, at, spans[row * PARTS + ends] - cut - at)
    offsets[count] = to
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

    Return the number of bytes in the column, or -1 if there is an IPv6 host: the caller must write them then.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    q: cython.p_uchar = open_to_write(data)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    part: cython.Py_ssize_t
    flag: cython.uint
    to: cython.Py_ssize_t = 0
    last_at: cython.Py_ssize_t = -1
    last_to: cython.Py_ssize_t = 0
    last_size: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = to
        at = spans[row * PARTS]
        flag = read_u32(p, at + SYS_FLAG_AT)
        if flag & (STORE_HOST_V6 if stored else BORN_HOST_V6):
            return -1
        at += STORE_HOST_AT + _find_shift(flag, 1) if stored else BORN_HOST_AT
        if last_at >= 0 and equals(p, at, p, last_at, 8):
            # Neighbours often have the same sender, and nearly always the same broker.
            to = copy(q, to, q, last_to, last_size)
            continue
        last_at, last_to = at, to
        for part in range(4):
            to = write_number(q, to, p[at + part])
            q[to] = 46 if part < 3 else 58
            to += 1
        to = write_number(q, to, read_i32(p, at + 4))
        last_size = to - last_to
    offsets[count] = to
    return to


def take_offset_ids(
    buffer: Any,
    spans: cython.longlong[::1],
    count: cython.Py_ssize_t,
    offsets: cython.int[::1],
    data: cython.uchar[::1],
) -> int:
    """Fill a column with the offset ids: store host and position in hexadecimal. Return its number of bytes."""
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    q: cython.p_uchar = open_to_write(data)
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    host_at: cython.Py_ssize_t
    flag: cython.uint
    to: cython.Py_ssize_t = 0
    for row in range(count):
        offsets[row] = to
        at = spans[row * PARTS]
        flag = read_u32(p, at + SYS_FLAG_AT)
        host_at = at + STORE_HOST_AT + _find_shift(flag, 1)
        to = write_hex(q, to, p, host_at, V6_HOST_BYTES if flag & STORE_HOST_V6 else V4_HOST_BYTES)
        to = write_hex(q, to, p, at + POSITION_AT, 8)
    offsets[count] = to
    return to
