"""`deliver` calls handlers as a consumer does, and says what would happen to the message."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from eruca import ClientOptions, Consumer, Message, Outcome, Outgoing, Rebalance, Retry, RetryLater, Sql, sync
from eruca.errors import ConfigError, MessageIllegal, SerializationError
from eruca.serializers import json_deserializer, json_serializer
from eruca.testing import Delivered, deliver, deliver_batch


@dataclass
class Order:
    """A typed body."""

    id: str
    melons: int


def make_consumer(**how: Any) -> Consumer:
    """A consumer that is never started: nothing listens at its address."""
    return Consumer("127.0.0.1:1", group="billing", **how)


async def test_a_handler_gets_the_message_as_in_production() -> None:
    consumer = make_consumer(deserializer=json_deserializer())
    seen: list[Message] = []

    @consumer.handler("orders", tags="vip || gold")
    async def bill(message: Message) -> None:
        seen.append(message)

    delivered = await deliver(
        consumer, "orders", b"[1]", tags="vip", keys=["k-1", "k-2"], properties={"a": "b"}, flag=7, delivery=3
    )
    assert delivered == Delivered(Outcome.DONE)
    (message,) = seen
    assert (message.topic, message.body, message.value, message.tags) == ("orders", b"[1]", [1], "vip")
    assert (message.keys, message.properties, message.flag) == (["k-1", "k-2"], {"a": "b"}, 7)
    assert (message.delivery, message.queue.topic, message.offset) == (3, "orders", 0)
    assert message.message_id and message.born_at.year > 2000
    assert repr(consumer).endswith("not started>")


async def test_typed_bodies() -> None:
    consumer = make_consumer()
    seen: list[tuple[Order, str]] = []

    @consumer.handler("baskets")
    async def charge(order: Order, message: Message) -> None:
        seen.append((order, message.tags))

    await deliver(consumer, "baskets", b'{"id": "o-1", "melons": 3}', tags="t")
    await deliver(consumer, "baskets", Order("o-2", 4), serializer=json_serializer())
    assert seen == [(Order("o-1", 3), "t"), (Order("o-2", 4), "")]
    with pytest.raises(SerializationError):
        await deliver(consumer, "baskets", b"no order")
    with pytest.raises(TypeError, match="body must be bytes"):
        await deliver(consumer, "baskets", Order("o-2", 4))


@pytest.mark.parametrize(
    ("how", "delivery", "result", "expected"),
    [
        ({}, 1, Outcome.DONE, Delivered(Outcome.DONE)),
        ({}, 1, Outcome.LATER, Delivered(Outcome.LATER, timedelta(seconds=10))),
        ({}, 3, Outcome.LATER, Delivered(Outcome.LATER, timedelta(minutes=1))),
        ({}, 17, Outcome.LATER, Delivered(Outcome.DEAD)),
        ({"retry": Retry(max_deliveries=2)}, 2, Outcome.LATER, Delivered(Outcome.DEAD)),
        ({}, 1, RetryLater(delay_level=5), Delivered(Outcome.LATER, timedelta(minutes=1))),
        ({}, 1, RetryLater(delay_level=-1), Delivered(Outcome.DEAD)),
        ({}, 1, RetryLater(delay=2.5), Delivered(Outcome.LATER, timedelta(seconds=2.5))),
        ({"retry": Retry(backoff=[1, 2.5])}, 5, Outcome.LATER, Delivered(Outcome.LATER, timedelta(seconds=2.5))),
        ({}, 1, Outcome.DEAD, Delivered(Outcome.DEAD)),
        ({"broadcast": True}, 1, Outcome.LATER, Delivered(Outcome.LATER)),
    ],
)
async def test_outcomes(how: dict[str, Any], delivery: int, result: Outcome | RetryLater, expected: Delivered) -> None:
    consumer = make_consumer(**how)

    @consumer.handler("orders")
    async def bill(message: Message) -> Outcome:
        if isinstance(result, RetryLater):
            raise result
        return result

    assert await deliver(consumer, "orders", b"x", delivery=delivery) == expected


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(suspend=2), Delivered(Outcome.LATER, timedelta(seconds=2))),
        (Retry(max_deliveries=20), Delivered(Outcome.DEAD)),
    ],
)
async def test_ordered_handlers_pause_their_queue(retry: Retry, expected: Delivered) -> None:
    consumer = make_consumer(retry=retry)

    @consumer.handler("steps", ordered=True, auto_commit=False)
    async def follow(message: Message) -> Outcome:
        if message.body == b"later":
            return Outcome.LATER
        if message.body == b"alone":
            await message.retry()
        return Outcome.COMMIT

    assert await deliver(consumer, "steps", b"later", delivery=20) == expected
    assert (await deliver(consumer, "steps", b"x")).outcome is Outcome.COMMIT
    with pytest.raises(ConfigError, match="a single message of an ordered queue cannot be retried"):
        await deliver(consumer, "steps", b"alone")


async def test_exceptions_of_handlers_are_raised() -> None:
    consumer = make_consumer()

    @consumer.handler("orders")
    async def bill(message: Message) -> None:
        raise ZeroDivisionError(message.body)

    with pytest.raises(ZeroDivisionError, match="one melon"):
        await deliver(consumer, "orders", b"one melon")

    @consumer.handler("others")  # type: ignore[type-var]
    async def return_more(message: Message) -> int:
        return 5

    with pytest.raises(ConfigError, match="the handler of others returned 5"):
        await deliver(consumer, "others", b"x")


async def test_what_a_handler_settles_and_replies_itself() -> None:
    consumer = make_consumer()

    @consumer.handler("letters", batch=10)
    async def sort(messages: list[Message]) -> Outcome:
        for message in messages:
            match message.body:
                case b"ack":
                    await message.ack()
                case b"retry":
                    await message.retry(delay_level=1)
                case b"bury":
                    await message.bury()
                case b"reply":
                    receipt = await message.reply(b"yes", tags="t")
                    assert receipt.message_id
        return Outcome.LATER

    bodies = [b"ack", b"retry", b"bury", Outgoing(b"reply", tags="x"), b"other"]
    assert await deliver_batch(consumer, "letters", bodies) == [
        Delivered(Outcome.DONE),
        Delivered(Outcome.LATER, timedelta(seconds=1)),
        Delivered(Outcome.DEAD),
        Delivered(Outcome.LATER, timedelta(seconds=10), (Outgoing(b"yes", tags="t"),)),
        Delivered(Outcome.LATER, timedelta(seconds=10)),
    ]
    assert (await deliver(consumer, "letters", b"ack")).outcome is Outcome.DONE
    for wrong in ([], [b"x"] * 11):
        with pytest.raises(ConfigError, match=f"takes 1 to 10 messages, not {len(wrong)}"):
            await deliver_batch(consumer, "letters", wrong)


async def test_plain_handlers_may_block() -> None:
    consumer = make_consumer()
    threads: list[int] = []

    @consumer.handler("orders")
    def bill(message: Message) -> None:
        threads.append(threading.get_ident())

    assert (await deliver(consumer, "orders", b"x")).outcome is Outcome.DONE
    assert threads and threads != [threading.get_ident()]


async def test_the_handler_is_found_by_topic_and_pattern_and_with_a_namespace() -> None:
    consumer = make_consumer(options=ClientOptions(namespace="shop"))
    seen: list[tuple[str, str]] = []

    @consumer.handler("orders", tags=Sql("region = 'eu'"))
    async def bill(message: Message) -> None:
        seen.append(("bill", message.topic))

    @consumer.handler(re.compile("orders-.*"), tags="vip")
    async def count(message: Message) -> None:
        seen.append(("count", message.topic))

    await deliver(consumer, "orders", b"x", properties={"region": "eu"})
    await deliver(consumer, "orders-eu", b"x", tags="vip")
    assert seen == [("bill", "orders"), ("count", "orders-eu")]
    with pytest.raises(ConfigError, match=r"no handler of mails \(it has handlers of orders, 'orders-\.\*'\)"):
        await deliver(consumer, "mails", b"x")
    for topic, expression in (("orders", "region = 'eu'"), ("orders-eu", "vip")):
        with pytest.raises(ConfigError, match=f"handler of {topic} would not receive .*{expression}"):
            await deliver(consumer, topic, b"x", tags="other")
    with pytest.raises(ConfigError, match=r"no handler of orders .*register one"):
        await deliver(make_consumer(subscribe="orders"), "orders", b"x")


@pytest.mark.parametrize("wrong", [{"delivery": 0}, {"delivery": True}])
async def test_arguments_are_checked(wrong: dict[str, Any]) -> None:
    consumer = make_consumer()
    consumer.handler("orders")(lambda message: None)
    with pytest.raises(ConfigError, match="delivery="):
        await deliver(consumer, "orders", b"x", **wrong)
    with pytest.raises(MessageIllegal):
        await deliver(consumer, "orders", b"")
    with pytest.raises(ConfigError, match="consumer="):
        deliver("consumer", "orders", b"x")  # type: ignore[call-overload]


# -- plain consumers ---------------------------------------------------------------------------------------------------


def test_plain_consumers() -> None:
    consumer = sync.Consumer("127.0.0.1:1", group="billing", rebalance=Rebalance())
    seen: list[tuple[bytes, int]] = []

    @consumer.handler("orders")
    def bill(message: sync.Message) -> Outcome | None:
        assert isinstance(message, sync.Message)
        seen.append((message.body, threading.get_ident()))
        match message.body:
            case b"ack":
                message.ack()
                return Outcome.LATER
            case b"retry":
                message.retry(delay_level=2)
            case b"bury":
                message.bury()
            case b"reply":
                message.reply(b"yes")
            case b"later":
                raise RetryLater(delay_level=1)
            case b"raise":
                raise ZeroDivisionError
        return None

    assert deliver(consumer, "orders", b"ack") == Delivered(Outcome.DONE)
    assert deliver(consumer, "orders", b"retry") == Delivered(Outcome.LATER, timedelta(seconds=5))
    assert deliver(consumer, "orders", b"bury") == Delivered(Outcome.DEAD)
    assert deliver(consumer, "orders", b"reply") == Delivered(Outcome.DONE, None, (Outgoing(b"yes"),))
    assert deliver(consumer, "orders", b"later") == Delivered(Outcome.LATER, timedelta(seconds=1))
    with pytest.raises(ZeroDivisionError):
        deliver(consumer, "orders", b"raise")
    assert {thread for _, thread in seen} == {threading.get_ident()}  # where fixtures may have their connections
    assert repr(consumer).endswith("not started>")


def test_async_and_typed_handlers_of_plain_consumers() -> None:
    consumer = sync.Consumer("127.0.0.1:1", group="billing")
    seen: list[Any] = []

    @consumer.handler("baskets")
    def charge(order: Order, message: sync.Message) -> None:
        seen.append((order, type(message)))

    @consumer.handler("orders")
    async def bill(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(type(message))

    @consumer.handler("many", batch=3)
    def count(messages: list[sync.Message]) -> None:
        seen.append(len(messages))

    assert deliver(consumer, "baskets", b'{"id": "o-1", "melons": 3}').outcome is Outcome.DONE
    assert deliver(consumer, "orders", b"x").outcome is Outcome.DONE
    assert len(deliver_batch(consumer, "many", [b"a", b"b"])) == 2
    assert seen == [(Order("o-1", 3), sync.Message), Message, 2]
