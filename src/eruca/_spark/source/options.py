"""The options of `format("rocketmq")`, for reading: declared once, read and checked when a query is planned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca._client.group.subscriptions import Sql, Subscription, Wanted, make_subscription
from eruca._filter.tags import parse_tags
from eruca._ground.limits import PULL_BYTES_MAX, SQL_CHARS_MAX
from eruca._spark.cluster import ACCESS_OPTIONS, Access
from eruca._spark.offsets import EARLIEST, LATEST, QueueTree, read_offset, read_tree
from eruca._spark.optiontable import (
    OptionTable,
    SourceOption,
    read_bytes,
    read_choice,
    read_count,
    read_duration_ms,
    read_flag,
)
from eruca._spark.source.dataloss import FAIL, IGNORE, WARN
from eruca._spark.timestamps import Timestamp, read_timestamp
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_CONSUMER_GROUP, check_group, check_topic
from eruca.errors import ConfigError, ErucaError

GROUP_PREFIX: Final = "group:"
_OFFSETS_EXAMPLE: Final = '{"orders": {"broker-a": {"0": 120, "1": -2}}} (-2 earliest, -1 latest)'
_TIMES_EXAMPLE: Final = '{"orders": "-10m", "payments": "2026-11-15T08:00:00Z"}'
_ASSIGN_EXAMPLE: Final = '{"orders": {"broker-a": [0, 1]}}'
# Values above this are more likely a mistake than intended.
_IN_FLIGHT_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query starts or ends: exactly one of the fields is set."""

    # EARLIEST or LATEST, for all queues.
    end: int | None = None
    # At the committed offsets of this group.
    group: str = ""
    # At the first message stored at this time or later.
    time: Timestamp | None = None
    # Offsets by queue. Queues that are not listed start at their first message and end at their last.
    offsets: QueueTree | None = None
    # Times by queue.
    times: QueueTree | None = None


