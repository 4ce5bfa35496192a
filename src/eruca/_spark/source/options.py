"""The options of `format("rocketmq")`, for reading: declared once, read and checked when a query is planned."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eruca._client.group.subscriptions import Filter, Sql, Subscription, make_subscription
from eruca._filter.tags import parse_tags
from eruca._ground.limits import PULL_BYTES_MAX, SQL_CHARS_MAX
from eruca._spark.cluster import ACCESS_OPTIONS, Access, choose_access
from eruca._spark.offsets import EARLIEST
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
from eruca._spark.source.positions import (
    AT_LATEST,
    OFFSETS_EXAMPLE,
    TIMES_EXAMPLE,
    Position,
    read_group,
    read_position,
    read_time,
    read_times,
)
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import TOOLS_CONSUMER_GROUP, check_topic
from eruca.errors import ConfigError, ErucaError

_ASSIGN_EXAMPLE: Final = '{"orders": {"broker-a": [0, 1]}}'
# What to do in a queue that has no message at the start time or later.
NO_MESSAGE_FAIL: Final = "error"
NO_MESSAGE_LATEST: Final = "latest"
NO_MESSAGE_EARLIEST: Final = "earliest"
# Values above this are more likely a mistake than intended.
_IN_FLIGHT_MAX: Final = 1024


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
    no_message: str
    loss: str
    wanted: Filter
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
    topic_offsets_min: int | None
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
            read_position,
            None,
            f"earliest (default of a batch), latest (default of a stream), group:NAME, or JSON: {OFFSETS_EXAMPLE}",
        ),
        SourceOption(
            "startingTimestamp",
            read_time,
            None,
            "start with messages stored at this time: epoch in ms or s, ISO 8601, or relative (-10m)",
        ),
        SourceOption("startingOffsetsByTimestamp", read_times, None, f"start times by topic: {TIMES_EXAMPLE}"),
        SourceOption(
            "startingOffsetsByTimestampStrategy",
            read_choice(NO_MESSAGE_LATEST, NO_MESSAGE_EARLIEST, NO_MESSAGE_FAIL),
            NO_MESSAGE_LATEST,
            "where to start in a queue without a message at the start time or later: latest, earliest, or error (fail)",
        ),
        SourceOption(
            "endingOffsets", read_position, None, f"latest, group:NAME, or JSON: {OFFSETS_EXAMPLE}; batches only"
        ),
        SourceOption("endingTimestamp", read_time, None, "stop before messages stored at this time; batches only"),
        SourceOption(
            "endingOffsetsByTimestamp", read_times, None, f"end times by topic: {TIMES_EXAMPLE}; batches only"
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
            read_group,
            TOOLS_CONSUMER_GROUP,
            "the group name sent with requests; nothing is committed to it",
        ),
        SourceOption("commitOffsetsToGroup", read_group, "", "commit the offsets of a stream to this group"),
        SourceOption("pullInFlight", _read_in_flight, 16, "pull requests that a task keeps in flight"),
        SourceOption(
            "pullBytes",
            _read_pull_bytes,
            1024 * 1024,
            "maximum size of one response; a Java broker returns at most 256k",
        ),
        SourceOption("maxOffsetsPerTrigger", read_count(1), None, "at most this many messages in one micro-batch"),
        SourceOption(
            "minOffsetsPerTopic",
            read_count(1),
            None,
            "of a limited micro-batch, at least this many messages of each topic, or all that it has",
        ),
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
    _check_limits(values)
    return SourceOptions(
        access=choose_access(values),
        topics=values["subscribe"],
        pattern=values["subscribePattern"],
        assigned=values["assign"],
        start=start,
        end=end,
        no_message=values["startingOffsetsByTimestampStrategy"],
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
        topic_offsets_min=values["minOffsetsPerTopic"],
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
    return replace(values[chosen[0]], option=chosen[0]) if chosen else None


def _check_limits(values: Mapping[str, Any]) -> None:
    least, most = values["minPartitions"], values["maxPartitions"]
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minPartitions={least} is more than maxPartitions={most}")
    offsets_min, offsets_max = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise ConfigError(f"minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}")
    share = values["minOffsetsPerTopic"]
    if share is not None and offsets_max is not None and share > offsets_max:
        raise ConfigError(
            f"minOffsetsPerTopic={share} is more than maxOffsetsPerTrigger={offsets_max}",
            hint=f"it is a part of a micro-batch: at most {offsets_max}, divided by the number of topics",
        )
    if share is not None and offsets_max is None and values["maxBytesPerTrigger"] is None:
        raise ConfigError(
            f"minOffsetsPerTopic={share} has no effect without a limit",
            hint="give maxOffsetsPerTrigger or maxBytesPerTrigger too",
        )


def check_for_batch(options: SourceOptions) -> None:
    """Raise ConfigError for options that make no sense in a batch. Limits of micro-batches are ignored."""
    if options.start == AT_LATEST:
        raise ConfigError(
            "startingOffsets=latest would read nothing in a batch", hint="use readStream to read what arrives later"
        )
    if options.end is not None and options.end.contains(EARLIEST):
        raise ConfigError(f"{options.end.option} cannot be earliest (-2)", hint="it would read nothing")
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
