"""What the sink is told: right things are taken, wrong ones refused with the nearest right one."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca._spark.sink.options import SinkOptions, check_columns, wants_timer
from eruca.errors import ConfigError, ErucaError

GIVEN = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


def make_schema(ddl: str) -> StructType:
    types = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "timestamp": TimestampType(),
        "array": ArrayType(StringType()),
        "map": MapType(StringType(), StringType()),
    }
    pairs = [part.split() for part in ddl.split(",")]
    return StructType([StructField(name, types[kind]) for name, kind in pairs])


def test_defaults_and_values() -> None:
    options = SinkOptions.of({**GIVEN, "BATCHBYTES": "64k", "delivery": "Idempotent", "properties": '{"a": "b"}'})
    assert (options.batch_bytes, options.is_idempotent, options.properties) == (65536, True, {"a": "b"})
    assert (options.in_flight, options.batch_rows, options.wait_store_ok, options.queue_id) == (8, 2000, True, None)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("batchByte", "1", "did you mean batchBytes"),
        ("delivery", "exactly-once", "at-least-once, idempotent"),
        ("topic", "a b", "a b"),
        ("properties", "[]", "as JSON"),
        ("properties", '{"TAGS": "x"}', "is reserved"),
        ("compression", "snappy", "zlib"),
        ("onBadRow", "ignore", "fail, skip"),
        ("batchBytes", "8m", "maxMessageBytes"),
        ("writeId", "x", "delivery=idempotent"),
        ("tags", "a\x01b", "separator"),
        ("inFlight", "0", "at least 1"),
    ],
)
def test_wrong_options(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ErucaError, match=complaint):
        SinkOptions.of({**GIVEN, name: value})


def test_a_delay_is_said_once() -> None:
    with pytest.raises(ConfigError, match="give only one of them"):
        SinkOptions.of({**GIVEN, "delayLevel": "3", "delay": "10s"})
    with pytest.raises(ConfigError, match="delay and deliverAt"):
        check_columns(make_schema("body binary,delay int,deliverAt timestamp"), SinkOptions.of(GIVEN))
    options = SinkOptions.of({**GIVEN, "delayLevel": "3"})
    check_columns(make_schema("body binary,delayLevel int"), options)
    with pytest.raises(ConfigError, match="delay and delayLevel"):
        check_columns(make_schema("body binary,delay double"), options)


@pytest.mark.parametrize(
    ("ddl", "complaint"),
    [
        ("bodies binary", "did you mean body"),
        ("body binary,tag string", "did you mean tags"),
        ("body binary,shardingkey string", "did you mean shardingKey"),
        ("body binary,zzz string", "there are body, topic"),
        ("body double", "body is double, not binary or string"),
        ("body binary,keys int", "string or array<string>"),
        ("tags string", "no column body"),
    ],
)
def test_wrong_columns(ddl: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_columns(make_schema(ddl), SinkOptions.of(GIVEN))


def test_right_columns() -> None:
    options = SinkOptions.of(GIVEN)
    every = "body string,topic string,tags string,keys array,shardingKey string,queueId int,delayLevel bigint,"
    every += "properties map,flag int"
    check_columns(make_schema(every), options)
    assert not wants_timer(make_schema(every), options)
    assert wants_timer(make_schema("body binary,deliverAt timestamp"), options)
    with pytest.raises(ConfigError, match="no destination topic"):
        check_columns(make_schema("body binary"), SinkOptions.of({"nameServer": "127.0.0.1:1"}))
    check_columns(make_schema("body binary,topic string"), SinkOptions.of({"nameServer": "127.0.0.1:1"}))
