"""The columns of a message as Spark sees it, and what a query asks for of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
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

from eruca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and its type in both worlds."""

    name: str
    spark: DataType
    arrow: pa.DataType


_TIME: Final = pa.timestamp("us", tz="UTC")

# What a message has wherever it is read.
MESSAGE_COLUMNS: Final = (
    Column("topic", StringType(), pa.string()),
    Column("broker", StringType(), pa.string()),
    Column("queueId", IntegerType(), pa.int32()),
    Column("queueOffset", LongType(), pa.int64()),
    Column("messageId", StringType(), pa.string()),
    Column("offsetId", StringType(), pa.string()),
    Column("keys", ArrayType(StringType()), pa.list_(pa.string())),
    Column("tags", StringType(), pa.string()),
    Column("body", BinaryType(), pa.binary()),
    Column("flag", IntegerType(), pa.int32()),
    Column("bornTimestamp", TimestampType(), _TIME),
    Column("bornHost", StringType(), pa.string()),
    Column("storeTimestamp", TimestampType(), _TIME),
    Column("storeHost", StringType(), pa.string()),
    Column("reconsumeTimes", IntegerType(), pa.int32()),
    Column("transactionState", StringType(), pa.string()),
    Column("properties", MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
)
# What only the files tell.
STORE_COLUMNS: Final = (
    *MESSAGE_COLUMNS,
    Column("physicalOffset", LongType(), pa.int64()),
    Column("size", IntegerType(), pa.int32()),
    Column("crcOk", BooleanType(), pa.bool_()),
)


def make_schema(columns: Sequence[Column]) -> StructType:
    """The schema Spark is told."""
    return StructType([StructField(column.name, column.spark) for column in columns])


def make_arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema Arrow batches have; it must match Spark's to the letter."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


def choose_columns(asked: StructType, known: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of a schema the user gave, in its order. Raises ConfigError, which names the nearest right one."""
    by_name = {column.name: column for column in known}
    chosen: list[Column] = []
    for field in asked.fields:
        column = by_name.get(field.name)
        if column is None:
            near = difflib.get_close_matches(field.name, by_name, n=1, cutoff=0.5)
            guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)}"
            raise ConfigError(f"a message has no column {field.name}", hint=guess)
        if field.dataType.simpleString() != column.spark.simpleString():
            raise ConfigError(
                f"column {field.name} is {column.spark.simpleString()}, not {field.dataType.simpleString()}",
                hint="read it as it is and cast it afterwards",
            )
        if not field.nullable or field.dataType != column.spark:
            # Arrow and Spark must agree to the letter, and Spark would say so in the first task only.
            raise ConfigError(f"column {field.name} may be null", hint="leave NOT NULL out of the schema")
        chosen.append(column)
    if not chosen:
        raise ConfigError("the schema has no columns", hint="name at least one, or leave .schema(...) out")
    return tuple(chosen)
