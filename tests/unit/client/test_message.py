"""What a user sees of a message."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca._client.message import Message
from eruca._client.namespaces import unwrap, wrap
from eruca._wire.bodies import MessageQueue
from eruca._wire.compression import compress
from eruca._wire.host import pack_host
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca._wire.sysflag import COMPRESSION_ZLIB, set_compression

QUEUE = MessageQueue("broker-a", 3, "orders")


def make(topic: str = "orders", body: bytes = b"hello", namespace: str = "", **properties: str) -> Message:
    record = Record(
        topic=topic,
        body=body,
        properties=encode_properties(properties),
        queue_offset=7,
        position=1234,
        flag=5,
        born_timestamp=1_700_000_000_000,
        store_timestamp=1_700_000_001_000,
        born_host=pack_host("10.0.0.1", 4000),
        store_host=pack_host("10.0.0.2", 10911),
        reconsume_times=2,
    )
    return Message(record, QUEUE, namespace)


def test_everything_that_was_sent_is_there() -> None:
    message = make(TAGS="vip", KEYS="a b", UNIQ_KEY="ID", colour="red", WAIT="true")
    assert (message.topic, message.body, message.tags, message.keys) == ("orders", b"hello", "vip", ["a", "b"])
    assert message.properties == {"colour": "red"}
    assert message.all_properties["WAIT"] == "true"
    assert (message.message_id, message.offset, message.flag, message.delivery) == ("ID", 7, 5, 3)
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert message.stored_at > message.born_at
    assert (message.born_host, message.store_host) == ("10.0.0.1:4000", "10.0.0.2:10911")
    assert message.offset_id == "0A00000200002A9F00000000000004D2"


def test_what_was_not_sent_is_empty() -> None:
    message = make()
    assert (message.tags, message.keys, message.properties) == ("", [], {})
    assert message.message_id == message.offset_id == message.origin_id


def test_a_retried_message_shows_its_first_topic() -> None:
    message = make("%RETRY%billing", RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="FIRST")
    assert (message.topic, message.origin_id) == ("orders", "FIRST")


def test_a_compressed_body_is_unpacked_once() -> None:
    message = make(body=compress(b"x" * 5000))
    message.record.sys_flag = set_compression(0, COMPRESSION_ZLIB)
    assert message.body == b"x" * 5000
    assert message.body is message.body


def test_its_properties_are_those_that_its_sender_set() -> None:
    """Delays of any length and idempotent producers use properties too."""
    message = make(colour="red", TIMER_DELAY_MS="500", TIMER_OUT_MS="1700000000500", ERUCA_ONCE="q:1:2:3", DELAY="3")
    assert message.properties == {"colour": "red"}
    assert message.all_properties["TIMER_DELAY_MS"] == "500"


def test_a_namespace_is_not_seen() -> None:
    assert make("shop%orders", namespace="shop").topic == "orders"
    assert make("%RETRY%shop%billing", namespace="shop", RETRY_TOPIC="shop%orders").topic == "orders"


def test_namespaces() -> None:
    assert wrap("", "orders") == "orders"
    assert wrap("shop", "orders") == "shop%orders"
    assert wrap("shop", "shop%orders") == "shop%orders"
    assert wrap("shop", "%RETRY%billing") == "%RETRY%shop%billing"
    assert wrap("shop", "%DLQ%billing") == "%DLQ%shop%billing"
    for own in ("RMQ_SYS_TRACE_TOPIC", "TBW102", "rmq_sys_x", "CID_RMQ_SYS_x"):
        assert wrap("shop", own) == own
    for name in ("orders", "%RETRY%billing", "%DLQ%billing"):
        assert unwrap("shop", wrap("shop", name)) == name
    assert unwrap("", "shop%orders") == "shop%orders"
    assert unwrap("other", "shop%orders") == "shop%orders"


async def test_a_message_of_nobody_can_be_settled_without_effect() -> None:
    message = make()
    await message.ack()
    await message.retry()
    await message.bury()
    assert "orders" in repr(message)
