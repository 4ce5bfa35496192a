"""The columns a user asks for: fewer, in another order, and what is wrong with the others."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from eruca._spark.columns import (
    MESSAGE_COLUMNS,
    STORE_COLUMNS,
    choose_columns,
    make_arrow_schema,
    make_schema,
    tighten,
)
from eruca.errors import ConfigError


def test_all_columns_and_some() -> None:
    assert choose_columns(make_schema(STORE_COLUMNS), STORE_COLUMNS) == STORE_COLUMNS
    some = choose_columns(make_schema(MESSAGE_COLUMNS[8:3:-2]), MESSAGE_COLUMNS)
    assert [column.name for column in some] == [column.name for column in MESSAGE_COLUMNS[8:3:-2]]
    assert make_arrow_schema(some).names == [column.name for column in some]


def test_what_is_always_there_need_not_be_nullable() -> None:
    tight = tighten(STORE_COLUMNS)
    assert [column.name for column in tight if column.nullable] == ["tags", "body"]
    assert choose_columns(make_schema(tight), STORE_COLUMNS, tight=True) == tight
    assert choose_columns(make_schema(STORE_COLUMNS), STORE_COLUMNS, tight=True) == STORE_COLUMNS
    # Spark compares the two schemas to the letter.
    assert make_arrow_schema(tight) == to_arrow_schema(make_schema(tight), timezone="UTC")
    assert make_arrow_schema(STORE_COLUMNS) == to_arrow_schema(make_schema(STORE_COLUMNS), timezone="UTC")
    with pytest.raises(ConfigError, match="column tags may be null"):
        choose_columns(StructType([StructField("tags", StringType(), nullable=False)]), STORE_COLUMNS, tight=True)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (StructField("bodi", StringType()), "no column bodi .*did you mean body"),
        (StructField("zzzzzz", StringType()), "no column zzzzzz .*the columns are topic, broker"),
        (StructField("body", StringType()), "column body is binary, not string .*cast it afterwards"),
        (StructField("topic", StringType(), nullable=False), "column topic may be null .*leave NOT NULL out"),
        (StructField("keys", ArrayType(StringType(), False)), "column keys may be null"),
        (StructField("size", StringType()), "no column size"),
    ],
)
def test_wrong_columns(field: StructField, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        choose_columns(StructType([field]), MESSAGE_COLUMNS)


def test_no_columns() -> None:
    with pytest.raises(ConfigError, match="no columns"):
        choose_columns(StructType([]), MESSAGE_COLUMNS)
