"""The answer to a send, the most frequent answer of a broker.

The readable reference is `wire.frame.encode_command`, which encodes any command.
"""

# mypy: disable-error-code="untyped-decorator, attr-defined, name-defined, valid-type, no-any-return"
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Cython reads this branch
    import cython
else:
    from eruca._wire.kernel import nocython as cython

if cython.compiled:
    from cython.cimports.eruca._wire.kernel.memory import *
    from cython.cimports.eruca._wire.kernel.record import *
else:
    from eruca._wire.kernel.memory import format_number, format_u32, take, write_hex, write_i64
    from eruca._wire.kernel.record import V6_HOST_BYTES

compiled: bool = cython.compiled


def encode_offset_id(store_host: bytes, position: cython.longlong) -> str:
    """Encode the offset id of the record at `position` on the broker `store_host` (packed)."""
    if len(store_host) > V6_HOST_BYTES:
        raise ValueError(f"a packed host has at most {V6_HOST_BYTES} bytes, not {len(store_host)}")
    if cython.compiled:
        number: cython.uchar[8]
        text: cython.uchar[56]
    else:
        number = bytearray(8)
        text = bytearray(56)
    write_i64(number, 0, position)
    end: cython.Py_ssize_t = write_hex(text, 0, store_host, 0, len(store_host))
    return take(text, 0, write_hex(text, end, number, 0, 8)).decode("ascii")


def encode_stored(
    code: cython.int,
    queue_id: cython.int,
    told_to_all: bytes,
    message_ids: str,
    queue_offset: cython.longlong,
    opaque: cython.int,
) -> bytes:
    """The answer to a send as a frame with a JSON header, in the field order of Java's map.

    `told_to_all` is the part of all answers between queue and message id: region, and whether traces are enabled.
    """
    header: bytes = b"".join(
        (
            b'{"code":',
            format_number(code),
            b',"extFields":{"queueId":"',
            format_number(queue_id),
            told_to_all,
            message_ids.encode(),
            b'","queueOffset":"',
            format_number(queue_offset),
            b'"},"flag":1,"language":"PYTHON","opaque":',
            format_number(opaque),
            b',"serializeTypeCurrentRPC":"JSON","version":407}',
        )
    )
    size: cython.uint = len(header)
    return b"".join((format_u32(size + 4), format_u32(size), header))
