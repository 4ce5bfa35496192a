"""Calling the handlers of a consumer directly: no broker, no network, no start."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, overload

import eruca.sync
from eruca._client.arguments import check_count, check_type
from eruca._client.group.redelivery import DELIVERIES_MAX
from eruca._client.group.settling import check_retry
from eruca._client.group.subscriptions import SQL92, Subscription, make_subscription
from eruca._client.later import LATER, Later, choose_later, find_delay, make_later
from eruca._client.message import Message, Outcome
from eruca._client.namespaces import unwrap, wrap
from eruca._client.produce.outgoing import Outgoing, Receipt, SendStatus, check_body
from eruca._client.produce.packing import Packer
from eruca._client.push.consumer import Consumer
from eruca._client.push.handlers import HandlerEntry
from eruca._client.push.member import PushMember
from eruca._client.sync.loopthread import find_loop_thread
from eruca._filter.sql import compile_sql
from eruca._ground.clock import SystemClock
from eruca._ground.durations import Duration, to_seconds
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._wire.bodies import MessageQueue
from eruca._wire.ids import UniqueIds
from eruca._wire.names import check_topic
from eruca._wire.record import Record
from eruca.errors import ConfigError, RetryLater
from eruca.serializers import Serializer

_BROKER = "test"
_CLOCK = SystemClock()
_IDS = UniqueIds("127.0.0.1", os.getpid(), _CLOCK)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What happens to a message after its handler was called."""

    # DONE, LATER or DEAD; of an ordered handler that commits itself also COMMIT or ROLLBACK.
    outcome: Outcome
    # For LATER: when it would be delivered again.
    delay: timedelta | None = None
    # The replies that the handler sent with `message.reply`.
    replies: tuple[Outgoing, ...] = ()


