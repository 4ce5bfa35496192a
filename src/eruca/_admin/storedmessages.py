"""One stored message as plain values, the same for every part and command."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from eruca._client.message import Message
from eruca._ground.times import from_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.record import Record
from eruca.errors import WireError


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message, as plain values."""

    # The topic it was sent to, and the one it is stored in: a retry, a dead letter, a half.
    topic: str
    stored_in: str
    broker: str
    queue: int
    offset: int
    # The id its producer chose; the id of this record; and the id of its first record, before any retry.
    message_id: str
    offset_id: str
    origin_id: str
    tags: str
    keys: list[str]
    # All properties, those of brokers and clients too.
    properties: dict[str, str]
    body: bytes
    # The body is still compressed, because it cannot be decompressed here.
    body_is_packed: bool
    # When it was sent and when it was stored.
    born_at: datetime | None
    stored_at: datetime | None
    # `host:port` of its sender and of the broker.
    born_host: str
    store_host: str
    # How many times it was delivered again.
    tries: int
    # Where the record is in the commit log, and its size.
    position: int
    size: int
    flag: int = 0
    sys_flag: int = 0
    # The position of its half, if it was committed.
    prepared_position: int = 0


def describe_record(record: Record, broker: str) -> StoredMessage:
    """Return a record as plain values."""
    return describe_message(Message(record, MessageQueue(broker, record.queue_id, record.topic)))


def describe_message(message: Message) -> StoredMessage:
    """Return a message as plain values."""
    record = message.record
    try:
        body, is_packed = bytes(message.body), False
    except WireError:
        body, is_packed = bytes(record.body), True
    return StoredMessage(
        topic=message.origin_topic,
        stored_in=record.topic,
        broker=message.queue.broker_name,
        queue=record.queue_id,
        offset=record.queue_offset,
        message_id=message.message_id,
        offset_id=message.offset_id,
        origin_id=message.origin_id,
        tags=message.tags,
        keys=message.keys,
        properties=message.all_properties,
        body=body,
        body_is_packed=is_packed,
        born_at=from_epoch_ms(record.born_timestamp),
        stored_at=from_epoch_ms(record.store_timestamp),
        born_host=message.born_host,
        store_host=message.store_host,
        tries=record.reconsume_times,
        position=record.position,
        size=record.size,
        flag=record.flag,
        sys_flag=record.sys_flag,
        prepared_position=record.prepared_position,
    )


def make_row(message: StoredMessage) -> dict[str, Any]:
    """Return a message as it is written everywhere as JSON: plain values, the body as text (null if not) and base64."""
    row: dict[str, Any] = msgspec.to_builtins(message)
    return row | {"body": _read_text(message.body), "body_base64": row["body"]}


def _read_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
