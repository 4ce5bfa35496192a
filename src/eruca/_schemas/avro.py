"""Avro bodies as plain values: schema files, schemas of a registry, and reading one datum."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

from eruca._schemas.bodies import BadBody, Decode
from eruca._schemas.framing import split_frame
from eruca._schemas.registry import AVRO, Registered, SchemaCache, SchemaSource
from eruca.errors import ConfigError

# The single-object encoding: a marker, the fingerprint of the schema, the datum.
#
#   0        2                       10
#   | C3 01  | CRC-64-AVRO, little   | datum ...
_MARK: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_WRONG: Final = "it does not match the Avro schema"

_PRIMITIVES: Final = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes"})
#: The logical types that are read as such, besides decimals; others are read as what they are made of.
LOGICAL: Final = frozenset(
    {"date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"}
)
_DECIMAL_DIGITS_MAX: Final = 38


def make_decoder(written: str, read: str | None = None) -> Decode:
    """Return a function that decodes bodies of one schema: plain, or with the header of the single-object encoding.

    `written` is the schema they were written with, `read` another one to read them with, both as JSON.
    """
    import fastavro
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    writer = fastavro.parse_schema(json.loads(written))
    reader = fastavro.parse_schema(json.loads(read)) if read is not None else None
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(written)), "CRC-64-AVRO"))

    def decode(body: bytes) -> Any:
        is_marked = body[:2] == _MARK and body[2:_HEADER_BYTES] == mark
        return _read_datum(body, _HEADER_BYTES if is_marked else 0, writer, reader)

    return decode


def make_framed_decoder(source: SchemaSource, read: str | None = None) -> Decode:
    """Return a function that decodes bodies that name the schema they were written with by its id."""
    import fastavro

    schemas = source.open()
    reader = fastavro.parse_schema(json.loads(read)) if read is not None else None
    writers = SchemaCache(lambda schema_id: _parse_registered(schema_id, schemas.find(schema_id)))

    def decode(body: bytes) -> Any:
        schema_id, at = split_frame(body)
        return _read_datum(body, at, writers.get(schema_id), reader)

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


def _parse_registered(schema_id: int, registered: Registered) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(join(registered))
    except BadBody as error:
        raise BadBody(f"schema {schema_id} cannot be used: {error}") from None


def join(registered: Registered) -> Any:
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


def load_file(path: str | Path) -> str:
    """Return the schema of a file as JSON, with those of the files it refers to. Raises ConfigError."""
    import fastavro
    from fastavro.schema import load_schema

    try:
        return json.dumps(strip(load_schema(str(path))))
    except OSError as error:
        raise ConfigError(f"Avro schema {path}: {error.strerror}") from None
    except (fastavro.schema.SchemaParseException, fastavro.repository.SchemaRepositoryError, ValueError) as error:
        raise ConfigError(f"Avro schema {path}: {error!r}") from None


def strip(schema: Any) -> Any:
    """Return a schema without the library's marks, and without logical types that are not read as such."""
    if isinstance(schema, list):
        return [strip(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: strip(value) if key != "default" else value for key, value in schema.items() if key[:2] != "__"}
    if not _is_known_logical(kept):
        kept.pop("logicalType", None)
    return kept


def _is_known_logical(schema: dict[str, Any]) -> bool:
    logical = schema.get("logicalType")
    if logical == "decimal":
        return int(schema.get("precision", 0)) <= _DECIMAL_DIGITS_MAX
    return logical in LOGICAL
