"""Topics and queues that come and go while a stream runs, or between two runs of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import Cluster
from tests.patience import PATIENCE_S
from tests.spark.producing import create_topic, delete_topic, name_topic, send
from tests.spark.streams import Sink, number_bodies, open_stream, wait_for


def test_queues_that_are_added_are_read_from_their_beginning(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("grows"), Sink(tmp_path)
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 20))
    # A stream that begins at the end begins with the first message of a queue that is added later.
    with sink.running(open_stream(spark, cluster, subscribe=topic, startingOffsets="latest")) as query:
        wait_for(lambda: query.lastProgress is not None, lambda: query.status)
        create_topic(cluster, topic, queues=4)
        send(cluster, topic, number_bodies(20, 30), queue=3)
        send(cluster, topic, number_bodies(30, 35), queue=0)
        rows = sink.wait_for(query, lambda rows: len(rows) == 15)
    assert [row for row in rows if row[0] == 3] == [(3, at, body) for at, body in enumerate(number_bodies(20, 30))]
    create_topic(cluster, topic, queues=5)
    send(cluster, topic, number_bodies(35, 40), queue=4)
    sink.run(open_stream(spark, cluster, subscribe=topic))
    assert sink.list_bodies() == number_bodies(20, 40)


@pytest.mark.whole
def test_topics_that_come_to_match_are_read(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    stem, sink = name_topic("matching"), Sink(tmp_path)
    frame = open_stream(spark, cluster, subscribePattern=f"{stem}-[ab]")
    with sink.running(frame) as query:
        wait_for(lambda: query.lastProgress is not None, lambda: query.status)
        send(cluster, f"{stem}-a", number_bodies(0, 10))
        sink.wait_for(query, lambda rows: len(rows) == 10)
        send(cluster, f"{stem}-b", number_bodies(10, 30))
        send(cluster, f"{stem}-c", number_bodies(30, 40))
        sink.wait_for(query, lambda rows: len(rows) == 30)
    assert sink.list_bodies() == number_bodies(0, 30)


@pytest.mark.whole
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_topic_that_is_deleted_while_the_stream_runs(spark: Any, cluster: Cluster, tmp_path: Path, loss: str) -> None:
    stem, sink = name_topic("deleted"), Sink(tmp_path)
    for part in "ab":
        send(cluster, f"{stem}-{part}", [part.encode()] * 10, queues=2)
    frame = open_stream(spark, cluster, subscribePattern=f"{stem}-.*", failOnDataLoss=loss)
    with sink.running(frame) as query:
        sink.wait_for(query, lambda rows: len(rows) == 20)
        delete_topic(cluster, f"{stem}-b")
        if loss == "true":
            wait_for(lambda: query.exception() is not None, lambda: query.status)
            # A broker that has deleted it says that it is empty, as long as the name server still knows it.
            assert re.search("no longer exists|deleted or created again", str(query.exception()))
            return
        send(cluster, f"{stem}-a", [b"a"] * 10)
        sink.wait_for(query, lambda rows: len(rows) == 30)
        # One of the same name is a new one.
        send(cluster, f"{stem}-b", [b"c"] * 4, queues=2)
        sink.wait_for(query, lambda rows: len(rows) == 34)
    assert sink.list_bodies() == [b"a"] * 20 + [b"b"] * 10 + [b"c"] * 4


@pytest.mark.whole
@pytest.mark.parametrize("loss", ["true", "warn"])
def test_a_topic_that_was_made_again_between_two_runs(spark: Any, cluster: Cluster, tmp_path: Path, loss: str) -> None:
    topic, sink = name_topic("again"), Sink(tmp_path)
    send(cluster, topic, number_bodies(0, 20), queues=1)
    frame = open_stream(spark, cluster, subscribe=topic, failOnDataLoss=loss)
    sink.run(frame)
    delete_topic(cluster, topic)
    send(cluster, topic, number_bodies(20, 25), queues=1)
    if loss == "true":
        with pytest.raises(Exception, match="created again"):
            sink.run(frame)
        assert sink.list_bodies() == number_bodies(0, 20)
        return
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(0, 25)
    send(cluster, topic, number_bodies(25, 30), queue=0)
    sink.run(frame)
    assert sink.list_bodies() == number_bodies(0, 30)


@pytest.mark.whole
@pytest.mark.parametrize("loss", ["true", "false"])
def test_what_is_available_now_when_a_topic_is_lost(spark: Any, cluster: Cluster, tmp_path: Path, loss: str) -> None:
    stem, sink = name_topic("lost"), Sink(tmp_path)
    for part in "ab":
        send(cluster, f"{stem}-{part}", [part.encode()] * 10, queues=2)
    frame = open_stream(spark, cluster, subscribe=f"{stem}-a,{stem}-b", failOnDataLoss=loss)
    sink.run(frame)
    delete_topic(cluster, f"{stem}-b")
    send(cluster, f"{stem}-a", [b"a"] * 5)
    if loss == "true":
        with pytest.raises(Exception, match="no longer exists"):
            sink.run(frame)
        return
    sink.run(frame)
    assert sink.list_bodies() == [b"a"] * 15 + [b"b"] * 10
    assert f"{stem}-b" not in sink.read_offsets()[-1]["topics"]


@pytest.mark.whole
def test_a_topic_that_is_added_to_the_subscription(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    stem, sink = name_topic("more"), Sink(tmp_path)
    send(cluster, f"{stem}-a", number_bodies(0, 10))
    send(cluster, f"{stem}-b", number_bodies(10, 20))
    sink.run(open_stream(spark, cluster, subscribe=f"{stem}-a"))
    sink.run(open_stream(spark, cluster, subscribe=f"{stem}-a,{stem}-b"))
    assert sink.list_bodies() == number_bodies(0, 20)
    # And one that is left out stays where it is until it is wanted again.
    send(cluster, f"{stem}-a", number_bodies(20, 30))
    sink.run(open_stream(spark, cluster, subscribe=f"{stem}-b"))
    assert sink.list_bodies() == number_bodies(0, 20)
    sink.run(open_stream(spark, cluster, subscribe=f"{stem}-a,{stem}-b"))
    assert sink.list_bodies() == number_bodies(0, 30)


@pytest.mark.whole
def test_a_checkpoint_of_another_source_is_refused(spark: Any, eruca_cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("foreign"), Sink(tmp_path)
    send(eruca_cluster, topic, number_bodies(0, 5))
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = sink.write(rates, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    with pytest.raises(Exception, match="no offsets of this source"):
        sink.run(open_stream(spark, eruca_cluster, subscribe=topic))
