"""Messages: find them by id, key, time and place, read and tail queues, send, and follow them."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import RELAY_MS, read_membership
from eruca._admin.messagereading import Place, read_messages, tail_messages
from eruca._admin.results import LIMIT, Listed, cut_list
from eruca._admin.storedmessages import StoredMessage, describe_message, describe_record
from eruca._admin.targets import BrokerRow, ask_each, find_target, find_targets, gather_bounded
from eruca._admin.tracing import TraceRow, Track, find_steps, track
from eruca._admin.waiting import find_next
from eruca._client.message import Message
from eruca._client.produce.outgoing import Receipt, describe_delay
from eruca._client.session.cluster import find_named_broker
from eruca._ground.durations import Duration
from eruca._ground.limits import POSITION_MAX
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import ConsumeDirectlyResult, MessageQueue, QueueEntries
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ConsumeDirectlyHeader, QueryConsumeQueueHeader, QueryMessageHeader
from eruca._wire.ids import decode_offset_id, decode_unique_id
from eruca._wire.names import MASTER_ID, TRACE_TOPIC
from eruca.errors import MessageIllegal, NetError, NoRoute, WireError

# The id has the time of the producer's clock, the index has the time at which the broker stored the message.
_CLOCKS_APART_MS = 1000
# A broker returns no more messages with one unique id, and with one key.
_UNIQUE_MAX = 32
_KEYED_MAX = 64


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue."""

    offset: int
    position: int
    size: int
    tags_code: int
    # Whether the group asked about would get it; True without a group.
    matches: bool = True
    # What the broker has of it in its extended file, its bit map of groups, and why it cannot be read.
    extension: str | None = None
    bit_map: str | None = None
    message: str | None = None


