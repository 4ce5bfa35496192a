"""Sends: every check with Java's code, in Java's order, and what is stored."""

from __future__ import annotations

import logging

import pytest

from eruca._broker.app import Broker
from eruca._ground.config import FlushMode
from eruca._testing.clock import VirtualClock
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.bodies import GroupConfig, TopicConfig
from eruca._wire.codes import FLAG_ONEWAY, RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import make_request
from eruca._wire.headers import SendMessageAnswerHeader, SendMessageHeader
from eruca._wire.properties import parse_properties
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import Peer
from tests.integration.broker.requests import send_header, try_send
from tests.unit.net.rawpeer import open_peer

SYSTEM_ERROR = ResponseCode.SYSTEM_ERROR
NO_PERMISSION = ResponseCode.NO_PERMISSION
# On every answer to a send, because the Java client reads both without looking.
ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FORBIDDEN = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
]


async def test_an_answer_says_where_the_message_is(broker: Broker, peer: Peer) -> None:
    for offset in range(3):
        answer = await try_send(peer, queue_id=2, flag=5, properties="KEYS\x01k\x02WAIT\x01true")
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert answer.ext is not None
        assert answer.ext.items() >= (ALWAYS | {"queueId": "2", "queueOffset": str(offset)}).items()
        assert len(answer.ext["msgId"]) == 32
        assert int(answer.ext["msgId"][8:16], 16) == broker.standing.port
    message = stored(broker, "T", 2)[0]
    assert (message.body, message.flag, message.born_timestamp, message.sys_flag) == (b"hello", 5, 1, 0)
    assert parse_properties(message.properties) == {"KEYS": "k", "CLUSTER": "DefaultCluster"}  # WAIT is not kept


async def test_both_spellings_and_both_header_types_are_taken(broker: Broker, peer: Peer) -> None:
    old = SendMessageHeader(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
    )
    assert (await peer.expect(RequestCode.SEND_MESSAGE, old, b"one")).ext is not None
    async with open_peer(broker.standing.port) as raw:
        command = make_request(RequestCode.SEND_MESSAGE_V2, send_header(queue_id=1), b"two", opaque=7)
        command.serialization = SerializeType.ROCKETMQ
        answer = await raw.ask(command)
        assert answer.serialization is SerializeType.ROCKETMQ
        header = answer.decode_header(SendMessageAnswerHeader)
        assert (header.queue_id, header.queue_offset, header.region) == (1, 1, "DefaultRegion")
    assert [message.body for message in stored(broker, "T", 1)] == [b"one", b"two"]


async def test_a_oneway_send_is_stored_and_never_answered(broker: Broker) -> None:
    async with open_peer(broker.standing.port) as raw:
        for topic in ("T", "a b"):  # also one that is refused
            oneway = make_request(RequestCode.SEND_MESSAGE_V2, send_header(topic), b"x", opaque=1)
            oneway.flag |= FLAG_ONEWAY
            raw.write(oneway)
        answer = await raw.ask(make_request(RequestCode.SEND_MESSAGE_V2, send_header(), b"y", opaque=2))
        assert answer.opaque == 2
    assert [message.body for message in stored(broker, "T")] == [b"x", b"y"]


# -- refusals, in the order of the checks ------------------------------------------------------------------------------


async def test_sends_before_the_time_of_acceptance_are_refused(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock, accept_sends_from_ms=clock.now_ms() + 1000)
    peer = make_peer(broker)
    answer = await try_send(peer)
    assert (answer.code, answer.ext) == (SYSTEM_ERROR, ALWAYS)
    assert "broker unable to service" in (answer.remark or "")
    clock.advance(1000)
    assert (await try_send(peer)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("order", "code"), [(True, NO_PERMISSION), (False, ResponseCode.SUCCESS)])
async def test_only_order_topics_need_the_right_to_write(broker: Broker, peer: Peer, order: bool, code: int) -> None:
    topics = broker.topics
    topics.put(TopicConfig(topic_name="Ours", order=order))
    topics.put(TopicConfig(topic_name="ReadOnly", order=order, perm=4))
    answer = await try_send(peer, "ReadOnly")
    assert (answer.code, answer.remark == "the topic[ReadOnly] sending message is forbidden") == (code, order)
    broker.live.change(permission=4)
    answer = await try_send(peer, "Ours")
    assert (answer.code, answer.remark is not None) == (code, order)


