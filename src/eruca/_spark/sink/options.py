"""The options of the sink, and the columns of the frame that is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from eruca._client.produce.packing import COMPRESSIONS
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX, PROPERTIES_BYTES_MAX
from eruca._ground.suggestions import suggest_name
from eruca._spark.cluster import ACCESS_OPTIONS, Access, choose_access
from eruca._spark.optiontable import (
    OptionTable,
    SourceOption,
    read_bytes,
    read_choice,
    read_count,
    read_duration_ms,
    read_flag,
    read_text,
)
from eruca._wire.names import check_topic
from eruca._wire.properties import RESERVED
from eruca.errors import ConfigError

AT_LEAST_ONCE: Final = "at-least-once"
IDEMPOTENT: Final = "idempotent"
FAIL: Final = "fail"
SKIP: Final = "skip"
NO_COMPRESSION: Final = "none"

_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")
_TEXTS: Final = ("string",)
# The columns a frame may have, and the types each may have, as Spark names them.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": _TEXTS,
    "tags": _TEXTS,
    "keys": ("string", "array<string>"),
    "shardingKey": _TEXTS,
    "queueId": _NUMBERS,
    "delayLevel": _NUMBERS,
    "delay": (*_NUMBERS, "float", "double"),
    "deliverAt": ("timestamp",),
    "properties": ("map<string,string>",),
    "flag": _NUMBERS,
}
# These need the timing wheel, which Java brokers 4.x do not have.
TIMER_COLUMNS: Final = ("delay", "deliverAt")


def _read_properties(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) and value for value in found.values()):
        raise ValueError('expected an object of strings as JSON, for example {"source": "spark"}')
    for name in found:
        if not name or name in RESERVED:
            raise ValueError(f"the property name {name!r} is reserved")
    if len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise ValueError(f"they have more than {PROPERTIES_BYTES_MAX} bytes")
    return found


def _read_topic(text: str) -> str:
    return check_topic(read_text(text))


SINK_OPTIONS: Final = OptionTable(
    "the rocketmq sink",
    (
        *ACCESS_OPTIONS,
        SourceOption("topic", _read_topic, "", "topic of rows that have no topic column, or null in it"),
        SourceOption("tags", read_text, "", "tag of rows without one"),
        SourceOption("keys", read_text, "", "keys of rows without any, separated by spaces"),
        SourceOption(
            "shardingKey",
            read_text,
            "",
            "sharding key of rows without one; rows with the same key go to the same queue",
        ),
        SourceOption("queueId", read_count(0), None, "queue of rows without one"),
        SourceOption("delayLevel", read_count(1), 0, "delay level of rows without one"),
        SourceOption("delay", read_duration_ms, 0, "delay of rows without one, for example 90s (Eruca only)"),
        SourceOption("properties", _read_properties, {}, "properties added to every row, as JSON"),
        SourceOption(
            "delivery",
            read_choice(AT_LEAST_ONCE, IDEMPOTENT),
            AT_LEAST_ONCE,
            "at-least-once, or idempotent: the broker drops rows it has already stored (Eruca only)",
        ),
        SourceOption(
            "writeId",
            read_text,
            "",
            "id of an idempotent batch write; repeating a write with the same id stores only the missing rows",
        ),
        SourceOption("batchBytes", read_bytes, 1024 * 1024, "maximum size of one request"),
        SourceOption("batchRows", read_count(), 2000, "rows sent to one queue before the next queue is used"),
        SourceOption("inFlight", read_count(), 8, "requests that a task may have queued or in flight"),
        SourceOption(
            "waitStoreOk",
            read_flag,
            True,
            "with false the broker acknowledges before a message is on disk and on slaves",
        ),
        SourceOption(
            "compression", read_choice(NO_COMPRESSION, *COMPRESSIONS), NO_COMPRESSION, "compression of large bodies"
        ),
        SourceOption("compressFrom", read_bytes, 4096, "compress bodies of at least this size"),
        SourceOption("compressLevel", read_count(), 5, "compression level"),
        SourceOption("maxMessageBytes", read_bytes, MESSAGE_BODY_BYTES_MAX, "largest body that the brokers accept"),
        SourceOption(
            "onBadRow",
            read_choice(FAIL, SKIP),
            FAIL,
            "what to do with a row that cannot be sent: fail, or skip and count",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one sink."""

    access: Access
    topic: str
    tags: str
    keys: str
    sharding_key: str
    queue_id: int | None
    delay_level: int
    delay_ms: int
    properties: Mapping[str, str]
    is_idempotent: bool
    write_id: str
    batch_bytes: int
    batch_rows: int
    in_flight: int
    wait_store_ok: bool
    compression: str
    compress_from: int
    compress_level: int
    body_bytes_max: int
    skips_bad_rows: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Return the options that Spark passes. Raises ConfigError."""
        values: dict[str, Any] = SINK_OPTIONS.read(given)
        if values["batchBytes"] > values["maxMessageBytes"]:
            raise ConfigError(
                f"batchBytes={values['batchBytes']} is above maxMessageBytes={values['maxMessageBytes']}",
                hint="a broker rejects a batch that is larger than the largest message",
            )
        if values["delayLevel"] and values["delay"]:
            raise ConfigError("delayLevel and delay are mutually exclusive", hint="give only one of them")
        if values["writeId"] and values["delivery"] != IDEMPOTENT:
            raise ConfigError("writeId requires delivery=idempotent")
        for name in ("tags", "keys"):
            if "\x01" in values[name] or "\x02" in values[name]:
                raise ConfigError(f"option {name} contains a separator character (0x01 or 0x02)")
        return cls(
            access=choose_access(values),
            topic=values["topic"],
            tags=values["tags"],
            keys=values["keys"],
            sharding_key=values["shardingKey"],
            queue_id=values["queueId"],
            delay_level=values["delayLevel"],
            delay_ms=values["delay"],
            properties=values["properties"],
            is_idempotent=values["delivery"] == IDEMPOTENT,
            write_id=values["writeId"],
            batch_bytes=values["batchBytes"],
            batch_rows=values["batchRows"],
            in_flight=values["inFlight"],
            wait_store_ok=values["waitStoreOk"],
            compression=values["compression"],
            compress_from=values["compressFrom"],
            compress_level=values["compressLevel"],
            body_bytes_max=values["maxMessageBytes"],
            skips_bad_rows=values["onBadRow"] == SKIP,
        )


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise ConfigError for a frame that cannot be written, naming the nearest right column."""
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        if types is None:
            guess = suggest_name(field.name, COLUMNS, f"there are {', '.join(COLUMNS)}; drop the others")
            raise ConfigError(f"the rocketmq sink has no column {field.name}", hint=guess)
        found = field.dataType.simpleString()
        if found not in types:
            raise ConfigError(f"column {field.name} is {found}, not {' or '.join(types)}", hint="cast it")
    names = set(schema.fieldNames())
    if "body" not in names:
        raise ConfigError("the frame has no column body", hint='name what is to be sent: .selectExpr("... AS body")')
    if "topic" not in names and not options.topic:
        raise ConfigError("no destination topic is given", hint='.option("topic", "orders"), or a column topic')
    given: list[str] = [name for name in ("delayLevel", "delay", "deliverAt") if name in names]
    given += [name for name, value in (("delayLevel", options.delay_level), ("delay", options.delay_ms)) if value]
    if len(set(given)) > 1:
        raise ConfigError(f"{' and '.join(dict.fromkeys(given))} are mutually exclusive", hint="give only one of them")


def wants_timer(schema: StructType, options: SinkOptions) -> bool:
    """Whether rows have delays that only a timing wheel supports."""
    return bool(options.delay_ms) or any(name in TIMER_COLUMNS for name in schema.fieldNames())
