"""Messages that brokers find by key: only those that were asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from eruca._admin.connection import Connection
from eruca._admin.messages import Messages
from eruca._testing.clock import VirtualClock
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record

# Their names have the same hash, so the index of a Java broker does not tell them apart.
TOPIC, TWIN = "orders-Aa", "orders-BB"


def make_connection(*records: Record) -> Connection:
    """A connection to one broker that finds some records."""

    async def require_route(topic: str) -> Any:
        return SimpleNamespace(brokers={"broker-a": {0: "127.0.0.1:10911"}})

    async def query_messages(*_: object) -> list[Record]:
        return list(records)

    return cast(
        Connection,
        SimpleNamespace(
            require_route=require_route,
            calls=SimpleNamespace(query_messages=query_messages),
            session=SimpleNamespace(clock=VirtualClock()),
        ),
    )


def make_record(topic: str, key: str) -> Record:
    return Record(topic, body=topic.encode(), properties=encode_properties({"KEYS": key, "UNIQ_KEY": key}))


async def test_messages_of_another_topic_or_key_are_not_found() -> None:
    messages = Messages(make_connection(make_record(TWIN, "k"), make_record(TOPIC, "k"), make_record(TOPIC, "other")))
    for listed in (await messages.find_by_key(TOPIC, "k"), await messages.find(TOPIC, "k")):
        assert [(each.stored_in, each.keys) for each in listed.items] == [(TOPIC, ["k"])]
