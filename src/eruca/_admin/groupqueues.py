"""The queues of a group: how far it is in each, which member has it, and the message it waits with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import Membership
from eruca._admin.progress import QueueProgress, describe_progress, read_committed, read_stats
from eruca._admin.queueends import list_queue_ends
from eruca._admin.results import Problem
from eruca._admin.targets import BrokerRow, ask_each, gather_bounded
from eruca._admin.waiting import MessageHead, describe_head, find_next, measure_wait
from eruca._wire.bodies import ConsumerRunningInfo, ConsumeStats, MessageQueue
from eruca._wire.names import RETRY_PREFIX

# For how many queues of a group the message it waits with is read, those that are furthest behind.
_READ_MAX = 256


class GroupQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in one queue, and who works on it."""

    topic: str
    broker: str
    queue: int
    # None: the group has no offset here.
    offset: int | None
    end: int
    lag: int
    # How long the next message to consume has been waiting; None if there is none, or if it is unknown.
    lag_time: timedelta | None = None
    # When the last message it consumed was stored.
    consumed_at: datetime | None = None
    # The client id of the member that has the queue; empty if no member reports it.
    owner: str = ""
    # The next message to consume, if the group is behind.
    stuck_on: MessageHead | None = None


async def read_queues(
    connection: Connection, group: str, rows: Sequence[BrokerRow], membership: Membership
) -> tuple[list[GroupQueue], float, list[Problem]]:
    """Return the progress in each queue, and how many messages members get per second.

    Topics that members are subscribed to and in which the group has no offset are there too.
    """
    found, problems = await ask_each(rows, lambda row: _read_stats(connection, row, group))
    rate = sum(stats.consume_tps for _, (stats, _) in found)
    queues = [
        _describe(describe_progress(queue, each), MessageQueue("", queue.queue_id, queue.topic) in committed)
        for _, (stats, committed) in found
        for queue, each in stats.offset_table.items()
    ]
    known = {row.topic for row in queues}
    for subscription in membership.subscriptions:
        name = subscription.topic
        if name in known or name.startswith(RETRY_PREFIX):
            continue
        ends, others = await list_queue_ends(connection, name, rows)
        problems += others
        queues += [
            GroupQueue(topic=name, broker=each.broker, queue=each.queue, offset=None, end=each.end, lag=each.count)
            for each in ends
        ]
    return sorted(queues, key=lambda row: (row.topic, row.broker, row.queue)), rate, problems


async def _read_stats(
    connection: Connection, row: BrokerRow, group: str
) -> tuple[ConsumeStats, Mapping[MessageQueue, int]]:
    stats = await read_stats(connection, row.address, group)
    if all(each.consumer_offset for each in stats.offset_table.values()):
        return stats, {MessageQueue("", queue.queue_id, queue.topic): 1 for queue in stats.offset_table}
    # A broker reports 0 for a queue without an offset.
    return stats, await read_committed(connection, row.address, group)


def _describe(progress: QueueProgress, is_committed: bool) -> GroupQueue:
    return GroupQueue(
        topic=progress.topic,
        broker=progress.broker,
        queue=progress.queue,
        offset=progress.offset if is_committed else None,
        end=progress.end,
        lag=progress.lag,
        consumed_at=progress.consumed_at,
    )


def add_owners(queues: Sequence[GroupQueue], running: Mapping[str, ConsumerRunningInfo]) -> list[GroupQueue]:
    """Return the queues with the members that report having them."""
    owners = {
        queue: client_id
        for client_id, info in running.items()
        for queue, held in info.mq_table.items()
        if not held.dropped
    }
    return [
        msgspec.structs.replace(row, owner=owners.get(MessageQueue(row.broker, row.queue, row.topic), ""))
        for row in queues
    ]


async def add_messages(connection: Connection, queues: Sequence[GroupQueue]) -> list[GroupQueue]:
    """Return the queues with the message that the group waits with in each, and for how long."""
    behind = sorted((row for row in queues if row.lag), key=lambda row: -row.lag)[:_READ_MAX]

    async def ask(row: GroupQueue) -> GroupQueue:
        message = await find_next(connection, MessageQueue(row.broker, row.queue, row.topic), row.offset or 0)
        if message is None:
            return row
        head = describe_head(message)
        return msgspec.structs.replace(row, stuck_on=head, lag_time=measure_wait(head.stored_at, datetime.now(UTC)))

    answers = await gather_bounded(behind, ask)
    found = {_key(row): answer for row, answer in zip(behind, answers, strict=True) if isinstance(answer, GroupQueue)}
    return [found.get(_key(row), row) for row in queues]


def _key(row: GroupQueue) -> tuple[str, str, int]:
    return row.topic, row.broker, row.queue
