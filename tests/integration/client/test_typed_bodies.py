"""Handlers that take the body of a message, decoded to the type in their annotation."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from eruca import Consumer, Message, sync
from eruca._client.message import Outcome
from eruca._client.push.handlers import HandlerEntry, make_handler
from eruca._wire.bodies import MessageQueue
from eruca._wire.record import Record
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca import Message as OnlyForCheckersMessage


@dataclass
class Order:
    id: str
    melons: int


class Cart(msgspec.Struct):
    id: str


class Model:
    """Looks like a model of Pydantic."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Model:
        return cls(json_data)


BODY = b'{"id": "o-1", "melons": 3}'


def make(function: Any, batch: int = 1) -> HandlerEntry:
    return make_handler("carts", function, concurrency=1, batch=batch, auto_commit=True)


def make_message(body: bytes = BODY) -> Message:
    return Message(Record("carts", body=body), MessageQueue("b", 0, "carts"))


async def call(handler: HandlerEntry, message: Message) -> Outcome:
    try:
        return await handler.call([message])
    finally:
        handler.close()


async def test_async_and_plain_handlers_get_the_decoded_body() -> None:
    seen: list[object] = []

    async def pay(order: Order) -> None:
        seen.append(order)

    def pack(cart: Cart) -> None:
        seen.append(cart)

    def show(model: Model) -> None:
        seen.append(model.text)

    for function in (pay, pack, show):
        assert await call(make(function), make_message()) is Outcome.DONE
    assert seen == [Order("o-1", 3), Cart("o-1"), BODY]


async def test_a_second_parameter_gets_the_message() -> None:
    seen: list[object] = []

    async def pay(order: Order, message: Message) -> None:
        seen.extend([order, message])

    message = make_message()
    assert await call(make(pay), message) is Outcome.DONE
    assert seen == [Order("o-1", 3), message]


async def test_methods_partials_and_callable_objects() -> None:
    seen: list[object] = []

    class Till:
        async def pay(self, order: Order) -> None:
            seen.append(order)

        async def __call__(self, order: Order) -> None:
            seen.append(order)

    async def pay_in(currency: str, order: Order) -> None:
        seen.append((currency, order))

    for function in (Till().pay, Till(), functools.partial(pay_in, "EUR")):
        assert await call(make(function), make_message()) is Outcome.DONE
    assert seen == [Order("o-1", 3), Order("o-1", 3), ("EUR", Order("o-1", 3))]


@pytest.mark.parametrize("body", [b"no JSON", b'{"id": "o-1"}', b""])
async def test_a_body_that_does_not_fit_is_a_failure_of_the_handler(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def pay(order: Order) -> None:
        raise AssertionError("it must not be called")

    assert await call(make(pay), make_message(body)) is Outcome.LATER
    assert "SerializationError" in caplog.text
    assert "the body is not JSON of Order" in caplog.text


async def test_handlers_of_messages_are_called_as_before() -> None:
    async def typed(message: Message) -> None: ...

    async def bare(message): ...  # type: ignore[no-untyped-def]

    async def anything(message: Any) -> None: ...

    async def checked(message: OnlyForCheckersMessage) -> None: ...

    async def several(messages: list[Message]) -> None: ...

    assert [make(function).function for function in (typed, bare, anything, checked)] == [
        typed,
        bare,
        anything,
        checked,
    ]
    assert make(several, batch=8).function is several


def test_what_cannot_work_is_refused_at_registration() -> None:
    @dataclass
    class Local:
        id: str

    async def local(order: Local) -> None: ...

    async def several(orders: list[Order]) -> None: ...

    consumer = Consumer("127.0.0.1:9876", group="g")
    plain = sync.Consumer("127.0.0.1:9876", group="g")
    for client in (consumer, plain):
        with pytest.raises(ConfigError, match="'Local' of order cannot be resolved") as caught:
            client.handler("carts")(local)
        assert "top level" in str(caught.value)
        with pytest.raises(ConfigError, match=r"it must take list\[Message\]"):
            client.handler("carts", batch=8)(several)  # type: ignore[type-var]


async def test_plain_consumers_get_plain_messages() -> None:
    seen: list[object] = []
    consumer = sync.Consumer("127.0.0.1:9876", group="g")

    @consumer.handler("carts")
    def pay(order: Order) -> None:
        seen.append(order)

    @consumer.handler("gifts")
    def give(order: Order, message: sync.Message) -> None:
        seen.extend([order, type(message), message.body])

    handlers = consumer._twin._member.handlers
    async with asyncio.timeout(30):
        for topic in ("carts", "gifts"):
            assert await call(handlers[topic], make_message()) is Outcome.DONE
    assert seen == [Order("o-1", 3), Order("o-1", 3), sync.Message, BODY]