@pytest.mark.parametrize(
    "topic", ["", " ", "a b", "../x", "a/b", "a.b", "x" * 128, "line\nbreak", "null\0", "é", "主题"]
)
async def test_a_name_that_breaks_the_rule_is_refused(broker: Broker, peer: Peer, topic: str) -> None:
    answer = await try_send(peer, topic)
    assert (answer.code, answer.ext) == (SYSTEM_ERROR, ALWAYS)
    assert (answer.remark or "").startswith("The specified topic ")
    assert broker.topics.get(topic) is None


async def test_the_longest_name_is_taken(peer: Peer) -> None:
    assert (await try_send(peer, "x" * 127)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", FORBIDDEN)
async def test_topics_of_the_broker_itself_are_forbidden(broker: Broker, peer: Peer, topic: str) -> None:
    answer = await try_send(peer, topic)
    assert (answer.code, answer.ext) == (NO_PERMISSION, ALWAYS)
    assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
    assert stored(broker, topic) == []


@pytest.mark.parametrize(
    ("asked", "template", "made"),
    [(4, "TBW102", 4), (100, "TBW102", 8), (100, "DefaultCluster", 16), (3, "broker-a", 1)],
)
async def test_an_unknown_topic_is_made_after_its_template(
    broker: Broker, peer: Peer, asked: int, template: str, made: int
) -> None:
    answer = await try_send(peer, "New", default_topic=template, default_topic_queue_nums=asked)
    assert answer.code == ResponseCode.SUCCESS
    config = broker.topics.get("New")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)


@pytest.mark.parametrize("template", ["Nothing", "SELF_TEST_TOPIC", "", "New"])
async def test_no_topic_is_made_without_a_template_to_inherit_from(peer: Peer, template: str) -> None:
    answer = await try_send(peer, "New", default_topic=template)
    assert (answer.code, answer.ext) == (ResponseCode.TOPIC_NOT_EXIST, ALWAYS)
    assert (answer.remark or "").startswith("topic[New] not exist, apply first please!")


async def test_no_topic_makes_itself_when_that_is_switched_off(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(auto_create_topic=False)
    peer = make_peer(broker)
    assert (await try_send(peer)).code == ResponseCode.TOPIC_NOT_EXIST
    # Retry topics need no template.
    assert (await try_send(peer, "%RETRY%readers")).code == ResponseCode.SUCCESS
    config = broker.topics.get("%RETRY%readers")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


@pytest.mark.parametrize("queue_id", [4, 100, 2**31 - 1])
async def test_a_queue_that_is_not_there_is_refused(peer: Peer, queue_id: int) -> None:
    answer = await try_send(peer, queue_id=queue_id)
    assert (answer.code, answer.ext) == (SYSTEM_ERROR, ALWAYS)
    assert f"request queueId[{queue_id}] is illegal" in (answer.remark or "")


@pytest.mark.parametrize("queue_id", [-1, -(2**31)])
async def test_a_negative_queue_is_chosen_by_the_broker(broker: Broker, peer: Peer, queue_id: int) -> None:
    seen = set()
    for _ in range(64):
        answer = await try_send(peer, queue_id=queue_id)
        assert answer.ext is not None
        seen.add(int(answer.ext["queueId"]))
    assert seen <= {0, 1, 2, 3}
    assert len(seen) > 1


async def test_a_queue_that_is_only_read_still_takes_messages(broker: Broker, peer: Peer) -> None:
    broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=2))
    assert (await try_send(peer, queue_id=7)).code == ResponseCode.SUCCESS


async def test_a_retry_topic_needs_its_group(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(auto_create_group=False))
    answer = await try_send(peer, "%RETRY%Nobody")
    assert (answer.code, answer.ext) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ALWAYS)


@pytest.mark.parametrize(
    ("times", "most", "version", "dead"),
    [
        (15, None, 407, False),
        (16, None, 407, True),
        (3, 3, 407, True),
        (3, 4, 407, False),
        (3, 3, 120, False),  # an old client cannot send its maximum
        (16, 100, 120, True),
    ],
)
async def test_a_message_tried_too_often_goes_to_the_dead_letters(
    broker: Broker, peer: Peer, times: int, most: int | None, version: int, dead: bool
) -> None:
    broker.groups.put(GroupConfig(group_name="G", retry_max_times=16))
    header = send_header("%RETRY%G", reconsume_times=times, max_reconsume_times=most)
    await peer.expect(RequestCode.SEND_MESSAGE_V2, header, b"bad", version=version)
    assert len(stored(broker, "%DLQ%G")) == dead
    assert len(stored(broker, "%RETRY%G")) == (not dead)


