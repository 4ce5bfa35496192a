"""JSON bodies: Spark's own parser, plus the reason of a failure, which Spark does not report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from eruca._spark.decoding.bodies import check_columns
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The column in which Spark marks text that did not match; no user's field has this name.
_CORRUPT: Final = "__corrupt"
_PARSED: Final = "__parsed"
_ONLY: Final = "only"
_BEFORE, _AFTER = f'{{"{_ONLY}":[', "]}"
# By default Spark accepts quotes and numbers that are not JSON.
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def decode_json(
    frame: DataFrame,
    schema: StructType | str | Path,
    column: str = "body",
    *,
    into: str = "value",
    error: str = "error",
) -> DataFrame:
    """Decode bodies that are one JSON object each.

    `schema` is a struct, its text (`"id string, amount double not null"`), or a file with that text or with Spark's
    JSON form of a schema. Fields that are `not null` must be present. Raises ConfigError for an invalid schema.
    """
    check_columns(frame, column, into, error)
    wanted = read_schema(schema)
    text = functions.col(column).cast("string")
    parsed = functions.col(_PARSED)
    # Filters on the result stay above an explode. Above a plain column, Spark would push them down and parse again.
    once = functions.explode(functions.array(_parse(text, wanted)))
    reason = _find_reason(functions.col(column), text, parsed, wanted)
    value = parsed.getField(_ONLY).getItem(0)
    return (
        frame.select("*", once.alias(_PARSED))
        .withColumn(error, reason)
        .withColumn(into, functions.when(functions.col(error).isNull(), value))
        .select(*[functions.col(f"`{name}`") for name in frame.columns], into, error)
    )


def _parse(text: Column, wanted: StructType) -> Column:
    """Parse a text inside a list: Spark ignores what follows an object that stands alone."""
    schema = StructType([StructField(_ONLY, ArrayType(wanted)), StructField(_CORRUPT, StringType())])
    return functions.from_json(functions.concat(functions.lit(_BEFORE), text, functions.lit(_AFTER)), schema, _OPTIONS)


def read_schema(schema: StructType | str | Path) -> StructType:
    """Return the struct that a user specified as a struct, a text or a file. Raises ConfigError."""
    if isinstance(schema, StructType):
        found = schema
    else:
        text = schema
        if isinstance(schema, Path):
            try:
                text = schema.read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"schema {schema}: {error.strerror}") from None
        found = _parse_schema(str(text).strip())
    if not found.fields:
        raise ConfigError("the schema has no fields")
    return found


def _parse_schema(text: str) -> StructType:
    import json

    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType

    try:
        found = StructType.fromJson(json.loads(text)) if text.startswith("{") else DataType.fromDDL(text)
    except (PySparkException, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"not a schema: {text[:100]}: {str(error).splitlines()[0]}") from None
    if not isinstance(found, StructType):
        raise ConfigError(f"not a schema of fields: {text[:100]}", hint='as in "id string, amount double"')
    return found


def _find_reason(body: Column, text: Column, parsed: Column, wanted: StructType) -> Column:
    """Return why a body could not be read; null where it could. Only bad bodies are parsed again."""
    only = parsed.getField(_ONLY)
    is_bad = parsed.getField(_CORRUPT).isNotNull() | (functions.size(only) != 1) | only.getItem(0).isNull()
    reason = (
        functions.when(body.isNull(), "there is no body")
        .when(~functions.is_valid_utf8(text), "it is not UTF-8")
        .when(is_bad, _find_misfit(text, wanted))
    )
    for field in wanted.fields:
        if not field.nullable:
            reason = reason.when(only.getItem(0).getField(field.name).isNull(), f"{field.name} is missing")
    return reason


def _find_misfit(text: Column, wanted: StructType) -> Column:
    """Return what is wrong with a text that Spark could not parse; each field is tried separately."""
    tree = functions.try_parse_json(text)
    misfit = functions.when(tree.isNull(), "it is not JSON").when(
        ~functions.schema_of_variant(tree).startswith("OBJECT"), "it is JSON, but not an object"
    )
    for field in wanted.fields:
        alone = StructType([field, StructField(_CORRUPT, StringType())])
        is_bad = functions.from_json(text, alone, _OPTIONS).getField(_CORRUPT).isNotNull()
        misfit = misfit.when(is_bad, f"{field.name} is not {field.dataType.simpleString()}")
    return misfit.otherwise("something follows the JSON object")
