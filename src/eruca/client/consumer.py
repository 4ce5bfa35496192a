"""The consumer: a member of a group that gets its share of the messages, by handlers or by `async for`."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from eruca.client.balance import Balance
from eruca.client.concurrent import ConcurrentService
from eruca.client.handlers import AnyHandler, HandlerEntry, make_handler
from eruca.client.inbox import Inbox
from eruca.client.locking import QueueLocks
from eruca.client.message import Message, Outcome
from eruca.client.namespaces import wrap
from eruca.client.observing import ConsumeHook, ConsumeObserver
from eruca.client.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from eruca.client.options import ClientOptions, choose_options
from eruca.client.ordered import OrderedService
from eruca.client.producer import to_ms
from eruca.client.pulling import Puller, PullLimits
from eruca.client.redelivery import Redelivery
from eruca.client.session import Session
from eruca.client.starting import Start, StartOffsets, describe_start
from eruca.client.subscriptions import SQL92, Sql, Subscribe, make_subscription, make_subscriptions
from eruca.clock import Clock
from eruca.core.allocation import Strategy, find_strategy
from eruca.errors import ClientClosed, ConfigError, ErucaError
from eruca.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    MessageQueue,
)
from eruca.wire.names import RETRY_PREFIX, check_group, check_topic
from eruca.wire.properties import RETRY_TOPIC
from eruca.wire.record import Message as Record

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=AnyHandler)
QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]

OFFSETS_DIRECTORY = Path("~/.rocketmq_offsets")
_DEFAULT_GROUPS = frozenset({"DEFAULT_CONSUMER"})
_ATTEMPTS_MAX = 16
_RESULTS = {
    Outcome.DONE: ConsumeResult.CR_SUCCESS,
    Outcome.LATER: ConsumeResult.CR_LATER,
    Outcome.DEAD: ConsumeResult.CR_LATER,
    Outcome.COMMIT: ConsumeResult.CR_COMMIT,
    Outcome.ROLLBACK: ConsumeResult.CR_ROLLBACK,
}


class Consumer:
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
        options: ClientOptions | None = None,
        offsets_directory: Path = OFFSETS_DIRECTORY,
        offsets_interval_ms: int = 5000,
        rebalance_interval_ms: int = 20_000,
        lock_interval_ms: int = 20_000,
        ordered_concurrency: int = 20,
        hooks: Iterable[ConsumeHook] = (),
        on_queues: QueueListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = choose_options(nameservers, options)
        check_group(group)
        if group in _DEFAULT_GROUPS:
            raise ConfigError(f"the group {group} is reserved", hint="name the group after your application")
        self.group = wrap(self.options.namespace, group)
        self._start_at = start
        describe_start(start)  # raises now what would fail later
        self._broadcast = broadcast
        self._strategy = find_strategy(strategy) if isinstance(strategy, str) else strategy
        self._max_attempts = max_attempts
        self._timeout_s = to_ms(consume_timeout) / 1000
        self._suspend_s = min(max(to_ms(suspend) / 1000, 0.01), 30.0)
        self._drain_s = to_ms(drain) / 1000
        self._limits = limits
        self._offsets_directory = offsets_directory
        self._offsets_interval_ms = offsets_interval_ms
        self._rebalance_interval_ms = rebalance_interval_ms
        self._lock_interval_ms = lock_interval_ms
        self._ordered_concurrency = ordered_concurrency
        self._on_queues = on_queues
        self._clock = clock
        self._version = 0
        self.observer = ConsumeObserver(hooks)
        self._subscriptions = make_subscriptions(subscribe, self.options.namespace, 0)
        self._handlers: dict[str, HandlerEntry] = {}
        self._ordered = False
        self._session: Session | None = None
        self._parts: _Parts | None = None
        self._inboxes: dict[MessageQueue, Inbox] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._stream: deque[Message] = deque()
        self._stream_waiters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    # -- handlers ----------------------------------------------------------------------------------------------------

    def handler(
        self,
        topic: str,
        tags: str | Sql = "*",
        *,
        concurrency: int = 20,
        batch: int = 1,
        ordered: bool = False,
        auto_commit: bool = True,
    ) -> Callable[[Function], Function]:
        """Have a function work on the messages of a topic; use it as a decorator.

        It gets a Message, or with `batch` above 1 a list of up to so many. `ordered` keeps the order of each queue.
        Without `auto_commit` an ordered handler returns Outcome.COMMIT or ROLLBACK for all since the last.
        """

        def register(function: Function) -> Function:
            wrapped = wrap(self.options.namespace, check_topic(topic))
            if wrapped in self._handlers:
                raise ConfigError(f"{topic} has a handler already", hint="one group has one handler a topic")
            if self._handlers and ordered != self._ordered:
                raise ConfigError("ordered and concurrent handlers do not go together", hint="use two groups")
            if self._session is not None:
                raise ConfigError("the consumer is started already", hint="register handlers before it starts")
            if not auto_commit and not ordered:
                raise ConfigError("auto_commit=False is for ordered handlers")
            self._ordered = ordered
            self._handlers[wrapped] = make_handler(
                wrapped, function, concurrency=concurrency, batch=batch, auto_commit=auto_commit
            )
            self._subscriptions[wrapped] = make_subscription(wrapped, tags, 0)
            return function

        return register

    # -- coming and going --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to consume; `async with` does it. Raises when a subscription cannot be read."""
        if self._session is not None:
            return
        if not self._subscriptions:
            raise ConfigError("nothing is subscribed", hint='subscribe={"topic": "*"}, or @consumer.handler("topic")')
        self._closed = False
        session = Session.acquire(self.options, consumer_group=self.group, clock=self._clock)
        self._session = session
        self._version = session.clock.now_ms()
        self._subscriptions = {
            topic: make_subscription(topic, Sql(old.text) if old.kind == SQL92 else old.text, self._version)
            for topic, old in self._subscriptions.items()
        }
        if not self._broadcast:
            retry = RETRY_PREFIX + self.group
            self._subscriptions[retry] = make_subscription(retry, "*", self._version)
        try:
            self._parts = await self._make_parts(session)
            session.add_consumer(self)
            await self._introduce(session)
        except BaseException:
            await self._abandon(session)
            raise
        self._parts.start()

    async def _make_parts(self, session: Session) -> _Parts:
        redelivery = Redelivery(
            session, self.group, _ATTEMPTS_MAX if self._max_attempts is None else self._max_attempts
        )
        namespace = self.options.namespace
        service: ConcurrentService | OrderedService
        if self._ordered:
            service = OrderedService(
                redelivery,
                self.observer,
                namespace=namespace,
                suspend_s=self._suspend_s,
                max_attempts=self._max_attempts,
                concurrency=self._ordered_concurrency,
            )
        else:
            service = ConcurrentService(
                redelivery, self.observer, namespace=namespace, broadcast=self._broadcast, timeout_s=self._timeout_s
            )
        for handler in self._handlers.values():
            service.add_handler(handler)
        offsets: OffsetStore
        if self._broadcast:
            owner = f"{self.options.ip}@{self.options.instance}"
            offsets = LocalOffsets(self._offsets_directory.expanduser(), owner, self.group)
        else:
            offsets = BrokerOffsets(session, self.group)
        await offsets.open()
        limits = self._limits or PullLimits(span_max=None if self._ordered else PullLimits().span_max)
        return _Parts(self, session, redelivery, service, offsets, limits)

    async def _introduce(self, session: Session) -> None:
        """Find the brokers, let them read the expressions, and tell them of the group."""
        for topic, subscription in self._subscriptions.items():
            session.routes.watch(topic)
            try:
                route = await session.routes.get(topic)
            except ErucaError as error:
                if not topic.startswith(RETRY_PREFIX):
                    log.warning("nothing can be consumed of %s yet: %s", topic, error)
                continue
            if subscription.kind == SQL92:
                for by_id in route.brokers.values():
                    await session.calls.check_subscription(
                        next(iter(by_id.values())), session.client_id, self.group, subscription.data
                    )
        await session.heartbeat()
        if not self._broadcast:
            # The broker made it when it heard of us.
            await session.routes.refresh_all()

    async def _abandon(self, session: Session) -> None:
        self._session = None
        if self._parts is not None:
            await self._parts.offsets.close()
            self._parts = None
        await session.remove_consumer(self)
        await session.release()

    async def close(self) -> None:
        """Stop pulling, let handlers end, commit, and leave the group."""
        session, parts = self._session, self._parts
        if session is None or parts is None or self._closed:
            return
        self._closed = True
        self._wake_stream(everybody=True)
        await parts.stop_pulling()
        await parts.service.close(self._drain_s)
        if self._leaving:
            await asyncio.wait(self._leaving.values(), timeout=self._drain_s)
        try:
            await self._commit(wait=True)
        except ErucaError as error:
            log.warning("not all offsets could be committed, some messages will come again: %s", error)
        for inbox in self._inboxes.values():
            inbox.drop()
        if self._ordered and not self._broadcast:
            await parts.locks.unlock(list(self._inboxes))
        self._inboxes.clear()
        self._stream.clear()
        await parts.offsets.close()
        for topic in self._subscriptions:
            session.routes.unwatch(topic)
        self._session = self._parts = None
        await session.remove_consumer(self)
        await session.release()

    async def run(self) -> None:
        """Consume until this task is cancelled or `close` is called."""
        await self.start()
        try:
            await self._require_parts().ended.wait()
        finally:
            await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require_parts(self) -> _Parts:
        if self._parts is None:
            raise ClientClosed("the consumer is not started", hint="use `async with Consumer(...)`, or await start()")
        return self._parts

    @property
    def session(self) -> Session:
        """The session this consumer works with. Raises ClientClosed."""
        return self._require_parts().session

    # -- queues ------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, without those for retries."""
        return sorted([queue for queue in self._inboxes if not queue.topic.startswith(RETRY_PREFIX)])

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of these queues (of all) until `resume`; what was pulled is still consumed."""
        for queue in self._inboxes if queues is None else queues:
            if queue in self._inboxes:
                self._inboxes[queue].paused = True

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """The opposite of `pause`."""
        for queue in self._inboxes if queues is None else queues:
            if queue in self._inboxes:
                self._inboxes[queue].paused = False
                self._inboxes[queue].changed.set()

    async def take(self, queue: MessageQueue) -> bool:
        """Begin with a queue that is ours now; False when that did not work and is to be tried again soon."""
        parts = self._require_parts()
        if queue in self._leaving:
            return False
        if self._ordered and not self._broadcast and not await parts.locks.lock(queue):
            return False
        try:
            offset = await parts.starts.find(queue, parts.balance.first_seen.get(queue.topic, frozenset()))
        except ErucaError as error:
            log.warning("where to begin in %s cannot be found now: %s", queue, error)
            return False
        inbox = Inbox(queue, self._subscriptions[queue.topic], offset)
        if self._ordered:
            parts.locks.renew(inbox)
        self._inboxes[queue] = inbox
        inbox.task = asyncio.get_running_loop().create_task(parts.puller.run(inbox))
        return True

    async def let_go(self, queue: MessageQueue) -> None:
        """Let go of a queue: at once, or an ordered one when its handler has ended."""
        inbox = self._inboxes.get(queue)
        if inbox is None:
            return
        if inbox.task is not None:
            inbox.task.cancel()
        if isinstance(self._require_parts().service, OrderedService):
            task = asyncio.get_running_loop().create_task(self._leave_ordered(inbox))
            self._leaving[queue] = task
            task.add_done_callback(lambda _: self._leaving.pop(queue, None))
            return
        del self._inboxes[queue]
        await self._commit_one(inbox)
        inbox.drop()

    async def _leave_ordered(self, inbox: Inbox) -> None:
        parts = self._require_parts()
        assert isinstance(parts.service, OrderedService)
        await parts.service.leave(inbox)
        await self._commit_one(inbox)
        inbox.drop()
        self._inboxes.pop(inbox.queue, None)
        if not self._broadcast:
            await parts.locks.unlock([inbox.queue])
        parts.balance.wake()

    def tell_queues(self, topic: str, everything: list[MessageQueue], mine: list[MessageQueue]) -> None:
        """Tell the user's listener that its queues changed."""
        if self._on_queues is None or topic.startswith(RETRY_PREFIX):
            return
        try:
            self._on_queues(topic, everything, mine)
        except Exception:
            log.exception("the listener for queues failed")

    # -- messages ----------------------------------------------------------------------------------------------------

    def deliver(self, inbox: Inbox, records: list[Record]) -> None:
        """Hand over what was pulled: to a handler, or to whoever iterates."""
        if self._handlers:
            self._require_parts().service.deliver(inbox, records)
            return
        namespace = self.options.namespace
        self._stream.extend([Message(record, inbox.queue, namespace, self) for record in records])
        self._wake_stream(everybody=False)

    def _wake_stream(self, *, everybody: bool) -> None:
        while self._stream_waiters:
            future = self._stream_waiters.popleft()
            if not future.done():
                future.set_result(None)
                if not everybody:
                    return

    def __aiter__(self) -> AsyncIterator[Message]:
        if self._handlers:
            raise ConfigError("a consumer with handlers cannot be iterated", hint="use a second consumer")
        return self

    async def __anext__(self) -> Message:
        self._require_parts()
        while True:
            while self._stream:
                message = self._stream.popleft()
                inbox = self._inboxes.get(message.queue)
                if inbox is not None and inbox.process.is_open(message.offset):
                    if self._stream:
                        self._wake_stream(everybody=False)
                    return message
            if self._closed:
                raise StopAsyncIteration
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._stream_waiters.append(future)
            await future

    async def ack(self, message: Message) -> None:
        """A message of `async for` is done."""
        inbox = self._inboxes.get(message.queue)
        if inbox is not None:
            inbox.finish(message.offset)

    async def retry(self, message: Message, delay_level: int) -> None:
        """A message of `async for` is to come again."""
        inbox = self._inboxes.get(message.queue)
        if inbox is not None and inbox.process.is_open(message.offset):
            await self._require_parts().redelivery.send_back(message.record, message.queue, delay_level)
            inbox.finish(message.offset)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit now how far every queue is, and wait until the broker has it. Raises ErucaError."""
        self._require_parts()
        await self._commit(wait=True)

    async def _commit(self, *, wait: bool) -> None:
        offsets = {queue: inbox.commit_offset for queue, inbox in self._inboxes.items()}
        await self._require_parts().offsets.write(offsets, wait=wait)

    async def _commit_one(self, inbox: Inbox) -> None:
        try:
            await self._require_parts().offsets.write({inbox.queue: inbox.commit_offset}, wait=True)
        except ErucaError as error:
            log.warning("the offset of %s could not be committed, messages will come again: %s", inbox.queue, error)

    # -- what the session asks ---------------------------------------------------------------------------------------

    def describe(self) -> ConsumerData:
        """What heartbeats say."""
        return ConsumerData(
            consume_from_where=describe_start(self._start_at),
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self._broadcast else MessageModel.CLUSTERING,
            subscription_data_set=[subscription.data for subscription in self._subscriptions.values()],
        )

    def wake(self) -> None:
        """Look again which queues are ours."""
        if self._parts is not None:
            self._parts.balance.wake()

    def list_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far we are."""
        return {queue: inbox.commit_offset for queue, inbox in self._inboxes.items() if queue.topic == topic}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group: forget what was pulled and go on from the new offsets."""
        parts = self._require_parts()
        for queue, offset in offsets.items():
            inbox = self._inboxes.get(queue)
            if inbox is None or queue.topic != topic:
                continue
            if inbox.task is not None:
                inbox.task.cancel()
            if isinstance(parts.service, OrderedService):
                await parts.service.leave(inbox)
            inbox.drop()
            del self._inboxes[queue]
            await parts.offsets.write({queue: offset}, wait=True)
            parts.balance.owned.get(topic, set()).discard(queue)
            log.info("queue %s goes on at %d, as an operator wished", queue, offset)
        parts.balance.wake()

    async def consume_directly(self, record: Record, broker: str) -> ConsumeDirectlyResult:
        """Have a handler work on one message now, whatever the queues say."""
        loop = asyncio.get_running_loop()
        topic = record.get_property(RETRY_TOPIC) or record.topic
        handler = self._handlers.get(topic) or next(iter(self._handlers.values()), None)
        if handler is None:
            return ConsumeDirectlyResult(
                consume_result=ConsumeResult.CR_THROW_EXCEPTION, remark="this consumer has no handler", order=False
            )
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
        parts = self._require_parts()
        now, now_ms = asyncio.get_running_loop().time(), parts.session.clock.now_ms()
        properties = {
            "PROP_CLIENT_VERSION": "V4_9_7",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._version),
            "PROP_CONSUME_ORDERLY": str(self._ordered).lower(),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
            "PROP_NAMESERVER_ADDR": self.options.nameservers,
            "PROP_THREADPOOL_CORE_SIZE": str(sum(handler.concurrency for handler in self._handlers.values())),
            "consumerGroup": self.group,
            "messageModel": "BROADCASTING" if self._broadcast else "CLUSTERING",
            "allocateMessageQueueStrategy": self._strategy.name,
        }
        return ConsumerRunningInfo(
            properties=properties,
            subscription_set=[subscription.data for subscription in self._subscriptions.values()],
            mq_table={queue: inbox.describe(now, now_ms) for queue, inbox in self._inboxes.items()},
            status_table={topic: self.observer.read(topic) for topic in self._subscriptions},
            jstack=format_stacks() if stacks else None,
        )


def format_stacks() -> str:
    """What every thread and every task is doing, for an operator who asks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        frames = "".join(["".join(traceback.format_stack(frame, limit=1)) for frame in task.get_stack()])
        parts.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(parts)


