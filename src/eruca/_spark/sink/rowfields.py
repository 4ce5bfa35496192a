"""Fields of rows: the properties that columns of Arrow batches become."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eruca._spark.kernel import packing
from eruca._spark.sink.rowcolumns import as_plain, empty_nulls, find_column, make_texts, read_offsets, read_valid
from eruca._wire.properties import DELAY, RESERVED, TIMER_DELAY_MS, TIMER_DELIVER_MS

_Delays: TypeAlias = tuple[packing.Field, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]

# More than any delay that a broker takes; larger numbers do not fit into the property.
_DELAY_MS_MAX: Final = 1e15
# Left out of the map of properties, so that messages read from one topic can be written to another.
_LEFT_OUT: Final = frozenset(name.encode() for name in RESERVED)


def make_text_field(piece: pa.RecordBatch, name: str, prop: str, default: str) -> list[packing.Field]:
    """Return the field of a column of text or of lists of texts; none without a column and a default."""
    column = find_column(piece, name)
    if column is None:
        return [packing.ConstantField(f"{prop}\x01{default}\x02".encode())] if default else []
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        if default:
            column = pc.fill_null(column.cast(pa.list_(pa.string())), default.split())
        column = empty_nulls(column.cast(pa.list_(pa.string())))
        return [packing.WordsField(prop.encode(), read_offsets(column), make_texts(as_plain(column.values)))]
    if default:
        column = pc.fill_null(column, default)
    return [packing.TextField(prop.encode(), make_texts(column))]


def make_map_field(column: pa.Array) -> packing.Field:
    """Return the field of a column of properties."""
    column = empty_nulls(column.cast(pa.map_(pa.string(), pa.string())))
    return packing.MapField(
        read_offsets(column), make_texts(as_plain(column.keys)), make_texts(as_plain(column.items)), _LEFT_OUT
    )


def _make_delay(name: str, numbers: pa.Array, *, least: int) -> _Delays:
    given = read_valid(pc.greater_equal(numbers, least))
    bad = read_valid(pc.less(numbers, 0))
    shown = pc.if_else(pa.array(given), numbers, pa.scalar(None, numbers.type)).cast(pa.string())
    return packing.TextField(name.encode(), make_texts(shown)), given, bad


def read_delay(column: pa.Array) -> _Delays:
    """Return the field of delay levels, and which rows have one, and a bad one."""
    return _make_delay(DELAY, column.cast(pa.int64()), least=1)


def read_timer(column: pa.Array) -> _Delays:
    """Do the same for delays in seconds, which may have a fraction."""
    spans_ms = pc.round(pc.multiply(column.cast(pa.float64()), 1000.0))
    # What is not a number or too large becomes a bad one.
    is_good = pc.and_(pc.is_finite(spans_ms), pc.less(pc.abs(spans_ms), _DELAY_MS_MAX))
    return _make_delay(TIMER_DELAY_MS, pc.if_else(is_good, spans_ms, -1.0).cast(pa.int64()), least=1)


def read_timestamp(column: pa.Array) -> _Delays:
    """Do the same for points in time."""
    return _make_delay(TIMER_DELIVER_MS, pc.divide(column.cast(pa.int64()), 1000), least=0)
