"""How far streams are behind: in their progress, from a listener, and asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca._spark.cluster import Access
from eruca._spark.source.lag import LagListener, QueryLag, lag_of, watch_lag
from tests.interop.brokers import Cluster
from tests.spark.producing import create_topic, name_topic, send
from tests.spark.streams import Sink, finish, number_bodies, open_stream, wait_for


@pytest.fixture
def seen() -> list[QueryLag]:
    return []


@pytest.fixture
def listener(spark: Any, seen: list[QueryLag]) -> Iterator[LagListener]:
    """A listener that is taken away again."""
    started = watch_lag(spark, seen.append)
    yield started
    spark.streams.removeListener(started)
    started.close()


def test_the_lag_of_a_stream_by_topic(
    spark: Any, cluster: Cluster, tmp_path: Path, listener: LagListener, seen: list[QueryLag]
) -> None:
    large, small, sink = name_topic("large"), name_topic("small"), Sink(tmp_path)
    for topic in (large, small):
        create_topic(cluster, topic, queues=2)
    send(cluster, large, number_bodies(0, 60))
    send(cluster, small, number_bodies(0, 4))
    options = {"subscribe": f"{large},{small}", "maxOffsetsPerTrigger": 20, "minOffsetsPerTopic": 4}
    query = sink.write(open_stream(spark, cluster, **options), availableNow=True)
    finish(query)
    wait_for(lambda: bool(seen) and seen[-1].messages == 0, lambda: seen)
    own = [lag for lag in seen if lag.query_id == str(query.id)]
    # After 20, 40, 60 and all of the 64 messages. A progress without a batch may follow.
    assert [lag.messages for lag in own][:4] == [44, 24, 4, 0]
    assert [topic.topic for topic in own[0].topics] == sorted([large, small])
    by_topic = {topic.topic: topic for topic in own[0].topics}
    assert (by_topic[small].messages, by_topic[small].seconds) == (0, 0.0)
    assert by_topic[large].messages == 44 and (by_topic[large].seconds or 0) > 0
    assert own[0].seconds == by_topic[large].seconds
    assert listener.last(query) == own[-1]
    # The same is in the progress of the query, for everybody who reads it.
    batches = [dict(json.loads(each.json)) for each in query.recentProgress if each.numInputRows]
    reported = [each["sources"][0]["latestOffset"] for each in batches]
    assert [each["behind"] for each in reported] == [
        {large: 44, small: 0}, {large: 24, small: 0}, {large: 4, small: 0}, {large: 0, small: 0}
    ]  # fmt: skip
    # What has come since only the brokers know.
    send(cluster, small, number_bodies(4, 9))
    lag = lag_of(query)
    assert lag is not None and lag.messages == 5 and lag.batch == own[-1].batch
    first = lag.seconds
    assert first is not None and first >= 0
    wait_for(lambda: ((lag_of(query) or lag).seconds or 0) > first, lambda: "it does not grow")
    away = lag_of(query, access=Access("127.0.0.1:1", timeout=1.0))
    assert away is not None and away.messages == 0
