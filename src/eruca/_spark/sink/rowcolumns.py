"""Columns of Arrow batches in the form that the packing loops read."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eruca._spark.kernel import packing

Ints = npt.NDArray[np.int64]

# A null among numbers.
NONE: Final = -(2**63)


def make_texts(column: pa.Array) -> packing.Texts:
    """Return a column of text or bytes in the form that the packing loops read."""
    data = column.buffers()[2]
    return packing.Texts(
        read_offsets(column),
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8),
        None if not column.null_count else read_valid(column.is_valid()).view(np.uint8),
    )


def find_column(batch: pa.RecordBatch, name: str, default: str = "") -> pa.Array | None:
    """Return a column, with a default for nulls; None if there is neither a column nor a default."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return pa.repeat(pa.scalar(default, pa.string()), batch.num_rows) if default else None
    column = as_plain(batch.column(index))
    return pc.fill_null(column, default) if default and column.null_count else column


def as_plain(column: pa.Array) -> pa.Array:
    """Return a column with 32-bit offsets, as the packing loops require."""
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    if pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    return column


def read_offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def read_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


def read_numbers(column: pa.Array, default: int | None) -> Ints:
    filled = pc.fill_null(column.cast(pa.int64()), NONE if default is None else default)
    found: Ints = filled.to_numpy(zero_copy_only=False)
    return found


def empty_nulls(column: pa.Array) -> pa.Array:
    """Return lists or maps in which a null has no entries: Arrow allows a null to have some."""
    if column.null_count:
        sizes = np.diff(read_offsets(column))
        if sizes[~read_valid(column.is_valid())].any():
            return pa.array([each or [] for each in column.to_pylist()], column.type)
    return column
