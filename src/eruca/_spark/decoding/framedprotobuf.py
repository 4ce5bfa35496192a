"""Protobuf bodies that name their schema by its id in a registry, and their message by its place in that schema."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import DataType

from eruca._schemas.bodies import BadBody, Decode, require
from eruca._schemas.framedprotobuf import describe_files, make_splitter
from eruca._schemas.registry import SchemaRegistry, SchemaSource, open_source
from eruca._spark.decoding.protobuf import ProtobufSchema, choose_message, load_protobuf
from eruca.errors import ConfigError


@dataclass(frozen=True)
class FramedProtobuf:
    """Bodies with the frame of a registry; all are read as one message."""

    source: SchemaSource
    schema: ProtobufSchema

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""
        return self.schema.spark

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body."""
        split, read, wanted = make_splitter(self.source), self.schema.make_decoder(), self.schema.message

        def decode(body: bytes) -> Any:
            _, name, rest = split(body)
            if name != wanted:
                raise BadBody(f"it is a {name}, not a {wanted}")
            return read(rest)

        return decode


def load_framed(
    registry: SchemaRegistry, schema_file: str | Path | None, message: str, subject: str, refuse_unknown: bool
) -> FramedProtobuf:
    """Return the schema of bodies with the frame of a registry. Raises ConfigError, or NetError without an answer."""
    require("protobuf", "decode_protobuf", "decoding", module="google.protobuf")
    if (schema_file is None) == (not subject):
        raise ConfigError(
            "with a registry, decode_protobuf needs one schema to read all bodies with",
            hint='schema_file="order.proto", or subject="orders-value" for its newest schema as it is now',
        )
    source = open_source(registry)
    if schema_file is not None:
        return FramedProtobuf(source, load_protobuf(schema_file, message, refuse_unknown))
    where = f"the newest schema of {subject}"
    try:
        content = describe_files(source.open().find_latest(subject))
    except BadBody as error:
        raise ConfigError(f"{where} cannot be used: {error}") from None
    return FramedProtobuf(source, choose_message(content, message, refuse_unknown, where))
