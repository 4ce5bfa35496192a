"""The lag that is read from the progress of a query, where no broker answers; `tests/spark` asks real ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from eruca._spark.cluster import Access
from eruca._spark.offsets import Offsets, encode_offsets
from eruca._spark.source.lag import LagListener, QueryLag, TopicLag, lag_of
from eruca._wire.bodies import MessageQueue

Q0, Q1 = (MessageQueue("broker-a", number, "orders") for number in range(2))
CLICKS = MessageQueue("broker-a", 0, "clicks")


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def source(end: Offsets | None, latest: Offsets | None, **extra: Any) -> Any:
    """A source of a progress."""
    return SimpleNamespace(
        endOffset=None if end is None else json.dumps(encode_offsets(end)),
        latestOffset=None if latest is None else json.dumps(encode_offsets(latest, **extra)),
    )


def progress(*sources: Any) -> Any:
    return SimpleNamespace(id="query-1", name="revenue", batchId=7, sources=list(sources))


def event(told: Any) -> Any:
    return SimpleNamespace(progress=told)


def query(*sources: Any) -> Any:
    return SimpleNamespace(id="query-1", lastProgress=progress(*sources))


def show(lag: QueryLag | None) -> list[tuple[str, int, float | None]]:
    assert lag is not None and (lag.query_id, lag.name, lag.batch) == ("query-1", "revenue", 7)
    return [(topic.topic, topic.messages, topic.seconds) for topic in lag.topics]


def test_messages_come_from_the_progress_if_no_broker_answers(nobody: str, caplog: pytest.LogCaptureFixture) -> None:
    ends = {Q0: 10, Q1: 25, CLICKS: 3}
    lag = lag_of(query(source({Q0: 4, Q1: 25, CLICKS: 3}, ends, nameServer=nobody, behind={})))
    assert show(lag) == [("clicks", 0, 0.0), ("orders", 6, None)]
    assert lag is not None and lag.messages == 6 and lag.seconds is None
    assert "the lag of a stream could not be determined" in caplog.text
    # Another way to the cluster takes precedence.
    lag = lag_of(query(source({Q0: 4}, {Q0: 10})), access=Access(nobody, timeout=1.0))
    assert show(lag) == [("orders", 6, None)]


def test_sources_of_others_do_not_count() -> None:
    kafka = SimpleNamespace(endOffset='{"orders": {"0": 4}}', latestOffset='{"orders": {"0": 9}}')
    assert lag_of(query(kafka)) is None
    assert lag_of(query(source(None, {Q0: 10}))) is None
    idle: Any = SimpleNamespace(id="query-1", lastProgress=None)
    assert lag_of(idle) is None
    assert show(lag_of(query(kafka, source({Q0: 4}, {Q0: 10})))) == [("orders", 6, None)]


def test_a_topic_that_is_read_twice_counts_twice() -> None:
    lag = lag_of(query(source({Q0: 4}, {Q0: 10}), source({Q0: 10}, {Q0: 10}), source({Q0: 9}, None)))
    assert show(lag) == [("orders", 6, None)]


def test_a_listener_keeps_the_last_and_passes_each_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[QueryLag] = []
    listener = LagListener(seen.append)
    reader = query(source({Q0: 4}, {Q0: 10}))
    assert listener.last(reader) is None
    listener.onQueryProgress(event(progress(source({Q0: 4}, {Q0: 10}))))
    listener.onQueryProgress(event(progress(source({Q0: 9}, {Q0: 10}))))
    listener.onQueryProgress(event(progress()))
    assert [lag.messages for lag in seen] == [6, 1]
    assert listener.last(reader) == seen[1]

    def fail(_: QueryLag) -> None:
        raise ValueError("a mistake of the user")

    broken = LagListener(fail)
    broken.onQueryProgress(event(progress(source({Q0: 4}, {Q0: 10}))))
    assert "the lag of query query-1 could not be passed on" in caplog.text
    assert broken.last(reader) is not None
    broken.close()
    listener.close()


def test_the_longest_wait_is_that_of_the_query() -> None:
    def lag(*seconds: float | None) -> float | None:
        topics = tuple(TopicLag(topic=f"t{number}", messages=1, seconds=each) for number, each in enumerate(seconds))
        at: Any = None
        return QueryLag(query_id="q", name=None, batch=0, at=at, topics=topics).seconds

    assert (lag(1.5, 0.0, 3.0), lag(), lag(1.0, None)) == (3.0, 0.0, None)
