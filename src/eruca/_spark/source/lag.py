"""How far streams are behind, in messages and in time.

Spark accepts no metrics from a Python source. What it reports are offsets: where a batch ended, and where the queues
ended when it was planned. The rest is asked of the brokers when somebody wants to know:

>>> lag_of(query)
QueryLag(..., topics=(TopicLag(topic='orders', messages=1200, seconds=3.4),))

or after each batch:

>>> lags = watch_lag(spark, lambda lag: print(lag.messages, lag.seconds))
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from eruca._admin.waiting import find_next
from eruca._ground.times import from_epoch_ms
from eruca._spark.cluster import Access, Cluster, read_access
from eruca._spark.offsets import Offsets, decode_offsets, sum_behind
from eruca._wire.bodies import MessageQueue
from eruca.errors import ErucaError, OffsetLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)


class TopicLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream is behind in one topic."""

    topic: str
    # How many messages it has not read yet. With `tags` or `sql92`, those that do not match count too.
    messages: int
    # How long the oldest of them has been waiting; 0 if there is none, None if the brokers do not answer.
    seconds: float | None


class QueryLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream was behind at one time."""

    query_id: str
    name: str | None
    # The last batch that is complete.
    batch: int
    at: datetime
    topics: tuple[TopicLag, ...]

    @property
    def messages(self) -> int:
        """The messages of all topics together."""
        return sum(topic.messages for topic in self.topics)

    @property
    def seconds(self) -> float | None:
        """The longest wait of all topics; None if that of one is not known."""
        return _find_longest(topic.seconds for topic in self.topics)


class LagListener(StreamingQueryListener):
    """A listener that measures after each batch how far its stream is behind."""

    def __init__(self, on_lag: Callable[[QueryLag], object] | None = None, access: Access | None = None) -> None:
        self._on_lag = on_lag
        self._access = access
        self._clusters: dict[Access, Cluster] = {}
        self._last: dict[str, QueryLag] = {}
        # Spark calls the methods from its own threads.
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark when a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark when a batch is complete, and now and then while there is nothing to read."""
        try:
            with self._lock:
                lag = _measure(event.progress, self._access, self._open)
                if lag is None:
                    return
                self._last[lag.query_id] = lag
            if self._on_lag is not None:
                self._on_lag(lag)
        except Exception:
            # Otherwise Spark would log it as a mistake of its own, without saying whose it is.
            log.exception("the lag of query %s could not be passed on", event.progress.id)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark when a query has ended."""

    def last(self, query: StreamingQuery) -> QueryLag | None:
        """Return how far a query was behind after its last batch; None before the first."""
        with self._lock:
            return self._last.get(str(query.id))

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for cluster in self._clusters.values():
                cluster.close()
            self._clusters.clear()

    def _open(self, access: Access) -> Cluster:
        cluster = self._clusters.get(access)
        if cluster is None:
            cluster = self._clusters[access] = Cluster(access)
        return cluster


def watch_lag(
    session: SparkSession, on_lag: Callable[[QueryLag], object] | None = None, *, access: Access | None = None
) -> LagListener:
    """Measure after each batch how far the streams of a session are behind, and call `on_lag` with the result.

    It is called in a thread of Spark; what it raises is logged. `access` is needed only where the cluster is reached
    from here in another way than from the stream.
    """
    listener = LagListener(on_lag, access)
    session.streams.addListener(listener)
    return listener


def lag_of(query: StreamingQuery, *, access: Access | None = None) -> QueryLag | None:
    """Return how far a stream is behind now: what is in its queues and not in a complete batch.

    None before the first batch, and for a query that reads no topics. If the brokers do not answer, the messages are
    those that Spark reported last, and the time is None.
    """
    opened: list[Cluster] = []

    def open_cluster(access: Access) -> Cluster:
        opened.append(Cluster(access))
        return opened[-1]

    progress = query.lastProgress
    if progress is None:
        return None
    try:
        return _measure(progress, access, open_cluster)
    finally:
        for cluster in opened:
            cluster.close()


def _measure(progress: Any, access: Access | None, open_cluster: Callable[[Access], Cluster]) -> QueryLag | None:
    found: dict[str, TopicLag] = {}
    is_ours = False
    for source in progress.sources:
        offsets, reported, described = _read_source(source)
        if offsets is None:
            continue
        is_ours = True
        reach = access or (read_access(described) if "nameServer" in described else None)
        for lag in _ask(offsets, reported, reach, open_cluster):
            # A query may read a topic twice, for example to join it with itself.
            found[lag.topic] = _add(found.get(lag.topic), lag)
    if not is_ours:
        return None
    at = from_epoch_ms(int(time.time() * 1000))
    assert at is not None
    return QueryLag(
        query_id=str(progress.id),
        name=progress.name,
        batch=progress.batchId,
        at=at,
        topics=tuple(found[topic] for topic in sorted(found)),
    )


def _read_source(source: Any) -> tuple[Offsets | None, Offsets, Mapping[str, Any]]:
    """Return where a source has read up to and where its queues ended, with what is beside them; None for others."""
    try:
        offsets = decode_offsets(source.endOffset)
        described = json.loads(source.latestOffset or "null") or {}
        return offsets, decode_offsets(described) if described else {}, described
    except (OffsetLost, ValueError):
        return None, {}, {}


def _ask(
    offsets: Offsets, reported: Offsets, access: Access | None, open_cluster: Callable[[Access], Cluster]
) -> list[TopicLag]:
    if access is not None:
        try:
            # A progress must not wait for a broker that is away.
            cluster = open_cluster(replace(access, retries=0))
            cluster.open()
            ends = cluster.find_ends(sorted(offsets))
            since = cluster.ask_each(
                [queue for queue in offsets if ends[queue] > offsets[queue]],
                lambda _, queue: _find_stored_at(cluster, queue, offsets[queue]),
            )
            return _sum_up(offsets, ends, since, int(time.time() * 1000))
        except ErucaError as error:
            log.warning("the lag of a stream could not be determined: %s", error)
    return [
        TopicLag(topic=topic, messages=messages, seconds=None if messages else 0.0)
        for topic, messages in sum_behind(offsets, reported).items()
    ]


async def _find_stored_at(cluster: Cluster, queue: MessageQueue, offset: int) -> int | None:
    """Return when the first message from an offset on was stored; None if there is none."""
    message = await find_next(cluster.connection, queue, offset)
    return None if message is None else message.record.store_timestamp


def _sum_up(offsets: Offsets, ends: Offsets, since: Mapping[MessageQueue, int | None], now_ms: int) -> list[TopicLag]:
    waits: dict[str, float] = {}
    for queue, stored_ms in since.items():
        if stored_ms is not None:
            waits[queue.topic] = max(waits.get(queue.topic, 0.0), (now_ms - stored_ms) / 1000)
    return [
        TopicLag(topic=topic, messages=messages, seconds=waits.get(topic, 0.0))
        for topic, messages in sum_behind(offsets, ends).items()
    ]


def _add(before: TopicLag | None, lag: TopicLag) -> TopicLag:
    if before is None:
        return lag
    return TopicLag(
        topic=lag.topic,
        messages=before.messages + lag.messages,
        seconds=_find_longest((before.seconds, lag.seconds)),
    )


def _find_longest(waits: Iterable[float | None]) -> float | None:
    known = list(waits)
    return None if None in known else max((each for each in known if each is not None), default=0.0)