@overload
def deliver(
    consumer: Consumer,
    topic: str,
    body: Any,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> Coroutine[Any, Any, Delivered]: ...
@overload
def deliver(
    consumer: eruca.sync.Consumer,
    topic: str,
    body: Any,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> Delivered: ...
def deliver(
    consumer: Consumer | eruca.sync.Consumer,
    topic: str,
    body: Any,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> Coroutine[Any, Any, Delivered] | Delivered:
    """Call the handler of a topic with one message, and return what would happen to the message.

    >>> delivered = await deliver(consumer, "orders", b"one melon")
    >>> assert delivered.outcome is Outcome.DONE

    The consumer need not be started, and there is no broker. The handler gets what it gets in production: a message, or
    its body decoded. An exception of the handler is raised, except RetryLater, which is an outcome. `delivery` is the
    number of the delivery, from 1. `serializer` turns the body into bytes, as that of a producer. For a consumer of
    `eruca.sync` this is a plain function. Raises ConfigError if no handler takes the message.
    """
    outgoing = Outgoing(body, tags, keys, properties or {}, flag)
    if isinstance(consumer, Consumer):
        return _first(deliver_batch(consumer, topic, [outgoing], delivery=delivery, serializer=serializer))
    return deliver_batch(consumer, topic, [outgoing], delivery=delivery, serializer=serializer)[0]


async def _first(work: Awaitable[list[Delivered]]) -> Delivered:
    return (await work)[0]


@overload
def deliver_batch(
    consumer: Consumer,
    topic: str,
    messages: Iterable[Outgoing | Any],
    *,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> Coroutine[Any, Any, list[Delivered]]: ...
@overload
def deliver_batch(
    consumer: eruca.sync.Consumer,
    topic: str,
    messages: Iterable[Outgoing | Any],
    *,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> list[Delivered]: ...
def deliver_batch(
    consumer: Consumer | eruca.sync.Consumer,
    topic: str,
    messages: Iterable[Outgoing | Any],
    *,
    delivery: int = 1,
    serializer: Serializer | None = None,
) -> Coroutine[Any, Any, list[Delivered]] | list[Delivered]:
    """Call a handler of batches with several messages; return what would happen to each. Otherwise as `deliver`.

    A message is an `Outgoing`, or just a body.
    """
    check_type("consumer", consumer, Consumer, eruca.sync.Consumer)
    member = (consumer if isinstance(consumer, Consumer) else consumer._twin)._member
    namespace = consumer.options.namespace
    trial = _Trial(member, namespace, topic, messages, check_count("delivery", delivery), serializer)
    if isinstance(consumer, Consumer):
        return trial.run()
    with _lend_loop(consumer):
        if trial.handler.is_async:
            return find_loop_thread().run(trial.run())
        return trial.run_here()


@contextmanager
def _lend_loop(consumer: eruca.sync.Consumer) -> Iterator[None]:
    """Let the messages of a plain consumer that is not started make their calls."""
    before = consumer._thread
    consumer._thread = before or find_loop_thread()
    try:
        yield
    finally:
        consumer._thread = before


class _Trial:
    """One call of a handler. It also receives what the handler does with single messages."""

    def __init__(
        self,
        member: PushMember,
        namespace: str,
        topic: str,
        messages: Iterable[Outgoing | Any],
        delivery: int,
        serializer: Serializer | None,
    ) -> None:
        self._member = member
        self._namespace = namespace
        self.handler, subscription = _find_handler(member, namespace, topic)
        # What the handler did with single messages: when they are wanted again, and their replies.
        self._wanted: dict[Message, Later] = {}
        self._replies: dict[Message, list[Outgoing]] = {}
        packer = Packer(self._namespace, member.group, compress_from=None, serializer=serializer)
        self._messages = [
            self._make(packer, topic, each if isinstance(each, Outgoing) else Outgoing(each), offset, delivery)
            for offset, each in enumerate(messages)
        ]
        if not 1 <= len(self._messages) <= self.handler.batch:
            raise ConfigError(
                f"the handler of {topic} takes 1 to {self.handler.batch} messages, not {len(self._messages)}",
                hint="the `batch` of the handler is the maximum",
            )
        for message in self._messages:
            _check_wanted(subscription, message)

    def _make(self, packer: Packer, topic: str, sent: Outgoing, offset: int, delivery: int) -> Message:
        parcel = packer.pack(_IDS, topic, sent.body, sent.tags, sent.keys, sent.properties, sent.flag)
        now_ms = _CLOCK.now_ms()
        record = Record(
            parcel.topic,
            flag=parcel.flag,
            body=parcel.body,
            properties=parcel.properties.encode(),
            born_timestamp=now_ms,
            store_timestamp=now_ms,
            reconsume_times=delivery - 1,
            queue_offset=offset,
        )
        return Message(record, MessageQueue(_BROKER, 0, parcel.topic), self._namespace, self, self._member.decode)

    # -- calling -----------------------------------------------------------------------------------------------------

    async def run(self) -> list[Delivered]:
        """Call the handler: an async one here, a plain one in a thread, where it may block. Raises what it raises."""
        try:
            result = self._call() if self.handler.is_async else await asyncio.to_thread(self._call)
            return self._conclude(await result if inspect.isawaitable(result) else result)
        except RetryLater as error:
            return self._conclude(error)

    def run_here(self) -> list[Delivered]:
        """Call a plain handler in this thread. Raises what it raises."""
        try:
            result = self._call()
            return self._conclude(find_loop_thread().run(_wait_for(result)) if inspect.isawaitable(result) else result)
        except RetryLater as error:
            return self._conclude(error)

    def _call(self) -> object:
        messages = self._messages
        return self.handler.function(messages if self.handler.batch > 1 else messages[0])

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _conclude(self, result: object) -> list[Delivered]:
        if isinstance(result, RetryLater):
            later = make_later(result.delay, result.delay_level)
            for message in self._messages:
                message._later = later
            result = Outcome.DEAD if later.level < 0 else Outcome.LATER
        outcome = Outcome.DONE if result is None else result
        if not isinstance(outcome, Outcome):
            topic = self._messages[0].topic
            raise ConfigError(f"the handler of {topic} returned {result!r:.80}: it must return nothing or an Outcome")
        return [self._conclude_one(message, outcome) for message in self._messages]

    def _conclude_one(self, message: Message, outcome: Outcome) -> Delivered:
        later = self._wanted.get(message)
        if later is not None:
            outcome = Outcome.LATER if later.level >= 0 else Outcome.DEAD
        elif message._settle is None:
            outcome = Outcome.DONE
        else:
            later = message._later
        member, delay = self._member, None
        retry = member.settings.retry
        if outcome is Outcome.LATER:
            limit = retry.max_deliveries or (None if member.is_ordered else DELIVERIES_MAX)
            if member.settings.broadcast:
                pass  # it is dropped: broadcast consumers have no retries
            elif limit is not None and message.delivery >= limit:
                outcome = Outcome.DEAD
            elif member.is_ordered:
                delay = timedelta(seconds=to_seconds("Retry.suspend", retry.suspend))
            else:
                delay = find_delay(choose_later(later or LATER, message.delivery, retry.backoff), message.delivery)[1]
        return Delivered(outcome, delay, tuple(self._replies.get(message, ())))

    # -- what the handler does with single messages ------------------------------------------------------------------

    async def ack(self, message: Message) -> None:
        """Mark a message as done: the message itself remembers that it is settled."""

    async def retry(self, message: Message, later: Later) -> None:
        """Note that a message is wanted later, or that it is a dead letter. Raises ConfigError."""
        check_retry(later, in_order=self._member.is_ordered)
        self._wanted[message] = later

    async def reply(
        self,
        message: Message,
        body: bytes,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        timeout: Duration | None,
    ) -> Receipt:
        """Keep a reply."""
        keys = keys if isinstance(keys, str) else tuple(keys)
        reply = Outgoing(check_body(body, MESSAGE_BODY_BYTES_MAX), tags, keys, properties or {})
        self._replies.setdefault(message, []).append(reply)
        return Receipt(SendStatus.STORED, _IDS.create(), "", MessageQueue(_BROKER, 0, "replies"), 0)


def _find_handler(member: PushMember, namespace: str, topic: str) -> tuple[HandlerEntry, Subscription]:
    """Return the handler of a topic, and what it subscribes to. Raises ConfigError."""
    wrapped = wrap(namespace, check_topic(topic))
    if wrapped in member.handlers:
        return member.handlers[wrapped], member.subscriptions[wrapped]
    for pattern, make in member.makers.items():
        if pattern.pattern.fullmatch(topic):
            return make(wrapped), make_subscription(wrapped, pattern.wanted, 0)
    known = [unwrap(namespace, name) for name in member.handlers]
    known += [repr(pattern.pattern.pattern) for pattern in member.makers]
    raise ConfigError(
        f"the consumer has no handler of {topic}",
        hint=f"it has handlers of {', '.join(known)}" if known else "register one with @consumer.handler(topic)",
    )


def _check_wanted(subscription: Subscription, message: Message) -> None:
    """Raise ConfigError if the subscription of a handler does not match a message."""
    if subscription.kind == SQL92:
        matches = compile_sql(subscription.text).matches(message.all_properties)
    else:
        wanted = subscription.tags.tags if subscription.tags is not None else ()
        matches = not wanted or message.tags in wanted
    if not matches:
        raise ConfigError(
            f"the handler of {message.topic} would not receive this message: it subscribes to {subscription.text!r}",
            hint="pass tags or properties that match",
        )


async def _wait_for(result: Awaitable[Any]) -> Any:
    return await result
