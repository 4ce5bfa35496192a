"""Serializers: what goes in comes out, and what does not fit is an error of ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

from eruca.errors import SerializationError
from eruca.serializers import (
    Deserializer,
    Serializer,
    json_deserializer,
    json_serializer,
    msgpack_deserializer,
    msgpack_serializer,
    text_deserializer,
    text_serializer,
)


@dataclass
class Line:
    product: str
    count: int


class Order(msgspec.Struct):
    id: UUID
    at: datetime
    lines: list[Line]


class Customer(BaseModel):
    name: str
    points: int


class Sale(msgspec.Struct):
    customer: Customer
    order: Order


ORDER = Order(UUID(int=7), datetime(2026, 1, 2, 3, tzinfo=UTC), [Line("apple", 3)])
SALE = Sale(Customer(name="Ann", points=5), ORDER)


@pytest.mark.parametrize(
    ("serialize", "make_deserializer"),
    [(json_serializer(), json_deserializer), (msgpack_serializer(), msgpack_deserializer)],
    ids=["json", "msgpack"],
)
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": [1, 2.5, None, "ü"]}, Any),
        (ORDER, Order),
        (Line("pear", 1), Line),
        ([ORDER, ORDER], list[Order]),
        (SALE, Sale),
        ([Customer(name="Bob", points=1)], list[Customer]),
    ],
    ids=["plain", "struct", "dataclass", "list", "nested-model", "list-of-models"],
)
def test_round_trips(serialize: Serializer, make_deserializer: Any, value: object, wanted: Any) -> None:
    body = serialize(value)
    assert isinstance(body, bytes)
    assert make_deserializer(wanted)(body) == value


def test_a_pydantic_model_is_written_and_read_by_its_own_functions() -> None:
    customer = Customer(name="Ann", points=5)
    assert json_serializer()(customer) == b'{"name":"Ann","points":5}'
    read: Deserializer[Customer] = json_deserializer(Customer)
    assert read(b'{"name":"Ann","points":"5"}') == customer  # Pydantic turns the text into a number, msgspec does not


def test_without_a_type_json_becomes_plain_objects() -> None:
    assert json_deserializer()(b'{"a":[1,"x"]}') == {"a": [1, "x"]}


@pytest.mark.parametrize("serialize", [json_serializer(), msgpack_serializer()], ids=["json", "msgpack"])
@pytest.mark.parametrize("value", [object(), {"a": object()}, 2**70 * 1j], ids=["object", "nested", "complex"])
def test_what_cannot_be_written_is_named(serialize: Serializer, value: object) -> None:
    with pytest.raises(SerializationError, match=rf"{type(value).__name__} cannot be written as"):
        serialize(value)


@pytest.mark.parametrize(
    ("deserialize", "body", "told"),
    [
        (json_deserializer(), b"{", "the body is not JSON:"),
        (json_deserializer(), b"\xff", "the body is not JSON:"),
        (json_deserializer(Order), b'{"id": 7}', "the body is not JSON of Order: .*id"),
        (json_deserializer(Customer), b'{"name": "Ann"}', "the body is not JSON of Customer: .*points"),
        (json_deserializer(list[Customer]), b'[{"name": "Ann"}]', "the body is not JSON of list: .*points"),
        (msgpack_deserializer(), b"\xc1", "the body is not MessagePack:"),
        (msgpack_deserializer(int), b"\xa1a", "the body is not MessagePack of int:"),
        (text_deserializer(), b"\xff", "the body is not utf-8 text:"),
    ],
    ids=["cut", "no-text", "struct", "model", "models", "msgpack", "msgpack-type", "text"],
)
def test_what_cannot_be_read_says_why(deserialize: Deserializer[Any], body: bytes, told: str) -> None:
    with pytest.raises(SerializationError, match=rf"(?s){told}"):
        deserialize(body)


def test_text() -> None:
    assert text_deserializer()(text_serializer()("Grüße")) == "Grüße"
    assert text_serializer("latin-1")("ü") == b"\xfc"
    assert text_deserializer("latin-1")(b"\xfc") == "ü"
    with pytest.raises(SerializationError, match="ascii text"):
        text_serializer("ascii")("ü")
    with pytest.raises(SerializationError, match="must be a str here, not bytes"):
        text_serializer()(b"x")  # type: ignore[arg-type]
