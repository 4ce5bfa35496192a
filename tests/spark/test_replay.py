"""Replays: the right messages, in order, no faster than allowed, and only once where the broker can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eruca import Outgoing
from eruca._spark.cluster import Access
from eruca._spark.pipelines.archive.job import run_archive
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.replay import (
    ReplayOptions,
    choose_messages,
    complete_input,
    limit_rate,
    make_throttle,
    name_replay,
    prepare_replay,
    run_replay,
)
from eruca.errors import ConfigError
from tests.interop.brokers import Cluster, ErucaCluster
from tests.spark.jobframes import TEN, make_messages
from tests.spark.producing import create_topic, name_topic, send


def read_topic(spark: Any, cluster: Cluster, topic: str) -> list[Any]:
    frame = open_messages(spark, MessageInput(access=Access(cluster.name_server), topics=(topic,)))
    return frame.orderBy("queueId", "queueOffset").collect()


# --- frames -----------------------------------------------------------------------------------------------------------


def test_keys_ids_and_tags_choose(spark: Any) -> None:
    frame = make_messages(
        spark, {"keys": ["a", "b"], "tags": "x"}, {"keys": ["b"], "tags": "y"}, {"keys": []}, {"keys": None}
    )

    def choose(**options: Any) -> list[int]:
        return [row.queueOffset for row in choose_messages(frame, ReplayOptions(**options)).collect()]

    assert choose(keys=["a"]) == [0]
    assert choose(keys=["b", "c"]) == [0, 1]
    assert choose(keys=["b"], tags=["y"]) == [1]
    assert choose(ids=["id-2", "id-3"]) == [2, 3]
    assert choose() == [0, 1, 2, 3]


def test_what_is_sent_has_what_the_sender_wrote_and_nothing_else(spark: Any) -> None:
    dead = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "id-0", "KEYS": "a", "mine": "yes", "ERUCA_ONCE": "q:0:0:1"}
    frame = make_messages(
        spark,
        {"topic": "%DLQ%billing", "properties": dead, "keys": ["a"], "tags": "t", "flag": 3, "stored_ms": TEN + 9},
        {"topic": "%DLQ%billing", "queueId": 1, "properties": {}, "stored_ms": TEN},
    )
    rows = prepare_replay(frame, ReplayOptions(), "r-1").collect()
    assert [row.topic for row in rows] == ["%DLQ%billing", "orders"]  # by time
    assert rows[1].properties == {"mine": "yes", "ERUCA_REPLAY": "r-1", "ERUCA_REPLAY_OF": "id-0"}
    assert (rows[1].body, rows[1].tags, rows[1]["keys"], rows[1].flag) == (b"body-0", "t", ["a"], 3)
    assert len({row.shardingKey for row in rows}) == 2
    assert {row.topic for row in prepare_replay(frame, ReplayOptions(topic="again"), "r").collect()} == {"again"}


def test_the_same_messages_are_always_in_the_same_tasks_and_order(spark: Any) -> None:
    rows = [{"queueId": n % 5, "queueOffset": n, "body": b"%d" % n, "stored_ms": TEN + n % 7} for n in range(200)]
    orders = []
    for frame in (make_messages(spark, *rows), make_messages(spark, *rows).repartition(7)):
        prepared = prepare_replay(frame, ReplayOptions(parallel=3), "r")
        orders.append([[bytes(row.body) for row in part] for part in prepared.rdd.glom().collect()])
    assert orders[0] == orders[1]
    assert len(orders[0]) == 3
    assert sorted(body for task in orders[0] for body in task) == sorted(b"%d" % n for n in range(200))


def test_a_bound_on_the_rate_holds(spark: Any) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    passed: list[tuple[float, int]] = []
    throttle = make_throttle(100, sleep, lambda: clock[0])
    batches = [pa.record_batch({"x": list(range(count))}) for count in (35, 0, 1, 64)]
    for part in throttle(iter(batches)):
        passed.append((clock[0], part.num_rows))
    assert sum(count for _, count in passed) == 100
    assert max(count for _, count in passed) == 10
    for at, (time, _) in enumerate(passed):
        assert sum(count for _, count in passed[:at]) <= 100 * time + 1e-6
    assert clock[0] == pytest.approx(0.9, abs=0.11)
    frame = make_messages(spark, {}, {})
    assert limit_rate(frame, 0) is frame
    assert limit_rate(frame.select("body", "keys"), 1000).count() == 2


def test_an_id_is_made_of_what_is_sent_and_where_to() -> None:
    one = MessageInput(access=Access("a:1"), topics=("t",), until=datetime.fromtimestamp(5, UTC))
    assert name_replay(one, ReplayOptions(topic="x", rate=1)) == name_replay(one, ReplayOptions(topic="x", rate=2))
    others = [ReplayOptions(topic="y"), ReplayOptions(topic="x", keys=["k"]), ReplayOptions(topic="x", name="again")]
    names = {name_replay(one, each) for each in (ReplayOptions(topic="x"), *others)}
    later = replace(one, until=datetime.fromtimestamp(6, UTC))
    names.add(name_replay(later, ReplayOptions(topic="x")))
    assert len(names) == 5
    with pytest.raises(ConfigError, match="no messages are selected"):
        complete_input(MessageInput(access=Access("a:1")), ReplayOptions())
    with pytest.raises(ConfigError, match="--dlq and --topic"):
        complete_input(one, ReplayOptions(dead_letters_of="g"))
    assert complete_input(MessageInput(access=Access("a:1")), ReplayOptions(dead_letters_of="g")).topics == ("%DLQ%g",)


# --- the job ----------------------------------------------------------------------------------------------------------


def test_a_replay_adds_nothing_when_it_is_run_again(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    source, target, archive = name_topic("source"), name_topic("target"), str(tmp_path / "archive")
    access = Access(cluster.name_server)
    create_topic(cluster, target, 4)
    send(cluster, source, [Outgoing(b"old-%d" % n, keys=[f"k{n}"]) for n in range(20)])
    run_archive(spark, archive, access=access, topics=[source])
    send(cluster, source, [Outgoing(b"new-%d" % n, keys=[f"k{n}"]) for n in range(10)])
    wanted = MessageInput(archive=archive, access=access, topics=(source,), until=datetime(2100, 1, 1, tzinfo=UTC))
    options = ReplayOptions(topic=target)
    assert run_replay(spark, wanted, ReplayOptions(topic=target, dry_run=True), access).rows == 30
    assert read_topic(spark, cluster, target) == []
    first = run_replay(spark, wanted, options, access)
    rows = read_topic(spark, cluster, target)
    assert (first.rows, len(rows)) == (30, 30)
    assert {bytes(row.body) for row in rows} == {b"old-%d" % n for n in range(20)} | {b"new-%d" % n for n in range(10)}
    assert {row.properties["ERUCA_REPLAY"] for row in rows} == {first.facts["id"]}
    second = run_replay(spark, wanted, options, access)
    assert second.facts["id"] == first.facts["id"]
    count = len(read_topic(spark, cluster, target))
    if cluster.kind == "eruca":
        assert (count, second.warnings) == (30, [])
        assert "adds nothing" in second.facts["delivery"]
    else:
        assert count == 60
        assert "sends all messages again" in second.warnings[0]
    third = run_replay(spark, wanted, ReplayOptions(topic=target, name="again", keys=["k3"]), access)
    assert (third.rows, len(read_topic(spark, cluster, target))) == (2, count + 2)


@pytest.mark.whole
def test_nothing_to_replay_is_no_error(spark: Any, eruca_cluster: ErucaCluster) -> None:
    source, target = name_topic("source"), name_topic("target")
    create_topic(eruca_cluster, source, 1)
    create_topic(eruca_cluster, target, 1)
    access = Access(eruca_cluster.name_server)
    summary = run_replay(spark, MessageInput(access=access, topics=(source,)), ReplayOptions(topic=target), access)
    assert (summary.rows, summary.bytes, summary.first, summary.bad) == (0, 0, None, {})


@pytest.mark.whole
def test_dead_letters_go_back_to_their_topic(spark: Any, cluster: Cluster) -> None:
    topic, group = name_topic("orders"), name_topic("billing")
    create_topic(cluster, topic, 2)
    send(cluster, f"%DLQ%{group}", [Outgoing(b"dead-%d" % n, properties={"mine": "1"}) for n in range(3)], queues=1)
    wanted = MessageInput(access=Access(cluster.name_server))
    options = ReplayOptions(topic=topic, dead_letters_of=group, rate=100)
    summary = run_replay(spark, wanted, options, Access(cluster.name_server))
    assert summary.rows == 3
    rows = read_topic(spark, cluster, topic)
    assert {bytes(row.body) for row in rows} == {b"dead-0", b"dead-1", b"dead-2"}
    assert {row.properties["mine"] for row in rows} == {"1"}
