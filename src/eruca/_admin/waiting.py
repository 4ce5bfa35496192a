"""The message that a group waits with in each queue: the next to consume, and how long it has been there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._client.message import Message
from eruca._ground.durations import to_ms
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import MessageQueue


class MessageHead(msgspec.Struct, frozen=True, kw_only=True):
    """A message without its body."""

    topic: str
    broker: str
    queue: int
    offset: int
    message_id: str
    offset_id: str
    tags: str
    keys: list[str]
    born_at: datetime | None
    stored_at: datetime | None
    born_host: str
    # How many times it was delivered again.
    tries: int
    # Bytes of its record.
    size: int


async def find_next(connection: Connection, queue: MessageQueue, offset: int) -> Message | None:
    """Return the first message of a queue from an offset on; None if there is none. Raises ErucaError."""
    timeout_ms = to_ms("call_timeout", connection.options.call_timeout)
    reader = connection.reader
    await connection.get_route(queue.topic)
    for at in (max(0, offset), None):
        # Messages may have expired: then the queue begins later.
        start = await reader.find_begin(queue) if at is None else at
        if at is None and start <= offset:
            return None
        pulled = await reader.pull(queue, start, wanted="*", count=1, hold_ms=0, timeout_ms=timeout_ms)
        if pulled.messages:
            return pulled.messages[0]
    return None


def describe_head(message: Message) -> MessageHead:
    """Return a message as plain values, without its body."""
    record = message.record
    return MessageHead(
        topic=message.origin_topic,
        broker=message.queue.broker_name,
        queue=record.queue_id,
        offset=record.queue_offset,
        message_id=message.message_id,
        offset_id=message.offset_id,
        tags=message.tags,
        keys=message.keys,
        born_at=from_epoch_ms(record.born_timestamp),
        stored_at=from_epoch_ms(record.store_timestamp),
        born_host=message.born_host,
        tries=record.reconsume_times,
        size=record.size,
    )


def measure_wait(stored_at: datetime | None, now: datetime | None = None) -> timedelta | None:
    """Return how long a message has been waiting since it was stored."""
    if stored_at is None:
        return None
    return max(timedelta(), (now or datetime.now(UTC)) - stored_at)
