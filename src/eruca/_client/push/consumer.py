"""The consumer: a member of a group that gets its share of the messages, by handlers or by `async for`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from eruca._client.group.inbox import Inbox
from eruca._client.group.introducing import introduce
from eruca._client.group.observing import ConsumeHook, ConsumeObserver
from eruca._client.group.offsets import make_offsets
from eruca._client.group.pausing import Pauses
from eruca._client.group.pulling import PullLimits
from eruca._client.group.redelivery import ATTEMPTS_MAX, Redelivery
from eruca._client.group.running import describe_member, describe_running
from eruca._client.group.starting import Start, describe_start
from eruca._client.group.subscriptions import (
    Subscribe,
    Wanted,
    make_subscription,
    make_subscriptions,
)
from eruca._client.message import Message, Outcome
from eruca._client.namespaces import check_own_group, unwrap_queue, wrap, wrap_queue
from eruca._client.options import ClientOptions, choose_options
from eruca._client.push.concurrent import ConcurrentService
from eruca._client.push.handlers import AnyHandler, Concurrency, HandlerEntry, make_handler
from eruca._client.push.membership import GroupSettings, Membership, QueueListener
from eruca._client.push.ordered import OrderedService
from eruca._client.push.stream import MessageStream
from eruca._client.session.session import Session
from eruca._client.stopping import Client, run_until_stopped
from eruca._client.trace import ConsumeTrace
from eruca._core.allocation import Strategy, find_strategy
from eruca._ground.clock import Clock
from eruca._ground.durations import to_ms
from eruca._wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageQueue,
)
from eruca._wire.names import DEFAULT_CONSUMER_GROUP, RETRY_PREFIX, check_topic
from eruca._wire.properties import RETRY_TOPIC
from eruca._wire.record import Record
from eruca.errors import ClientClosed, ConfigError

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=AnyHandler)

OFFSETS_DIRECTORY = Path("~/.rocketmq_offsets")
_SUSPEND_S = (0.01, 30.0)
_RESULTS = {
    Outcome.DONE: ConsumeResult.CR_SUCCESS,
    Outcome.LATER: ConsumeResult.CR_LATER,
    Outcome.DEAD: ConsumeResult.CR_LATER,
    Outcome.COMMIT: ConsumeResult.CR_COMMIT,
    Outcome.ROLLBACK: ConsumeResult.CR_ROLLBACK,
}


class Consumer(Client):
    """A member of a consumer group.

    With handlers (a return is the acknowledgement, an exception a later retry):

    >>> consumer = Consumer("127.0.0.1:9876", group="billing")
    >>> @consumer.handler("orders", tags="vip || gold", concurrency=20)
    ... async def bill(message): ...
    >>> await consumer.run()

    Or message by message, and you say when each is done:

    >>> async with Consumer("127.0.0.1:9876", group="billing", subscribe={"orders": "vip || gold"}) as consumer:
    ...     async for message in consumer:
    ...         await message.ack()

    `start` says where a group begins that has never consumed a queue: "latest" (what is sent from now on), "earliest",
    or a time. `broadcast` gives every member all messages. Plain functions as handlers run in threads.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        group: str,
        subscribe: Subscribe = (),
        start: Start = "latest",
        broadcast: bool = False,
        strategy: str | Strategy = "average",
        max_attempts: int | None = None,
        consume_timeout: timedelta | float = 900.0,
        suspend: timedelta | float = 1.0,
        drain: timedelta | float = 30.0,
        limits: PullLimits | None = None,
        trace: bool | str = False,
        options: ClientOptions | None = None,
        offsets_directory: Path = OFFSETS_DIRECTORY,
        offsets_interval_ms: int = 1000,
        rebalance_interval_ms: int = 20_000,
        lock_interval_ms: int = 20_000,
        ordered_concurrency: int = 20,
        hooks: Iterable[ConsumeHook] = (),
        on_queues: QueueListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        check_own_group(group, DEFAULT_CONSUMER_GROUP)
        describe_start(start)  # raises now what would fail later
        self.group = wrap(self.options.namespace, group)
        self._settings = GroupSettings(
            start=start,
            broadcast=broadcast,
            strategy=find_strategy(strategy) if isinstance(strategy, str) else strategy,
            limits=limits,
            consume_timeout_s=to_ms("consume_timeout", consume_timeout) / 1000,
            drain_s=to_ms("drain", drain) / 1000,
            offsets_interval_ms=offsets_interval_ms,
            rebalance_interval_ms=rebalance_interval_ms,
            lock_interval_ms=lock_interval_ms,
            on_queues=on_queues,
        )
        self._max_attempts = max_attempts
        self._suspend_s = min(max(to_ms("suspend", suspend) / 1000, _SUSPEND_S[0]), _SUSPEND_S[1])
        self._trace_topic = trace
        self._offsets_directory = offsets_directory
        self._ordered_concurrency = ordered_concurrency
        self._clock = clock
        self.observer = ConsumeObserver(self.group, hooks)
        self._subscriptions = make_subscriptions(subscribe, self.options.namespace, 0)
        self._handlers: dict[str, HandlerEntry] = {}
        self._ordered = False
        self._started_ms = 0
        self._session: Session | None = None
        self._membership: Membership | None = None
        self._service: ConcurrentService | OrderedService | None = None
        self._redelivery: Redelivery | None = None
        self._trace: ConsumeTrace | None = None
        self._pauses = Pauses()
        self._stream = MessageStream(self._is_open)
        self._ended = asyncio.Event()

    # -- handlers ----------------------------------------------------------------------------------------------------

    def handler(
        self,
        topic: str,
        tags: Wanted = "*",
        *,
        concurrency: Concurrency = 20,
        batch: int = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Function], Function]:
        """Have a function work on the messages of a topic; use it as a decorator.

        `concurrency` calls run at once; "auto" finds how many make the work go faster. The function gets a Message,
        or with `batch` above 1 a list of at most `batch`. `ordered` keeps the order of each queue.
        Without `auto_commit` an ordered handler returns Outcome.COMMIT or ROLLBACK for all since the last.
        """

        def register(function: Function) -> Function:
            wrapped = wrap(self.options.namespace, check_topic(topic))
            if self._session is not None:
                raise ConfigError("the consumer is started already", hint="register handlers before it starts")
            if wrapped in self._handlers:
                raise ConfigError(f"{topic} has a handler already", hint="one group has one handler a topic")
            if self._handlers and ordered != self._ordered:
                raise ConfigError("ordered and concurrent handlers do not go together", hint="use two groups")
            if not auto_commit and not ordered:
                raise ConfigError("auto_commit=False is for ordered handlers")
            subscription = make_subscription(wrapped, tags, 0)
            self._handlers[wrapped] = make_handler(
                wrapped, function, concurrency=concurrency, batch=batch, auto_commit=auto_commit
            )
            self._ordered = ordered
            self._subscriptions[wrapped] = subscription
            return function

        return register

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to consume; `async with` does it. Raises when a subscription cannot be read.

        When it returns, the consumer has its queues: what is sent from now on is for it. Should the cluster not answer
        within five seconds, it returns all the same, and the consumer goes on trying.
        """
        if self._session is not None:
            self._session.check_loop()
            return
        self._check_subscriptions()
        self._session = session = Session.acquire(self.options, consumer_group=self.group, clock=self._clock)
        self._started_ms = session.clock.now_ms()
        self._ended = asyncio.Event()  # another one: this may be another event loop
        self.observer.start()
        self._renew_subscriptions()
        try:
            self._membership = membership = await self._make_membership(session)
            session.add_consumer(self)
            await introduce(session, self.group, self._subscriptions, broadcast=self._settings.broadcast)
            await membership.start()
        except BaseException:
            await self.close()
            raise

    def _check_subscriptions(self) -> None:
        if not self._subscriptions:
            raise ConfigError("nothing is subscribed", hint='subscribe={"topic": "*"}, or @consumer.handler("topic")')
        silent = self._subscriptions.keys() - self._handlers.keys() - {RETRY_PREFIX + self.group}
        if self._handlers and silent:
            raise ConfigError(
                f"{', '.join(sorted(silent))} is subscribed but has no handler",
                hint="a consumer has handlers for all its topics, or none and is iterated",
            )

    def _renew_subscriptions(self) -> None:
        """Give subscriptions the time of this start: the broker takes the newest."""
        self._subscriptions = {
            topic: make_subscription(topic, old.wanted, self._started_ms) for topic, old in self._subscriptions.items()
        }
        if not self._settings.broadcast:
            retry = RETRY_PREFIX + self.group
            self._subscriptions[retry] = make_subscription(retry, "*", self._started_ms)

    async def _make_membership(self, session: Session) -> Membership:
        attempts = ATTEMPTS_MAX if self._max_attempts is None else self._max_attempts
        self._redelivery = redelivery = Redelivery(session, self.group, attempts)
        service: ConcurrentService | OrderedService
        if self._ordered:
            service = OrderedService(
                redelivery,
                self.observer,
                namespace=self.options.namespace,
                suspend_s=self._suspend_s,
                max_attempts=self._max_attempts,
                concurrency=self._ordered_concurrency,
            )
        else:
            service = ConcurrentService(
                redelivery,
                self.observer,
                namespace=self.options.namespace,
                broadcast=self._settings.broadcast,
                timeout_s=self._settings.consume_timeout_s,
            )
        for handler in self._handlers.values():
            service.add_handler(handler)
        self._service = service
        if self._trace_topic:
            self._trace = ConsumeTrace(session, self.group, self._trace_topic)
            self.observer.hooks.append(self._trace)
        offsets = make_offsets(
            session, self.group, broadcast=self._settings.broadcast, directory=self._offsets_directory
        )
        await offsets.open()
        return Membership(
            session, self.group, self._subscriptions, self._settings, offsets, service, self._deliver, self._pauses
        )

    async def close(self) -> None:
        """Stop pulling, let handlers end, commit, and leave the group."""
        session, self._session = self._session, None
        if session is None:
            return
        if session.is_lost():
            self._stream.clear()
            self._membership = self._service = self._redelivery = self._trace = None
            return
        session.check_loop()
        self._ended.set()
        self._stream.end()
        if self._membership is not None:
            await self._membership.stop()
        elif self._service is not None:
            await self._service.close(0.0)
        if self._trace is not None:
            self.observer.hooks.remove(self._trace)
            await self._trace.close()
        self._stream.clear()
        self._membership = self._service = self._redelivery = self._trace = None
        for topic in self._subscriptions:
            session.routes.unwatch(topic)
        await session.remove_consumer(self)
        await session.release()

    async def run(self) -> None:
        """Consume until this task is cancelled or `close` is called, and then end cleanly.

        SIGTERM, by which containers are stopped, does the same and then exits, unless the program has a handler for it.
        """
        await run_until_stopped(self, lambda: self._ended)

    @property
    def session(self) -> Session:
        """The session this consumer works with. Raises ClientClosed."""
        if self._session is None:
            raise ClientClosed("the consumer is not started", hint="use `async with Consumer(...)`, or await start()")
        return self._session

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def inboxes(self) -> dict[MessageQueue, Inbox]:
        """The state of each queue that is ours; empty when the consumer is not started."""
        return {} if self._membership is None else self._membership.inboxes

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, without those for retries."""
        mine = [queue for queue in self.inboxes if not queue.topic.startswith(RETRY_PREFIX)]
        return sorted([unwrap_queue(self.options.namespace, queue) for queue in mine])

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of these queues (of all) until `resume`; what was pulled is still consumed.

        It holds for queues that come later too, and for one that goes and comes again.
        """
        self._pauses.pause(self._name_all(queues))
        for queue, inbox in self.inboxes.items():
            inbox.paused = self._pauses.covers(queue)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        self._pauses.resume(self._name_all(queues))
        for queue, inbox in self.inboxes.items():
            inbox.paused = self._pauses.covers(queue)
            inbox.changed.set()

    def _find_inbox(self, queue: MessageQueue) -> Inbox | None:
        """The state of a queue of ours, by the name that the user knows; None when it is not ours."""
        return self.inboxes.get(wrap_queue(self.options.namespace, queue))

    def _name_all(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue] | None:
        return None if queues is None else [wrap_queue(self.options.namespace, queue) for queue in queues]

    async def commit(self) -> None:
        """Commit now how far every queue is, and wait until the broker has it. Raises ErucaError."""
        self.session.check_loop()
        if self._membership is None:
            raise ClientClosed("the consumer is not started")
        await self._membership.commit()

    # -- messages ----------------------------------------------------------------------------------------------------

    def _deliver(self, inbox: Inbox, records: list[Record]) -> None:
        """Hand over what was pulled: to a handler, or to whoever iterates."""
        if self._handlers:
            assert self._service is not None
            self._service.deliver(inbox, records)
            return
        namespace = self.options.namespace
        self._stream.put([Message(record, inbox.queue, namespace, self) for record in records])

    def _is_open(self, message: Message) -> bool:
        inbox = self._find_inbox(message.queue)
        return inbox is not None and inbox.process.is_open(message.offset)

    def __aiter__(self) -> AsyncIterator[Message]:
        if self._handlers:
            raise ConfigError("a consumer with handlers cannot be iterated", hint="use a second consumer")
        return self

    async def __anext__(self) -> Message:
        while True:
            message = self._stream.take()
            if message is not None:
                return message
            if self._ended.is_set():
                raise StopAsyncIteration
            if self._session is None:
                raise ClientClosed("the consumer is not started", hint="use `async with Consumer(...)`")
            self._session.check_loop()
            await self._stream.wait()

    async def ack(self, message: Message) -> None:
        """A message of `async for` is done."""
        inbox = self._find_inbox(message.queue)
        if inbox is not None:
            inbox.finish(message.offset)

    async def retry(self, message: Message, delay_level: int) -> None:
        """A message of `async for` is to come again, or below level 0 goes to the dead letters."""
        inbox = self._find_inbox(message.queue)
        if inbox is not None and self._redelivery is not None and inbox.process.is_open(message.offset):
            await self._redelivery.send_back(message.record, message.queue, delay_level)
            inbox.finish(message.offset)

    # -- what the session asks ---------------------------------------------------------------------------------------

    def describe(self) -> ConsumerData:
        """What heartbeats say."""
        kind = ConsumeType.CONSUME_PASSIVELY
        return describe_member(self.group, kind, self._settings, self._subscriptions.values())

    def wake(self) -> None:
        """Look again which queues are ours."""
        if self._membership is not None:
            self._membership.wake()

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far we are."""
        return {queue: inbox.commit_offset for queue, inbox in self.inboxes.items() if queue.topic == topic}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group."""
        if self._membership is not None:
            await self._membership.reset(topic, offsets)

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Have a handler work on one message now, whatever the queues say."""
        topic = record.get_property(RETRY_TOPIC) or record.topic
        handler = self._handlers.get(topic) or next(iter(self._handlers.values()), None)
        if handler is None:
            return ConsumeDirectlyResult(
                consume_result=ConsumeResult.CR_THROW_EXCEPTION, remark="this consumer has no handler", order=False
            )
        loop = asyncio.get_running_loop()
        message = Message(record, MessageQueue(broker, record.queue_id, record.topic), self.options.namespace)
        started = loop.time()
        outcome = await handler.call([message])
        return ConsumeDirectlyResult(
            order=self._ordered,
            auto_commit=handler.auto_commit,
            consume_result=_RESULTS[outcome],
            spent_time_ms=round((loop.time() - started) * 1000),
        )

    def describe_running(self, stacks: bool) -> ConsumerRunningInfo:
        """What the console shows of this consumer."""
        return describe_running(
            self.session,
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self._settings,
            self._subscriptions.values(),
            self.inboxes,
            self.observer,
            started_ms=self._started_ms,
            ordered=self._ordered,
            concurrency=sum(handler.concurrency for handler in self._handlers.values()),
            stacks=stacks,
        )
