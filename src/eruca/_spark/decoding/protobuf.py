"""Protobuf bodies: converts a message of a schema file to a Spark type, and decodes bodies with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca._schemas.bodies import Decode, require
from eruca._schemas.protobuf import find_name, find_type, load_descriptors, make_parser
from eruca.errors import ConfigError

Read = Callable[[Any], Any]

# By the number of the type in a descriptor.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_SCALARS: Final[dict[int, DataType]] = {
    _DOUBLE: DoubleType(),
    _FLOAT: FloatType(),
    _BOOL: BooleanType(),
    _STRING: StringType(),
    _BYTES: BinaryType(),
    **dict.fromkeys((_INT32, _SINT32, _SFIXED32), IntegerType()),
    **dict.fromkeys((_INT64, _SINT64, _SFIXED64, _UINT32, _FIXED32), LongType()),
    # Spark has no unsigned 64-bit integer.
    **dict.fromkeys((_UINT64, _FIXED64), DecimalType(20, 0)),
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
# These types contain themselves; they become JSON.
_FREE: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


@dataclass(frozen=True)
class ProtobufSchema:
    """A message type: descriptor files, and the name of the message in them."""

    descriptors: bytes
    message: str
    refuse_unknown: bool

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return _read_message(find_type(self.descriptors, self.message), ())[0]

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        parse = make_parser(self.descriptors, self.message, refuse_unknown=self.refuse_unknown)
        _, read = _read_message(find_type(self.descriptors, self.message), ())
        return lambda body: read(parse(body))


# -- schema files ------------------------------------------------------------------------------------------------------


def load_protobuf(schema_file: str | Path, message: str, refuse_unknown: bool) -> ProtobufSchema:
    """Read a schema file and find a message in it. Raises ConfigError."""
    require("protobuf", "decode_protobuf", "decoding", module="google.protobuf")
    return choose_message(load_descriptors(Path(schema_file)), message, refuse_unknown, str(schema_file))


def choose_message(content: bytes, message: str, refuse_unknown: bool, where: str) -> ProtobufSchema:
    """Find a message in descriptors; without a name, the only one of the last file. Raises ConfigError."""
    schema = ProtobufSchema(content, find_name(content, message, where), refuse_unknown)
    _ = schema.spark  # fails here rather than in a task
    return schema


# -- types and their readers -------------------------------------------------------------------------------------------


def _read_message(descriptor: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of a message, and a function that reads its value; `around` are the enclosing messages."""
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return TimestampType(), lambda it: it.seconds * 1_000_000 + it.nanos // 1000
    if name == "google.protobuf.Duration":
        return DayTimeIntervalType(), lambda it: it.seconds * 1_000_000 + int(it.nanos / 1000)
    if name in _WRAPPERS:
        return _SCALARS[descriptor.fields_by_name["value"].type], lambda it: it.value
    if name in _FREE:
        from google.protobuf.json_format import MessageToJson

        return StringType(), lambda it: MessageToJson(it, indent=None, ensure_ascii=False)
    if name in around:
        raise ConfigError(f"Protobuf message {name} contains itself", hint="Spark has no type for it")
    if not descriptor.fields:
        raise ConfigError(f"Protobuf message {name} has no fields", hint="Spark has no type for it")
    fields = [(field.name, *_read_field(field, (*around, name))) for field in descriptor.fields]
    kind = StructType([StructField(field, spark) for field, spark, _ in fields])
    readers = [(field, read) for field, _, read in fields]
    return kind, lambda it: {field: read(it) for field, read in readers}


def _read_field(field: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of a field, and a function that reads it from its message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, _ = _read_value(field.message_type.fields_by_name["key"], around)
        kind, read = _read_value(field.message_type.fields_by_name["value"], around)
        return MapType(key, kind), lambda it: [(key, read(value)) for key, value in getattr(it, name).items()]
    kind, read = _read_value(field, around)
    if _is_repeated(field):
        return ArrayType(kind), lambda it: [read(value) for value in getattr(it, name)]
    if field.has_presence:
        return kind, lambda it: read(getattr(it, name)) if it.HasField(name) else None
    return kind, lambda it: read(getattr(it, name))


def _read_value(field: Any, around: tuple[str, ...]) -> tuple[DataType, Read]:
    """Return the Spark type of one value of a field, and a function that reads it."""
    if field.type in (_MESSAGE, _GROUP):
        return _read_message(field.message_type, around)
    if field.type == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # The number of an enum value from a newer schema is better than nothing.
        return StringType(), lambda number: names.get(number) or str(number)
    return _SCALARS[field.type], lambda value: value


def _is_repeated(field: Any) -> bool:
    # The newer name first: in newer versions the older one warns.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
