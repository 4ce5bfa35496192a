"""The frame of bodies whose schema is in a registry, as Confluent's serializers write it.

    0    1           5
    | 00 | schema id | Avro datum ...
    | 00 | schema id | message indexes | Protobuf message ...

The id is a big-endian number. Message indexes lead from the messages at the top of a Protobuf file to a nested one:
their count, then one index per level, each a zigzag varint. A single 0 stands for the first message of the file.
"""

from __future__ import annotations

from typing import Final

from eruca._ground.limits import MESSAGE_INDEXES_MAX
from eruca._schemas.bodies import BadBody

_MAGIC: Final = 0
_HEADER_BYTES: Final = 5
# Ids of registries are signed 32-bit numbers.
_ID_MAX: Final = 2**31 - 1
_VARINT_BYTES_MAX: Final = 5


def split_frame(body: bytes) -> tuple[int, int]:
    """Return the schema id of a body, and where the frame ends. Raises BadBody."""
    if len(body) < _HEADER_BYTES or body[0] != _MAGIC:
        raise BadBody("it has no frame of a schema registry: it does not begin with a zero byte and a schema id")
    schema_id = int.from_bytes(body[1:_HEADER_BYTES], "big")
    if schema_id > _ID_MAX:
        raise BadBody(f"it has no frame of a schema registry: {schema_id} is not a schema id")
    return schema_id, _HEADER_BYTES


def read_indexes(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes at a place of a body, and where they end. Raises BadBody."""
    count, at = _read_varint(body, at)
    if not 0 <= count <= MESSAGE_INDEXES_MAX:
        raise BadBody(f"it has no message indexes: {count} is not a count")
    if not count:
        return (0,), at
    indexes = []
    for _ in range(count):
        index, at = _read_varint(body, at)
        indexes.append(index)
    return tuple(indexes), at


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + number + 1
    raise BadBody("it has no message indexes: it ends too early, or a number is too long")
