"""Offsets of streams as those of a group: where lag shows, and where a stream can begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca._spark.source.groupcommits import ProgressCommits, commit_progress
from eruca._wire.names import RETRY_PREFIX
from eruca.admin import Admin
from tests.interop.brokers import Cluster
from tests.spark.producing import commit_group, create_topic, delete_topic, name_topic, run, send
from tests.spark.streams import Sink, finish, number_bodies, open_stream, show_group, wait_for


@pytest.fixture
def commits(spark: Any) -> Iterator[ProgressCommits]:
    """A listener that is taken away again."""
    listener = commit_progress(spark)
    yield listener
    spark.streams.removeListener(listener)
    listener.close()


def read(spark: Any, cluster: Cluster, sink: Sink, topic: str, group: str, **options: object) -> Any:
    """Read what is available now with a group."""
    frame = open_stream(spark, cluster, subscribe=topic, commitOffsetsToGroup=group, **options)
    query = sink.write(frame, availableNow=True)
    finish(query)
    return query


def test_lag_of_a_stream_shows_and_the_last_batch_counts(
    spark: Any, cluster: Cluster, tmp_path: Path, commits: ProgressCommits
) -> None:
    topic, sink = name_topic("lag"), Sink(tmp_path)
    group = f"{topic}-group"
    create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 60))
    query = read(spark, cluster, sink, topic, group, maxOffsetsPerTrigger=20)
    assert commits.wait_for_end(query)
    assert show_group(cluster, group) == {0: (30, 0), 1: (30, 0)}
    send(cluster, topic, number_bodies(60, 64), queue=1)
    assert show_group(cluster, group) == {0: (30, 0), 1: (30, 4)}

    async def find_retry() -> object:
        async with Admin(cluster.name_server) as admin:
            return await admin.connection.find_route(RETRY_PREFIX + group)

    # Java's tools look for the topic of retries first.
    wait_for(lambda: run(find_retry()) is not None, lambda: "no topic of retries")


@pytest.mark.whole
def test_the_source_commits_by_itself_one_batch_late(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, sink = name_topic("late-commit"), Sink(tmp_path)
    create_topic(cluster, topic, queues=1)
    send(cluster, topic, number_bodies(0, 30))
    read(spark, cluster, sink, topic, f"{topic}-group", maxOffsetsPerTrigger=10)
    assert show_group(cluster, f"{topic}-group")[0][0] in (10, 20), "Spark does not tell the source of the last batch"


@pytest.mark.whole
def test_a_group_does_not_go_back(spark: Any, cluster: Cluster, tmp_path: Path, commits: ProgressCommits) -> None:
    topic, sink = name_topic("ahead"), Sink(tmp_path)
    group = f"{topic}-group"
    queues = create_topic(cluster, topic, queues=2)
    send(cluster, topic, number_bodies(0, 20))
    commit_group(cluster, group, {queues[0]: 9, queues[1]: 2})
    query = read(spark, cluster, sink, topic, group, maxOffsetsPerTrigger=10)
    assert commits.wait_for_end(query)
    assert show_group(cluster, group) == {0: (10, 0), 1: (10, 0)}
    send(cluster, topic, number_bodies(20, 40))
    # Another query begins anew, and has not come far.
    other = Sink(tmp_path / "other")
    query = other.write(
        open_stream(
            spark,
            cluster,
            assign=f'{{"{topic}": {{"{queues[0].broker_name}": [0]}}}}',
            commitOffsetsToGroup=group,
            maxOffsetsPerTrigger=4,
        )
    )
    wait_for(lambda: query.lastProgress is not None and query.lastProgress.batchId >= 1, lambda: query.status)
    assert show_group(cluster, group)[0][0] >= 10
    query.stop()
    assert commits.wait_for_end(query)
    assert show_group(cluster, group)[1] == (10, 10)


@pytest.mark.whole
def test_a_topic_that_was_made_again_has_a_group_that_begins_again(
    spark: Any, eruca_cluster: Cluster, tmp_path: Path, commits: ProgressCommits
) -> None:
    topic, sink = name_topic("reborn"), Sink(tmp_path)
    group = f"{topic}-group"
    queues = create_topic(eruca_cluster, topic, queues=1)
    send(eruca_cluster, topic, number_bodies(0, 20))
    assert commits.wait_for_end(read(spark, eruca_cluster, sink, topic, group, failOnDataLoss="false"))
    delete_topic(eruca_cluster, topic)
    send(eruca_cluster, topic, number_bodies(20, 25), queues=1)
    commit_group(eruca_cluster, group, {queues[0]: 20})  # as a broker has it that does not forget
    assert commits.wait_for_end(read(spark, eruca_cluster, sink, topic, group, failOnDataLoss="false"))
    assert show_group(eruca_cluster, group) == {0: (5, 0)}


@pytest.mark.whole
def test_a_stream_begins_where_a_group_is(
    spark: Any, cluster: Cluster, tmp_path: Path, commits: ProgressCommits
) -> None:
    topic = name_topic("handover")
    send(cluster, topic, number_bodies(0, 40))
    query = read(spark, cluster, Sink(tmp_path / "one"), topic, f"{topic}-group")
    assert commits.wait_for_end(query)
    send(cluster, topic, number_bodies(40, 60))
    other = Sink(tmp_path / "two")
    other.run(open_stream(spark, cluster, subscribe=topic, startingOffsets=f"group:{topic}-group"))
    assert other.list_bodies() == number_bodies(40, 60)
