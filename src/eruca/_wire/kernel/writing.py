"""Writing one record, whose layout is drawn in `wire.record`."""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from eruca.errors import WireError

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
    from cython.cimports.eruca._wire.kernel.views import *
else:
    from eruca._wire.kernel.memory import copy
    from eruca._wire.kernel.record import (
        BORN_HOST_V6,
        FIXED_BYTES,
        PROPERTIES_BYTES_MAX,
        STORE_HOST_V6,
        TOPIC_BYTES_MAX,
        V4_HOST_BYTES,
        V6_HOST_BYTES,
        find_shift,
        write_head,
    )
    from eruca._wire.kernel.views import open_to_write

compiled: bool = cython.compiled


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
    """Write one record into a buffer; raises WireError for hosts of the wrong kind, ValueError if it does not fit."""
    view: cython.uchar[::1] = buffer
    q: cython.p_uchar = open_to_write(view)
    body_size: cython.Py_ssize_t = len(body)
    topic_size: cython.Py_ssize_t = len(topic)
    properties_size: cython.Py_ssize_t = len(properties)
    born_size: cython.Py_ssize_t = V6_HOST_BYTES if sys_flag & BORN_HOST_V6 else V4_HOST_BYTES
    store_size: cython.Py_ssize_t = V6_HOST_BYTES if sys_flag & STORE_HOST_V6 else V4_HOST_BYTES
    # Without these checks, bytes could be written outside the buffer.
    if len(born_host) != born_size or len(store_host) != store_size:
        raise WireError(
            f"sysFlag {sys_flag} requires hosts of {born_size} and {store_size} bytes, "
            f"not {len(born_host)} and {len(store_host)}"
        )
    if size != FIXED_BYTES + find_shift(sys_flag) + body_size + topic_size + properties_size:
        raise ValueError(f"the parts do not make a record of {size} bytes")
    if topic_size > TOPIC_BYTES_MAX or properties_size > PROPERTIES_BYTES_MAX:
        raise ValueError(f"topic of {topic_size} bytes or properties of {properties_size} do not fit in a record")
    if at < 0 or size > len(view) - at:
        raise ValueError(f"a record of {size} bytes at {at} does not fit in {len(view)} bytes")
    crc: cython.ulonglong = crc32(body)
    at = write_head(
        q,
        at,
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        position,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_position,
        body_size,
    )
    at = copy(q, at, body, 0, body_size)
    q[at] = topic_size
    at = copy(q, at + 1, topic, 0, topic_size)
    q[at] = properties_size >> 8
    q[at + 1] = properties_size & 0xFF
    copy(q, at + 2, properties, 0, properties_size)
