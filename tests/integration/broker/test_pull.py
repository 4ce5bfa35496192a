"""Pulls: every check with Java's code, every response with its next offset, and the offset commit in a pull."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest import MonkeyPatch

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._broker.pulling import movedevents
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import ConsumerData, GroupConfig, HeartbeatData, MessageModel, SubscriptionData, TopicConfig
from eruca._wire.codes import RequestCode, ResponseCode, SerializeType
from eruca._wire.frame import encode_command, make_request
from eruca._wire.headers import PullMessageAnswerHeader, PullMessageHeader
from eruca._wire.properties import parse_properties
from eruca._wire.record import decode_records
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.requests import COMMIT, EXPRESSION, HOLD, pull_header, try_pull
from tests.unit.net.rawpeer import open_peer, turn_until
from tests.unit.net.test_link import make_link

CODE = ResponseCode


def told(answer: Answer) -> tuple[int, str | None, int, int, int]:
    """Code, remark, next, min and max offset of a pull's answer; all of them must be there."""
    header = answer.command.decode_header(PullMessageAnswerHeader)
    assert header.suggest_which_broker_id == 0
    return answer.code, answer.remark, header.next_begin_offset, header.min_offset, header.max_offset


def bodies(answer: Answer) -> list[bytes]:
    return [message.body for message in decode_records(answer.command.body)]


async def fill(peer: Peer, count: int) -> None:
    for number in range(count):
        await peer.send("T", body=b"m%d" % number)


# -- what is found ---------------------------------------------------------------------------------------------------


async def test_messages_come_whole_and_in_order(broker: Broker, peer: Peer) -> None:
    await fill(peer, 5)
    answer = await try_pull(peer, queue_offset=1, max_message_nums=3)
    assert told(answer) == (CODE.SUCCESS, "FOUND", 4, 0, 5)
    assert bodies(answer) == [b"m1", b"m2", b"m3"]
    assert [message.position for message in decode_records(answer.command.body)] == [
        message.position for message in stored(broker, "T")[1:4]
    ]


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-5, 1), (1, 1), (32, 32), (40, 32), (2**31 - 1, 32)])
async def test_how_many_messages_an_answer_has(peer: Peer, asked: int, given: int) -> None:
    await fill(peer, 40)
    assert len(bodies(await try_pull(peer, max_message_nums=asked))) == given


async def test_an_answer_has_a_bound_in_bytes(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(transfer_bytes_memory=1000))
    for _ in range(10):
        await peer.send("T", body=b"x" * 400)
    answer = await try_pull(peer)
    assert 1 <= len(bodies(answer)) <= 2
    assert told(answer)[2] == len(bodies(answer))


@pytest.mark.parametrize(
    ("asked", "asked_bytes", "given"),
    [(500, 1 << 20, 90), (7, 1 << 20, 7), (500, 1000, None), (500, 1, 1), (500, -1, 1), (500, 2**31 - 1, 90)],
)
async def test_who_names_the_bytes_gets_more_at_once(
    peer: Peer, asked: int, asked_bytes: int, given: int | None
) -> None:
    await fill(peer, 90)
    answer = await try_pull(peer, max_message_nums=asked, max_message_bytes=asked_bytes)
    records = decode_records(answer.command.body)
    if given is None:
        given = asked_bytes // records[0].size
        assert 1 < given < 90
    assert bodies(answer) == [b"m%d" % number for number in range(given)]
    assert told(answer) == (CODE.SUCCESS, "FOUND", given, 0, 90)


async def test_a_large_answer_is_that_of_many_small_ones(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    # Files so small that answers cross them: 100 entries in a queue's, some 60 records in one of the log.
    broker = await make_broker(commitlog_segment_bytes=16_384)
    peer = make_peer(broker)
    for number in range(450):
        await peer.send("T", body=b"m%d" % number * (1 + number % 7), queue_id=number % 2)
    small, large, offset = b"", b"", 0
    while offset < 225:
        answer = await try_pull(peer, queue_offset=offset, queue_id=1)
        small, offset = small + answer.command.body, told(answer)[2]
    offset = 0
    while offset < 225:
        answer = await try_pull(peer, queue_offset=offset, queue_id=1, max_message_nums=1000, max_message_bytes=1 << 20)
        assert told(answer)[2] > offset
        large, offset = large + answer.command.body, told(answer)[2]
    assert large == small and len(decode_records(large)) == 225


async def test_a_large_answer_with_a_filter(peer: Peer) -> None:
    for number in range(90):
        await peer.send("T", body=b"m%d" % number, TAGS="ab"[number % 2])
    answer = await try_pull(peer, max_message_nums=1000, max_message_bytes=1 << 20, subscription="a")
    assert bodies(answer) == [b"m%d" % number for number in range(0, 90, 2)]
    assert told(answer)[2] == 90


async def test_an_answer_has_the_header_type_of_its_request(broker: Broker, peer: Peer) -> None:
    await fill(peer, 2)
    async with open_peer(broker.standing.port) as raw:
        command = make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=3)
        command.serialization = SerializeType.ROCKETMQ
        answer = await raw.ask(command)
    assert (answer.serialization, answer.remark) == (SerializeType.ROCKETMQ, "FOUND")
    assert answer.decode_header(PullMessageAnswerHeader).next_begin_offset == 2
    assert len(decode_records(answer.body)) == 2


