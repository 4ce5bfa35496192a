"""Bodies decoded by Python, a batch at a time: Arrow in, Arrow out, without pandas."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eruca._schemas.bodies import Decode, describe
from eruca.errors import ConfigError, ErucaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DECODED: Final = "__decoded"

_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
    DayTimeIntervalType: pa.duration("us"),
}


class BodySchema(Protocol):
    """The content of a schema file, or where schemas are found; it is pickled and sent to the tasks."""

    @property
    def spark(self) -> DataType:
        """The type of the decoded column."""

    def make_decoder(self) -> Decode:
        """Return a function that decodes one body; called once in each process."""

    def __hash__(self) -> int: ...


def add_decoded(frame: DataFrame, schema: BodySchema, column: str, into: str, error: str) -> DataFrame:
    """Add the decoded bodies, and the reasons why some could not be decoded. Raises ConfigError."""
    check_columns(frame, column, into, error)
    kind = StructType([StructField("value", schema.spark), StructField("error", StringType())])

    def decode(bodies: pa.Array) -> pa.Array:
        return decode_bodies(schema, bodies)

    # It is deterministic, but Spark would run a deterministic function again for each filter on its result.
    once: Any = arrow_udf(decode, kind, ArrowUDFType.SCALAR)
    decoded = frame.withColumn(_DECODED, once.asNondeterministic()(functions.col(column).cast("binary")))
    value, reason = functions.col(f"{_DECODED}.value"), functions.col(f"{_DECODED}.error")
    return decoded.select("*", value.alias(into), reason.alias(error)).drop(_DECODED)


def check_columns(frame: DataFrame, column: str, into: str, error: str) -> None:
    """Check that the column to decode exists and those of the result do not. Raises ConfigError."""
    if column not in frame.columns:
        raise ConfigError(f"there is no column {column} to decode", hint=f"there are {', '.join(frame.columns)}")
    for name in (into, error):
        if name in frame.columns:
            raise ConfigError(f"there is a column {name} already", hint="choose other names with into= and error=")


def decode_bodies(schema: BodySchema, bodies: pa.Array) -> pa.Array:
    """Decode a batch of bodies to structs of `value` and `error`."""
    decode, kind = _open_schema(schema)
    values: list[Any] = []
    reasons: list[str | None] = []
    for body in bodies.to_pylist():
        value, reason = None, None
        if body is None:
            reason = "there is no body"
        else:
            try:
                value = decode(body)
            except ErucaError:
                # A registry cannot be asked: the body is not at fault.
                raise
            except Exception as problem:
                reason = describe(problem)
        values.append(value)
        reasons.append(reason)
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # A value that the column cannot hold, such as a decimal with too many digits, must not affect the others.
        _empty_misfits(values, reasons, kind)
        column = pa.array(values, kind)
    return pa.StructArray.from_arrays([column, pa.array(reasons, pa.string())], ["value", "error"])


def _empty_misfits(values: list[Any], reasons: list[str | None], kind: pa.DataType) -> None:
    for number, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as problem:
            values[number], reasons[number] = None, describe(problem)


@functools.lru_cache(maxsize=32)
def _open_schema(schema: BodySchema) -> tuple[Decode, pa.DataType]:
    return schema.make_decoder(), to_arrow(schema.spark)


def to_arrow(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark uses for a Spark type."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, to_arrow(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(to_arrow(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(to_arrow(kind.keyType), to_arrow(kind.valueType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[type(kind)]
