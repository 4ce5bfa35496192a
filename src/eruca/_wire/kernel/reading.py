"""Reading records: skipping runs of them, the fields dispatch needs, and messages for consumers.

A record is valid when `find_parts` accepts it, its CRC is right (where it is checked), and, in the log, its position
is the one it claims.
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
    from eruca._wire.kernel.memory import read_i32, read_i64, read_u32, take
    from eruca._wire.kernel.record import (
        BODY,
        BODY_END,
        BORN_HOST_AT,
        BORN_HOST_V6,
        BORN_TIME_AT,
        CRC_AT,
        CRC_MASK,
        END,
        FLAG_AT,
        POSITION_AT,
        PREPARED_BEFORE,
        PROPERTIES,
        QUEUE_ID_AT,
        QUEUE_OFFSET_AT,
        RECONSUME_BEFORE,
        SYS_FLAG_AT,
        VALID,
        WRONG_CRC,
        WRONG_POSITION,
        WRONG_TOPIC,
        find_parts,
        may_be_cut,
        read_store_time,
    )
    from eruca._wire.kernel.views import open_to_read

compiled: bool = cython.compiled

_COPY_BYTES_MAX = cython.declare(cython.int, 2048)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _has_wrong_crc(p: cython.p_const_uchar, whole: Any, parts: cython.p_longlong) -> cython.int:
    """Does the body of a record not match its CRC? An empty body is not checked, as in Java."""
    at: cython.Py_ssize_t = parts[BODY]
    end: cython.Py_ssize_t = parts[BODY_END]
    if at == end:
        return 0
    # Copying a short body costs less than a view of it.
    body = take(p, at, end) if end - at <= _COPY_BYTES_MAX else memoryview(whole)[at:end]
    crc: cython.ulonglong = crc32(body)
    return (crc & CRC_MASK) != read_u32(p, parts[0] + CRC_AT)


# --- one record -------------------------------------------------------------------------------------------------------


def inspect_record(
    buffer: Any,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    check_crc: cython.bint,
    position: cython.longlong,
    anywhere: cython.bint,
    make: Any,
) -> Any:
    """Call `make` with the arguments of `record.RecordView` for the record at `at`, or return why there is none.

    The record must claim to be at `position`, or anywhere with `anywhere`.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    problem: cython.int = find_parts(p, at, min(end, len(view)), parts)
    if problem != VALID:
        return problem
    if not anywhere and read_i64(p, at + POSITION_AT) != position:
        return WRONG_POSITION
    if check_crc and _has_wrong_crc(p, buffer, parts):
        return WRONG_CRC
    return make(
        parts[END] - at,
        take(p, parts[BODY_END] + 1, parts[PROPERTIES] - 2),
        read_i32(p, at + QUEUE_ID_AT),
        read_i64(p, at + QUEUE_OFFSET_AT),
        read_i64(p, at + POSITION_AT),
        read_i32(p, at + SYS_FLAG_AT),
        read_store_time(p, at),
        read_i64(p, parts[BODY] - PREPARED_BEFORE),
        parts[BODY],
        parts[BODY_END],
        parts[PROPERTIES],
        parts[END],
    )


# --- runs of the log --------------------------------------------------------------------------------------------------


