"""The columns of a message in Spark, and the selection of those that a query asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca._ground.suggestions import suggest_name
from eruca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and its type in Spark and Arrow."""

    name: str
    spark: DataType
    arrow: pa.DataType
    # Every message has a value.
    always: bool = False
    nullable: bool = True


_TIME: Final = pa.timestamp("us", tz="UTC")

# The columns of every source.
MESSAGE_COLUMNS: Final = (
    Column("topic", StringType(), pa.string(), always=True),
    Column("broker", StringType(), pa.string(), always=True),
    Column("queueId", IntegerType(), pa.int32(), always=True),
    Column("queueOffset", LongType(), pa.int64(), always=True),
    Column("messageId", StringType(), pa.string(), always=True),
    Column("offsetId", StringType(), pa.string(), always=True),
    Column("keys", ArrayType(StringType()), pa.list_(pa.string()), always=True),
    Column("tags", StringType(), pa.string()),
    Column("body", BinaryType(), pa.binary()),
    Column("flag", IntegerType(), pa.int32(), always=True),
    Column("bornTimestamp", TimestampType(), _TIME, always=True),
    Column("bornHost", StringType(), pa.string(), always=True),
    Column("storeTimestamp", TimestampType(), _TIME, always=True),
    Column("storeHost", StringType(), pa.string(), always=True),
    Column("reconsumeTimes", IntegerType(), pa.int32(), always=True),
    Column("transactionState", StringType(), pa.string(), always=True),
    Column("properties", MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()), always=True),
)
# The additional columns of store files.
STORE_COLUMNS: Final = (
    *MESSAGE_COLUMNS,
    Column("physicalOffset", LongType(), pa.int64(), always=True),
    Column("size", IntegerType(), pa.int32(), always=True),
    Column("crcOk", BooleanType(), pa.bool_(), always=True),
)


def tighten(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with those that every message has as NOT NULL, which is cheaper for Spark to read."""
    return tuple(_tighten(column) if column.always else column for column in columns)


def _tighten(column: Column) -> Column:
    spark, arrow = column.spark, column.arrow
    if isinstance(spark, ArrayType):
        spark = ArrayType(spark.elementType, containsNull=False)
        arrow = pa.list_(pa.field("element", arrow.value_type, nullable=False))
    elif isinstance(spark, MapType):
        spark = MapType(spark.keyType, spark.valueType, valueContainsNull=False)
        arrow = pa.map_(arrow.key_type, pa.field("value", arrow.item_type, nullable=False))
    return replace(column, spark=spark, arrow=arrow, nullable=False)


def make_schema(columns: Sequence[Column]) -> StructType:
    """Return the Spark schema of columns."""
    return StructType([StructField(column.name, column.spark, column.nullable) for column in columns])


def make_arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of Arrow batches; it must match Spark's exactly."""
    return pa.schema([pa.field(column.name, column.arrow, column.nullable) for column in columns])


def choose_columns(asked: StructType, known: Sequence[Column], *, tight: bool = False) -> tuple[Column, ...]:
    """Return the columns of a user's schema, in its order; if `tight`, columns without nulls may be NOT NULL.

    Raises ConfigError, with a suggestion for a misspelt name.
    """
    by_name = {column.name: column for column in known}
    chosen: list[Column] = []
    for field in asked.fields:
        column = by_name.get(field.name)
        if column is None:
            guess = suggest_name(field.name, by_name, f"the columns are {', '.join(by_name)}")
            raise ConfigError(f"a message has no column {field.name}", hint=guess)
        if field.dataType.simpleString() != column.spark.simpleString():
            raise ConfigError(
                f"column {field.name} is {column.spark.simpleString()}, not {field.dataType.simpleString()}",
                hint="read it with this type and cast it afterwards",
            )
        # Arrow and Spark must agree exactly, and Spark would fail only in the first task.
        forms = (column, _tighten(column)) if tight and column.always else (column,)
        fitting = next(
            (form for form in forms if (form.spark, form.nullable) == (field.dataType, field.nullable)), None
        )
        if fitting is None:
            raise ConfigError(f"column {field.name} may be null", hint="leave NOT NULL out of the schema")
        chosen.append(fitting)
    if not chosen:
        raise ConfigError("the schema has no columns", hint="list at least one, or leave out .schema(...)")
    return tuple(chosen)
