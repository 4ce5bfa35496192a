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
else:
    from eruca._wire.kernel.memory import format_hex, format_two, format_two_u32

compiled: bool = cython.compiled


def encode_offset_id(store_host: bytes, position: cython.longlong) -> str:
    """Encode the offset id of the record at `position` on the broker `store_host` (packed)."""
    return format_hex(store_host, position)


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
    ids: bytes = message_ids.encode()
    first: bytes = format_two(b'{"code":', code, b',"extFields":{"queueId":"', queue_id, b"")
    rest: bytes = format_two(
        b'","queueOffset":"',
        queue_offset,
        b'"},"flag":1,"language":"PYTHON","opaque":',
        opaque,
        b',"serializeTypeCurrentRPC":"JSON","version":407}',
    )
    size: cython.uint = len(first) + len(told_to_all) + len(ids) + len(rest)
    return b"".join((format_two_u32(size + 4, size), first, told_to_all, ids, rest))
