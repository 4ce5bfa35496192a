"""Bodies into columns: JSON, Avro and Protobuf. A body that cannot be decoded gets a reason, and the stream continues.

Each `decode_...` adds two columns: the decoded value, and the reason if it could not be decoded (otherwise null).
`split_bad` splits a frame into good and bad rows, and `set_bad_aside` writes the bad rows of a stream to a side table.
All work on batches and streams. Schema files are read where the query is planned; no other node needs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eruca._spark.decoding.avro import load_avro
from eruca._spark.decoding.badrows import set_bad_aside, split_bad
from eruca._spark.decoding.bodies import add_decoded
from eruca._spark.decoding.jsontext import decode_json
from eruca._spark.decoding.protobuf import load_protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["decode_avro", "decode_json", "decode_protobuf", "set_bad_aside", "split_bad"]


def decode_avro(
    frame: DataFrame,
    schema_file: str | Path,
    column: str = "body",
    *,
    reader_schema_file: str | Path | None = None,
    into: str = "value",
    error: str = "error",
) -> DataFrame:
    """Decode bodies that are one Avro datum each, plain or with the header of the single-object encoding.

    `schema_file` is the schema (`.avsc`) they were written with; schemas it refers to are next to it.
    With a reader schema, the columns are those of the reader schema. Raises ConfigError for a schema that has no Spark
    type, and if fastavro is not installed.
    """
    return add_decoded(frame, load_avro(schema_file, reader_schema_file), column, into, error)


def decode_protobuf(
    frame: DataFrame,
    schema_file: str | Path,
    message: str = "",
    column: str = "body",
    *,
    refuse_unknown: bool = False,
    into: str = "value",
    error: str = "error",
) -> DataFrame:
    """Decode bodies that are one Protobuf message each.

    `schema_file` is a descriptor set (`protoc --include_imports --descriptor_set_out=...`), or a `.proto` file, which
    needs grpcio-tools or `protoc` to be read. `message` is the full name, needed when the file has several. Unknown
    fields are ignored, as usual in Protobuf, or make the body bad (`refuse_unknown`).
    Raises ConfigError for an unknown message, one that contains itself, and if protobuf is not installed.
    """
    return add_decoded(frame, load_protobuf(schema_file, message, refuse_unknown), column, into, error)
