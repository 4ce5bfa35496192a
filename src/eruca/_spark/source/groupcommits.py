"""Commits the offsets of a stream to a consumer group, so that tools show its lag.

Spark's checkpoint is authoritative; the group only follows. It never moves back: a second query, or one that continues
from an old checkpoint, must not undo the progress of the group. The source commits on its own, but Spark informs it
about a batch only when the next one is planned, and never about the last one of `availableNow`. A listener is informed
about every batch:

>>> commits = commit_progress(spark)
>>> query = spark.readStream.format("rocketmq").option("commitOffsetsToGroup", "billing")...
>>> query.awaitTermination()
>>> commits.wait_for_end(query)
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from eruca._ground.durations import Duration, to_seconds
from eruca._spark.cluster import Access, Cluster, describe_access, read_access
from eruca._spark.offsets import Offsets, decode_offsets
from eruca._wire.bodies import ConsumerData, ConsumeType, HeartbeatData, MessageQueue
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ErucaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

# The next commit makes up for one that fails; a stream must not wait for it.
_RETRIES: Final = 1
_END_S: Final = 30.0


def describe_group(group: str, access: Access) -> dict[str, Any]:
    """Return what a listener needs to commit offsets, to be stored with them. Files are only named."""
    if not group:
        return {}
    return {"group": group, **describe_access(access)}


class GroupCommits:
    """Commits offsets of groups in one cluster."""

    def __init__(self, access: Access) -> None:
        self._cluster = Cluster(replace(access, retries=min(access.retries, _RETRIES)))
        self._last: dict[str, Offsets] = {}
        self._known: set[str] = set()

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> Offsets:
        """Commit offsets that move the group forward; returns what was committed. Raises ErucaError."""
        last = self._last.get(group, {})
        new = {queue: offset for queue, offset in offsets.items() if last.get(queue) != offset}
        if not new:
            return {}
        if group not in self._known:
            self._introduce(group, new)
            self._known.add(group)
        committed = self._cluster.read_group(group, list(new))
        ahead = [queue for queue, offset in committed.items() if offset is not None and offset > new[queue]]
        # A committed offset after the end of the queue is from before the queue was created again.
        ends = self._cluster.find_ends(ahead) if ahead else {}
        for queue in ahead:
            if (committed[queue] or 0) <= ends[queue]:
                del new[queue]
        self._cluster.commit_group(group, new)
        self._last[group] = {**last, **offsets}
        return new

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def _introduce(self, group: str, offsets: Offsets) -> None:
        """Register the group with brokers: some tools look for its retry topic, which its first client creates.

        Only if there is none: a client that joins and leaves would trigger a rebalance of the group.
        """
        cluster = self._cluster
        if cluster.find_route(RETRY_PREFIX + group) is not None:
            return
        client = cluster.connection.session.client_id
        member = ConsumerData(group_name=group, consume_type=ConsumeType.CONSUME_ACTIVELY)
        sign = HeartbeatData(client_id=client, consumer_data_set=[member])
        for address in {cluster.find_address(queue) for queue in offsets}:
            try:
                cluster.run(cluster.calls.heartbeat(address, sign))
                cluster.run(cluster.calls.unregister(address, client, consumer=group))
            except ErucaError as error:
                log.warning("broker %s does not accept group %s: %s", address, group, error)


class ProgressCommits(StreamingQueryListener):
    """A listener that commits the offsets of every completed batch."""

    def __init__(self) -> None:
        self._commits: dict[Access, GroupCommits] = {}
        self._ended: set[str] = set()
        # Spark calls the methods from its own threads.
        self._changed = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark when a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark when a batch is complete."""
        for source in event.progress.sources:
            self._commit(source.endOffset)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark when a query has ended."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    def wait_for_end(self, query: StreamingQuery, timeout: Duration = _END_S) -> bool:
        """Wait until all offsets of a query that ended are committed; returns False if that takes too long."""
        timeout_s = to_seconds("timeout", timeout)
        run = str(query.runId)
        with self._changed:
            return self._changed.wait_for(lambda: run in self._ended, timeout_s)

    def close(self) -> None:
        """Close all connections."""
        with self._changed:
            for commits in self._commits.values():
                commits.close()
            self._commits.clear()

    def _commit(self, text: str | None) -> None:
        described = _read_described(text)
        if described is None:
            return
        group, access = described["group"], read_access(described)
        with self._changed:
            try:
                commits = self._commits.get(access)
                if commits is None:
                    commits = self._commits[access] = GroupCommits(access)
                commits.commit(group, decode_offsets(described))
            except ErucaError as error:
                # The next batch tries again.
                log.warning("offsets of group %s could not be committed: %s", group, error)


def _read_described(text: str | None) -> dict[str, Any] | None:
    """Return our offsets that are to be committed; None for those of other sources."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(found, dict) or not {"topics", "group", "nameServer"} <= found.keys():
        return None
    return found


def commit_progress(session: SparkSession) -> ProgressCommits:
    """Commit the offsets of every stream of a session with the option commitOffsetsToGroup, batch by batch."""
    commits = ProgressCommits()
    session.streams.addListener(commits)
    return commits
