"""An archive and a live topic as one table: no message is missing and none is there twice."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from eruca import Outgoing
from eruca._spark.cluster import Access
from eruca._spark.pipelines.archive.job import run_archive
from eruca._spark.pipelines.inputs import MessageInput, choose_times, open_messages
from eruca._spark.pipelines.query import run_query, show_value, write_csv, write_json
from eruca.errors import ConfigError
from tests.interop.brokers import Cluster, ErucaCluster
from tests.spark.jobframes import HOUR, TEN, make_messages
from tests.spark.producing import name_topic, send


def test_archive_and_live_topic_are_one_table(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, other, archive = name_topic("queried"), name_topic("queried"), str(tmp_path / "archive")
    access = Access(cluster.name_server)
    send(cluster, topic, [Outgoing(b"old-%d" % n, tags="old") for n in range(10)])
    run_archive(spark, archive, access=access, topics=[topic])
    send(cluster, topic, [Outgoing(b"new-%d" % n, tags="new") for n in range(7)])
    send(cluster, other, 3)
    both = MessageInput(archive=archive, access=access, topics=(topic, other))
    result = run_query(
        spark,
        both,
        "select tags, count(*) n, count(distinct queueId, queueOffset) d from messages"
        " where topic like 'queried%' group by tags order by tags",
    )
    assert result.columns == ["tags", "n", "d"]
    assert result.collect() == [(None, 3, 3), ("new", 7, 7), ("old", 10, 10)]
    assert (result.summary.rows, result.summary.warnings) == (3, [])
    # Each of them alone, and the same again when all is archived.
    assert open_messages(spark, MessageInput(archive=archive)).count() == 10
    assert open_messages(spark, MessageInput(access=access, topics=(topic,))).count() == 17
    run_archive(spark, archive, access=access, topics=[topic, other])
    assert open_messages(spark, both).count() == 20
    assert open_messages(spark, MessageInput(archive=archive, pattern=f"{other}|x")).count() == 3


def test_rows_come_as_json_and_csv(spark: Any, eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("queried")
    send(eruca_cluster, topic, [Outgoing(b"a,b", keys=["k1", "k2"]), Outgoing(b"\xff\x00")], queue=0)
    wanted = MessageInput(access=Access(eruca_cluster.name_server), topics=(topic,))
    statement = (
        "select body, keys, storeTimestamp > bornTimestamp - interval 1 hour ok from messages order by queueOffset"
    )
    stream = io.StringIO()
    write_json(run_query(spark, wanted, statement), stream)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"body": "a,b", "keys": ["k1", "k2"], "ok": True},
        {"body": "0xff00", "keys": [], "ok": True},
    ]
    stream = io.StringIO()
    write_csv(run_query(spark, wanted, statement), stream)
    assert stream.getvalue().splitlines() == ["body,keys,ok", '"a,b","[""k1"", ""k2""]",True', "0xff00,[],True"]


def test_a_wrong_statement_is_one_line(spark: Any, eruca_cluster: ErucaCluster) -> None:
    topic = name_topic("queried")
    send(eruca_cluster, topic, 1)
    wanted = MessageInput(access=Access(eruca_cluster.name_server), topics=(topic,))
    for statement in ("selec 1", "select nothing from messages", "select * from elsewhere"):
        with pytest.raises(ConfigError, match="the statement is not understood") as caught:
            run_query(spark, wanted, statement)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no input is given"):
        open_messages(spark, MessageInput())
    with pytest.raises(ConfigError, match="--store cannot be combined with"):
        open_messages(spark, MessageInput(archive="a", stores={"b": "c"}))


def test_times_choose_messages_and_days(spark: Any) -> None:
    frame = make_messages(spark, *[{"stored_ms": TEN + n * HOUR} for n in range(-12, 24, 6)])
    offsets = [row.queueOffset for row in choose_times(frame, TEN - 6 * HOUR, TEN + 12 * HOUR).collect()]
    assert offsets == [1, 2, 3]
    assert choose_times(frame, None, None).count() == 6
    assert choose_times(frame, TEN + 1, None).count() == 3
    assert choose_times(frame, None, TEN).count() == 2


def test_values_are_shown_in_types_that_json_has(spark: Any) -> None:
    row = make_messages(spark, {"properties": {"a": "b"}}).first()
    shown = {name: show_value(row[name]) for name in row.asDict()}
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["body"], shown["properties"], shown["date"]) == ("body-0", {"a": "b"}, "2026-11-15")
    assert shown["storeTimestamp"].startswith("2026-11-15T10:00:00.000")
