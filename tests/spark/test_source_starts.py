"""Where topics of one query start and end, each in its own way; queues without a message at a time; parts of topics."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import BROKER_NAME, Cluster
from tests.spark.producing import commit_group, create_topic, name_topic, send
from tests.spark.streams import Sink, number_bodies, open_stream, wait_for_next_ms


def show_time(time_ms: int) -> str:
    """A time as users write it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def count_topics(table: Any) -> dict[str, int]:
    """The number of rows of each topic."""
    found: dict[str, int] = {}
    for topic in table["topic"].to_pylist():
        found[topic] = found.get(topic, 0) + 1
    return found


def test_every_topic_of_a_stream_starts_in_its_own_way(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    names = ("all", "new", "numbers", "since", "group", "unnamed")
    topics = {name: name_topic(name) for name in names}
    queues = {name: create_topic(cluster, topic, queues=2) for name, topic in topics.items()}
    for topic in topics.values():
        send(cluster, topic, number_bodies(0, 20))
    commit_group(cluster, topics["group"], {queues["group"][0]: 4, queues["group"][1]: 9})
    middle_ms = wait_for_next_ms()
    send(cluster, topics["since"], number_bodies(20, 26))
    starts = {
        topics["all"]: "earliest",
        topics["new"]: "latest",
        topics["numbers"]: {BROKER_NAME: {"0": 7, "1": "latest"}},
        topics["since"]: show_time(middle_ms),
        topics["group"]: f"group:{topics['group']}",
    }
    options = {"subscribe": ",".join(topics.values()), "startingOffsets": json.dumps(starts)}
    sink = Sink(tmp_path)
    sink.run(open_stream(spark, cluster, **options))
    expected = {"all": 20, "numbers": 3, "since": 6, "group": 7, "unnamed": 20}
    assert count_topics(sink.read()) == {topics[name]: count for name, count in expected.items()}
    for topic in topics.values():
        send(cluster, topic, number_bodies(30, 34))
    sink.run(open_stream(spark, cluster, **options))
    assert count_topics(sink.read()) == {topic: expected.get(name, 0) + 4 for name, topic in topics.items()}


def test_every_topic_of_a_batch_ends_in_its_own_way(spark: Any, cluster: Cluster) -> None:
    topics = {name: name_topic(name) for name in ("all", "numbers", "since")}
    for topic in topics.values():
        create_topic(cluster, topic, queues=2)
        send(cluster, topic, number_bodies(0, 20))
    middle_ms = wait_for_next_ms()
    send(cluster, topics["since"], number_bodies(20, 26))

    def count(**options: object) -> dict[str, int]:
        reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server).schema("topic string")
        reader = reader.option("subscribe", ",".join(topics.values()))
        for name, value in options.items():
            reader = reader.option(name, json.dumps(value))
        return count_topics(reader.load().toArrow())

    numbers = {BROKER_NAME: {"0": 3, "1": "latest"}}
    ends = {topics["all"]: "latest", topics["numbers"]: numbers, topics["since"]: show_time(middle_ms)}
    assert count(endingOffsets=ends) == {topics["all"]: 20, topics["numbers"]: 13, topics["since"]: 20}
    # Words are places in the options of times too.
    starts = {topics["all"]: "latest", topics["since"]: middle_ms, topics["numbers"]: "earliest"}
    assert count(startingOffsetsByTimestamp=starts) == {topics["numbers"]: 20, topics["since"]: 6}
    with pytest.raises(Exception, match=r"did you mean " + topics["all"]):
        count(startingOffsets={topics["all"] + "x": "earliest"})


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        pytest.param("startingTimestamp", "", marks=pytest.mark.whole),
        pytest.param("startingOffsets", "earliest", marks=pytest.mark.whole),
        ("startingOffsetsByTimestamp", "error"),
    ],
)
def test_a_queue_without_a_message_at_the_time(
    spark: Any, cluster: Cluster, tmp_path: Path, kind: str, strategy: str
) -> None:
    topic, sink = name_topic("no-message"), Sink(tmp_path)
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 20))
    middle_ms = wait_for_next_ms()
    send(cluster, topic, number_bodies(20, 25), queue=0)
    start = {
        "startingTimestamp": middle_ms,
        "startingOffsetsByTimestamp": json.dumps({topic: middle_ms}),
        "startingOffsets": json.dumps({topic: show_time(middle_ms)}),
    }[kind]
    options: dict[str, object] = {"subscribe": topic, kind: start}
    if strategy:
        options["startingOffsetsByTimestampStrategy"] = strategy
    frame = open_stream(spark, cluster, **options)
    if strategy == "error":
        with pytest.raises(Exception, match=rf"{topic}, broker {BROKER_NAME}, queue 1 has no message stored at 20.*"):
            sink.run(frame)
        send(cluster, topic, number_bodies(25, 26), queue=1)
        sink = Sink(tmp_path / "again")
    sink.run(frame)
    first = {"": 5, "earliest": 15, "error": 6}[strategy]
    assert len(sink.list_rows()) == first
    send(cluster, topic, number_bodies(30, 40))
    sink.run(frame)
    assert len(sink.list_rows()) == first + 10


def test_a_small_topic_has_its_part_of_each_batch(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    huge, small, sink = name_topic("huge"), name_topic("small"), Sink(tmp_path)
    create_topic(cluster, huge, queues=4)
    create_topic(cluster, small, queues=2)
    send(cluster, huge, number_bodies(0, 600))
    send(cluster, small, number_bodies(0, 90))
    both = {"subscribe": f"{huge},{small}", "maxOffsetsPerTrigger": 150}
    sink.run(open_stream(spark, cluster, **both, minOffsetsPerTopic=40))
    assert count_topics(sink.read()) == {huge: 600, small: 90}
    at = [
        {topic: sum(sum(queues.values()) for queues in brokers.values()) for topic, brokers in each["topics"].items()}
        for each in sink.read_offsets()
    ]
    assert at[0][small] >= 40 and at[1][small] >= 80 and at[2][small] == 90
    assert [each[small] + each[huge] for each in at] == [150, 300, 450, 600, 690]
    # Without it, the small topic is read to its end in the last batch.
    other = Sink(tmp_path / "other")
    other.run(open_stream(spark, cluster, **both))
    ends = [sum(each["topics"][small][BROKER_NAME].values()) for each in other.read_offsets()]
    assert len(ends) == 5 and ends[3] < 90 and ends[4] == 90