LARGE = bytes(range(256)) * 3_500


@pytest.mark.parametrize("serialization", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_a_large_message_comes_in_pieces_and_in_order(
    broker: Broker, peer: Peer, serialization: SerializeType
) -> None:
    await peer.send("T", body=LARGE)
    commands = [make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=number) for number in range(3)]
    for command in commands:
        command.serialization = serialization
    async with open_peer(broker.standing.port) as raw:
        raw.write(*commands)
        for number in range(3):
            answer = await raw.read()
            assert (answer.opaque, answer.serialization, answer.remark) == (number, serialization, "FOUND")
            assert [record.body for record in decode_records(answer.body)] == [LARGE]


async def test_a_held_pull_gets_a_large_message(broker: Broker, peer: Peer) -> None:
    await peer.send("T", body=b"first")
    header = pull_header(queue_offset=1, sys_flag=HOLD | EXPRESSION, suspend_timeout_ms=60_000)
    async with open_peer(broker.standing.port) as raw:
        raw.write(*[make_request(RequestCode.PULL_MESSAGE, header, opaque=number) for number in range(3)])
        await turn_until(lambda: len(broker.pull.holds) == 3)
        await peer.send("T", body=LARGE)
        for number in range(3):
            answer = await raw.read()
            assert answer.opaque == number
            assert [record.body for record in decode_records(answer.body)] == [LARGE]


async def test_an_answer_in_pieces_ends_with_the_connection_when_the_log_is_cut(broker: Broker, peer: Peer) -> None:
    await peer.send("T", body=LARGE)
    link, transport, owner = make_link({RequestCode.PULL_MESSAGE: broker.pull.handle})
    link.data_received(encode_command(make_request(RequestCode.PULL_MESSAGE, pull_header())))
    await turn_until(lambda: len(transport.writes) >= 2)
    broker.store.lineage.was_cut.tell(0)
    await turn_until(lambda: transport.aborted)
    assert "the log was truncated" in owner.said[0]
    assert sum(map(len, transport.writes)) < len(LARGE)


async def test_a_filter_passes_over_what_does_not_match(peer: Peer) -> None:
    for number in range(6):
        await peer.send("T", body=b"m%d" % number, TAGS="ab"[number % 2])
    answer = await try_pull(peer, subscription="b || c")
    assert (bodies(answer), told(answer)[2]) == ([b"m1", b"m3", b"m5"], 6)
    answer = await try_pull(peer, subscription="c", queue_offset=2)
    assert told(answer) == (CODE.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 6, 0, 6)
    assert answer.command.body == b""


# -- what is not there -----------------------------------------------------------------------------------------------


async def test_a_queue_nobody_sent_to(peer: Peer) -> None:
    await peer.make_topic("T")
    assert told(await try_pull(peer, queue_id=3)) == (CODE.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
    moved = await try_pull(peer, queue_id=3, queue_offset=7)
    assert told(moved) == (CODE.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (5, (CODE.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5, 2, 5)),
        (6, (CODE.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5, 2, 5)),
        (2**63 - 1, (CODE.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5, 2, 5)),
        (1, (CODE.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 2, 2, 5)),
        (-1, (CODE.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 2, 2, 5)),
        (-(2**63), (CODE.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 2, 2, 5)),
    ],
)
async def test_an_offset_outside_the_queue_is_corrected(
    broker: Broker, peer: Peer, offset: int, expected: tuple[int, str, int, int, int]
) -> None:
    await fill(peer, 5)
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    queue.raise_min(stored(broker, "T")[2].position)
    assert told(await try_pull(peer, queue_offset=offset)) == expected
    notes = stored(broker, "OFFSET_MOVED_EVENT")
    assert len(notes) == (expected[0] == CODE.PULL_OFFSET_MOVED)
    if notes:
        assert json.loads(notes[0].body) == {
            "consumerGroup": "readers",
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "offsetNew": expected[2],
            "offsetRequest": offset,
        }
        properties = parse_properties(notes[0].properties)
        assert (properties["TAGS"], properties["KEYS"]) == ("readers", "readers")


