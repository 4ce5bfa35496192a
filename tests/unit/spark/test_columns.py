"""The columns a user asks for: fewer, in another order, and what is wrong with the others."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from eruca.errors import ConfigError
from eruca.spark.columns import MESSAGE_COLUMNS, STORE_COLUMNS, choose_columns, make_arrow_schema, make_schema


def test_all_columns_and_some() -> None:
    assert choose_columns(make_schema(STORE_COLUMNS), STORE_COLUMNS) == STORE_COLUMNS
    some = choose_columns(make_schema(MESSAGE_COLUMNS[8:3:-2]), MESSAGE_COLUMNS)
    assert [column.name for column in some] == [column.name for column in MESSAGE_COLUMNS[8:3:-2]]
    assert make_arrow_schema(some).names == [column.name for column in some]


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (StructField("bodi", StringType()), "no column bodi .*did you mean body"),
        (StructField("zzzzzz", StringType()), "no column zzzzzz .*there are topic, broker"),
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
