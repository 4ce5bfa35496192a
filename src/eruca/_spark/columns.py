"""The columns of a message as Spark sees it, and what a query asks for of them."""

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

from eruca._spark.suggestions import suggest_name
from eruca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and its type in both worlds."""

    name: str
    spark: DataType
    arrow: pa.DataType
    # Every message has it.
    always: bool = False
    nullable: bool = True


_TIME: Final = pa.timestamp("us", tz="UTC")

# What a message has wherever it is read.
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
# What only the files tell.
STORE_COLUMNS: Final = (
    *MESSAGE_COLUMNS,
    Column("physicalOffset", LongType(), pa.int64(), always=True),
    Column("size", IntegerType(), pa.int32(), always=True),
    Column("crcOk", BooleanType(), pa.bool_(), always=True),
)


def tighten(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The same columns; those that every message has are not nullable, and Spark looks at each value less often."""
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
    """The schema Spark is told."""
    return StructType([StructField(column.name, column.spark, column.nullable) for column in columns])


def make_arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema Arrow batches have; it must match Spark's to the letter."""
    return pa.schema([pa.field(column.name, column.arrow, column.nullable) for column in columns])


def choose_columns(asked: StructType, known: Sequence[Column], *, tight: bool = False) -> tuple[Column, ...]:
    """The columns of a schema the user gave, in its order; if `tight`, what is always there may be NOT NULL.

    Raises ConfigError, which names the nearest right one.
    """
    by_name = {column.name: column for column in known}
    chosen: list[Column] = []
    for field in asked.fields:
        column = by_name.get(field.name)
        if column is None:
            guess = suggest_name(field.name, by_name, f"there are {', '.join(by_name)}")
            raise ConfigError(f"a message has no column {field.name}", hint=guess)
        if field.dataType.simpleString() != column.spark.simpleString():
            raise ConfigError(
                f"column {field.name} is {column.spark.simpleString()}, not {field.dataType.simpleString()}",
                hint="read it as it is and cast it afterwards",
            )
        # Arrow and Spark must agree to the letter, and Spark would say so in the first task only.
        forms = (column, _tighten(column)) if tight and column.always else (column,)
        fitting = next(
            (form for form in forms if (form.spark, form.nullable) == (field.dataType, field.nullable)), None
        )
        if fitting is None:
            raise ConfigError(f"column {field.name} may be null", hint="leave NOT NULL out of the schema")
        chosen.append(fitting)
    if not chosen:
        raise ConfigError("the schema has no columns", hint="name at least one, or leave .schema(...) out")
    return tuple(chosen)
