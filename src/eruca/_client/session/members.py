"""The producers and consumers of a session: what brokers know of them, and what brokers ask them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    HeartbeatData,
    MessageQueue,
    ProducerData,
    ResetOffsetBody,
    TopicList,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import CheckTransactionHeader, PushReplyHeader
from eruca._wire.names import INNER_PRODUCER_GROUP
from eruca._wire.properties import PGROUP
from eruca._wire.record import Record
from eruca.errors import ErucaError, RequestRefused

log = logging.getLogger(__name__)


class ProducerMember(Protocol):
    """A producer as its session sees it."""

    group: str

    def check_transaction(self, address: str, header: CheckTransactionHeader, record: Record) -> bool:
        """Answer a broker's check of a half message; returns False if this producer cannot decide."""

    def take_reply(self, header: PushReplyHeader, body: bytes) -> bool:
        """Take the reply to a request message; returns False if it is for another producer."""


class ConsumerMember(Protocol):
    """A consumer as its session sees it."""

    group: str

    def describe(self) -> ConsumerData:
        """Return its description for heartbeats."""

    def wake(self) -> None:
        """Rebalance soon: the members of the group or a route have changed."""

    def describe_running(self, stacks: bool) -> ConsumerRunningInfo:
        """Return its current state, for the console."""

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Run its handler on one message now."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue from these offsets, which an operator set for the group."""

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return its offsets in a topic."""

    def note_created(self, topics: list[str]) -> None:
        """Consume topics that a broker has just created, if it subscribes to topics by pattern."""


class Members:
    """The producers and consumers that share a session, by group."""

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        # Runs a coroutine in the background until the session closes.
        self._spawn = spawn
        self.producers: dict[str, list[ProducerMember]] = {}
        self.consumers: dict[str, ConsumerMember] = {}

    def __bool__(self) -> bool:
        return bool(self.consumers or self.producers)

    def add_producer(self, producer: ProducerMember) -> None:
        """Add a producer; several may be in one group."""
        self.producers.setdefault(producer.group, []).append(producer)

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """Add a consumer, the only one of its group here."""
        assert consumer.group not in self.consumers
        self.consumers[consumer.group] = consumer

    def remove_producer(self, producer: ProducerMember) -> bool:
        """Remove a producer; True if none of its group is left."""
        others = self.producers.get(producer.group, [])
        if producer in others:
            others.remove(producer)
        if others:
            return False
        self.producers.pop(producer.group, None)
        return True

    def remove_consumer(self, consumer: ConsumerMember) -> bool:
        """Remove a consumer; False if it was not here."""
        if self.consumers.get(consumer.group) is not consumer:
            return False
        del self.consumers[consumer.group]
        return True

    def wake_consumers(self) -> None:
        """Let every consumer rebalance soon."""
        for consumer in self.consumers.values():
            consumer.wake()

    def describe(self, client_id: str) -> HeartbeatData:
        """Return what brokers have to know of all members."""
        consumers = [consumer.describe() for consumer in self.consumers.values()]
        producers = [ProducerData(group_name=group) for group in self.producers]
        if producers or consumers:
            producers.append(ProducerData(group_name=INNER_PRODUCER_GROUP))
        return HeartbeatData(client_id=client_id, consumer_data_set=consumers, producer_data_set=producers)

    # -- requests from brokers ---------------------------------------------------------------------------------------

    def register(self, table: HandlerTable) -> None:
        """Handle the requests of brokers to these members."""
        handlers: dict[RequestCode, Callable[[Request], Reply | Awaitable[Reply | None] | None]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_group_change,
            RequestCode.CHECK_TRANSACTION_STATE: self._on_transaction_check,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._on_reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._on_offsets_asked,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._on_running_info_asked,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._on_consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._on_reply,
            RequestCode.TOPICS_CREATED: self._on_topics_created,
        }
        for code, handler in handlers.items():
            table.add(code, handler)

    def _on_group_change(self, request: Request) -> None:
        consumer = self.consumers.get(request.header.consumer_group)
        if consumer is not None:
            consumer.wake()

    def _on_topics_created(self, request: Request) -> None:
        body: TopicList | None = request.body
        if body is not None:
            for consumer in self.consumers.values():
                consumer.note_created(body.topic_list)

    def _on_transaction_check(self, request: Request) -> None:
        record: Record | None = request.body
        if record is None:
            return
        group = record.get_property(PGROUP) or ""
        for producer in self.producers.get(group, []):
            if producer.check_transaction(request.link.peer, request.header, record):
                return
        log.warning("a broker checks a transaction of group %s, but no producer here can tell its outcome", group)

    def _on_reset_offsets(self, request: Request) -> None:
        consumer = self.consumers.get(request.header.group)
        body: ResetOffsetBody | None = request.body
        if consumer is not None and body is not None:
            self._spawn(self._reset_offsets(consumer, request.header.topic, dict(body.offset_table)))

    async def _reset_offsets(self, consumer: ConsumerMember, topic: str, offsets: dict[MessageQueue, int]) -> None:
        try:
            await consumer.reset_offsets(topic, offsets)
        except ErucaError as error:
            log.warning("group %s could not be moved to the offsets that an operator set: %s", consumer.group, error)

    def _on_offsets_asked(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.group)
        return Reply(body=ConsumerStatusBody(message_queue_table=consumer.list_offsets(request.header.topic)))

    def _on_running_info_asked(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.consumer_group)
        return Reply(body=consumer.describe_running(bool(request.header.jstack_enable)))

    async def _on_consume_directly(self, request: Request) -> Reply:
        consumer = self._find_consumer(request.header.consumer_group)
        if request.body is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "there is no message to consume")
        return Reply(body=await consumer.consume_directly(request.body, request.header.broker_name or ""))

    def _on_reply(self, request: Request) -> Reply:
        body = request.body or b""
        for producers in self.producers.values():
            for producer in producers:
                if producer.take_reply(request.header, body):
                    return Reply()
        return Reply()

    def _find_consumer(self, group: str) -> ConsumerMember:
        consumer = self.consumers.get(group)
        if consumer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
        return consumer
