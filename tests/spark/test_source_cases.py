"""What a batch reads: selection, start, end and loss in every combination, against both systems.

Planned and read without a Spark session: `test_source_batch` shows that the session does the same.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from eruca import Decision, Outgoing
from eruca.errors import ConfigError, NoRoute, OffsetLost
from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.spark.producing import (
    commit_group,
    create_topic,
    delete_topic,
    name_topic,
    send,
    send_transactions,
    wait_for_offsets,
)
from tests.spark.reading import make_reader, read_numbers, read_rows, wait_for_next_millisecond

QUEUES = 3
FIRST, SECOND = 30, 60


class Filled:
    """A topic with 30 messages before a moment and 60 after it, in 3 queues, and a group that has read the first 30."""

    def __init__(self, cluster: Cluster) -> None:
        self.topic = name_topic("filled")
        self.queues = create_topic(cluster, self.topic, QUEUES)
        send(cluster, self.topic, [b"message-%d" % number for number in range(FIRST)])
        self.moment = wait_for_next_millisecond()
        send(cluster, self.topic, [b"message-%d" % number for number in range(FIRST, FIRST + SECOND)])
        self.group = f"{self.topic}-readers"
        commit_group(cluster, self.group, dict.fromkeys(self.queues, FIRST // QUEUES))

    def selection(self, how: str) -> dict[str, Any]:
        """The options that choose all of its queues."""
        if how == "subscribe":
            return {"subscribe": self.topic}
        if how == "subscribePattern":
            return {"subscribePattern": f"{self.topic[:-1]}[{self.topic[-1]}]"}
        return {"assign": json.dumps({self.topic: {BROKER_NAME: list(range(QUEUES))}})}

    def offsets(self, *values: int | str) -> str:
        """The same value, or one for each queue, as users write it."""
        each = values if len(values) > 1 else values * QUEUES
        return json.dumps({self.topic: {BROKER_NAME: {str(n): value for n, value in enumerate(each)}}})


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Filled:
    return Filled(cluster)


@pytest.mark.parametrize("loss", ["true", "false", "warn"])
@pytest.mark.parametrize("start", ["earliest", "specific", "timestamp", "by topic", "group"])
@pytest.mark.parametrize("selection", ["subscribe", "subscribePattern", "assign"])
def test_where_a_batch_begins(cluster: Cluster, filled: Filled, selection: str, start: str, loss: str) -> None:
    starts: dict[str, dict[str, Any]] = {
        "earliest": {"startingOffsets": "earliest"},
        "specific": {"startingOffsets": filled.offsets(FIRST // QUEUES)},
        "timestamp": {"startingTimestamp": filled.moment},
        "by topic": {"startingOffsetsByTimestamp": json.dumps({filled.topic: filled.moment})},
        "group": {"startingOffsets": f"group:{filled.group}"},
    }
    found = read_numbers(cluster, failOnDataLoss=loss, **filled.selection(selection), **starts[start])
    assert found == list(range(0 if start == "earliest" else FIRST, FIRST + SECOND))


@pytest.mark.parametrize("end", ["specific", "timestamp", "by topic", "group"])
def test_where_a_batch_ends(cluster: Cluster, filled: Filled, end: str) -> None:
    ends: dict[str, dict[str, Any]] = {
        "specific": {"endingOffsets": filled.offsets(FIRST // QUEUES)},
        "timestamp": {"endingTimestamp": filled.moment},
        "by topic": {"endingOffsetsByTimestamp": json.dumps({filled.topic: filled.moment})},
        "group": {"endingOffsets": f"group:{filled.group}"},
    }
    assert read_numbers(cluster, subscribe=filled.topic, **ends[end]) == list(range(FIRST))


def test_both_ends_of_each_queue(cluster: Cluster, filled: Filled) -> None:
    rows = read_rows(
        cluster,
        subscribe=filled.topic,
        startingOffsets=filled.offsets("earliest", 28, -1),
        endingOffsets=filled.offsets(5, -1, "latest"),
    )
    by_queue: dict[int, list[int]] = {}
    for row in rows:
        by_queue.setdefault(row["queueId"], []).append(row["queueOffset"])
    assert by_queue == {0: [0, 1, 2, 3, 4], 1: [28, 29]}


def test_times_that_are_early_late_and_relative(cluster: Cluster, filled: Filled) -> None:
    everything = list(range(FIRST + SECOND))
    assert read_numbers(cluster, subscribe=filled.topic, startingTimestamp="-1h") == everything
    assert read_numbers(cluster, subscribe=filled.topic, startingTimestamp="1") == everything
    assert read_numbers(cluster, subscribe=filled.topic, startingTimestamp="2100-01-01") == []
    assert read_numbers(cluster, subscribe=filled.topic, endingTimestamp="-1h") == []
    assert read_numbers(cluster, subscribe=filled.topic, endingTimestamp="now") == everything


def test_start_beyond_end(cluster: Cluster, filled: Filled) -> None:
    with pytest.raises(ConfigError, match=r"queue 0, would be read from 9 to 4 .*must not be greater than"):
        read_rows(cluster, subscribe=filled.topic, startingOffsets=filled.offsets(9), endingOffsets=filled.offsets(4))
    # Times and groups may well cross: then there is nothing to read.
    assert read_rows(cluster, subscribe=filled.topic, startingTimestamp=filled.moment, endingTimestamp="-1h") == []


def test_an_offset_the_queue_does_not_have(cluster: Cluster, filled: Filled, caplog: pytest.LogCaptureFixture) -> None:
    beyond = {"subscribe": filled.topic, "startingOffsets": filled.offsets(1000, 0, 29)}
    with pytest.raises(OffsetLost, match=r"queue 0, should be read from 1000, but ends at 30 .*failOnDataLoss=warn"):
        read_rows(cluster, **beyond)
    caplog.set_level(logging.WARNING)
    assert len(read_rows(cluster, failOnDataLoss="false", **beyond)) == 31
    assert not caplog.records
    assert len(read_rows(cluster, failOnDataLoss="warn", **beyond)) == 31
    assert "should be read from 1000, but ends at 30" in caplog.text


def test_a_group_that_has_read_nothing(cluster: Cluster, filled: Filled, caplog: pytest.LogCaptureFixture) -> None:
    found = read_numbers(cluster, subscribe=filled.topic, startingOffsets=f"group:{filled.group}-not")
    assert found == list(range(FIRST + SECOND))


def test_patterns_match_whole_names_and_no_system_topics(cluster: Cluster) -> None:
    stem = name_topic("pattern")
    for name in (f"{stem}-a", f"{stem}-b", f"x-{stem}-a"):
        send(cluster, name, 4)
    rows = read_rows(cluster, subscribePattern=f"{stem}-.*")
    assert {row["topic"] for row in rows} == {f"{stem}-a", f"{stem}-b"}
    assert read_rows(cluster, subscribePattern="no-such-.*") == []
    topics = {row["topic"] for row in read_rows(cluster, subscribePattern=".*")}
    assert f"x-{stem}-a" in topics
    assert not any(name.startswith(("%", "RMQ_SYS", "rmq_sys", "SCHEDULE_TOPIC")) for name in topics)
    assert BROKER_NAME not in topics and "TBW102" not in topics


def test_empty_queues_and_assigned_ones(cluster: Cluster) -> None:
    topic = name_topic("holes")
    create_topic(cluster, topic, 5)
    send(cluster, topic, 7, queue=3)
    rows = read_rows(cluster, subscribe=topic)
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [(3, offset) for offset in range(7)]
    assert read_rows(cluster, assign=json.dumps({topic: {BROKER_NAME: [0, 1]}})) == []
    assert len(read_rows(cluster, assign=json.dumps({topic: {BROKER_NAME: [2, 3]}}))) == 7
    with pytest.raises(OffsetLost, match=r"assign contains .* queue 9"):
        read_rows(cluster, assign=json.dumps({topic: {BROKER_NAME: [3, 9]}}))
    assert len(read_rows(cluster, assign=json.dumps({topic: {BROKER_NAME: [3, 9]}}), failOnDataLoss="false")) == 7


def test_a_topic_that_is_not_there(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = name_topic("there")
    send(cluster, topic, 5)
    with pytest.raises(NoRoute, match=f"topic {topic}-not has no route"):
        read_rows(cluster, subscribe=f"{topic},{topic}-not")
    assert len(read_rows(cluster, subscribe=f"{topic},{topic}-not", failOnDataLoss="warn")) == 5
    assert f"topic {topic}-not is skipped" in caplog.text


def test_a_topic_deleted_and_made_again(cluster: Cluster) -> None:
    topic = name_topic("again")
    create_topic(cluster, topic, 1)
    send(cluster, topic, 20)
    reader = make_reader(cluster, {"subscribe": topic})
    planned = reader.partitions()
    delete_topic(cluster, topic)
    with pytest.raises(OffsetLost, match=rf"{topic}, broker {BROKER_NAME}, queue 0, .* no longer exists"):
        list(reader.read(planned[0]))
    ignoring = make_reader(cluster, {"subscribe": topic, "failOnDataLoss": "false"})
    assert list(ignoring.read(planned[0])) == []
    create_topic(cluster, topic, 1)
    send(cluster, topic, 8)
    later = {"subscribe": topic, "startingOffsets": json.dumps({topic: 15})}
    with pytest.raises(OffsetLost, match="from 15, but ends at 8"):
        read_rows(cluster, **later)
    assert read_numbers(cluster, **later, failOnDataLoss="false") == []
    # Planned before it was deleted, read afterwards: it ends before it should. Questions about 8 and about 16 are on
    # their way together, and the first that is answered says so.
    with pytest.raises(OffsetLost, match=r"from 0 to 20, but at (8|16) the queue ends at 8"):
        list(reader.read(planned[0]))
    assert sum(batch.num_rows for batch in ignoring.read(planned[0])) == 8


def test_tags_and_sql92_are_filtered_by_the_broker(cluster: Cluster) -> None:
    topic = name_topic("filters")
    messages = [
        Outgoing(b"message-%d" % number, tags=("AaAa", "BBBB", "red")[number % 3], properties={"n": str(number)})
        for number in range(300)
    ]
    send(cluster, topic, messages)
    # AaAa and BBBB have the same hash, which is all a broker looks at.
    assert read_numbers(cluster, subscribe=topic, tags="AaAa") == list(range(0, 300, 3))
    assert read_numbers(cluster, subscribe=topic, tags="BBBB || red") == [n for n in range(300) if n % 3]
    assert read_numbers(cluster, subscribe=topic, tags="none") == []
    assert read_numbers(cluster, subscribe=topic, sql92="n >= 100 AND TAGS = 'red'") == list(range(101, 300, 3))
    assert read_numbers(cluster, subscribe=topic, sql92="n = 7", minPartitions=6) == [7]
    with pytest.raises(ConfigError, match=r"sql92='n >': broker broker-a cannot evaluate it"):
        read_rows(cluster, subscribe=topic, sql92="n >")


def test_transactions(cluster: Cluster) -> None:
    topic = name_topic("transactions")
    queues = create_topic(cluster, topic, 1)
    decisions = [Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN, Decision.COMMIT]
    send_transactions(cluster, topic, decisions)
    wait_for_offsets(cluster, {queues[0]: 2})
    rows = read_rows(cluster, subscribe=topic)
    assert sorted(row["body"] for row in rows) == [b"half-0", b"half-3"]
    assert {row["transactionState"] for row in rows} == {"committed"}


def test_compressed_bodies(cluster: Cluster) -> None:
    topic = name_topic("compressed")
    bodies = [b"%d-" % number * 200 for number in range(20)]
    send(cluster, topic, bodies, compress=True)
    assert sorted(row["body"] for row in read_rows(cluster, subscribe=topic)) == sorted(bodies)
    raw = [row["body"] for row in read_rows(cluster, subscribe=topic, decompress="false")]
    assert len(raw) == 20 and all(len(body) < 200 for body in raw)
    assert len(read_rows(cluster, subscribe=topic, verifyCrc="true")) == 20


def test_many_small_answers_in_order(cluster: Cluster) -> None:
    topic = name_topic("order")
    queues = create_topic(cluster, topic, 2)
    total = 5000
    send(cluster, topic, total)
    for in_flight in (1, 7, 32):
        rows = read_rows(cluster, subscribe=topic, pullInFlight=in_flight, maxPartitions=1)
        places = [(row["queueId"], row["queueOffset"]) for row in rows]
        assert places == [(queue.queue_id, offset) for queue in queues for offset in range(total // 2)]
    note_figures(f"spark source, {cluster.kind}: 3 x {total:,} messages of 2 queues read in order, none missing")


def test_large_and_small_messages_mixed(cluster: Cluster) -> None:
    topic = name_topic("mixed")
    create_topic(cluster, topic, 1)
    sizes = [10, 300_000, 20, 1_500_000, 5] * 3 + [50] * 500
    send(cluster, topic, [bytes([number % 251]) * size for number, size in enumerate(sizes)])
    rows = read_rows(cluster, subscribe=topic)
    assert [len(row["body"]) for row in rows] == sizes
    assert [row["queueOffset"] for row in rows] == list(range(len(sizes)))


def test_a_group_that_no_broker_knows_is_named(cluster: Cluster) -> None:
    topic = name_topic("group")
    send(cluster, topic, 3)
    # Both create groups automatically unless they are told not to.
    assert len(read_rows(cluster, subscribe=topic, consumerGroup=name_topic("own-group"))) == 3
