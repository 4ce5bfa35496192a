"""Messages: find them by id, key, time and place, read and tail queues, send, and follow them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Listed
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt
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


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue."""

    offset: int
    position: int
    size: int
    tags_code: int
    # Whether the group asked about would get it; True without a group.
    matches: bool = True


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a consume queue."""

    broker: str
    begin: int
    end: int
    rows: list[QueueRow]


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """What a group did with a message."""

    group: str
    # `consumed`, `waiting`, `filtered` (its subscription does not match), `not online` or `unknown` (see `reason`).
    outcome: str
    reason: str = ""


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of having a client consume a message now."""

    client_id: str
    # As clients report it: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
    outcome: str
    seconds: float
    reason: str = ""
    ordered: bool = False


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a message, as a client traced it."""

    # `sent`, `transaction ended`, `delivered` or `consumed`.
    step: str
    at: datetime | None
    group: str
    topic: str
    message_id: str
    offset_id: str = ""
    tags: str = ""
    keys: str = ""
    client_host: str = ""
    store_host: str = ""
    size: int = 0
    # How long it took; None if the client does not tell.
    seconds: float | None = None
    succeeded: bool | None = None
    # How many times it had been delivered before.
    tries: int = 0
    # What a client reports as code of the outcome: of consuming, or of a transaction.
    outcome: str = ""


class Messages:
    """`admin.messages`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- finding -----------------------------------------------------------------------------------------------------

    async def view(self, offset_id: str) -> StoredMessage:
        """Return the message with an offset id, the id that names broker and position. Raises RequestRefused."""
        raise NotImplementedError

    async def find(self, topic: str, message_id: str, *, limit: int = 32) -> Listed[StoredMessage]:
        """Return the messages of a topic with the id their producer chose: one, or several after a retry."""
        raise NotImplementedError

    async def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 64,
    ) -> Listed[StoredMessage]:
        """Return the messages of a topic with a key, oldest first."""
        raise NotImplementedError

    async def at(self, topic: str, broker: str, queue: int, offset: int) -> StoredMessage:
        """Return the message at an offset of a queue. Raises NoRoute if there is none."""
        raise NotImplementedError

    async def entries(
        self,
        topic: str,
        broker: str,
        queue: int,
        offset: int,
        *,
        count: int = 10,
        group: str | None = None,
    ) -> QueueRows:
        """Return entries of a consume queue, for a look at the files of a broker."""
        raise NotImplementedError

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        broker: str | None = None,
        queue: int | None = None,
        offset: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: str = "*",
        key: str | None = None,
        limit: int | None = LIMIT,
    ) -> AsyncIterator[StoredMessage]:
        """Yield the messages of a topic, queue after queue, up to their present ends. Raises NoRoute.

        `since` and `until` are times of storing; both ends are included. `offset` needs `broker` and `queue`.
        """
        raise NotImplementedError

    def tail(
        self,
        topic: str,
        *,
        broker: str | None = None,
        queue: int | None = None,
        offset: int | None = None,
        last: int = 0,
        tags: str = "*",
        key: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """Yield the messages that arrive in a topic, for ever or up to `limit`, and first the `last` of each queue."""
        raise NotImplementedError

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        broker: str | None = None,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> Receipt | None:
        """Send a message, to any queue or to a certain one, for a test. It creates no topic; None with `dry_run`."""
        raise NotImplementedError

    async def consume_directly(
        self, offset_id: str, group: str, client_id: str, *, dry_run: bool = False
    ) -> Consumed | None:
        """Have a client of a group consume a message now, whatever its offset. None with `dry_run`."""
        raise NotImplementedError

    # -- following ---------------------------------------------------------------------------------------------------

    async def tracks(self, offset_id: str, *, limit: int = LIMIT) -> Listed[Track]:
        """Return what the groups of its topic did with a message."""
        raise NotImplementedError

    async def trace(self, message_id: str, *, trace_topic: str | None = None, limit: int = 64) -> Listed[TraceRow]:
        """Return the steps of a message, which its clients traced, by message id or by key; oldest first."""
        raise NotImplementedError


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
    """Return a message as it is written everywhere as JSON: plain values, and the body in base64."""
    row: dict[str, Any] = msgspec.to_builtins(message)
    return row | {"body_base64": row.pop("body")}
