"""The internals of a push consumer: its subscriptions, its handlers, and the answers to requests of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from eruca._client.group.discovery import Discovery
from eruca._client.group.inbox import Inbox
from eruca._client.group.introducing import introduce
from eruca._client.group.observing import ConsumeHook, ConsumeObserver
from eruca._client.group.offsets import make_offsets
from eruca._client.group.pausing import Pauses
from eruca._client.group.redelivery import DELIVERIES_MAX, Redelivery
from eruca._client.group.running import describe_member, describe_running
from eruca._client.group.settings import GroupSettings
from eruca._client.group.settling import Settlement
from eruca._client.group.subscriptions import Subscription, TopicPattern, make_subscription
from eruca._client.message import Decode, Message, Outcome
from eruca._client.namespaces import name_queues, wrap_queue
from eruca._client.options import ClientOptions
from eruca._client.push.concurrent import ConcurrentService
from eruca._client.push.handlers import HandlerEntry
from eruca._client.push.membership import Membership
from eruca._client.push.ordered import OrderedService
from eruca._client.push.stream import MessageStream
from eruca._client.session.session import Session
from eruca._client.trace import ConsumeTrace
from eruca._ground.durations import to_seconds
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
)
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import RETRY_TOPIC
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ConfigError

_RESULTS = {
    Outcome.DONE: ConsumeResult.CR_SUCCESS,
    Outcome.LATER: ConsumeResult.CR_LATER,
    Outcome.DEAD: ConsumeResult.CR_LATER,
    Outcome.COMMIT: ConsumeResult.CR_COMMIT,
    Outcome.ROLLBACK: ConsumeResult.CR_ROLLBACK,
}


class PushMember:
    """The internals of a Consumer, which is the class that users see."""

    def __init__(
        self,
        options: ClientOptions,
        group: str,
        settings: GroupSettings,
        subscriptions: dict[str, Subscription],
        patterns: list[TopicPattern],
        *,
        trace: bool | str,
        hooks: Iterable[ConsumeHook],
        decode: Decode | None,
    ) -> None:
        self.group = group
        self.settings = settings
        self.subscriptions = subscriptions
        self.patterns = patterns
        self.handlers: dict[str, HandlerEntry] = {}
        # Functions that make the handler of a topic that matches.
        self.makers: dict[TopicPattern, Callable[[str], HandlerEntry]] = {}
        self.is_ordered = False
        self.observer = ConsumeObserver(group, hooks)
        self.stream = MessageStream(self._hand_out)
        # Replaced at each start, which may happen in another event loop.
        self.ended = asyncio.Event()
        self.membership: Membership | None = None
        self._options = options
        self._namespace = options.namespace
        self.decode = decode
        self._trace_topic = trace
        self._pauses = Pauses()
        self._started_ms = 0
        self._session: Session | None = None
        self._service: ConcurrentService | OrderedService | None = None
        self._redelivery: Redelivery | None = None
        self._trace: ConsumeTrace | None = None
        self._discovery: Discovery | None = None

    @property
    def has_handlers(self) -> bool:
        """Whether handlers receive the messages, and not code that iterates over the consumer."""
        return bool(self.handlers or self.makers)

    @property
    def is_started(self) -> bool:
        """Whether the consumer is started and not closed."""
        return self._session is not None

    @property
    def session(self) -> Session:
        """The session of a started consumer. Raises ClientClosed."""
        if self._session is None:
            raise ClientClosed("the consumer is not started", hint="use `async with Consumer(...)`, or await start()")
        return self._session

    # -- coming and going --------------------------------------------------------------------------------------------

    def add_handler(self, handler: HandlerEntry, subscription: Subscription, *, ordered: bool) -> None:
        """Register the handler of a topic. Raises ConfigError."""
        if handler.topic in self.handlers:
            raise ConfigError(f"{handler.topic} has a handler already", hint="a group has one handler per topic")
        self._check_order(ordered=ordered)
        self.handlers[handler.topic] = handler
        self.subscriptions[handler.topic] = subscription

    def add_pattern(self, pattern: TopicPattern, make: Callable[[str], HandlerEntry], *, ordered: bool) -> None:
        """Register the handler of all topics that match. Raises ConfigError."""
        make(pattern.pattern.pattern)  # raises now instead of later
        if any(known.pattern == pattern.pattern for known in self.makers):
            raise ConfigError(f"{pattern.pattern.pattern} has a handler already")
        self._check_order(ordered=ordered)
        self.makers[pattern] = make
        self.patterns = [known for known in self.patterns if known.pattern != pattern.pattern] + [pattern]

    def _check_order(self, *, ordered: bool) -> None:
        if self._session is not None:
            raise ConfigError("the consumer is started already", hint="register handlers before it starts")
        if self.has_handlers and ordered != self.is_ordered:
            raise ConfigError("ordered and concurrent handlers cannot be combined", hint="use two groups")
        if ordered and self.settings.retry.backoff:
            raise ConfigError(
                "Retry.backoff is for concurrent handlers", hint="an ordered queue pauses for Retry.suspend"
            )
        self.is_ordered = ordered

    async def start(self) -> None:
        """Join the group and start consuming."""
        if self._session is not None:
            self._session.check_loop()
            return
        self._check_subscriptions()
        self._session = session = Session.acquire(self._options, consumer_group=self.group)
        self._started_ms = session.clock.now_ms()
        self.ended = asyncio.Event()
        self.observer.start()
        self._renew_subscriptions()
        try:
            self.membership = membership = await self._make_membership(session)
            if self.patterns:
                self._discovery = membership.make_discovery(self.patterns, self._on_found)
                await self._discovery.begin()
            session.add_consumer(self)
            await introduce(session, self.group, self.subscriptions, broadcast=self.settings.broadcast)
            await membership.start()
            if self._discovery is not None:
                self._discovery.start()
        except BaseException:
            await self.close()
            raise

    def _on_found(self, topic: str, pattern: TopicPattern) -> None:
        make = self.makers.get(pattern)
        if make is not None and topic not in self.handlers:
            assert self._service is not None
            self.handlers[topic] = handler = make(topic)
            self._service.add_handler(handler)

    def _check_subscriptions(self) -> None:
        if not self.subscriptions and not self.patterns:
            raise ConfigError("nothing is subscribed", hint='subscribe={"topic": "*"}, or @consumer.handler("topic")')
        silent = self.subscriptions.keys() - self.handlers.keys() - {RETRY_PREFIX + self.group}
        silent |= {known.pattern.pattern for known in self.patterns if known not in self.makers}
        if self.has_handlers and silent:
            raise ConfigError(
                f"{', '.join(sorted(silent))} is subscribed but has no handler",
                hint="a consumer has handlers for all its topics, or none and is iterated",
            )

    def _renew_subscriptions(self) -> None:
        """Set the version of all subscriptions to the time of this start: the broker keeps the newest."""
        for topic, old in self.subscriptions.items():
            self.subscriptions[topic] = make_subscription(topic, old.wanted, self._started_ms)
        if not self.settings.broadcast:
            retry = RETRY_PREFIX + self.group
            self.subscriptions[retry] = make_subscription(retry, "*", self._started_ms)

    async def _make_membership(self, session: Session) -> Membership:
        settings = self.settings
        most = settings.retry.max_deliveries or DELIVERIES_MAX
        self._redelivery = redelivery = Redelivery(session, self.group, most, backoff=settings.retry.backoff)
        self._service = service = self._make_service(redelivery)
        for handler in self.handlers.values():
            service.add_handler(handler)
        if self._trace_topic:
            self._trace = ConsumeTrace(session, self.group, self._trace_topic)
            self.observer.add_hook(self._trace)
        offsets = make_offsets(session, self.group, broadcast=settings.broadcast, directory=settings.offsets.directory)
        await offsets.open()
        return Membership(
            session, self.group, self.subscriptions, settings, offsets, service, self._deliver, self._pauses
        )

    def _make_service(self, redelivery: Redelivery) -> ConcurrentService | OrderedService:
        retry = self.settings.retry
        if self.is_ordered:
            return OrderedService(
                redelivery,
                self.observer,
                namespace=self._namespace,
                suspend_s=to_seconds("Retry.suspend", retry.suspend),
                max_deliveries=retry.max_deliveries,
                concurrency=self.settings.flow.ordered_concurrency,
                decode=self.decode,
            )
        return ConcurrentService(
            redelivery,
            self.observer,
            namespace=self._namespace,
            broadcast=self.settings.broadcast,
            timeout_s=to_seconds("Retry.handler_timeout", retry.handler_timeout),
            decode=self.decode,
        )

    async def close(self) -> None:
        """Stop pulling, wait for running handlers, commit, and leave the group."""
        session, self._session = self._session, None
        if session is None:
            return
        if session.is_lost():
            self._forget()
            return
        session.check_loop()
        self.ended.set()
        self.stream.end()
        if self.membership is not None:
            await self.membership.stop()
        elif self._service is not None:
            await self._service.close(0.0)
        if self._discovery is not None:
            await self._discovery.stop()
        if self._trace is not None:
            self.observer.remove_hook(self._trace)
            await self._trace.close()
        if self._redelivery is not None:
            self._redelivery.close()
        self._forget()
        for topic in self.subscriptions:
            session.routes.unwatch(topic)
        await session.remove_consumer(self)
        await session.release()

    def _forget(self) -> None:
        self.stream.clear()
        self.membership = self._service = self._redelivery = self._trace = self._discovery = None

    # -- queues and messages -----------------------------------------------------------------------------------------

    @property
    def inboxes(self) -> dict[MessageQueue, Inbox]:
        """The state of each of our queues; empty when the consumer is not started."""
        return {} if self.membership is None else self.membership.inboxes

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Stop pulling from these queues (None: from all)."""
        self._pauses.pause(name_queues(self._namespace, queues))
        for queue, inbox in self.inboxes.items():
            inbox.paused = self._pauses.covers(queue)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Undo `pause`."""
        self._pauses.resume(name_queues(self._namespace, queues))
        for queue, inbox in self.inboxes.items():
            inbox.paused = self._pauses.covers(queue)
            inbox.changed.set()

    def _deliver(self, inbox: Inbox, records: list[Record]) -> None:
        """Pass pulled messages to a handler, or to the code that iterates over the consumer."""
        if self.has_handlers:
            assert self._service is not None
            self._service.deliver(inbox, records)
            return
        if inbox.settle is None:
            assert self._redelivery is not None
            inbox.settle = Settlement(inbox, self._redelivery)
        queue, namespace, settle, decode = inbox.queue, self._namespace, inbox.settle, self.decode
        self.stream.put([Message(record, queue, namespace, settle, decode) for record in records])

    def is_open(self, message: Message) -> bool:
        """Return whether a message may still be handed out: its queue is ours and it is not settled."""
        inbox = self.inboxes.get(wrap_queue(self._namespace, message.queue))
        return inbox is not None and inbox.process.is_open(message.offset)

    def _hand_out(self, message: Message) -> bool:
        """Return whether a message may be handed out, and note that it is."""
        inbox = self.inboxes.get(wrap_queue(self._namespace, message.queue))
        if inbox is None or inbox.leaving or not inbox.process.is_open(message.offset):
            return False
        inbox.handed_to = message.offset + 1
        return True

    # -- called by the session ---------------------------------------------------------------------------------------

    def describe(self) -> ConsumerData:
        """Return what heartbeats report about this consumer."""
        kind = ConsumeType.CONSUME_PASSIVELY
        subscriptions = self.subscriptions.values()
        return describe_member(self.group, kind, self.settings, subscriptions, has_patterns=bool(self.patterns))

    def wake(self) -> None:
        """Check again which queues are ours."""
        if self.membership is not None:
            self.membership.wake()

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return our position in each queue of a topic."""
        return {queue: inbox.commit_offset for queue, inbox in self.inboxes.items() if queue.topic == topic}

    def note_created(self, topics: list[str]) -> None:
        """Consume those of the new topics that match."""
        if self._discovery is not None:
            self._discovery.note_created(topics)

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Continue from the offsets that an operator has set for the group."""
        if self.membership is not None:
            await self.membership.reset(topic, offsets)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Call a handler with one message now, independently of the queues."""
        topic = record.get_property(RETRY_TOPIC) or record.topic
        handler = self.handlers.get(topic) or next(iter(self.handlers.values()), None)
        if handler is None:
            return ConsumeDirectlyResult(
                consume_result=ConsumeResult.CR_THROW_EXCEPTION, remark="this consumer has no handler", order=False
            )
        loop = asyncio.get_running_loop()
        queue = MessageQueue(broker, record.queue_id, record.topic)
        message = Message(record, queue, self._namespace, decode=self.decode)
        started = loop.time()
        outcome = await handler.call([message])
        return ConsumeDirectlyResult(
            order=self.is_ordered,
            auto_commit=handler.auto_commit,
            consume_result=_RESULTS[outcome],
            spent_time_ms=round((loop.time() - started) * 1000),
        )

    def describe_running(self, stacks: bool) -> ConsumerRunningInfo:
        """Return what the console shows about this consumer."""
        return describe_running(
            self.session,
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self.settings,
            self.subscriptions.values(),
            self.inboxes,
            self.observer,
            started_ms=self._started_ms,
            ordered=self.is_ordered,
            concurrency=sum(handler.concurrency for handler in self.handlers.values()),
            stacks=stacks,
        )