AT_EARLIEST: Final = Position(end=EARLIEST)
AT_LATEST: Final = Position(end=LATEST)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, and how."""

    access: Access
    # Exactly one of these is set.
    topics: tuple[str, ...]
    pattern: str
    assigned: tuple[MessageQueue, ...]
    # None: not given.
    start: Position | None
    end: Position | None
    loss: str
    wanted: Wanted
    partitions_min: int | None
    partitions_max: int | None
    partition_records_max: int | None
    include_properties: bool
    verify_crc: bool
    decompress: bool
    consumer_group: str
    commit_group: str
    pulls_in_flight: int
    pull_bytes: int
    # For streams.
    trigger_offsets_max: int | None
    trigger_bytes_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_max_ms: int

    def make_subscription(self, topic: str) -> Subscription:
        """Return the subscription of a topic, as pull requests carry it."""
        return make_subscription(topic, self.wanted, 0)

    @property
    def is_filtered(self) -> bool:
        """Whether the broker filters messages."""
        return self.wanted != "*"


def _read_topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_read_topic(part.strip()) for part in text.split(",") if part.strip())) or _refuse(
        "it contains no topic"
    )


def _refuse(why: str) -> Any:
    raise ValueError(why)


def _read_topic(text: str) -> str:
    try:
        return check_topic(text, 255)
    except ErucaError as error:
        raise ValueError(str(error)) from None


def _read_group(text: str) -> str:
    try:
        return check_group(text)
    except ErucaError as error:
        raise ValueError(str(error)) from None


def _read_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text or _refuse("it is empty")


def _read_assigned(text: str) -> tuple[MessageQueue, ...]:
    try:
        tree = json.loads(text)
        found = tuple(
            MessageQueue(broker, number, _read_topic(topic))
            for topic, by_broker in tree.items()
            for broker, numbers in by_broker.items()
            for number in numbers
        )
        if not found or not all(type(queue.queue_id) is int and queue.queue_id >= 0 for queue in found):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"expected JSON, for example {_ASSIGN_EXAMPLE}") from None
    return tuple(dict.fromkeys(found))


def _read_position(text: str) -> Position:
    lower = text.lower()
    if lower == "earliest":
        return AT_EARLIEST
    if lower == "latest":
        return AT_LATEST
    if lower.startswith(GROUP_PREFIX):
        return Position(group=_read_group(text[len(GROUP_PREFIX) :].strip()))
    if text.startswith("{"):
        return Position(offsets=read_tree(text, read_offset, _OFFSETS_EXAMPLE))
    raise ValueError(f"expected earliest, latest, group:NAME or JSON, for example {_OFFSETS_EXAMPLE}")


def _read_times(text: str) -> Position:
    return Position(times=read_tree(text, read_timestamp, _TIMES_EXAMPLE))


def _read_timestamp(text: str) -> Position:
    return Position(time=read_timestamp(text))


def _read_tags(text: str) -> str:
    try:
        return parse_tags(text).text
    except ErucaError as error:
        raise ValueError(str(error)) from None


def _read_sql(text: str) -> Sql:
    if not text:
        raise ValueError("it is empty")
    if len(text) > SQL_CHARS_MAX:
        raise ValueError(f"it has {len(text)} characters; at most {SQL_CHARS_MAX} are allowed")
    return Sql(text)


def _read_in_flight(text: str) -> int:
    number: int = read_count(1)(text)
    return number if number <= _IN_FLIGHT_MAX else _refuse(f"expected at most {_IN_FLIGHT_MAX}")


def _read_pull_bytes(text: str) -> int:
    size = read_bytes(text)
    return size if size <= PULL_BYTES_MAX else _refuse(f"expected at most {PULL_BYTES_MAX}")


SOURCE_OPTIONS: Final = OptionTable(
    'format("rocketmq")',
    (
        *ACCESS_OPTIONS,
        SourceOption("subscribe", _read_topics, (), "topics, separated by commas"),
        SourceOption("subscribePattern", _read_pattern, "", "a regular expression that whole topic names must match"),
        SourceOption("assign", _read_assigned, (), f"queues as JSON: {_ASSIGN_EXAMPLE}"),
        SourceOption(
            "startingOffsets",
            _read_position,
            None,
            f"earliest (default of a batch), latest (default of a stream), group:NAME, or JSON: {_OFFSETS_EXAMPLE}",
        ),
        SourceOption(
            "startingTimestamp",
            _read_timestamp,
            None,
            "start with messages stored at this time: epoch in ms or s, ISO 8601, or relative (-10m)",
        ),
        SourceOption("startingOffsetsByTimestamp", _read_times, None, f"start times by topic: {_TIMES_EXAMPLE}"),
        SourceOption(
            "endingOffsets", _read_position, None, f"latest, group:NAME, or JSON: {_OFFSETS_EXAMPLE}; batches only"
        ),
        SourceOption(
            "endingTimestamp", _read_timestamp, None, "stop before messages stored at this time; batches only"
        ),
        SourceOption(
            "endingOffsetsByTimestamp", _read_times, None, f"end times by topic: {_TIMES_EXAMPLE}; batches only"
        ),
        SourceOption(
            "failOnDataLoss",
            read_choice(FAIL, IGNORE, WARN),
            FAIL,
            "what to do when messages are no longer available: true (fail), warn or false (ignore)",
        ),
        SourceOption("tags", _read_tags, None, "tags, separated by ||; the broker filters out other messages"),
        SourceOption("sql92", _read_sql, None, "an SQL92 expression over properties, evaluated by the broker"),
        SourceOption("minPartitions", read_count(1), None, "at least this many partitions: large queues are split"),
        SourceOption(
            "maxPartitions",
            read_count(1),
            None,
            "at most this many partitions; takes precedence over minPartitions and maxRecordsPerPartition",
        ),
        SourceOption("maxRecordsPerPartition", read_count(1), None, "at most this many messages in one partition"),
        SourceOption("includeProperties", read_flag, True, "include the column properties"),
        SourceOption("verifyCrc", read_flag, False, "check the CRC of every body; a mismatch counts as data loss"),
        SourceOption("decompress", read_flag, True, "decompress bodies that were compressed by the producer"),
        SourceOption(
            "consumerGroup",
            _read_group,
            TOOLS_CONSUMER_GROUP,
            "the group name sent with requests; nothing is committed to it",
        ),
        SourceOption("commitOffsetsToGroup", _read_group, "", "commit the offsets of a stream to this group"),
        SourceOption("pullInFlight", _read_in_flight, 16, "pull requests that a task keeps in flight"),
        SourceOption(
            "pullBytes",
            _read_pull_bytes,
            1024 * 1024,
            "maximum size of one response; a Java broker returns at most 256k",
        ),
        SourceOption("maxOffsetsPerTrigger", read_count(1), None, "at most this many messages in one micro-batch"),
        SourceOption("maxBytesPerTrigger", read_bytes, None, "at most about this many bytes in one micro-batch"),
        SourceOption(
            "minOffsetsPerTrigger", read_count(1), None, "wait for this many messages before starting a micro-batch"
        ),
        SourceOption(
            "maxTriggerDelay",
            read_duration_ms,
            15 * 60_000,
            "wait at most this long for minOffsetsPerTrigger, for example 15m",
        ),
    ),
)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Read all options of a query. Raises ConfigError for wrong, missing or contradictory ones."""
    values = SOURCE_OPTIONS.read(given)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if values[name]]
    if not chosen:
        raise ConfigError("no topic is given", hint='for example .option("subscribe", "orders,payments")')
    _refuse_several(chosen, "give only one of them")
    start = _choose_position(values, ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"))
    end = _choose_position(values, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
    _refuse_several([name for name in ("tags", "sql92") if values[name] is not None], "give only one of them")
    _check_partitions(values)
    return SourceOptions(
        access=Access.of(values),
        topics=values["subscribe"],
        pattern=values["subscribePattern"],
        assigned=values["assign"],
        start=start,
        end=end,
        loss=values["failOnDataLoss"],
        wanted=values["sql92"] or values["tags"] or "*",
        partitions_min=values["minPartitions"],
        partitions_max=values["maxPartitions"],
        partition_records_max=values["maxRecordsPerPartition"],
        include_properties=values["includeProperties"],
        verify_crc=values["verifyCrc"],
        decompress=values["decompress"],
        consumer_group=values["consumerGroup"],
        commit_group=values["commitOffsetsToGroup"],
        pulls_in_flight=values["pullInFlight"],
        pull_bytes=values["pullBytes"],
        trigger_offsets_max=values["maxOffsetsPerTrigger"],
        trigger_bytes_max=values["maxBytesPerTrigger"],
        trigger_offsets_min=values["minOffsetsPerTrigger"],
        trigger_delay_max_ms=values["maxTriggerDelay"],
    )


def _refuse_several(chosen: list[str], hint: str) -> None:
    if len(chosen) > 1:
        raise ConfigError(f"options {' and '.join(chosen)} are mutually exclusive", hint=hint)


def _choose_position(values: Mapping[str, Any], names: tuple[str, ...]) -> Position | None:
    chosen = [name for name in names if values[name] is not None]
    _refuse_several(chosen, "give only one of them")
    return values[chosen[0]] if chosen else None


def _check_partitions(values: Mapping[str, Any]) -> None:
    least, most = values["minPartitions"], values["maxPartitions"]
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minPartitions={least} is more than maxPartitions={most}")
    offsets_min, offsets_max = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise ConfigError(f"minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}")


def check_for_batch(options: SourceOptions) -> None:
    """Raise ConfigError for options that make no sense in a batch. Limits of micro-batches are ignored."""
    if options.start == AT_LATEST:
        raise ConfigError(
            "startingOffsets=latest would read nothing in a batch", hint="use readStream to read what arrives later"
        )
    if options.end == AT_EARLIEST or (options.end and options.end.offsets and _has_earliest(options.end.offsets)):
        raise ConfigError("endingOffsets cannot be earliest (-2)", hint="it would read nothing")
    if options.commit_group:
        raise ConfigError(
            f"commitOffsetsToGroup={options.commit_group} is for streams only: Spark may read a batch twice, or never",
            hint="use readStream with trigger(availableNow=True), which reads what is available and stops",
        )


def check_for_stream(options: SourceOptions) -> None:
    """Raise ConfigError for options that make no sense in a stream."""
    if options.end is not None:
        raise ConfigError(
            "a stream has no end: endingOffsets and endingTimestamp are for batches",
            hint="use spark.read, or trigger(availableNow=True) to read what is available now and stop",
        )


def _has_earliest(tree: QueueTree) -> bool:
    return EARLIEST in tree.list_values()