def skip_records(
    buffer: Any, at: cython.Py_ssize_t, end: cython.Py_ssize_t, base: cython.longlong, check_crc: cython.bint
) -> tuple[int, int, int, int]:
    """Walk valid records from `at`; returns where they end, how many were passed, and the store times of the first and
    the last one.

    `base` is the position of the buffer's first byte. A record whose end may have been lost ends the walk as well.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    end = min(end, len(view))
    count: cython.longlong = 0
    first_time: cython.longlong = 0
    last_time: cython.longlong = 0
    while find_parts(p, at, end, parts) == VALID:
        if read_i64(p, at + POSITION_AT) != base + at or may_be_cut(p, parts):
            break
        if check_crc and _has_wrong_crc(p, buffer, parts):
            break
        last_time = read_store_time(p, at)
        if count == 0:
            first_time = last_time
        count += 1
        at = parts[END]
    return at, count, first_time, last_time


def read_records(
    buffer: Any,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base: cython.longlong,
    count_max: cython.longlong,
    trust: cython.bint = False,
) -> list[tuple[int, int, bytes, int, int, int, int, bytes]]:
    """Read the fields dispatch needs from up to `count_max` valid records from `at` on, without checking their CRCs.

    Each is (position, size, topic, queue id, queue offset, sysFlag, store time, properties). A record whose end may
    have been lost ends the run, unless the caller trusts it.
    """
    view: cython.const[cython.uchar][::1] = buffer
    p: cython.p_const_uchar = open_to_read(view)
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    end = min(end, len(view))
    found: list[tuple[int, int, bytes, int, int, int, int, bytes]] = []
    while len(found) < count_max and find_parts(p, at, end, parts) == VALID:
        if read_i64(p, at + POSITION_AT) != base + at or (not trust and may_be_cut(p, parts)):
            break
        found.append(
            (
                base + at,
                parts[END] - at,
                take(p, parts[BODY_END] + 1, parts[PROPERTIES] - 2),
                read_i32(p, at + QUEUE_ID_AT),
                read_i64(p, at + QUEUE_OFFSET_AT),
                read_i32(p, at + SYS_FLAG_AT),
                read_store_time(p, at),
                take(p, parts[PROPERTIES], parts[END]),
            )
        )
        at = parts[END]
    return found


# --- messages ---------------------------------------------------------------------------------------------------------


def decode_records(
    data: Any, at: cython.Py_ssize_t, make: Any, check_crc: cython.bint, count_max: cython.longlong
) -> tuple[list[Any], int, int]:
    """Decode up to `count_max` consecutive records from `at` on.

    Returns the results of `make`, called with the arguments of `record.Record` for each, the place of the first bytes
    not decoded, and what is wrong with them: VALID if nothing is.
    """
    view: cython.const[cython.uchar][::1] = data
    p: cython.p_const_uchar = open_to_read(view)
    parts: cython.longlong[5] = [0, 0, 0, 0, 0]
    end: cython.Py_ssize_t = len(view)
    found: list[Any] = []
    count: cython.longlong = 0
    body_at: cython.Py_ssize_t
    born_end: cython.Py_ssize_t
    problem: cython.int = VALID
    raw_topic: bytes = b""
    topic: str = ""
    while at < end and count < count_max:
        problem = find_parts(p, at, end, parts)
        if problem == VALID and check_crc and _has_wrong_crc(p, data, parts):
            problem = WRONG_CRC
        if problem != VALID:
            break
        name = take(p, parts[BODY_END] + 1, parts[PROPERTIES] - 2)
        if name != raw_topic:
            try:
                topic = name.decode()
            except UnicodeDecodeError:
                problem = WRONG_TOPIC
                break
            raw_topic = name
        body_at = parts[BODY]
        born_end = at + BORN_HOST_AT + (20 if read_u32(p, at + SYS_FLAG_AT) & BORN_HOST_V6 else 8)
        found.append(
            make(
                topic,
                read_i32(p, at + QUEUE_ID_AT),
                read_i32(p, at + FLAG_AT),
                take(p, body_at, parts[BODY_END]),
                take(p, parts[PROPERTIES], parts[END]),
                read_i32(p, at + SYS_FLAG_AT),
                read_i64(p, at + BORN_TIME_AT),
                take(p, at + BORN_HOST_AT, born_end),
                read_i64(p, born_end),
                take(p, born_end + 8, body_at - RECONSUME_BEFORE),
                read_i32(p, body_at - RECONSUME_BEFORE),
                read_i64(p, body_at - PREPARED_BEFORE),
                read_i64(p, at + QUEUE_OFFSET_AT),
                read_i64(p, at + POSITION_AT),
                read_u32(p, at + CRC_AT),
                parts[END] - at,
            )
        )
        count += 1
        at = parts[END]
    return found, at, problem