async def test_wrong_offsets_fill_no_log(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    """A group that may not publish would fill it otherwise."""
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await fill(peer, 1)
    for number in range(100):
        moved = await try_pull(peer, queue_offset=10**12 + number)
        assert moved.code == CODE.PULL_OFFSET_MOVED
    await try_pull(peer, consumer_group="others", queue_offset=10**12)
    await try_pull(peer, queue_id=1, queue_offset=10**12)
    clock.advance(9_999)
    await try_pull(peer, queue_offset=10**12)
    assert len(stored(broker, "OFFSET_MOVED_EVENT")) == 3
    clock.advance(1)
    await try_pull(peer, queue_offset=7)
    events = [json.loads(note.body) for note in stored(broker, "OFFSET_MOVED_EVENT")]
    assert [event["offsetRequest"] for event in events] == [10**12] * 3 + [7]


async def test_events_about_wrong_offsets_have_a_limit(broker: Broker, peer: Peer, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(movedevents, "RECENT_MAX", 2)
    await fill(peer, 1)
    for number in range(5):
        await try_pull(peer, consumer_group=f"group-{number}", queue_offset=10**12)
    assert len(stored(broker, "OFFSET_MOVED_EVENT")) == 2


# -- refusals --------------------------------------------------------------------------------------------------------


async def refused(peer: Peer, topic: str = "T", **fields: Any) -> tuple[int, str]:
    answer = await try_pull(peer, topic, **fields)
    assert answer.command.body == b""
    return answer.code, answer.remark or ""


async def test_a_broker_that_may_not_be_read(broker: Broker, peer: Peer) -> None:
    await fill(peer, 1)
    broker.live.change(permission=2)
    assert await refused(peer) == (CODE.NO_PERMISSION, "the broker[127.0.0.1] pulling message is forbidden")


async def test_a_group_must_be_there_and_may_be_switched_off(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(auto_create_group=False)
    peer = make_peer(broker)
    await fill(peer, 1)
    code, remark = await refused(peer)
    assert (code, remark.split(",")[0]) == (
        CODE.SUBSCRIPTION_GROUP_NOT_EXIST,
        "subscription group [readers] does not exist",
    )
    broker.groups.put(GroupConfig(group_name="readers", consume_enable=False))
    assert await refused(peer) == (CODE.NO_PERMISSION, "subscription group no permission, readers")


@pytest.mark.parametrize("group", ["", "a b", "../x", "x" * 300, "line\nbreak", "é"])
async def test_a_group_with_a_bad_name_does_not_make_itself(broker: Broker, peer: Peer, group: str) -> None:
    await fill(peer, 1)
    code, _ = await refused(peer, consumer_group=group)
    assert code == CODE.SUBSCRIPTION_GROUP_NOT_EXIST
    assert group not in broker.groups.names()


async def test_a_topic_must_be_there_and_readable(broker: Broker, peer: Peer) -> None:
    code, remark = await refused(peer, "Nothing")
    assert (code, remark.startswith("topic[Nothing] not exist, apply first please!")) == (CODE.TOPIC_NOT_EXIST, True)
    broker.topics.put(TopicConfig(topic_name="T", perm=2))
    assert await refused(peer) == (CODE.NO_PERMISSION, "the topic[T] pulling message is forbidden")


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1, -(2**31)])
async def test_a_queue_must_be_one_of_the_topic(peer: Peer, queue_id: int) -> None:
    await peer.make_topic("T", 4)
    code, remark = await refused(peer, queue_id=queue_id)
    assert code == CODE.SYSTEM_ERROR
    assert remark.startswith(f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[4]")


@pytest.mark.parametrize(("kind", "text"), [("SQL92", "a ="), ("SQL92", "a > 'x"), ("SQL92", "((((")])
async def test_an_expression_that_cannot_be_read(peer: Peer, kind: str, text: str) -> None:
    await fill(peer, 1)
    code, remark = await refused(peer, expression_type=kind, subscription=text)
    assert (code, remark.startswith("parse the consumer's subscription failed")) == (
        CODE.SUBSCRIPTION_PARSE_FAILED,
        True,
    )


async def test_sql_can_be_switched_off(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(property_filter=False))
    await fill(peer, 1)
    assert await refused(peer, expression_type="SQL92", subscription="a = 1") == (
        CODE.SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92",
    )


async def beat(peer: Peer, *subscriptions: SubscriptionData, model: MessageModel = MessageModel.CLUSTERING) -> None:
    data = ConsumerData(group_name="readers", message_model=model, subscription_data_set=list(subscriptions))
    await peer.expect(RequestCode.HEART_BEAT, None, HeartbeatData(client_id="c", consumer_data_set=[data]))


async def test_without_an_expression_the_heartbeat_has_it(peer: Peer) -> None:
    for tag in "ab":
        await peer.send("T", body=tag.encode(), TAGS=tag)
    code, remark = await refused(peer, sys_flag=0)
    assert (code, remark.startswith("the consumer's group info not exist")) == (CODE.SUBSCRIPTION_NOT_EXIST, True)
    await beat(peer, SubscriptionData(topic="Another", sub_string="*", sub_version=5))
    code, remark = await refused(peer, sys_flag=0)
    assert (code, remark.startswith("the consumer's subscription not exist")) == (CODE.SUBSCRIPTION_NOT_EXIST, True)
    await beat(peer, SubscriptionData(topic="T", sub_string="b", sub_version=5))
    assert bodies(await try_pull(peer, sys_flag=0, subscription=None, subscription_version=5)) == [b"b"]
    assert bodies(await try_pull(peer, sys_flag=0, subscription="a", subscription_version=4)) == [b"b"]
    assert await refused(peer, sys_flag=0, subscription_version=6) == (
        CODE.SUBSCRIPTION_NOT_LATEST,
        "the consumer's subscription not latest",
    )


async def test_a_group_that_may_not_broadcast(broker: Broker, peer: Peer) -> None:
    await fill(peer, 1)
    everything = SubscriptionData(topic="T", sub_string="*")
    broker.groups.put(GroupConfig(group_name="readers", consume_broadcast_enable=False))
    await beat(peer, everything, model=MessageModel.BROADCASTING)
    assert await refused(peer, sys_flag=0) == (
        CODE.NO_PERMISSION,
        "the consumer group[readers] can not consume by broadcast way",
    )
    await beat(peer, everything)
    assert bodies(await try_pull(peer, sys_flag=0)) == [b"m0"]


async def test_a_header_that_lacks_a_field(broker: Broker) -> None:
    async with open_peer(broker.standing.port) as raw:
        for header in (None, pull_header()):
            command = make_request(RequestCode.PULL_MESSAGE, header, opaque=1)
            command.ext = {"topic": "T"} if header else None
            answer = await raw.ask(command)
            assert (answer.code, bool(answer.remark)) == (CODE.SYSTEM_ERROR, True)


async def test_the_fast_port_takes_no_pulls(broker: Broker) -> None:
    async with open_peer(broker.standing.port - 2) as raw:
        answer = await raw.ask(make_request(RequestCode.PULL_MESSAGE, pull_header(), opaque=1))
    assert (answer.code, answer.remark) == (CODE.REQUEST_CODE_NOT_SUPPORTED, " request type 11 not supported")


# -- the commit that comes along -------------------------------------------------------------------------------------


def commit(offset: int) -> PullMessageHeader:
    return pull_header(sys_flag=EXPRESSION | COMMIT, commit_offset=offset)


async def test_a_pull_commits_an_offset_when_it_says_so(broker: Broker, peer: Peer) -> None:
    await fill(peer, 3)
    offsets = broker.offsets
    await try_pull(peer, commit_offset=2)
    assert offsets.get("readers", "T", 0) == -1
    for offset in (2, 1):  # it may go back
        await peer.ask(RequestCode.PULL_MESSAGE, commit(offset))
        assert offsets.get("readers", "T", 0) == offset


async def test_a_pull_that_is_refused_commits_nothing(broker: Broker, peer: Peer) -> None:
    await fill(peer, 3)
    broker.live.change(permission=2)
    await peer.ask(RequestCode.PULL_MESSAGE, commit(2))
    assert broker.offsets.get("readers", "T", 0) == -1


async def test_a_slave_commits_nothing(broker: Broker, peer: Peer) -> None:
    await fill(peer, 3)
    broker.standing.role = BrokerRole.SLAVE
    await peer.ask(RequestCode.PULL_MESSAGE, commit(2))
    assert broker.offsets.get("readers", "T", 0) == -1
