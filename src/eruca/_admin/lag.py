"""How far consumer groups are behind, in messages and in time, as the brokers report it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.progress import QueueProgress, list_progress
from eruca._ground.durations import to_ms
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import ConsumerOffsets, GroupConfigTable, MessageQueue
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.errors import ErucaError

# Groups that every broker has for its own use.
_TOOLS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONSAPI",
    "CID_ONS-HTTP-PROXY",
    "CID_RMQ_SYS",
)


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one queue."""

    group: str
    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    # How many messages it has not consumed yet.
    lag: int
    # How long the next of them has been waiting; None if there is none, or if it is unknown.
    lag_time: timedelta | None = None


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one topic."""

    group: str
    topic: str
    queues: int
    lag: int
    lag_time: timedelta | None = None


async def read_lag(
    connection: Connection, groups: Sequence[str] = (), topics: Sequence[str] = (), now_ms: int | None = None
) -> list[QueueLag]:
    """Return how far each group is behind in each queue: the named groups and topics, or all of them."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    rows: list[QueueLag] = []
    for group in groups or await list_groups(connection):
        for progress in (await list_progress(connection, group))[0]:
            if topics and progress.topic not in topics:
                continue
            since = await _find_waiting_since(connection, progress)
            rows.append(
                QueueLag(
                    group=group,
                    topic=progress.topic,
                    broker=progress.broker,
                    queue=progress.queue,
                    offset=progress.offset,
                    end=progress.end,
                    lag=progress.lag,
                    lag_time=None if since is None else timedelta(milliseconds=max(0, now - since)),
                )
            )
    return rows


async def list_groups(connection: Connection) -> list[str]:
    """Return the groups that brokers know or hold offsets of, without the brokers' own groups."""
    found: set[str] = set()
    for address in (await connection.list_masters()).values():
        _, body = await connection.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, EmptyHeader())
        if isinstance(body, GroupConfigTable):
            found.update(body.subscription_group_table)
        _, body = await connection.ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyHeader())
        if isinstance(body, ConsumerOffsets):
            found.update(name.partition("@")[2] for name in body.offset_table)
    return sorted(name for name in found if name and not name.startswith(_TOOLS))


async def _find_waiting_since(connection: Connection, progress: QueueProgress) -> int | None:
    """Return when the next message to consume was stored; None if there is none, or if it is not known."""
    if not progress.lag:
        return None
    try:
        await connection.routes.get(progress.topic)
        queue = MessageQueue(progress.broker, progress.queue, progress.topic)
        first = max(progress.offset, await connection.reader.find_begin(queue))
        pulled = await connection.reader.pull(
            queue,
            first,
            wanted="*",
            count=1,
            hold_ms=0,
            timeout_ms=to_ms("call_timeout", connection.options.call_timeout),
        )
        return pulled.messages[0].record.store_timestamp if pulled.messages else None
    except ErucaError:
        return None if progress.consumed_at is None else to_epoch_ms("consumed_at", progress.consumed_at)


def sum_lag(rows: Iterable[QueueLag]) -> list[GroupLag]:
    """Return how far each group is behind in each topic: the sum of its messages, and the longest wait."""
    found: dict[tuple[str, str], list[QueueLag]] = {}
    for row in rows:
        found.setdefault((row.group, row.topic), []).append(row)
    return [
        GroupLag(
            group=group,
            topic=topic,
            queues=len(each),
            lag=sum(row.lag for row in each),
            lag_time=max((row.lag_time for row in each if row.lag_time is not None), default=None),
        )
        for (group, topic), each in sorted(found.items())
    ]