async def test_half_messages_can_be_refused(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(reject_transactions=True)
    answer = await try_send(make_peer(broker), properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02", sys_flag=4)
    assert (answer.code, answer.ext) == (NO_PERMISSION, ALWAYS)
    assert "sending transaction message is forbidden" in (answer.remark or "")


@pytest.mark.parametrize(
    ("body", "properties", "code"),
    [
        (b"x" * 4096, "", ResponseCode.SUCCESS),
        (b"x" * 4097, "", ResponseCode.MESSAGE_ILLEGAL),
        (b"", "", ResponseCode.SUCCESS),
        (b"x", "a\x01" + "b" * 32_700, ResponseCode.SUCCESS),
        (b"x", "a\x01" + "b" * 32_767, ResponseCode.MESSAGE_ILLEGAL),
        (b"x", "a\x01" + "é" * 17_000, ResponseCode.MESSAGE_ILLEGAL),  # bytes count, not characters
    ],
)
async def test_sizes_have_a_bound(
    make_broker: MakeBroker, make_peer: MakePeer, body: bytes, properties: str, code: int
) -> None:
    peer = make_peer(await make_broker(message_bytes_max=4096))
    answer = await try_send(peer, body=body, properties=properties)
    assert answer.code == code
    assert answer.ext is not None
    assert answer.ext.items() >= ALWAYS.items()
    if code:
        assert (answer.remark or "").startswith("the message is illegal, maybe msg body or properties length")


@pytest.mark.parametrize("level", ["0", "-1", "x", "", "9" * 5000, str(2**31), "१"])
async def test_a_delay_that_is_no_level_does_no_harm(
    broker: Broker, peer: Peer, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    answer = await try_send(peer, properties=f"DELAY\x01{level}\x02")
    assert answer.code in (ResponseCode.SUCCESS, SYSTEM_ERROR)
    assert answer.ext is not None
    assert answer.ext.items() >= ALWAYS.items()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_region_is_a_text_like_any_other(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    region = 'north"\\\n\u2028'
    peer = make_peer(await make_broker(region=region))
    answer = await try_send(peer)
    assert answer.ext is not None
    assert (answer.code, answer.ext["MSG_REGION"], answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, region, "0")


@pytest.mark.parametrize(
    ("text", "topic"), [("true", "RMQ_SYS_TRANS_HALF_TOPIC"), ("TRUE", "RMQ_SYS_TRANS_HALF_TOPIC")]
)
async def test_a_half_is_told_by_its_property_alone(broker: Broker, peer: Peer, text: str, topic: str) -> None:
    await try_send(peer, properties=f"MY_TRAN_MSG\x01true\x02TRAN_MSG\x01{text}")
    await try_send(peer, properties="MY_TRAN_MSG\x01true\x02NOTE\x01TRAN_MSG")
    assert (len(stored(broker, topic)), len(stored(broker, "T"))) == (1, 1)


# -- batches -----------------------------------------------------------------------------------------------------------


async def test_a_batch_is_stored_in_a_row_and_answered_once(broker: Broker, peer: Peer) -> None:
    await try_send(peer)
    body = encode_batch([BatchItem(flag, b"b%d" % flag, b"KEYS\x01k%d" % flag) for flag in range(3)])
    answer = await peer.expect(RequestCode.SEND_BATCH_MESSAGE, send_header(properties="WAIT\x01true", batch=True), body)
    assert answer.ext is not None
    ids = answer.ext["msgId"].split(",")
    assert (len(ids), answer.ext["queueOffset"]) == (3, "1")
    messages = stored(broker, "T")[1:]
    assert [(message.body, message.flag, message.queue_offset) for message in messages] == [
        (b"b0", 0, 1),
        (b"b1", 1, 2),
        (b"b2", 2, 3),
    ]
    assert [int(text[-16:], 16) for text in ids] == [message.position for message in messages]
    assert parse_properties(messages[1].properties) == {"KEYS": "k1", "WAIT": "true", "CLUSTER": "DefaultCluster"}


async def test_the_flag_alone_makes_a_batch(broker: Broker, peer: Peer) -> None:
    body = encode_batch([BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")])
    await peer.expect(RequestCode.SEND_MESSAGE_V2, send_header(batch=True), body)
    assert [message.body for message in stored(broker, "T")] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("topic", "fields"),
    [("%RETRY%G", {}), ("T", {"sys_flag": 4}), ("T", {"properties": "DELAY\x013"})],
    ids=["retry", "half", "delay"],
)
async def test_batches_cannot_be_retried_delayed_or_undecided(
    broker: Broker, peer: Peer, topic: str, fields: dict[str, int | str]
) -> None:
    body = encode_batch([BatchItem(0, b"a", b"")])
    answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(topic, **fields), body)
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, ALWAYS)
    assert stored(broker, topic) == []


@pytest.mark.parametrize("properties", ["MY_DELAY\x013", "DELAY\x010", "NOTE\x01DELAY"])
async def test_a_property_that_only_looks_like_a_delay_does_not_matter(
    broker: Broker, peer: Peer, properties: str
) -> None:
    body = encode_batch([BatchItem(0, b"a", b"")])
    await peer.expect(RequestCode.SEND_BATCH_MESSAGE, send_header(properties=properties), body)
    assert [message.body for message in stored(broker, "T")] == [b"a"]


@pytest.mark.parametrize("body", [b"", b"x", b"\0" * 22, b"\xff" * 100, encode_batch([BatchItem(0, b"a", b"")])[:-1]])
async def test_a_body_that_is_no_batch_is_refused_whole(broker: Broker, peer: Peer, body: bytes) -> None:
    answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(), body)
    assert answer.code in (SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)
    assert answer.ext == ALWAYS
    assert stored(broker, "T") == []


# -- the disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [False, True])
async def test_with_synchronous_flush_the_answer_waits_for_the_disk(
    make_broker: MakeBroker, make_peer: MakePeer, batch: bool
) -> None:
    broker = await make_broker(flush_mode=FlushMode.SYNC)
    body = encode_batch([BatchItem(0, b"a", b"")] * 3) if batch else b"a"
    await make_peer(broker).expect(RequestCode.SEND_MESSAGE_V2, send_header(batch=batch), body)
    store = broker.store
    assert store.flusher.flushed == store.log.tail


@pytest.mark.parametrize("waits", [True, False])
async def test_a_disk_that_is_too_slow_is_said(
    make_broker: MakeBroker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    broker = await make_broker(flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=1)
    monkeypatch.setattr(broker.background.group_commit, "want", lambda _: None)
    answer = await try_send(make_peer(broker), properties=f"WAIT\x01{str(waits).lower()}")
    assert answer.code == (ResponseCode.FLUSH_DISK_TIMEOUT if waits else ResponseCode.SUCCESS)
    assert answer.ext is not None
    assert "msgId" in answer.ext  # it is still stored


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ("NO_WAIT\x01false", True),
        ("WAIT\x01true\x02NO_WAIT\x01false", True),
        ("WAIT\x01falsely\x02WAIT\x01true", True),  # the last one counts
        ("a\x01b\x02WAIT\x01TRUE", True),
        ("a\x01b\x02WAIT\x01false", False),
        ("WAIT\x01False\x02", False),
        ("WAIT\x01true\x02WAIT\x01false", False),
        ("WAIT\x01no", False),  # Java reads everything but "true" as no
    ],
)
async def test_only_the_property_itself_says_that_a_sender_does_not_wait(
    make_broker: MakeBroker,
    make_peer: MakePeer,
    monkeypatch: pytest.MonkeyPatch,
    properties: str,
    waits: bool,
    batch: bool,
) -> None:
    broker = await make_broker(flush_mode=FlushMode.SYNC, sync_flush_timeout_ms=1)
    monkeypatch.setattr(broker.background.group_commit, "want", lambda _: None)
    body = encode_batch([BatchItem(0, b"a", b"")]) if batch else b"a"
    answer = await make_peer(broker).ask(
        RequestCode.SEND_MESSAGE_V2, send_header(properties=properties, batch=batch), body
    )
    assert answer.code == (ResponseCode.FLUSH_DISK_TIMEOUT if waits else ResponseCode.SUCCESS)
