"""Bodies into columns: JSON, Avro and Protobuf. A body that cannot be decoded gets a reason, and the stream continues.

Each `decode_...` adds two columns: the decoded value, and the reason if it could not be decoded (otherwise null).
`split_bad` splits a frame into good and bad rows, and `set_bad_aside` writes the bad rows of a stream to a side table.
All work on batches and streams. Schema files are read where the query is planned; no other node needs them. Bodies that
name their schema by its id in a registry are decoded with `registry=`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eruca._schemas.registry import SchemaRegistry
from eruca._spark.decoding import avro, framedprotobuf
from eruca._spark.decoding.badrows import BatchWriter, set_bad_aside, split_bad
from eruca._spark.decoding.bodies import add_decoded
from eruca._spark.decoding.jsontext import decode_json
from eruca._spark.decoding.protobuf import load_protobuf
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eruca._spark.decoding.bodies import BodySchema

__all__ = [
    "BatchWriter",
    "SchemaRegistry",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "set_bad_aside",
    "split_bad",
]


def decode_avro(
    frame: DataFrame,
    schema_file: str | Path | None = None,
    column: str = "body",
    *,
    reader_schema_file: str | Path | None = None,
    registry: SchemaRegistry | None = None,
    subject: str = "",
    into: str = "value",
    error: str = "error",
) -> DataFrame:
    """Decode bodies that are one Avro datum each: plain, with the header of the single-object encoding, or framed.

    `schema_file` is the schema (`.avsc`) they were written with; schemas it refers to are next to it. With a reader
    schema, the columns are those of the reader schema. With `registry`, each body begins with the id of its schema in
    the registry (a zero byte, 4 bytes of id), and all are read with `reader_schema_file`, or with what is now the
    newest schema of `subject`.
    Raises ConfigError for a schema that has no Spark type, and if fastavro is not installed.
    """
    schema: BodySchema
    if registry is not None:
        if schema_file is not None:
            raise ConfigError(
                "schema_file and registry are mutually exclusive: the registry has the schemas of the bodies",
                hint="reader_schema_file= is the schema to read them with",
            )
        schema = avro.load_framed(registry, reader_schema_file, subject)
    elif subject:
        raise ConfigError("subject= needs a registry", hint='registry=SchemaRegistry("https://registry:8081")')
    elif schema_file is None:
        raise ConfigError("which schema were the bodies written with?", hint="give schema_file= or registry=")
    else:
        schema = avro.load_avro(schema_file, reader_schema_file)
    return add_decoded(frame, schema, column, into, error)


def decode_protobuf(
    frame: DataFrame,
    schema_file: str | Path | None = None,
    message: str = "",
    column: str = "body",
    *,
    registry: SchemaRegistry | None = None,
    subject: str = "",
    refuse_unknown: bool = False,
    into: str = "value",
    error: str = "error",
) -> DataFrame:
    """Decode bodies that are one Protobuf message each.

    `schema_file` is a descriptor set (`protoc --include_imports --descriptor_set_out=...`), or a `.proto` file, which
    needs grpcio-tools or `protoc` to be read. `message` is the full name, needed when the file has several. Unknown
    fields are ignored, as usual in Protobuf, or make the body bad (`refuse_unknown`). With `registry`, each body begins
    with the id of its schema in the registry and the place of its message in that schema; a body that is another
    message is bad. All are read with `schema_file`, or with what is now the newest schema of `subject`.
    Raises ConfigError for an unknown message, one that contains itself, and if protobuf is not installed.
    """
    schema: BodySchema
    if registry is not None:
        schema = framedprotobuf.load_framed(registry, schema_file, message, subject, refuse_unknown)
    elif subject:
        raise ConfigError("subject= needs a registry", hint='registry=SchemaRegistry("https://registry:8081")')
    elif schema_file is None:
        raise ConfigError("which schema were the bodies written with?", hint="give schema_file=")
    else:
        schema = load_protobuf(schema_file, message, refuse_unknown)
    return add_decoded(frame, schema, column, into, error)
