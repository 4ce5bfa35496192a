"""Avro bodies: converts a schema file to a Spark type, and decodes bodies with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eruca._schemas.avro import join, load_file, make_decoder, make_framed_decoder, strip
from eruca._schemas.bodies import BadBody, Decode, require
from eruca._schemas.registry import SchemaRegistry, SchemaSource, open_source
from eruca.errors import ConfigError

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
# Either is read as the wider type.
_WIDENED: Final = (({"int", "long"}, "long"), ({"float", "double"}, "double"))


@dataclass(frozen=True)
class AvroSchema:
    """The schema that bodies were written with, and the reader schema; both as JSON."""

    written: str
    read: str | None

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return _to_spark(json.loads(self.read or self.written), {}, ())

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        return make_decoder(self.written, self.read)


@dataclass(frozen=True)
class FramedAvro:
    """Bodies that name the schema they were written with by its id; all are read with one schema."""

    source: SchemaSource
    read: str

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return _to_spark(json.loads(self.read), {}, ())

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        return make_framed_decoder(self.source, self.read)


# -- schemas of a registry ---------------------------------------------------------------------------------------------


def load_framed(registry: SchemaRegistry, reader_schema_file: str | Path | None, subject: str) -> FramedAvro:
    """Return the schema of bodies with the frame of a registry. Raises ConfigError, or NetError without an answer."""
    require("fastavro", "decode_avro", "decoding")
    if (reader_schema_file is None) == (not subject):
        raise ConfigError(
            "with a registry, decode_avro needs one schema to read all bodies with",
            hint='reader_schema_file="order.avsc", or subject="orders-value" for its newest schema as it is now',
        )
    source = open_source(registry)
    if reader_schema_file is not None:
        read = load_file(reader_schema_file)
    else:
        try:
            read = json.dumps(strip(join(source.open().find_latest(subject))))
        except BadBody as error:
            raise ConfigError(f"the newest schema of {subject} cannot be used: {error}") from None
    schema = FramedAvro(source, read)
    _ = schema.spark  # fails here rather than in a task
    return schema


# -- schema files ------------------------------------------------------------------------------------------------------


def load_avro(schema_file: str | Path, reader_schema_file: str | Path | None) -> AvroSchema:
    """Read schema files. Raises ConfigError if a file cannot be read, or if a schema has no Spark type."""
    require("fastavro", "decode_avro", "decoding")
    schema = AvroSchema(load_file(schema_file), None if reader_schema_file is None else load_file(reader_schema_file))
    _ = schema.spark  # fails here rather than in a task
    return schema


def _to_spark(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> DataType:
    """Return the Spark type of a schema; `named` are the types seen so far, `around` the enclosing records."""
    if isinstance(schema, list):
        return _to_spark_union(schema, named, around)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema in around:
            raise ConfigError(f"Avro record {schema} contains itself", hint="give a reader schema without that field")
        if schema in named:
            return _to_spark(named[schema], named, around)
        raise ConfigError(f"Avro type {schema} has no Spark type")
    kind = schema["type"]
    if "name" in schema and isinstance(kind, str):
        named[schema["name"]] = schema
    if "logicalType" in schema:
        if schema["logicalType"] == "decimal":
            return DecimalType(schema["precision"], schema.get("scale", 0))
        return _LOGICAL[schema["logicalType"]]
    if kind in ("record", "error"):
        if schema["name"] in around:
            raise ConfigError(f"Avro record {schema['name']} contains itself")
        if not schema["fields"]:
            raise ConfigError(f"Avro record {schema['name']} has no fields", hint="Spark has no type for it")
        around = (*around, schema["name"])
        return StructType(
            [StructField(field["name"], _to_spark(field["type"], named, around)) for field in schema["fields"]]
        )
    if kind == "array":
        return ArrayType(_to_spark(schema["items"], named, around))
    if kind == "map":
        return MapType(StringType(), _to_spark(schema["values"], named, around))
    if kind == "enum":
        return StringType()
    if kind == "fixed":
        if not schema["size"]:
            # An array of them takes no bytes, whatever its length.
            raise ConfigError(f"Avro type {schema['name']} has no bytes")
        return BinaryType()
    return _to_spark(kind, named, around)


def _to_spark_union(schema: list[Any], named: dict[str, Any], around: tuple[str, ...]) -> DataType:
    branches = [branch for branch in schema if branch != "null"]
    if len(branches) == 1:
        return _to_spark(branches[0], named, around)
    plain = {branch for branch in branches if isinstance(branch, str)}
    for narrow, wide in _WIDENED:
        if len(plain) == len(branches) and plain == narrow:
            return _PRIMITIVES[wide]
    raise ConfigError(
        f"an Avro union of {' and '.join(_name(branch) for branch in schema)} has no Spark type",
        hint="give a reader schema with one of them",
    )


def _name(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))
