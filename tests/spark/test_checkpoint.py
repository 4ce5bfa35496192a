"""Checkpoints that commands show and change, and what the streams read afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eruca._cli.main import main
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.spark.producing import create_topic, name_topic, send
from tests.spark.streams import Sink, number_bodies, open_stream, start_query, wait_for_next_ms


def run(*words: object) -> Any:
    """Run a command; returns its JSON."""
    result = CliRunner().invoke(main, ["pipeline", "checkpoint", *map(str, words), "-o", "json"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout)


def edit(home: Path, *words: object) -> Any:
    """Change a checkpoint that was written a moment ago."""
    return run("edit", home, "--idle", "0s", "--yes", *words)


def show(home: Path) -> dict[tuple[str, int], int]:
    """Where the next batch starts."""
    return {(each["topic"], each["queueId"]): each["committed"] for each in run("show", home)["queues"]}


def test_a_stream_continues_where_an_edit_says(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    orders, clicks, sink = name_topic("orders"), name_topic("clicks"), Sink(tmp_path)
    for topic in (orders, clicks):
        create_topic(cluster, topic, queues=2)
    send(cluster, orders, number_bodies(0, 20))
    middle_ms = wait_for_next_ms()
    send(cluster, orders, number_bodies(20, 30))
    send(cluster, clicks, number_bodies(0, 8))
    frame = open_stream(spark, cluster, subscribe=f"{orders},{clicks}")
    sink.run(frame)
    ends = {(clicks, 0): 4, (clicks, 1): 4, (orders, 0): 15, (orders, 1): 15}
    assert show(sink.checkpoint) == ends
    at = ("-n", cluster.name_server)

    def read_again() -> list[tuple[str, int, int]]:
        """What the stream reads now."""
        before = sink.read().num_rows
        sink.run(frame)
        rows = sink.read().slice(before).select(["topic", "queueId", "queueOffset"]).to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    # Back: the messages of one queue again.
    done = edit(sink.checkpoint, "--set", f"{orders}/{BROKER_NAME}/0=12", *at)
    assert [(each["before"], each["after"]) for each in done["changes"]] == [(15, 12)]
    assert show(sink.checkpoint) == {**ends, (orders, 0): 12}
    assert read_again() == [(orders, 0, offset) for offset in range(12, 15)]
    # By a time, and undone with the command that was printed.
    done = edit(sink.checkpoint, "--to", middle_ms, "-t", orders, *at)
    assert show(sink.checkpoint) == {**ends, (orders, 0): 10, (orders, 1): 10}
    words = done["undo"].split()
    assert CliRunner().invoke(main, [*words[1:], "--idle", "0s", "--yes"]).exit_code == 0
    assert show(sink.checkpoint) == ends
    assert read_again() == []
    # A whole topic again; what is set explicitly takes precedence.
    edit(sink.checkpoint, "--to", "earliest", "-t", clicks, "--set", f"{clicks}/{BROKER_NAME}/1=3", *at)
    assert read_again() == [(clicks, 0, offset) for offset in range(4)] + [(clicks, 1, 3)]
    # Forward: messages that are never read.
    send(cluster, clicks, number_bodies(8, 20))
    edit(sink.checkpoint, "--to", "latest", "-t", clicks, *at)
    send(cluster, clicks, number_bodies(20, 22))
    assert read_again() == [(clicks, 0, 10), (clicks, 1, 10)]
    beyond = CliRunner().invoke(
        main, ["pipeline", "checkpoint", "edit", str(sink.checkpoint), "--set", f"{clicks}/{BROKER_NAME}/0=99", *at]
    )
    assert f"has offsets 0 to 11, not 99 (the nearest is {clicks}/{BROKER_NAME}/0=11)" in beyond.output


def test_a_batch_that_cannot_succeed_is_given_up(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, checkpoint = name_topic("poison"), tmp_path / "checkpoint"
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 10))
    written: dict[int, list[bytes]] = {}

    def write(rows: Any, batch: int) -> None:
        found = sorted(bytes(row.body) for row in rows.collect())
        if b"poison" in found:
            raise ValueError("no code can handle it")
        written[batch] = found

    def run_query() -> None:
        writer = open_stream(spark, cluster, subscribe=topic).writeStream.foreachBatch(write)
        query = start_query(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
        query.awaitTermination()

    run_query()
    send(cluster, topic, [b"poison"], queue=0)
    send(cluster, topic, number_bodies(10, 12), queue=1)
    for _ in range(2):
        with pytest.raises(Exception, match="no code can handle it"):
            run_query()
    found = run("show", checkpoint)
    assert (found["committed"], found["planned"]) == (0, 1)
    assert {(each["queueId"], each["committed"], each["planned"]) for each in found["queues"]} == {(0, 5, 6), (1, 5, 7)}
    done = edit(checkpoint, "--set", f"{topic}/{BROKER_NAME}/0=6", "--give-up-batch")
    assert done["gaveUpBatch"]
    run_query()
    # Nothing but the poison is missing, and no number is used twice.
    assert written == {0: number_bodies(0, 10), 2: number_bodies(10, 12)}


@pytest.mark.whole
def test_the_newer_form_of_the_file(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("newer"), Sink(tmp_path)
    create_topic(cluster, topic, queues=1)
    send(cluster, topic, number_bodies(0, 5))
    frame = open_stream(spark, cluster, subscribe=topic)
    key = "spark.sql.streaming.offsetLog.formatVersion"
    spark.conf.set(key, "2")
    try:
        sink.run(frame)
        assert (sink.checkpoint / "offsets" / "0").read_text().startswith("v2\n")
        assert show(sink.checkpoint) == {(topic, 0): 5}
        edit(sink.checkpoint, "--set", f"{topic}/{BROKER_NAME}/0=2")
        sink.run(frame)
    finally:
        spark.conf.unset(key)
    assert [offset for _, offset, _ in sink.list_rows()] == [0, 1, 2, 2, 3, 3, 4, 4]
