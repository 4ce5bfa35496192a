"""Streams from topics: what they read, where they begin, and how they continue."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eruca import Decision, MessageQueue, Outgoing
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.spark.producing import commit_group, create_topic, name_topic, send, send_transactions, wait_for_offsets
from tests.spark.streams import Sink, finish, number_bodies, open_stream, start_query, wait_for, wait_for_next_ms

LARGEST = 2**63 - 1


def test_what_is_available_is_read_and_then_what_is_new(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("now"), Sink(tmp_path)
    send(cluster, topic, number_bodies(0, 300))
    frame = open_stream(spark, cluster, subscribe=topic)
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(0, 300)
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(0, 300)
    send(cluster, topic, number_bodies(300, 400))
    sink.run(open_stream(spark, cluster, subscribe=topic))
    assert sink.list_bodies() == number_bodies(0, 400)
    assert [(queue, offset) for queue, offset, _ in sink.list_rows()] == [
        (queue, offset) for queue in range(4) for offset in range(100)
    ]
    for batch, offsets in enumerate(sink.read_offsets()):
        assert sink.read_offset_text(batch) == json.dumps(offsets, sort_keys=True), "Spark compares them as text"


# -- what is read, and from where --------------------------------------------------------------------------------------


def choose(kind: str, topic: str) -> dict[str, str]:
    """One way to say what is read: all of a topic of two queues."""
    match kind:
        case "assign":
            return {"assign": json.dumps({topic: {BROKER_NAME: [0, 1]}})}
        case "pattern":
            return {"subscribePattern": f"{topic[:-1]}.?"}
    return {"subscribe": topic}


def begin_at(kind: str, topic: str, middle_ms: int) -> dict[str, object]:
    """One way to say where to begin: behind the first 10 messages of each queue, but for `earliest`."""
    match kind:
        case "offsets":
            return {"startingOffsets": json.dumps({topic: {BROKER_NAME: {"0": 10, "1": 10}}})}
        case "timestamp":
            return {"startingTimestamp": middle_ms}
        case "group":
            return {"startingOffsets": f"group:{topic}"}
    return {"startingOffsets": kind}


# What the slice of `make test` takes; all others are run by `make test-spark`.
SLICE = {("pattern", "timestamp", "false")}
CHOICES = [
    pytest.param(*choice, marks=() if choice in SLICE else pytest.mark.whole)
    for choice in itertools.product(
        ("assign", "subscribe", "pattern"),
        ("earliest", "latest", "offsets", "timestamp", "group"),
        ("true", "false"),
    )
]


@pytest.mark.parametrize(("kind", "start", "loss"), CHOICES)
def test_every_start_of_every_choice(
    spark: Any, cluster: Cluster, tmp_path: Path, kind: str, start: str, loss: str
) -> None:
    topic, sink = name_topic(f"start-{cluster.kind}-{kind}-{start}-{loss}"), Sink(tmp_path)
    queues = create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 20))
    middle_ms = wait_for_next_ms()
    commit_group(cluster, topic, dict.fromkeys(queues, 10))
    options = choose(kind, topic) | begin_at(start, topic, middle_ms) | {"failOnDataLoss": loss}
    if start == "latest":
        sink.run(open_stream(spark, cluster, **options))
        assert sink.list_bodies() == []
    send(cluster, topic, number_bodies(20, 40))
    sink.run(open_stream(spark, cluster, **options))
    assert sink.list_bodies() == number_bodies(0 if start == "earliest" else 20, 40)
    send(cluster, topic, number_bodies(40, 50))
    sink.run(open_stream(spark, cluster, **options))
    assert sink.list_bodies() == number_bodies(0 if start == "earliest" else 20, 50)


@pytest.mark.whole
def test_a_stream_begins_where_topics_end_when_it_is_started(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("late"), Sink(tmp_path)
    create_topic(cluster, topic)
    # Offsets are looked for when the query starts, not when the frame is made.
    frame = open_stream(spark, cluster, subscribe=topic, startingOffsets="latest")
    send(cluster, topic, number_bodies(0, 50))
    with sink.running(frame) as query:
        wait_for(lambda: query.lastProgress is not None, lambda: query.status)
        send(cluster, topic, number_bodies(50, 80))
        sink.wait_for(query, lambda rows: len(rows) == 30)
    assert sink.list_bodies() == number_bodies(50, 80)


@pytest.mark.whole
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_start_behind_the_end(spark: Any, cluster: Cluster, tmp_path: Path, loss: str) -> None:
    topic, sink = name_topic("beyond"), Sink(tmp_path)
    create_topic(cluster, topic, queues=1)
    send(cluster, topic, number_bodies(0, 5))
    frame = open_stream(
        spark,
        cluster,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {BROKER_NAME: {"0": 9}}}),
        failOnDataLoss=loss,
    )
    if loss == "true":
        with pytest.raises(Exception, match="but ends at 5"):
            sink.run(frame)
        return
    sink.run(frame)
    send(cluster, topic, number_bodies(5, 8))
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(5, 8)


@pytest.mark.whole
def test_a_topic_that_does_not_exist_is_named(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    frame = open_stream(spark, cluster, subscribe=name_topic("missing"))
    with pytest.raises(Exception, match="has no route"):
        Sink(tmp_path).run(frame)


@pytest.mark.whole
def test_an_end_makes_no_sense(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    frame = open_stream(spark, cluster, subscribe="any", endingOffsets="latest")
    with pytest.raises(Exception, match="a stream has no end"):
        Sink(tmp_path).run(frame)


@pytest.mark.whole
def test_filters_move_on_over_what_they_leave_out(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("tagged"), Sink(tmp_path)
    send(cluster, topic, [Outgoing(body, tags="ab"[number % 2]) for number, body in enumerate(number_bodies(0, 100))])
    send(cluster, topic, [Outgoing(b"none", tags="c")] * 50)
    sink.run(open_stream(spark, cluster, subscribe=topic, tags="a", maxOffsetsPerTrigger=30))
    assert sink.list_bodies() == number_bodies(0, 100)[::2]
    assert sum(sink.read_offsets()[-1]["topics"][topic][BROKER_NAME].values()) == 150


@pytest.mark.whole
def test_only_committed_transactions_are_read(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("halves"), Sink(tmp_path)
    create_topic(cluster, topic, queues=1)
    send_transactions(cluster, topic, [Decision.COMMIT, Decision.ROLLBACK, Decision.COMMIT])
    wait_for_offsets(cluster, {MessageQueue(BROKER_NAME, 0, topic): 2})
    sink.run(open_stream(spark, cluster, subscribe=topic))
    assert sink.list_bodies() == [b"half-0", b"half-2"]


# -- sizes of batches --------------------------------------------------------------------------------------------------


def test_batches_are_as_large_as_the_limit_and_no_queue_starves(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("limit"), Sink(tmp_path)
    create_topic(cluster, topic, queues=4)
    send(cluster, topic, number_bodies(0, 60), queue=0)
    send(cluster, topic, number_bodies(60, 90), queue=1)
    send(cluster, topic, number_bodies(90, 91), queue=3)  # and queue 2 is empty
    progress = sink.run(open_stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=25))
    assert [each["numInputRows"] for each in progress] == [25, 25, 25, 16]
    first = sink.read_offsets()[0]["topics"][topic][BROKER_NAME]
    assert first == {"0": 16, "1": 8, "2": 0, "3": 1}
    assert sink.list_bodies() == number_bodies(0, 91)


@pytest.mark.whole
def test_fewer_messages_than_queues_are_taken_in_turn(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("turns"), Sink(tmp_path)
    send(eruca_cluster, topic, number_bodies(0, 8))
    progress = sink.run(open_stream(spark, eruca_cluster, subscribe=topic, maxOffsetsPerTrigger=3))
    assert [each["numInputRows"] for each in progress] == [3, 3, 2]
    assert sink.list_bodies() == number_bodies(0, 8)


@pytest.mark.whole
@pytest.mark.parametrize("limit", [LARGEST, LARGEST - 1, 10**30])
def test_very_large_limits_are_no_limits(spark: Any, eruca_cluster: Cluster, tmp_path: Path, limit: int) -> None:
    topic, sink = name_topic("large"), Sink(tmp_path)
    send(eruca_cluster, topic, number_bodies(0, 20))
    options = {"maxOffsetsPerTrigger": limit, "maxBytesPerTrigger": limit}
    progress = sink.run(open_stream(spark, eruca_cluster, subscribe=topic, **options))
    assert [each["numInputRows"] for each in progress] == [20]


@pytest.mark.whole
def test_bytes_are_limited_as_they_are_measured(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("bytes"), Sink(tmp_path)
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, [bytes(3000)] * 200, queue=0)
    send(cluster, topic, [bytes(300)] * 200, queue=1)
    frame = open_stream(spark, cluster, subscribe=topic, maxBytesPerTrigger="100k", maxOffsetsPerTrigger=150)
    progress = sink.run(frame)
    assert sum(each["numInputRows"] for each in progress) == 400
    assert 6 <= len(progress) <= 12, "660 kB and what a record has besides its body, at 100 kB a batch"
    sizes: list[int] = []
    before: Counter[str] = Counter()
    for offsets in sink.read_offsets():
        here = Counter(offsets["topics"][topic][BROKER_NAME])
        sizes.append((here["0"] - before["0"]) * 3000 + (here["1"] - before["1"]) * 300)
        before = here
    assert max(sizes) <= 100 * 1024


@pytest.mark.whole
def test_a_message_larger_than_the_limit_is_read_by_itself(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("heavy"), Sink(tmp_path)
    send(eruca_cluster, topic, [bytes(5000)] * 3, queues=1)
    progress = sink.run(open_stream(spark, eruca_cluster, subscribe=topic, maxBytesPerTrigger=1000))
    assert [each["numInputRows"] for each in progress] == [1, 1, 1]


@pytest.mark.whole
def test_a_batch_waits_until_it_is_large_enough(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("minimum"), Sink(tmp_path)
    create_topic(cluster, topic)
    frame = open_stream(spark, cluster, subscribe=topic, minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    with sink.running(frame) as query:
        wait_for(lambda: query.lastProgress is not None, lambda: query.status)
        for at in range(0, 120, 40):
            send(cluster, topic, number_bodies(at, at + 40))
        sink.wait_for(query, lambda rows: len(rows) >= 100)
        sizes: list[int] = []

        def look() -> bool:
            sizes[:] = [each.numInputRows for each in query.recentProgress if each.numInputRows]
            return bool(sizes)

        wait_for(look, lambda: query.status)
    assert sizes[0] >= 100
    # What is available now is not worth waiting for: no more comes.
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(0, 120)


@pytest.mark.whole
def test_a_batch_does_not_wait_for_ever(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("delay"), Sink(tmp_path)
    create_topic(eruca_cluster, topic)
    frame = open_stream(
        spark, eruca_cluster, subscribe=topic, minOffsetsPerTrigger=100, maxTriggerDelay="1s", maxOffsetsPerTrigger=200
    )
    with sink.running(frame) as query:
        send(eruca_cluster, topic, number_bodies(0, 40))
        sink.wait_for(query, lambda rows: len(rows) == 40)
    assert sink.list_bodies() == number_bodies(0, 40)


# -- other sinks and ways to run ---------------------------------------------------------------------------------------


@pytest.mark.whole
def test_batches_of_a_function(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic = name_topic("foreach")
    send(cluster, topic, number_bodies(0, 100))
    seen: dict[int, list[bytes]] = {}

    def take(frame: Any, batch: int) -> None:
        seen[batch] = [bytes(row.body) for row in frame.select("body").collect()]

    def run() -> None:
        frame = open_stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=40)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        finish(start_query(writer.trigger(availableNow=True)))

    run()
    assert sorted(body for bodies in seen.values() for body in bodies) == number_bodies(0, 100)
    assert [len(seen[batch]) for batch in sorted(seen)] == [40, 40, 20]
    send(cluster, topic, number_bodies(100, 110))
    seen.clear()
    run()
    assert sorted(body for bodies in seen.values() for body in bodies) == number_bodies(100, 110)


@pytest.mark.whole
def test_once_reads_everything_whatever_the_limit(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("once"), Sink(tmp_path)
    send(eruca_cluster, topic, number_bodies(0, 100))
    query = sink.write(open_stream(spark, eruca_cluster, subscribe=topic, maxOffsetsPerTrigger=10), once=True)
    finish(query)
    assert [each.numInputRows for each in query.recentProgress] == [100]


@pytest.mark.whole
def test_progress_says_how_far_it_is_and_how_far_it_could_be(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("progress"), Sink(tmp_path)
    create_topic(cluster, topic, queues=1)
    send(cluster, topic, number_bodies(0, 30))
    progress = sink.run(open_stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger=20))
    source = progress[1]["sources"][0]
    found = [source[name]["topics"][topic][BROKER_NAME] for name in ("startOffset", "endOffset", "latestOffset")]
    assert found == [{"0": 20}, {"0": 30}, {"0": 30}]


@pytest.mark.whole
def test_few_messages_of_many_queues_are_one_task(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("packed"), Sink(tmp_path)
    create_topic(cluster, topic, queues=14)
    send(cluster, topic, number_bodies(0, 1000))
    sink.run(open_stream(spark, cluster, subscribe=topic))
    assert len(sink.list_rows()) == 1000
    assert len(list(sink.out.glob("*.parquet"))) <= 2, "small files, and tens of milliseconds for each task"


@pytest.mark.whole
def test_tasks_are_as_many_as_the_options_say(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("tasks"), Sink(tmp_path)
    send(eruca_cluster, topic, number_bodies(0, 100), queues=2)
    sink.run(open_stream(spark, eruca_cluster, subscribe=topic, minPartitions=5))
    assert len(list(sink.out.glob("*.parquet"))) == 5
    send(eruca_cluster, topic, number_bodies(100, 200))
    sink.run(open_stream(spark, eruca_cluster, subscribe=topic, maxRecordsPerPartition=25))
    assert len(list(sink.out.glob("*.parquet"))) == 9
    assert sink.list_bodies() == number_bodies(0, 200)