class QueueRows(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a consume queue."""

    broker: str
    begin: int
    end: int
    rows: list[QueueRow]
    # The subscription of the group asked about and its filter, as the broker names their fields.
    subscription: dict[str, Any] | None = None
    filter: str | None = None


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of having a client consume a message now."""

    client_id: str
    # As clients report it: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL.
    outcome: str
    seconds: float
    reason: str = ""
    ordered: bool = False
    # Whether its transaction is committed automatically, which is what all clients report.
    auto_commit: bool = True


class Messages:
    """Finds, reads, sends and follows messages: `admin.messages`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- finding -----------------------------------------------------------------------------------------------------

    async def view(self, offset_id: str) -> StoredMessage:
        """Return the message with an offset id, the id that names broker and position. Raises RequestRefused."""
        return describe_message(await self._connection.reader.view(offset_id))

    async def find(self, topic: str, message_id: str, *, limit: int = 32) -> Listed[StoredMessage]:
        """Return the messages of a topic with the id their producer chose: one, or several after a retry."""
        try:
            now_ms = self._connection.session.clock.now_ms()
            # Its time is that of the producer's clock.
            begin_ms = max(0, decode_unique_id(message_id, now_ms).timestamp - _CLOCKS_APART_MS)
        except WireError:
            begin_ms = 0  # its producer made it in another way
        header = QueryMessageHeader(
            topic=topic,
            key=message_id,
            max_num=limit + 1,
            begin_timestamp=begin_ms,
            end_timestamp=POSITION_MAX,
            unique_key_query=True,
        )
        return await self._query(header, lambda message: message.message_id == message_id, limit)

    async def find_by_key(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 64,
    ) -> Listed[StoredMessage]:
        """Return the messages of a topic with a key, oldest first; the newest if there are more than `limit`."""
        header = QueryMessageHeader(
            topic=topic,
            key=key,
            max_num=limit + 1,
            begin_timestamp=0 if since is None else to_epoch_ms("since", since),
            end_timestamp=POSITION_MAX if until is None else to_epoch_ms("until", until),
        )
        return await self._query(header, lambda message: key in message.keys, limit)

    async def _query(
        self, header: QueryMessageHeader, fits: Callable[[StoredMessage], bool], limit: int
    ) -> Listed[StoredMessage]:
        """Ask the brokers of a topic for messages, of each name one.

        The index has hashes of topic and key, so Java's brokers return other messages too, even of other topics.
        """
        connection = self._connection
        route = await connection.require_route(header.topic)
        rows = [
            BrokerRow(cluster="", broker=name, broker_id=number, address=by_id[number])
            for name, by_id in route.brokers.items()
            for number in [min(by_id)]
        ]
        found, problems = await ask_each(rows, lambda row: connection.calls.query_messages(row.address, header))
        messages = [
            describe_record(record, row.broker)
            for row, records in found
            for record in records
            if record.topic == header.topic
        ]
        newest = sorted(filter(fits, messages), key=lambda message: (message.stored_at is not None, message.stored_at))
        most = _UNIQUE_MAX if header.unique_key_query else _KEYED_MAX
        more = len(newest) > limit or any(len(records) >= most for _, records in found)
        return Listed(items=newest[-limit:], cut=more, problems=problems)

    async def at(self, topic: str, broker: str, queue: int, offset: int) -> StoredMessage:
        """Return the message at an offset of a queue. Raises NoRoute if there is none."""
        message = await find_next(self._connection, MessageQueue(broker, queue, topic), offset)
        if message is None or message.offset != offset:
            raise NoRoute(
                f"there is no message at offset {offset} of {topic}, queue {broker}:{queue}",
                hint=f"eruca topic show {topic} shows the ends of its queues",
            )
        return describe_message(message)

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
        connection = self._connection
        row = await find_target(connection, broker)
        header = QueryConsumeQueueHeader(topic=topic, queue_id=queue, index=offset, count=count, consumer_group=group)
        _, body = await connection.ask(row.address, RequestCode.QUERY_CONSUME_QUEUE, header)
        found = body if isinstance(body, QueueEntries) else QueueEntries()
        rows = [
            QueueRow(
                offset=offset + number,
                position=each.position,
                size=each.size,
                tags_code=each.tags_code,
                matches=each.matches or group is None,
                extension=each.extend_data_json,
                bit_map=each.bit_map,
                message=each.message,
            )
            for number, each in enumerate(found.queue_data)
        ]
        return QueueRows(
            broker=row.where,
            begin=found.min_queue_index,
            end=found.max_queue_index,
            rows=rows,
            subscription=None if found.subscription_data is None else msgspec.to_builtins(found.subscription_data),
            filter=found.filter_data,
        )

    async def offset_at(self, topic: str, broker: str, queue: int, at: datetime) -> int:
        """Return the offset of the first message of a queue that was stored at a time or later; its end without one."""
        connection = self._connection
        return await connection.reader.find_at(MessageQueue(broker, queue, topic), at)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read(
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
        group: str | None = None,
        newest_first: bool = False,
        resume: Mapping[str, int] | None = None,
        limit: int | None = LIMIT,
    ) -> AsyncIterator[StoredMessage]:
        """Yield the messages of a topic up to the present ends of its queues, in the order of storing. Raises NoRoute.

        `since` and `until` are times of storing; both ends are included. `offset` needs `broker` and `queue`. With
        `group`, brokers count the messages as read by this group, whose offsets stay as they are. `newest_first` reads
        backwards. `resume` continues an earlier read: the offset of the last message it returned of each queue,
        `{"broker-a:0": 41}`.
        """
        place = Place(
            topic=topic,
            broker=broker,
            queue=queue,
            offset=offset,
            since=since,
            until=until,
            tags=tags,
            key=key,
            group=group,
            newest_first=newest_first,
            resume=resume,
        )
        async for message in _count(read_messages(self._connection, place), limit):
            yield message

    async def tail(
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
        place = Place(topic=topic, broker=broker, queue=queue, offset=offset, tags=tags, key=key)
        async for message in _count(tail_messages(self._connection, place, last), limit):
            yield message

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
        shard: str | None = None,
        delay: Duration | None = None,
        timer: Duration | datetime | None = None,
        trace: bool = False,
        auto_create: bool = False,
        dry_run: bool = False,
    ) -> Receipt | None:
        """Send a message, to any queue or to a certain one, for a test; None with `dry_run`.

        It creates no topic, unless `auto_create` is set and brokers allow it. `shard` chooses the queue, `delay` is one
        of the delay levels and `timer` any delay or a time, as for a producer.
        """
        if shard is not None and (broker is not None or queue is not None):
            raise MessageIllegal("shard and queue are mutually exclusive", hint="pass one of them")
        describe_delay(delay, None, timer)  # raises now, with dry_run too
        connection = self._connection
        route = await (connection.find_route(topic) if auto_create else connection.require_route(topic))
        place = None
        if broker is not None or queue is not None:
            place = MessageQueue(broker or "", queue or 0, topic)
        if route is not None:
            queues = [
                each
                for each in route.write_queues
                if broker in (None, each.broker_name) and queue in (None, each.queue_id)
            ]
            if not queues:
                raise NoRoute(
                    f"topic {topic} has no such queue that may be written to",
                    hint=f"eruca topic show {topic} shows its queues and its permission",
                )
            place = None if place is None else random.choice(queues)
        if dry_run:
            return None
        producer = await connection.open_producer(trace=trace)
        return await producer.send(
            topic,
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            queue=place,
            shard=shard,
            delay=delay,
            timer=timer,
        )

    async def consume_directly(
        self, offset_id: str, group: str, client_id: str | None = None, *, dry_run: bool = False
    ) -> Consumed | None:
        """Have a client of a group, by default any, consume a message now, whatever its offset. None with `dry_run`.

        Raises NoRoute if no such client is connected to the broker of the message.
        """
        connection = self._connection
        name, address = await find_named_broker(connection.routes, decode_offset_id(offset_id))
        row = BrokerRow(cluster="", broker=name, broker_id=MASTER_ID, address=address)
        members = (await read_membership(connection, group, [row])).members
        chosen = next((each.client_id for each in members if client_id in (None, each.client_id)), None)
        if chosen is None:
            who = f"a member of group {group}" if client_id is None else client_id
            raise NoRoute(f"{who} is not connected to {name}", hint=f"eruca group show {group} lists its members")
        if dry_run:
            return None
        header = ConsumeDirectlyHeader(consumer_group=group, client_id=chosen, message_id=offset_id, broker_name=name)
        _, body = await connection.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms=RELAY_MS)
        if not isinstance(body, ConsumeDirectlyResult):
            raise NetError(f"{chosen} answered without an outcome")
        return Consumed(
            client_id=chosen,
            outcome=body.consume_result or "",
            seconds=body.spent_time_ms / 1000,
            reason=body.remark or "",
            ordered=body.order,
            auto_commit=body.auto_commit,
        )

    # -- following ---------------------------------------------------------------------------------------------------

    async def tracks(self, offset_id: str, *, limit: int = LIMIT) -> Listed[Track]:
        """Return what the groups of its topic did with a message."""
        connection = self._connection
        message = await self.view(offset_id)
        rows = await find_targets(connection)
        found, problems = await ask_each(rows, lambda row: connection.calls.list_groups(row.address, message.stored_in))
        groups = sorted({group for _, part in found for group in part})
        tracks = await gather_bounded(groups[:limit], lambda group: track(connection, rows, message, group))
        items = [each for each in tracks if isinstance(each, Track)]
        return cut_list(items, limit, problems, more=len(groups) > limit)

    async def trace(self, message_id: str, *, trace_topic: str | None = None, limit: int = 64) -> Listed[TraceRow]:
        """Return the steps of a message, which its clients traced, by message id or by key; oldest first.

        `limit` is the number of trace messages that are read.
        """
        found = await self.find_by_key(trace_topic or TRACE_TOPIC, message_id, limit=limit)
        return Listed(items=find_steps(found.items, message_id), cut=found.cut, problems=found.problems)


async def _count(messages: AsyncGenerator[Message, None], limit: int | None) -> AsyncIterator[StoredMessage]:
    """Yield the first messages, as plain values."""
    left = limit
    async with aclosing(messages) as opened:
        async for message in opened:
            if left == 0:
                return
            yield describe_message(message)
            left = None if left is None else left - 1
            if left == 0:
                return
