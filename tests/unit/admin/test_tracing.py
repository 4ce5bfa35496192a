"""The steps of a message, from the records of trace messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca._admin.groupmembers import Membership, Subscribed
from eruca._admin.storedmessages import StoredMessage, describe_record, make_row
from eruca._admin.tracing import _is_filtered, find_steps
from eruca._wire.compression import compress
from eruca._wire.record import Record
from eruca._wire.sysflag import COMPRESSED
from eruca._wire.trace import EndTransactionTrace, PubTrace, SubAfterTrace, SubBeforeTrace, encode_trace

PUB = PubTrace(
    time_ms=1000,
    region=None,
    group="senders",
    topic="orders",
    message_id="m1",
    tags="a",
    keys="k1 k2",
    store_host="10.0.0.1:10911",
    body_bytes=5,
    cost_ms=7,
    offset_message_id="o1",
)
BEFORE = SubBeforeTrace(
    time_ms=3000, region=None, group="billing", request_id="r", message_id="m1", retries=1, keys="k1"
)
AFTER = SubAfterTrace(
    request_id="r", message_id="m1", cost_ms=40, success=False, keys="k1", outcome=4, time_ms=None, group=None
)
END = EndTransactionTrace(
    time_ms=2000,
    region=None,
    group="senders",
    topic="orders",
    message_id="m1",
    store_host=None,
    transaction_id="m1",
    state="COMMIT_MESSAGE",
    from_check=False,
)
OTHER = PubTrace(
    time_ms=1,
    region=None,
    group="g",
    topic="t",
    message_id="m2",
    store_host=None,
    body_bytes=0,
    cost_ms=0,
    offset_message_id=None,
)


def trace(*records: PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace) -> StoredMessage:
    body = b"".join(map(encode_trace, records))
    return describe_record(Record("trace", body=body, born_timestamp=4000, store_timestamp=4000), "broker-a")


def test_steps_are_in_the_order_of_time() -> None:
    rows = find_steps([trace(AFTER, BEFORE), trace(PUB, OTHER, END)], "m1")
    assert [row.step for row in rows] == ["sent", "transaction ended", "delivered", "consumed"]
    sent, ended, delivered, consumed = rows
    assert (sent.topic, sent.tags, sent.keys, sent.size, sent.offset_id) == ("orders", "a", "k1 k2", 5, "o1")
    assert (sent.at, sent.seconds) == (datetime.fromtimestamp(1, UTC), 0.007)
    assert (ended.outcome, delivered.tries, delivered.request_id) == ("COMMIT_MESSAGE", 1, "r")
    # Older clients do not tell when; then it is when the trace was sent.
    assert (consumed.at, consumed.outcome, consumed.succeeded) == (
        datetime.fromtimestamp(4, UTC),
        "FAILED",
        False,
    )


def test_steps_are_found_by_key_too_and_not_twice() -> None:
    rows = find_steps([trace(PUB), trace(PUB), trace(OTHER)], "k2")
    assert [(row.step, row.message_id) for row in rows] == [("sent", "m1")]
    assert find_steps([trace(PUB)], "k") == []


@pytest.mark.parametrize(
    ("expression", "kind", "tags", "is_filtered"),
    [
        ("*", "TAG", b"", False),
        ("a || b", "TAG", b"TAGS\x01b", False),
        ("a || b", "TAG", b"TAGS\x01c", True),
        ("a", "TAG", b"", True),
        ("x > 1", "SQL92", b"", False),
    ],
)
def test_what_a_subscription_leaves_out(expression: str, kind: str, tags: bytes, is_filtered: bool) -> None:
    message = describe_record(Record("orders", properties=tags), "broker-a")
    membership = Membership(subscriptions=[Subscribed(topic="orders", expression=expression, kind=kind)])
    assert _is_filtered(membership, message) is is_filtered


def test_a_record_becomes_plain_values() -> None:
    properties = b"UNIQ_KEY\x01m1\x02KEYS\x01a b\x02TAGS\x01t\x02RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01o0"
    record = Record(
        "%RETRY%billing",
        3,
        body=b"hello",
        properties=properties,
        queue_offset=7,
        reconsume_times=2,
        store_timestamp=5000,
    )
    message = describe_record(record, "broker-a")
    assert (message.topic, message.stored_in, message.broker) == ("orders", "%RETRY%billing", "broker-a")
    assert (message.queue, message.offset, message.tries) == (3, 7, 2)
    assert (message.message_id, message.origin_id, message.tags, message.keys) == ("m1", "o0", "t", ["a", "b"])
    assert message.stored_at == datetime.fromtimestamp(0, UTC) + timedelta(seconds=5)
    row = make_row(message)
    assert (row["body"], row["body_base64"]) == ("hello", "aGVsbG8=")


def test_a_body_that_cannot_be_decompressed_stays_packed() -> None:
    packed = describe_record(Record("orders", body=compress(b"hello"), sys_flag=COMPRESSED), "broker-a")
    assert (packed.body, packed.body_is_packed) == (b"hello", False)
    damaged = describe_record(Record("orders", body=b"not zlib", sys_flag=COMPRESSED), "broker-a")
    assert (damaged.body, damaged.body_is_packed) == (b"not zlib", True)
