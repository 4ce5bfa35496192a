"""Bodies into columns: JSON, Avro and Protobuf. A body that does not fit gets a reason, and the stream goes on.

Each `decode_...` adds two columns: what the body says, and why it could not be read (null where it could). `split_bad`
makes two frames of that, and `set_bad_aside` writes the bad ones of a stream to a side table. All work on batches and
streams; schema files are read where the query is planned, so that no other node needs them.
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
    """Read bodies that are one Avro datum each, as it is or with the header of the single-object encoding.

    `schema_file` is the schema (`.avsc`) they were written with; those it refers to lie beside it. With a reader schema
    the columns are its ones. Raises ConfigError for a schema that has no Spark type, and when fastavro is missing.
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
    """Read bodies that are one Protobuf message each.

    `schema_file` is a descriptor set (`protoc --include_imports --descriptor_set_out=...`), or a `.proto` file, which
    needs grpcio-tools or `protoc` to be read. `message` is the full name, needed when the file has several. Fields that
    the schema does not know are passed over, as Protobuf has it, or make the body a bad one (`refuse_unknown`).
    Raises ConfigError for a message that is not there, one that contains itself, and when protobuf is missing.
    """
    return add_decoded(frame, load_protobuf(schema_file, message, refuse_unknown), column, into, error)