class _Parts:
    """What a started consumer works with."""

    def __init__(
        self,
        consumer: Consumer,
        session: Session,
        redelivery: Redelivery,
        service: ConcurrentService | OrderedService,
        offsets: OffsetStore,
        limits: PullLimits,
    ) -> None:
        self._consumer = consumer
        self.session = session
        self.redelivery = redelivery
        self.service = service
        self.offsets = offsets
        self.ended = asyncio.Event()
        self.locks = QueueLocks(session, consumer.group)
        self.starts = StartOffsets(session, offsets, consumer._start_at)
        self.puller = Puller(session, consumer.group, limits, consumer.deliver, commits=not consumer._broadcast)
        self.balance = Balance(
            session,
            consumer.group,
            consumer._strategy,
            broadcast=consumer._broadcast,
            interval_ms=consumer._rebalance_interval_ms,
            take=consumer.take,
            drop=consumer.let_go,
            on_change=consumer.tell_queues,
        )
        self.balance.set_topics(consumer._subscriptions)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        consumer = self._consumer
        work = [self.balance.run(), self._commit_in_intervals(), self._expire_in_intervals()]
        if isinstance(self.service, OrderedService):
            work.append(self.locks.renew_in_intervals(consumer._inboxes, consumer._lock_interval_ms, self._lose))
        self._tasks = [asyncio.get_running_loop().create_task(item) for item in work]

    async def stop_pulling(self) -> None:
        """Take no more queues, and pull nothing more of those that are ours."""
        self.ended.set()
        inboxes = self._consumer._inboxes.values()
        tasks = [*self._tasks, *[inbox.task for inbox in inboxes if inbox.task is not None]]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lose(self, queue: MessageQueue) -> None:
        """The broker has given a queue to somebody else."""
        log.warning("the lock of %s is lost", queue)
        self.balance.owned.get(queue.topic, set()).discard(queue)
        await self._consumer.let_go(queue)

    async def _commit_in_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._consumer._offsets_interval_ms / 1000)
            try:
                await self._consumer._commit(wait=False)
            except ErucaError as error:
                log.warning("offsets could not be committed now: %s", error)

    async def _expire_in_intervals(self) -> None:
        if isinstance(self.service, OrderedService):
            return
        pause_s = min(self._consumer._timeout_s, 60.0)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.service.expire(list(self._consumer._inboxes.values()))
            except ErucaError as error:
                log.warning("messages that take too long could not be given back: %s", error)
