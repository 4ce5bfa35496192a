"""How far a group is in each queue, as brokers report it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Problem
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import ConsumeStats
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ConsumeStatsHeader
from eruca.errors import RequestRefused


class QueueProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in one queue."""

    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    # When the last message it consumed was stored; None if unknown.
    consumed_at: datetime | None = None

    @property
    def lag(self) -> int:
        """How many messages it has not consumed yet."""
        return max(0, self.end - self.offset)


async def list_progress(
    connection: Connection, group: str, topic: str | None = None
) -> tuple[list[QueueProgress], list[Problem]]:
    """Return the progress of a group in one topic, or in all it has offsets in; empty if no broker knows the group."""
    rows: list[QueueProgress] = []
    for address in (await connection.list_masters()).values():
        rows += await _ask(connection, address, group, topic)
    return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue)), []


async def _ask(connection: Connection, address: str, group: str, topic: str | None) -> list[QueueProgress]:
    # Asked for one topic, a broker answers 0 for a group without offsets in it. So all topics are asked for.
    header = ConsumeStatsHeader(consumer_group=group, topic="")
    try:
        _, stats = await connection.ask(address, RequestCode.GET_CONSUME_STATS, header)
    except RequestRefused as error:
        if error.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
            return []
        raise
    if not isinstance(stats, ConsumeStats):
        return []
    return [
        QueueProgress(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            offset=found.consumer_offset,
            end=found.broker_offset,
            consumed_at=from_epoch_ms(found.last_timestamp) if found.last_timestamp else None,
        )
        for queue, found in stats.offset_table.items()
        if topic in (None, queue.topic)
    ]


async def list_connected(connection: Connection, address: str, group: str) -> list[str]:
    """Return the client ids of the members of a group that are connected to a broker."""
    try:
        return await connection.calls.list_members(address, group)
    except RequestRefused:
        return []  # brokers refuse the request if they do not know the group
