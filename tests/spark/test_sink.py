"""Frames and streams written to topics: what arrives, where, and what is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from eruca._client.produce.choosing import choose_by_shard
from eruca._spark.sink.writer import plan_sink, write_rows
from eruca.errors import RequestRefused
from tests.interop.brokers import BROKER_NAME, Cluster, ErucaCluster, JavaCluster
from tests.patience import PATIENCE_S
from tests.spark.producing import create_topic, name_topic, run, send
from tests.spark.reading import read_rows
from tests.spark.streams import finish, open_stream, start_query

WAIT_S = PATIENCE_S


def write(frame: Any, cluster: Cluster, topic: str | None = None, **options: object) -> None:
    """Append a frame to a topic."""
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", cluster.name_server)
    if topic is not None:
        writer = writer.option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def read(cluster: Cluster, topic: str, count: int) -> list[dict[str, Any]]:
    """The rows of a topic as soon as there are this many: Java's dispatch comes a moment after its answer."""

    async def wait() -> list[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while True:
            rows = await asyncio.to_thread(read_rows, cluster, subscribe=topic)
            if len(rows) >= count:
                return rows
            assert loop.time() < deadline, f"{len(rows)} of {count} rows"
            await asyncio.sleep(0.1)

    return run(wait())


def test_a_frame_is_written_with_all_it_says(spark: Any, cluster: Cluster) -> None:
    topic = name_topic("sink")
    create_topic(cluster, topic)
    frame = spark.sql(
        "SELECT CAST(concat('row-', id) AS BINARY) AS body, concat('t', id % 3) AS tags,"
        " array(concat('k', id), 'all') AS keys, map('n', CAST(id AS STRING), 'TAGS', 'no') AS properties,"
        " CAST(id AS INT) AS flag FROM range(0, 1000, 1, 2)"
    )
    write(frame, cluster, topic, batchRows=100)
    rows = read(cluster, topic, 1000)
    assert len(rows) == 1000
    assert len({row["messageId"] for row in rows}) == 1000
    assert Counter(row["queueId"] for row in rows) == {0: 300, 1: 300, 2: 200, 3: 200}
    for row in rows:
        number = int(row["body"].removeprefix(b"row-"))
        assert (row["tags"], row["keys"], row["flag"]) == (f"t{number % 3}", [f"k{number}", "all"], number)
        assert dict(row["properties"])["n"] == str(number)
    by_queue: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"])):
        by_queue.setdefault(row["queueId"], []).append(int(row["body"].removeprefix(b"row-")))
    for numbers in by_queue.values():  # each of the two partitions in its order
        for half in (range(500), range(500, 1000)):
            found = [number for number in numbers if number in half]
            assert found == sorted(found)


def test_sharding_keys_and_queues(spark: Any, cluster: Cluster) -> None:
    topic = name_topic("shards")
    queues = create_topic(cluster, topic)
    frame = spark.sql("SELECT concat('s', id % 7) AS shardingKey, concat('s', id % 7) AS body FROM range(0, 700, 1, 2)")
    write(frame, cluster, topic)
    rows = read(cluster, topic, 700)
    for row in rows:
        assert row["queueId"] == choose_by_shard(queues, row["body"].decode()).queue_id
    named = name_topic("named")
    create_topic(cluster, named)
    write(
        spark.sql("SELECT CAST(id AS STRING) AS body, CAST(id % 2 * 3 AS INT) AS queueId FROM range(10)"),
        cluster,
        named,
    )
    assert Counter(row["queueId"] for row in read(cluster, named, 10)) == {0: 5, 3: 5}


def test_topics_of_a_column_and_compression(spark: Any, cluster: Cluster) -> None:
    topics = [name_topic("column") for _ in range(2)]
    for topic in topics:
        create_topic(cluster, topic, 2)
    frame = spark.sql(
        f"SELECT IF(id % 2 = 0, '{topics[0]}', NULL) AS topic, repeat(CAST(id AS STRING), 3000) AS body FROM range(40)"
    )
    write(frame, cluster, topics[1], compression="zlib", compressFrom=5000)
    for parity, topic in enumerate(topics):
        found = sorted(int(row["body"][: len(row["body"]) // 3000]) for row in read(cluster, topic, 20))
        assert found == list(range(parity, 40, 2))


def test_delay_levels(spark: Any, cluster: Cluster) -> None:
    topic = name_topic("delayed")
    create_topic(cluster, topic, 2)
    # One task: a second one may begin later than the delay takes.
    frame = spark.sql("SELECT CAST(id AS STRING) AS body, IF(id < 3, 1, NULL) AS delayLevel FROM range(0, 6, 1, 1)")
    write(frame, cluster, topic, queueId=0)
    rows = read(cluster, topic, 6)
    assert sorted(row["body"] for row in rows) == [b"%d" % number for number in range(6)]
    stored = {row["body"]: row["queueOffset"] for row in rows}
    assert {stored[b"3"], stored[b"4"], stored[b"5"]} == {0, 1, 2}  # those with a delay of a second came later


def test_a_stream_is_copied_to_another_topic(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    source, target = name_topic("from"), name_topic("to")
    create_topic(cluster, target)
    send(cluster, source, 500)
    for count in (500, 700):
        frame = open_stream(spark, cluster, subscribe=source, maxOffsetsPerTrigger=300).select("body")
        writer = frame.writeStream.format("rocketmq").option("nameServer", cluster.name_server)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(start_query(writer.trigger(availableNow=True)))
        found = Counter(row["body"] for row in read(cluster, target, count))
        assert found == {b"message-%d" % number: 1 + (number < count - 500) for number in range(500)}
        send(cluster, source, 200)


def test_an_idempotent_write_is_refused_by_java(spark: Any, java_cluster: JavaCluster) -> None:
    topic = name_topic("refused")
    create_topic(java_cluster, topic)
    frame = spark.sql("SELECT 'x' AS body")
    with pytest.raises(Exception, match=f"delivery=idempotent.*{BROKER_NAME}"):
        write(frame, java_cluster, topic, delivery="idempotent")
    with pytest.raises(Exception, match="supports arbitrary delays"):
        write(frame, java_cluster, topic, delay="5s")


def test_what_cannot_be_written_fails_when_it_is_planned(spark: Any, eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("wrong")
    create_topic(eruca_cluster, topic)
    frame = spark.sql("SELECT 'x' AS body, 'y' AS tag")
    with pytest.raises(Exception, match="did you mean tags"):
        write(frame, eruca_cluster, topic)
    with pytest.raises(Exception, match="did you mean batchBytes"):
        write(frame.select("body"), eruca_cluster, topic, batchByte=5)
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.select("body").write.format("rocketmq").mode("overwrite").option(
            "nameServer", eruca_cluster.name_server
        ).option("topic", topic).save()
    with pytest.raises(Exception, match="no destination topic"):
        write(frame.select("body"), eruca_cluster)


def test_bad_rows(spark: Any, eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("bad")
    create_topic(eruca_cluster, topic)
    frame = spark.sql("SELECT IF(id = 7, '', CAST(id AS STRING)) AS body FROM range(0, 10, 1, 1)")
    with pytest.raises(Exception, match="row 7 of partition 0 cannot be sent: it has no body"):
        write(frame, eruca_cluster, topic)
    other = name_topic("skipped")
    create_topic(eruca_cluster, other)
    write(frame, eruca_cluster, other, onBadRow="skip")
    assert len(read(eruca_cluster, other, 9)) == 9


def test_what_a_broker_refuses_is_not_tried_again(eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("large")
    create_topic(eruca_cluster, topic)
    given = {"nameServer": eruca_cluster.name_server, "topic": topic, "maxMessageBytes": "8m", "retries": "1000"}
    plan = plan_sink(given, StructType([StructField("body", BinaryType())]), overwrite=False)
    batch = pa.record_batch([pa.array([b"x" * 5_000_000])], names=["body"])
    with pytest.raises(RequestRefused, match="the message is illegal"):
        write_rows(plan, [batch], 0)


def test_the_same_write_id_is_the_same_write(spark: Any, eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("same")
    create_topic(eruca_cluster, topic)
    frame = spark.sql("SELECT CAST(id AS STRING) AS body, IF(id = 5, 0.001D, NULL) AS delay FROM range(0, 300, 1, 2)")
    for _ in range(2):
        write(frame, eruca_cluster, topic, delivery="idempotent", writeId="night of the third", batchRows=20)
    write(frame, eruca_cluster, topic, delivery="idempotent", writeId="another night")
    rows = read(eruca_cluster, topic, 600)
    assert Counter(row["body"] for row in rows) == {b"%d" % number: 2 for number in range(300)}


def test_rows_of_a_task_that_runs_twice_are_stored_once(eruca_cluster: ErucaCluster) -> None:
    """Without Spark: the same partition written by two attempts, the first of which ends in the middle."""
    topic = name_topic("attempts")
    create_topic(eruca_cluster, topic)
    given = {"nameServer": eruca_cluster.name_server, "topic": topic, "delivery": "idempotent", "batchRows": "50"}
    plan = plan_sink(given, StructType([StructField("body", BinaryType())]), overwrite=False)
    batches = [pa.record_batch([[b"%d" % row for row in range(at, at + 170)]], names=["body"]) for at in (0, 170, 340)]

    def die() -> Any:
        yield from batches[:2]
        raise RuntimeError("the worker died")

    with pytest.raises(RuntimeError, match="died"):
        write_rows(plan, die(), 3, "q:0:3")
    written = write_rows(plan, iter(batches), 3, "q:0:3")
    assert (written.rows, written.skipped) == (510, 0)
    found = Counter(row["body"] for row in read(eruca_cluster, topic, 510))
    assert found == {b"%d" % row: 1 for row in range(510)}
