"""Typed headers: names on the wire, strings, and the order of Java's hash map."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from eruca._wire import headers
from eruca._wire.ext import encode_ext, order_like_java
from eruca._wire.headers import (
    CreateTopicHeader,
    EmptyHeader,
    EndTransactionHeader,
    Header,
    PullMessageHeader,
    QueryMessageHeader,
    QueueHeader,
    RegisterBrokerHeader,
    SendBackHeader,
    UpdateConsumerOffsetHeader,
)

ALL_HEADERS = [
    member
    for member in vars(headers).values()
    if inspect.isclass(member) and issubclass(member, Header) and member is not Header
]


@pytest.mark.parametrize("header_type", ALL_HEADERS, ids=lambda header_type: header_type.__name__)
def test_every_header_documents_itself_and_survives_strings(header_type: type[Header]) -> None:
    assert header_type.__doc__
    assert len(set(header_type.__struct_encode_fields__)) == len(header_type.__struct_encode_fields__)
    values = {}
    for field in msgspec.structs.fields(header_type):
        kinds = str(field.type)
        values[field.name] = True if "bool" in kinds else 7 if "int" in kinds else "text"
    header = header_type(**values)
    for binary in (False, True):
        texts = encode_ext(header, binary=binary)
        assert set(texts) == set(header_type.__struct_encode_fields__)
        assert set(texts.values()) <= {"true", "7", "text"}
        assert msgspec.convert(texts, header_type, strict=False) == header
        assert msgspec.json.decode(msgspec.json.encode(texts), type=header_type, strict=False) == header


def test_values_are_java_strings_and_none_is_left_out() -> None:
    header = RegisterBrokerHeader("b", "a:1", "c", "a:2", 0)
    assert encode_ext(header) == {
        "brokerName": "b",
        "brokerAddr": "a:1",
        "clusterName": "c",
        "haServerAddr": "a:2",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    assert encode_ext(EmptyHeader()) == {}
    assert "bname" not in encode_ext(QueueHeader("T", -1))
    assert encode_ext(QueueHeader("", -1, broker_name="")) == {"topic": "", "queueId": "-1", "bname": ""}


def test_names_that_are_not_plain_camel_case() -> None:
    assert QueryMessageHeader.__struct_encode_fields__[-1] == "_UNIQUE_KEY_QUERY"
    assert set(EndTransactionHeader.__struct_encode_fields__) == {
        "producerGroup",
        "tranStateTableOffset",
        "commitLogOffset",
        "commitOrRollback",
        "fromTransactionCheck",
        "msgId",
        "transactionId",
        "bname",
    }


def test_extra_fields_join_the_order() -> None:
    texts = encode_ext(QueueHeader("TopicX", 0), extra={"AccessKey": "rocketmq2"})
    assert texts == {"topic": "TopicX", "queueId": "0", "AccessKey": "rocketmq2"}
    pull = PullMessageHeader(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=2,
        max_message_nums=3,
        sys_flag=4,
        commit_offset=5,
        suspend_timeout_ms=6,
        subscription="*",
        subscription_version=7,
    )
    signed = list(encode_ext(pull, binary=True, extra={"AccessKey": "k", "Signature": "s"}))
    assert signed[:9] == list(PullMessageHeader.__struct_encode_fields__[:9])
    assert set(signed[-2:]) == {"AccessKey", "Signature"}
    # A field of RocketMQ 5, on the wire only for those who set it.
    assert "maxMsgBytes" not in encode_ext(pull)
    pull.max_message_bytes = 1024
    assert encode_ext(pull)["maxMsgBytes"] == "1024"


# --- order, from recorded frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order",
    [
        "brokerId bodyCrc32 clusterName brokerAddr haServerAddr compressed brokerName",
        "readQueueNums perm writeQueueNums topicFilterType topic defaultTopic topicSysFlag order",
        "queueId TRACE_ON MSG_REGION msgId queueOffset",
        "maxReconsumeTimes offset bname delayLevel originTopic originMsgId unitMode group",
        "a b c d e f g h i j k m n",
        # Fourteen fields need a table of 32 buckets.
        "queueId flag sysFlag reconsumeTimes storeTimestamp unitMode defaultTopic bornHost defaultTopicQueueNums "
        "producerGroup topic bornTimestamp storeHost properties",
    ],
)
def test_order_of_javas_hash_map(order: str) -> None:
    names = tuple(order.split())
    assert order_like_java(names) == names
    # What was inserted when counts only within a bucket, and those are small.
    shuffled = order_like_java(tuple(reversed(names)))
    assert all(abs(shuffled.index(name) - names.index(name)) <= 2 for name in names)


def test_inherited_fields_enter_the_map_first() -> None:
    # bname shares a bucket with delayLevel, and with commitOffset.
    assert list(encode_ext(SendBackHeader(1, "g", 0, broker_name="b"))) == ["offset", "bname", "delayLevel", "group"]
    names = list(encode_ext(UpdateConsumerOffsetHeader("g", "T", 0, 5, broker_name="b")))
    assert names == ["queueId", "bname", "commitOffset", "topic", "consumerGroup"]


def test_the_table_grows_at_three_quarters() -> None:
    for count in (12, 13, 24, 25):
        names = tuple(f"n{number}" for number in range(count))
        assert sorted(order_like_java(names)) == sorted(names)
    # "a" is in bucket 1 and "q" too while there are 16 of them; of 32 it is in 17.
    few = ("q", "a", "b")
    assert order_like_java(few) == ("q", "a", "b")
    many = ("q", *"abcdefghijklm")
    assert order_like_java(many) == tuple("abcdefghijklmq")


def test_lenient_where_java_is() -> None:
    texts = {"topic": "T", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    header = msgspec.convert(texts, CreateTopicHeader, strict=False)
    assert (header.topic_filter_type, header.topic_sys_flag, header.order) == ("SINGLE_TAG", None, None)
