"""Separates rows that could be decoded from those that could not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions

from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What `foreachBatch` calls: the rows of a micro-batch, and its number.
#: Writes one micro-batch: the frame and the number of the batch.
BatchWriter: TypeAlias = Callable[["DataFrame", int], None]


def split_bad(frame: DataFrame, *, into: str = "value", error: str = "error") -> tuple[DataFrame, DataFrame]:
    """Return the rows that could be decoded, without the reason, and those that could not, without the value."""
    if error not in frame.columns:
        raise ConfigError(f"there is no column {error}", hint="decode_json, decode_avro or decode_protobuf adds it")
    reason = functions.col(error)
    return frame.filter(reason.isNull()).drop(error), frame.filter(reason.isNotNull()).drop(into)


def set_bad_aside(
    write_good: BatchWriter,
    bad: str | Path | BatchWriter,
    *,
    format: str = "parquet",
    into: str = "value",
    error: str = "error",
) -> BatchWriter:
    """Return a function for `foreachBatch` that passes good rows to `write_good` and writes bad ones to a side table.

    `bad` is a folder that gets a part `batch=N` for each micro-batch with bad rows, or a function like `write_good`.
    The part is overwritten when Spark runs the micro-batch again, so each bad row is there once. Bad rows are written
    first: if the good rows of a batch are written, its bad ones are too.
    """

    def write(frame: DataFrame, batch: int) -> None:
        frame.persist()
        try:
            good, rest = split_bad(frame, into=into, error=error)
            if not rest.isEmpty():
                if callable(bad):
                    bad(rest, batch)
                else:
                    rest.write.format(format).mode("overwrite").save(f"{bad}/batch={batch}")
            write_good(good, batch)
        finally:
            frame.unpersist()

    return write
