"""Single requests about queues and messages, without a group and without background work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from eruca._client.arguments import check_count, check_type
from eruca._client.group.pulling import find_source, keep_tagged
from eruca._client.group.starting import find_offset_since
from eruca._client.group.subscriptions import Filter, Subscription, make_subscription
from eruca._client.message import Decode, Message
from eruca._client.namespaces import name_topic, unwrap_queue
from eruca._client.session.calls import PullStatus
from eruca._client.session.cluster import find_named_broker
from eruca._client.session.route import Route
from eruca._client.session.session import Session
from eruca._ground.limits import POSITION_MAX
from eruca._ground.times import to_epoch_ms
from eruca._wire.bodies import MessageQueue
from eruca._wire.headers import PullMessageHeader, QueryMessageHeader
from eruca._wire.ids import decode_offset_id, decode_unique_id
from eruca._wire.names import MASTER_ID
from eruca._wire.properties import UNIQ_KEY
from eruca._wire.record import Record
from eruca._wire.sysflag import PULL_SUSPEND
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

# The id has the time of the producer's clock, the index has the time at which the broker stored the message.
_CLOCKS_APART_MS = 1000


@dataclass(frozen=True, slots=True)
class PullResult:
    """The messages of one pull, and the offset of the next one."""

    status: PullStatus
    messages: list[Message]
    next_offset: int
    min_offset: int
    max_offset: int


class QueueReader:
    """Asks brokers about queues and messages."""

    def __init__(self, session: Session, group: str, namespace: str = "", decode: Decode | None = None) -> None:
        self._session = session
        self._group = group
        self._namespace = namespace
        self._decode = decode
        # The broker id to pull each queue from, as the brokers last suggested.
        self._suggested: dict[MessageQueue, int] = {}

    # -- queues ------------------------------------------------------------------------------------------------------

    async def list_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read. Raises NoRoute."""
        route = await self._session.routes.refresh(name_topic(self._namespace, topic))
        return [unwrap_queue(self._namespace, queue) for queue in route.read_queues]

    async def find_begin(self, queue: MessageQueue) -> int:
        """Return the first offset that a queue still has."""
        return await self._session.calls.find_min_offset(await self._find_master(queue), queue)

    async def find_end(self, queue: MessageQueue) -> int:
        """Return the offset after the last message."""
        return await self._session.calls.find_max_offset(await self._find_master(queue), queue)

    async def find_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at a time or later."""
        time_ms = to_epoch_ms("time", time)
        address = await self._find_master(queue)
        return await find_offset_since(self._session.calls, address, self._group, queue, time_ms)

    async def _find_master(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        routes = self._session.routes
        # The route of a topic has the addresses of its brokers.
        await routes.get(queue.topic)
        return routes.require_address(queue.broker_name, broker_id)

    async def pull(
        self, queue: MessageQueue, offset: int, *, wanted: Filter, count: int, hold_ms: int, timeout_ms: int
    ) -> PullResult:
        """Ask once for messages of a queue, starting at an offset. Raises ErucaError."""
        subscription = make_subscription(queue.topic, wanted, 0)
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_message_nums=count,
            sys_flag=PULL_SUSPEND if hold_ms else 0,
            commit_offset=0,
            suspend_timeout_ms=hold_ms,
            subscription=subscription.text,
            subscription_version=0,
            expression_type=subscription.kind,
        )
        suggested = self._suggested.pop(queue, MASTER_ID)
        await self._find_master(queue, suggested)
        address, flags = await find_source(self._session, self._group, queue, suggested, subscription)
        header.sys_flag |= flags
        pulled = await self._session.calls.pull(address, header, hold_ms + timeout_ms)
        if pulled.suggested_id != MASTER_ID:
            self._suggested[queue] = pulled.suggested_id
        records = keep_tagged(pulled.records, subscription)
        return PullResult(
            pulled.status,
            [Message(record, queue, self._namespace, decode=self._decode) for record in records],
            pulled.next_offset,
            pulled.min_offset,
            pulled.max_offset,
        )

    async def check_sql(self, subscriptions: Iterable[Subscription]) -> None:
        """Have brokers check SQL expressions before anything depends on them. Raises RequestRefused."""
        session = self._session
        for subscription in subscriptions:
            for by_id in (await session.routes.get(subscription.topic)).brokers.values():
                await session.calls.check_subscription(
                    next(iter(by_id.values())), session.client_id, self._group, subscription.data
                )

    # -- messages ----------------------------------------------------------------------------------------------------

    async def view(self, offset_id: str) -> Message:
        """Return the message with an offset id, from the broker the id names.

        Raises RequestRefused if there is none, and NoRoute if the cluster has no such broker.
        """
        check_type("offset_id", offset_id, str)
        where = decode_offset_id(offset_id)
        name, address = await find_named_broker(self._session.routes, where)
        return self._make_message(await self._session.calls.view_message(address, where.position), name)

    async def query(
        self, topic: str, key: str, begin: datetime | None, end: datetime | None, count: int, *, is_unique_id: bool
    ) -> list[Message]:
        """Return the messages with a key or unique id, oldest first. Raises ErucaError if no broker answers."""
        wrapped = name_topic(self._namespace, topic)
        check_type("key", key, str)
        check_count("max_messages", count)
        check_type("unique", is_unique_id, bool)
        if is_unique_id and begin is None:
            begin_ms = max(0, decode_unique_id(key, self._session.clock.now_ms()).timestamp - _CLOCKS_APART_MS)
        else:
            begin_ms = 0 if begin is None else to_epoch_ms("begin", begin)
        header = QueryMessageHeader(
            topic=wrapped,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=POSITION_MAX if end is None else to_epoch_ms("end", end),
            unique_key_query=True if is_unique_id else None,
        )
        route = await self._session.routes.get(wrapped)
        messages = await self._ask_everybody(route, header)
        # The index stores hashes, and two keys may have the same one.
        found = [message for message in messages if _has_key(message, key, is_unique_id=is_unique_id)]
        return sorted(found, key=lambda message: message.record.store_timestamp)[:count]

    async def _ask_everybody(self, route: Route, header: QueryMessageHeader) -> list[Message]:
        async def ask(name: str, by_id: dict[int, str]) -> list[Message]:
            address = by_id.get(MASTER_ID) or next(iter(by_id.values()))
            records = await self._session.calls.query_messages(address, header)
            return [self._make_message(record, name) for record in records]

        asked = [ask(name, by_id) for name, by_id in route.brokers.items()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[Message] = []
        failures: list[ErucaError] = []
        for answer in answers:
            if isinstance(answer, ErucaError):
                failures.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found += answer
        if failures and not found:
            raise failures[0]
        for failure in failures:
            log.warning("messages of %s may be missing: %s", route.topic, failure)
        return found

    def _make_message(self, record: Record, broker: str) -> Message:
        queue = MessageQueue(broker, record.queue_id, record.topic)
        return Message(record, queue, self._namespace, decode=self._decode)


def _has_key(message: Message, key: str, *, is_unique_id: bool) -> bool:
    return message.record.get_property(UNIQ_KEY) == key if is_unique_id else key in message.keys
