"""Avro bodies: converts a schema file to a Spark type, and decodes bodies with it."""

from __future__ import annotations

import io
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

from eruca._spark.decoding.bodies import BadBody, Decode
from eruca._spark.decoding.framing import split_frame
from eruca._spark.decoding.registry import AVRO, Registered, SchemaCache, SchemaRegistry, SchemaSource
from eruca._spark.requirements import require
from eruca.errors import ConfigError

# The single-object encoding: a marker, the fingerprint of the schema, the datum.
#
#   0        2                       10
#   | C3 01  | CRC-64-AVRO, little   | datum ...
_MARK: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_WRONG: Final = "it does not match the Avro schema"

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
_DECIMAL_DIGITS_MAX: Final = 38
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
        import fastavro
        from fastavro.schema import fingerprint, to_parsing_canonical_form

        written = fastavro.parse_schema(json.loads(self.written))
        read = fastavro.parse_schema(json.loads(self.read)) if self.read is not None else None
        mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(self.written)), "CRC-64-AVRO"))

        def decode(body: bytes) -> Any:
            is_marked = body[:2] == _MARK and body[2:_HEADER_BYTES] == mark
            return _read_datum(body, _HEADER_BYTES if is_marked else 0, written, read)

        return decode


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
        import fastavro

        schemas = self.source.open()
        read = fastavro.parse_schema(json.loads(self.read))
        writers = SchemaCache(lambda schema_id: _parse_registered(schema_id, schemas.find(schema_id)))

        def decode(body: bytes) -> Any:
            schema_id, at = split_frame(body)
            return _read_datum(body, at, writers.get(schema_id), read)

        return decode


def _read_datum(body: bytes, at: int, written: Any, read: Any) -> Any:
    """Read the datum that begins at a place of a body and must end with it. Raises BadBody and what fastavro raises."""
    import fastavro

    stream = io.BytesIO(body)
    stream.seek(at)
    try:
        value = fastavro.schemaless_reader(stream, written, read)
    except EOFError as problem:
        raise BadBody(f"{_WRONG}: it ends too early. {problem}".removesuffix(". ")) from None
    except IndexError:
        raise BadBody(f"{_WRONG}: it ends too early, or refers to a union branch that does not exist") from None
    left = len(body) - stream.tell()
    if left:
        raise BadBody(f"{_WRONG}: {left} bytes are left over")
    return value


# -- schemas of a registry ---------------------------------------------------------------------------------------------


def load_framed(registry: SchemaRegistry, reader_schema_file: str | Path | None, subject: str) -> FramedAvro:
    """Return the schema of bodies with the frame of a registry. Raises ConfigError, or NetError without an answer."""
    require("fastavro", "decode_avro", "decoding")
    if (reader_schema_file is None) == (not subject):
        raise ConfigError(
            "with a registry, decode_avro needs one schema to read all bodies with",
            hint='reader_schema_file="order.avsc", or subject="orders-value" for its newest schema as it is now',
        )
    source = registry.open_source()
    if reader_schema_file is not None:
        read = load_file(reader_schema_file)
    else:
        try:
            read = json.dumps(_strip(_join(source.open().find_latest(subject))))
        except BadBody as error:
            raise ConfigError(f"the newest schema of {subject} cannot be used: {error}") from None
    schema = FramedAvro(source, read)
    _ = schema.spark  # fails here rather than in a task
    return schema


def _parse_registered(schema_id: int, registered: Registered) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(_join(registered))
    except BadBody as error:
        raise BadBody(f"schema {schema_id} cannot be used: {error}") from None


def _join(registered: Registered) -> Any:
    """Return a schema that contains the schemas it refers to. Raises BadBody."""
    named: dict[str, Any] = {}
    try:
        return _inline(_parse_all(registered, named), named, set())
    except RecursionError:
        raise BadBody("it is nested too deeply") from None


def _parse_all(registered: Registered, named: dict[str, Any]) -> Any:
    """Parse a schema after those it refers to; `named` collects all types by full name."""
    import fastavro

    if registered.kind != AVRO:
        raise BadBody(f"it is {registered.kind}, not {AVRO}")
    for _, each in registered.references:
        _parse_all(each, named)
    try:
        return fastavro.parse_schema(json.loads(registered.text), named_schemas=named)
    except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise BadBody(f"it is not an Avro schema: {error!r}") from None


def _inline(schema: Any, named: dict[str, Any], seen: set[str]) -> Any:
    """Replace the first mention of each type by its definition."""
    if isinstance(schema, list):
        return [_inline(each, named, seen) for each in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVES or schema in seen or schema not in named:
            return schema
        return _inline(named[schema], named, seen)
    kept = {key: value for key, value in schema.items() if not key.startswith("__")}
    if "name" in kept:
        seen.add(kept["name"])
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _inline(kept[key], named, seen)
    if "fields" in kept:
        fields = kept["fields"]
        kept["fields"] = [{**field, "type": _inline(field["type"], named, seen)} for field in fields]
    return kept


# -- schema files ------------------------------------------------------------------------------------------------------


def load_avro(schema_file: str | Path, reader_schema_file: str | Path | None) -> AvroSchema:
    """Read schema files. Raises ConfigError if a file cannot be read, or if a schema has no Spark type."""
    require("fastavro", "decode_avro", "decoding")
    schema = AvroSchema(load_file(schema_file), None if reader_schema_file is None else load_file(reader_schema_file))
    _ = schema.spark  # fails here rather than in a task
    return schema


def load_file(path: str | Path) -> str:
    """Return the schema of a file as JSON, with those of the files it refers to. Raises ConfigError."""
    import fastavro
    from fastavro.schema import load_schema

    try:
        return json.dumps(_strip(load_schema(str(path))))
    except OSError as error:
        raise ConfigError(f"Avro schema {path}: {error.strerror}") from None
    except (fastavro.schema.SchemaParseException, fastavro.repository.SchemaRepositoryError, ValueError) as error:
        raise ConfigError(f"Avro schema {path}: {error!r}") from None


def _strip(schema: Any) -> Any:
    """Return a schema without the library's marks, and without logical types that have no Spark type."""
    if isinstance(schema, list):
        return [_strip(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _strip(value) if key != "default" else value for key, value in schema.items() if key[:2] != "__"}
    if not _is_known_logical(kept):
        kept.pop("logicalType", None)
    return kept


def _is_known_logical(schema: dict[str, Any]) -> bool:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return int(schema.get("precision", 0)) <= _DECIMAL_DIGITS_MAX
    return logical in _LOGICAL


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
