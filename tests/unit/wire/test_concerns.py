"""The topics and groups of requests: declared for every code that needs them, and found as the handlers find them."""

from __future__ import annotations

import msgspec
import pytest

from eruca._wire import headers as h
from eruca._wire.bodies import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    LockBody,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from eruca._wire.catalog import CATALOG, RequestSpec, Right, build_request, find_names, find_spec
from eruca._wire.codes import RequestCode
from eruca._wire.command import Command, HeaderError, make_request
from eruca._wire.concerns import NOTHING, Names


def find(command: Command, read_topic: dict[int, str] | None = None) -> Names:
    reads = None if read_topic is None else read_topic.get
    return find_names(find_spec(command.code), command, command.ext_dict(), reads)


@pytest.mark.parametrize("spec", CATALOG.values(), ids=lambda spec: spec.meaning)
def test_what_a_row_declares_is_in_its_header(spec: RequestSpec) -> None:
    concerns = spec.concerns
    assert {*concerns.topics, *concerns.groups} <= set(spec.header.__struct_encode_fields__)
    assert concerns.position in ("", *spec.header.__struct_fields__)
    assert concerns.in_body is None or spec.body is not None
    if spec.right in (Right.PUBLISH, Right.SUBSCRIBE, Right.UPLOAD):
        assert concerns != NOTHING


def test_names_in_headers() -> None:
    send = h.SendMessageV2Header("group", "orders", "TBW102", 4, 0, 0, 1, 0)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        assert find(make_request(code, send)) == Names(("orders",))
    offset = h.UpdateConsumerOffsetHeader("shop", "orders", 0, 5)
    assert find(make_request(RequestCode.UPDATE_CONSUMER_OFFSET, offset)) == Names(("orders",), ("shop",))
    leaving = h.UnregisterClientHeader("client", producer_group="p")
    assert find(make_request(RequestCode.UNREGISTER_CLIENT, leaving)) == Names()


def test_of_a_field_that_is_sent_twice_the_handler_and_the_check_take_the_same() -> None:
    command = make_request(RequestCode.GET_MAX_OFFSET)
    command.ext = msgspec.Raw(b'{"topic":"mine","queueId":"0","topic":"yours","t\\u006fpic":"theirs"}')
    header = command.decode_header(h.QueueHeader)
    assert find(command) == Names((header.topic,))


def test_topic_of_a_record() -> None:
    view = make_request(RequestCode.VIEW_MESSAGE_BY_ID, h.ViewMessageHeader(4096))
    assert find(view, {4096: "orders"}) == Names(("orders",))
    assert find(view, {}) == find(view) == Names()
    back = make_request(RequestCode.CONSUMER_SEND_MSG_BACK, h.SendBackHeader(7, "shop", 0))
    assert find(back, {7: "orders"}) == Names(("orders",), ("shop",))
    decision = make_request(RequestCode.END_TRANSACTION, h.EndTransactionHeader("p", 1, 7, 8, "id"))
    assert find(decision, {7: "orders"}) == Names(("orders",))


@pytest.mark.parametrize("text", [b'"7"', b"7", b'"07"', b'" 7"', b'"+7"', b'"7.0"', b'"0000000000000000000000007"'])
def test_a_position_is_read_as_the_handler_reads_it(text: bytes) -> None:
    command = make_request(RequestCode.VIEW_MESSAGE_BY_ID)
    command.ext = msgspec.Raw(b'{"offset":%b}' % text)
    try:
        position = command.decode_header(h.ViewMessageHeader).offset
    except HeaderError:
        with pytest.raises(HeaderError):
            find(command, {7: "orders"})
    else:
        assert find(command, {position: "orders"}) == Names(("orders",))


def test_names_in_bodies() -> None:
    consumers = [
        ConsumerData(group_name="a", subscription_data_set=[SubscriptionData(topic="t"), SubscriptionData(topic="u")]),
        ConsumerData(group_name="b", subscription_data_set=[SubscriptionData(topic="t")]),
    ]
    beat = HeartbeatData(
        client_id="c", consumer_data_set=consumers, producer_data_set=[ProducerData(group_name="free")]
    )
    assert find(build_request(RequestCode.HEART_BEAT, None, beat)) == Names(("t", "u"), ("a", "b"))
    queues = [MessageQueue("broker", number, "t") for number in range(3)]
    lock = LockBody(client_id="c", consumer_group="a", mq_set=queues)
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        assert find(build_request(code, None, lock)) == Names(("t",), ("a",))
        assert find(make_request(code)) == Names()
    check = CheckClientBody(client_id="c", group="a", subscription_data=SubscriptionData(topic="t"))
    assert find(build_request(RequestCode.CHECK_CLIENT_CONFIG, None, check)) == Names(("t",), ("a",))
