"""Offsets of a group at one time, to be restored later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.progress import read_committed
from eruca._admin.targets import BrokerRow, ask_each
from eruca.errors import NetError


class SavedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The offset of a group in one queue."""

    topic: str
    broker: str
    queue: int
    offset: int


class SavedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of a group at one time, which `restore` writes back."""

    group: str
    taken_at: datetime
    offsets: list[SavedOffset]


async def export_offsets(
    connection: Connection, group: str, topic: str | None = None, *, rows: Sequence[BrokerRow]
) -> SavedOffsets:
    """Return the offsets a group has committed at some brokers. Raises NetError if one of them does not answer."""
    found, problems = await ask_each(rows, lambda row: read_committed(connection, row.address, group))
    if problems:
        raise NetError(f"the offsets at {problems[0].where} are unknown: {problems[0].error}", hint=problems[0].hint)
    offsets = [
        SavedOffset(topic=queue.topic, broker=row.broker, queue=queue.queue_id, offset=offset)
        for row, table in found
        for queue, offset in table.items()
        if topic in (None, queue.topic)
    ]
    offsets.sort(key=lambda each: (each.topic, each.broker, each.queue))
    return SavedOffsets(group=group, taken_at=datetime.now(UTC), offsets=offsets)
