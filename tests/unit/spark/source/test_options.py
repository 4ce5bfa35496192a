"""The options of the source: what is read from them, and what each mistake is answered with."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from eruca._client.group.subscriptions import Sql
from eruca._spark.offsets import EARLIEST, LATEST
from eruca._spark.source.options import SourceOptions, check_for_batch, check_for_stream, read_options
from eruca._spark.source.positions import AT_EARLIEST, AT_LATEST, Committed, Place, Position
from eruca._spark.timestamps import Timestamp, read_timestamp
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError


def read(**given: str) -> SourceOptions:
    return read_options({"nameServer": "127.0.0.1:9876", **({} if "assign" in given else {"subscribe": "t"}), **given})


def test_defaults() -> None:
    options = read()
    assert options.topics == ("t",) and not options.pattern and not options.assigned
    assert options.start is None and options.end is None
    assert options.loss == "true" and options.wanted == "*" and not options.is_filtered
    assert options.include_properties and options.decompress and not options.verify_crc
    assert options.consumer_group == "TOOLS_CONSUMER"
    check_for_batch(options)
    check_for_stream(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_in_any_case() -> None:
    assert read(startingoffsets="EARLIEST", MINPARTITIONS="1_000").start == AT_EARLIEST


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"subscribe": " a, b ,a,"}, "topics", ("a", "b")),
        ({"subscribe": "%DLQ%g"}, "topics", ("%DLQ%g",)),
        (
            {"assign": '{"t": {"b": [0, 2, 2]}}'},
            "assigned",
            (MessageQueue("b", 0, "t"), MessageQueue("b", 2, "t")),
        ),
        ({"startingOffsets": "group: billing"}, "start", Position(Committed("billing"))),
        ({"startingTimestamp": "-10m"}, "start", Position(Timestamp(-600_000, True))),
        ({"endingOffsets": "latest"}, "end", AT_LATEST),
        ({"tags": "a || b"}, "wanted", "a || b"),
        ({"sql92": "n > 1"}, "wanted", Sql("n > 1")),
        ({"failOnDataLoss": "Warn"}, "loss", "warn"),
        ({"maxBytesPerTrigger": "64m"}, "trigger_bytes_max", 64 * 1024**2),
        ({"maxTriggerDelay": "30s"}, "trigger_delay_max_ms", 30_000),
        ({"pullInFlight": "32"}, "pulls_in_flight", 32),
        ({"commitOffsetsToGroup": "g"}, "commit_group", "g"),
        ({}, "no_message", "latest"),
        ({"startingOffsetsByTimestampStrategy": "Earliest"}, "no_message", "earliest"),
        ({"minOffsetsPerTopic": "50", "maxOffsetsPerTrigger": "100"}, "topic_offsets_min", 50),
    ],
)
def test_values(given: dict[str, str], field: str, value: Any) -> None:
    assert getattr(read(**given), field) == value


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffset": "earliest"}, r"has no option startingOffset \(did you mean startingOffsets\?\)"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"subscribe": ","}, "contains no topic"),
        ({"subscribe": "a b"}, "has a character other than"),
        ({"subscribePattern": "y"}, "subscribe and subscribePattern are mutually exclusive"),
        ({"startingOffsets": "early"}, "expected earliest, latest, group:NAME or JSON"),
        ({"startingOffsets": "group:"}, "the group name is empty"),
        ({"startingOffsets": "earlist"}, r"did you mean earliest\?"),
        ({"startingOffsets": '{"t": {"b": {"0": -5}}}'}, "t/b/0: -5 is not an offset"),
        ({"startingOffsets": '{"t": "earlist"}'}, "t: 'earlist' is not a place: .* did you mean earliest"),
        ({"startingOffsets": '{"t": {"b": "-10 moons"}}'}, "t/b: '-10 moons' is not a place: expected an offset"),
        ({"startingOffsets": '{"t": "group: "}'}, "t: the group name is empty"),
        ({"startingOffsets": '{"t": true}'}, "t: True is not a place"),
        ({"startingOffsetsByTimestamp": '{"t": "lastest"}'}, "did you mean latest"),
        ({"startingOffsetsByTimestamp": '{"t": -1}'}, "-1 is not a place: expected a time"),
        ({"startingOffsetsByTimestampStrategy": "late"}, "expected one of latest, earliest, error; did you mean lat"),
        ({"minOffsetsPerTopics": "5"}, "did you mean minOffsetsPerTopic"),
        ({"minOffsetsPerTopic": "5"}, "minOffsetsPerTopic=5 has no effect without a limit"),
        ({"minOffsetsPerTopic": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTopic=5 is more than maxOffsets"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp are"),
        ({"startingTimestamp": "yesterday"}, "is not a time"),
        ({"startingOffsetsByTimestamp": '{"t": "x"}'}, "t: 'x' is not a place: expected a time"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "are mutually exclusive"),
        ({"tags": "a", "sql92": "b"}, "tags and sql92 are mutually exclusive"),
        ({"tags": "||"}, "contains no tag"),
        ({"minPartitions": "4", "maxPartitions": "3"}, "minPartitions=4 is more than maxPartitions=3"),
        ({"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"}, "is more than maxOffsetsPerTrigger"),
        ({"maxRecordsPerPartition": "0"}, "expected at least 1"),
        ({"failOnDataLoss": "maybe"}, "expected one of true, false, warn"),
        ({"isolation": "committed"}, "has no option isolation"),
        ({"includeProperties": "sure"}, "expected true or false"),
        ({"pullInFlight": "100000"}, "expected at most 1024"),
        ({"pullBytes": "1g"}, "expected at most 4194304"),
        ({"assign": '{"t": {"b": 3}}'}, "expected JSON, for example"),
        ({"assign": '{"t": {"b": ["0"]}}'}, "expected JSON, for example"),
        ({"accessFile": "/no/such/file"}, "No such file"),
        ({"nameServer": ""}, "nameServer"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(**given)


@pytest.mark.parametrize(
    ("option", "text", "place"),
    [
        ("startingOffsets", "120", 120),
        ("startingOffsets", '"120"', 120),
        ("startingOffsets", "-2", EARLIEST),
        ("startingOffsets", '"Earliest"', EARLIEST),
        ("startingOffsets", '"latest"', LATEST),
        ("startingOffsets", '"-10m"', Timestamp(-600_000, True)),
        ("startingOffsets", '"1970-01-01T00:01:00Z"', Timestamp(60_000)),
        ("startingOffsets", '"group:billing"', Committed("billing")),
        ("startingOffsetsByTimestamp", "120", Timestamp(120_000)),
        ("startingOffsetsByTimestamp", '"earliest"', EARLIEST),
        ("startingOffsetsByTimestamp", '"-10m"', Timestamp(-600_000, True)),
    ],
)
def test_a_place_of_a_topic_a_broker_or_a_queue(option: str, text: str, place: Place) -> None:
    queue = MessageQueue("b", 3, "t")
    for tree in (f'{{"t": {text}}}', f'{{"t": {{"b": {text}}}}}', f'{{"t": {{"b": {{"3": {text}}}}}}}'):
        position = read(**{option: tree}).start
        assert position is not None and position.places is not None
        assert position.places.find(queue) == place and position.option == option
        assert position.places.find(MessageQueue("b", 3, "other")) is None


def test_nothing_to_read() -> None:
    with pytest.raises(ConfigError, match="no topic is given"):
        read_options({"nameServer": "x"})
    with pytest.raises(ConfigError, match="nameServer is missing"):
        read_options({"subscribe": "x"})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t": {"b": {"0": -2}}}'}, "cannot be earliest"),
        ({"endingOffsetsByTimestamp": '{"t": "earliest"}'}, "endingOffsetsByTimestamp cannot be earliest"),
        ({"commitOffsetsToGroup": "g"}, "is for streams"),
    ],
)
def test_what_no_batch_can_do(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_for_batch(read(**given))


def test_what_no_stream_can_do() -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        check_for_stream(read(endingTimestamp="now"))


def test_what_only_a_stream_heeds_is_ignored_by_a_batch() -> None:
    check_for_batch(read(maxOffsetsPerTrigger="1", maxBytesPerTrigger="1k", minOffsetsPerTrigger="1"))


@pytest.mark.parametrize(
    ("text", "now_ms", "expected"),
    [
        ("1700000000", 0, 1_700_000_000_000),
        ("1700000000123", 0, 1_700_000_000_123),
        ("0", 9, 0),
        ("now", 77, 77),
        ("-1s", 5000, 4000),
        ("-1d", 5000, 0),
        ("- 500ms", 5000, 4500),
        ("2026-11-15T08:00:00Z", 0, 1_794_729_600_000),
        ("2026-11-15T08:00:00", 0, 1_794_729_600_000),
        ("2026-11-15T09:00:00.250+01:00", 0, 1_794_729_600_250),
        ("2026-11-15", 0, 1_794_700_800_000),
    ],
)
def test_times(text: str, now_ms: int, expected: int) -> None:
    assert read_timestamp(text).resolve(now_ms) == expected


@pytest.mark.parametrize("text", ["", "-", "-10", "soon", "-10x", "1.5", "1960-01-01"])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|before 1970"):
        read_timestamp(text)
