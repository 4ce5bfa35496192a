"""`spark.read.format("rocketmq")` as users write it, against Eruca and against the official broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from eruca import Outgoing
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.spark.producing import create_topic, name_topic, send

Load = Callable[..., Any]


@pytest.fixture
def load(spark: Any, cluster: Cluster) -> Load:
    """Loads a frame; options by name, the name server is known."""

    def load(schema: str | None = None, **options: Any) -> Any:
        reader = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()

    return load


def list_bodies(frame: Any) -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_rows_have_all_columns(load: Load, cluster: Cluster) -> None:
    topic = name_topic("columns")
    create_topic(cluster, topic, 1)
    messages = [
        Outgoing(b"first", tags="vip", keys=["k1", "k2"], properties={"region": "eu", "naïve": "ünï"}, flag=7),
        Outgoing(b"\0", properties={}),
        Outgoing(bytes(range(256)), tags="other"),
    ]
    send(cluster, topic, messages)
    rows = load(subscribe=topic).orderBy("queueOffset").collect()
    assert [bytes(row.body) for row in rows] == [b"first", b"\0", bytes(range(256))]
    assert [row.tags for row in rows] == ["vip", None, "other"]
    assert [list(row["keys"]) for row in rows] == [["k1", "k2"], [], []]
    assert [row.queueOffset for row in rows] == [0, 1, 2]
    assert [row.flag for row in rows] == [7, 0, 0]
    first = rows[0].asDict()
    assert first["topic"] == topic and first["broker"] == BROKER_NAME and first["queueId"] == 0
    assert first["properties"]["region"] == "eu" and first["properties"]["naïve"] == "ünï"
    assert first["messageId"] == first["properties"]["UNIQ_KEY"] != first["offsetId"]
    assert first["storeHost"] == cluster.broker and first["bornHost"].startswith("127.0.0.1:")
    assert first["storeTimestamp"] >= first["bornTimestamp"]
    assert first["reconsumeTimes"] == 0 and first["transactionState"] == "none"


def test_fewer_columns(load: Load, cluster: Cluster) -> None:
    topic = name_topic("fewer")
    send(cluster, topic, 10)
    frame = load("queueOffset BIGINT, body BINARY", subscribe=topic)
    assert frame.columns == ["queueOffset", "body"]
    assert list_bodies(frame) == sorted(b"message-%d" % number for number in range(10))
    without = load(subscribe=topic, includeProperties="false")
    assert "properties" not in without.columns and without.count() == 10


def test_several_topics_and_many_partitions(load: Load, cluster: Cluster) -> None:
    one, other = name_topic("several"), name_topic("several")
    send(cluster, one, 1000)
    send(cluster, other, 500)
    frame = load(subscribe=f"{one},{other}", minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {one: 1000, other: 500}
    per_queue = frame.selectExpr("topic", "queueId", "queueOffset").distinct().count()
    assert per_queue == 1500
    assert load(subscribe=f"{one},{other}").rdd.getNumPartitions() == 1
    assert load(subscribe=one, maxRecordsPerPartition="300").rdd.getNumPartitions() == 4


def test_one_frame_filtered_twice(load: Load, cluster: Cluster) -> None:
    topic = name_topic("twice")
    send(cluster, topic, [Outgoing(b"%d" % number, tags="ab"[number % 2]) for number in range(100)])
    frame = load(subscribe=topic)
    both = frame.filter("tags = 'a'").union(frame.filter("tags = 'b'"))
    assert both.count() == 100 and frame.count() == 100


def test_sql_view(spark: Any, cluster: Cluster) -> None:
    topic = name_topic("view")
    send(cluster, topic, 20)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW seen USING rocketmq"
        f" OPTIONS (nameServer '{cluster.name_server}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(*) AS n FROM seen WHERE CAST(body AS STRING) LIKE 'message-1%'").first().n == 11


def test_empty_topic(load: Load, cluster: Cluster) -> None:
    topic = name_topic("empty")
    create_topic(cluster, topic, 4)
    assert load(subscribe=topic).collect() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "x", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "x", "failOnDataLoss": "wran"}, "did you mean warn"),
        ({}, "no topic is given"),
    ],
)
def test_wrong_options_fail_at_plan_time(
    spark: Any, eruca_cluster: Cluster, options: dict[str, str], text: str
) -> None:
    reader = spark.read.format("rocketmq").option("nameServer", eruca_cluster.name_server).options(**options)
    with pytest.raises(Exception, match=text):
        reader.load()


def test_what_only_a_plan_can_tell_fails_at_plan_time(load: Load, cluster: Cluster) -> None:
    topic = name_topic("plan")
    send(cluster, topic, 5)
    with pytest.raises(Exception, match=r"a message has no column bodi.*did you mean body"):
        load("bodi BINARY", subscribe=topic).collect()
    with pytest.raises(Exception, match=r"column body may be null .*leave NOT NULL out"):
        load("body BINARY NOT NULL", subscribe=topic).collect()
    with pytest.raises(Exception, match="startingOffsets=latest would read nothing in a batch"):
        load(subscribe=topic, startingOffsets="latest").collect()
    with pytest.raises(Exception, match="commitOffsetsToGroup=g is for streams"):
        load(subscribe=topic, commitOffsetsToGroup="g").collect()
    with pytest.raises(Exception, match=f"topic {topic}-not has no route"):
        load(subscribe=f"{topic}-not").collect()
    with pytest.raises(Exception, match=r"sql92.*cannot evaluate it"):
        load(subscribe=topic, sql92="region = = 'eu'").collect()
    wrong = json.dumps({topic: {"broker-z": {"0": 1}}})
    with pytest.raises(Exception, match=rf"contains broker-z.*did you mean {BROKER_NAME}"):
        load(subscribe=topic, startingOffsets=wrong).collect()
