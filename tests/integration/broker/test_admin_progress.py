"""Progress of groups, in messages and in time, and operations on their offsets."""

from __future__ import annotations

from datetime import datetime

import pytest

from eruca._broker.app import Broker
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import GroupConfig, MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import (
    BrokerConsumeStatsHeader,
    CloneGroupOffsetHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
    TopicGroupHeader,
    TopicHeader,
)
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Answer, Peer

FOREVER = 2**63 - 1


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue("broker-a", number, topic)


async def ask_stats(peer: Peer, group: str = "G", topic: str | None = None) -> Answer:
    return await peer.expect(RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(consumer_group=group, topic=topic))


async def test_how_far_a_group_is(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await peer.make_topic("T", 2)
    for _ in range(3):
        clock.advance(1000)
        await peer.send("T", 0)
    offsets = broker.offsets
    offsets.put("G", "T", 0, 2)
    table = (await ask_stats(peer)).body.offset_table
    assert list(table) == [queue(0), queue(1)]
    assert (table[queue(0)].broker_offset, table[queue(0)].consumer_offset) == (3, 2)
    assert table[queue(0)].last_timestamp == clock.now_ms() - 1000
    assert (table[queue(1)].broker_offset, table[queue(1)].consumer_offset, table[queue(1)].last_timestamp) == (0, 0, 0)
    assert (await ask_stats(peer, topic="T")).body.offset_table == table
    assert (await ask_stats(peer, group="Nobody")).body.offset_table == {}
    assert (await ask_stats(peer, topic="Nowhere")).body.offset_table == {}


async def test_topics_a_group_left_are_not_counted_while_it_is_online(broker: Broker, peer: Peer) -> None:
    for topic in ("T", "U"):
        await peer.send(topic, 0)
        broker.offsets.put("G", topic, 0, 1)
    assert {mq.topic for mq in (await ask_stats(peer)).body.offset_table} == {"T", "U"}
    await peer.join("G", "me", "T")
    assert {mq.topic for mq in (await ask_stats(peer)).body.offset_table} == {"T"}


async def test_how_far_all_groups_are(broker: Broker, peer: Peer) -> None:
    await peer.make_topic("T", 1)
    await peer.make_topic("Ordered", 1)
    ordered = broker.topics.get("Ordered")
    assert ordered is not None
    ordered.order = True
    for topic in ("T", "T", "Ordered"):
        await peer.send(topic, 0)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, GroupConfig(group_name="G"))
    broker.offsets.put("G", "T", 0, 1)
    broker.offsets.put("G", "Ordered", 0, 0)
    body = (await peer.expect(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=False))).body
    assert body.broker_addr == broker.standing.address
    assert body.total_diff == 2
    by_group = {group: found for item in body.consume_stats_list for group, found in item.items()}
    assert {mq.topic for stats in by_group["G"] for mq in stats.offset_table} == {"T", "Ordered"}
    assert by_group["TOOLS_CONSUMER"] == []
    body = (await peer.expect(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=True))).body
    assert body.total_diff == 1


async def test_how_late_a_group_is(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    clock = VirtualClock()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    await peer.make_topic("T", 2)
    times = []
    for _ in range(3):
        clock.advance(1000)
        times.append(clock.now_ms())
        await peer.send("T", 0)
    clock.advance(500)
    broker.offsets.put("G", "T", 0, 1)
    header = TopicGroupHeader(topic="T", group="G")
    full, empty = (await peer.expect(RequestCode.QUERY_CONSUME_TIME_SPAN, header)).body.consume_time_span_set
    assert (full.min_timestamp, full.consume_timestamp, full.max_timestamp) == (times[0], times[0], times[2])
    assert full.delay_time == clock.now_ms() - times[1]
    assert full.max_timestamp_text == datetime.fromtimestamp(times[2] / 1000).strftime("%Y-%m-%d#%H:%M:%S:000")
    assert full.message_queue == queue(0)
    assert (empty.min_timestamp, empty.consume_timestamp, empty.max_timestamp, empty.delay_time) == (-1, -1, -1, 0)
    assert empty.min_timestamp_text.endswith(":59:999")
    newcomer = TopicGroupHeader(topic="T", group="New")
    span = (await peer.expect(RequestCode.QUERY_CONSUME_TIME_SPAN, newcomer)).body.consume_time_span_set[0]
    assert span.delay_time == clock.now_ms() - times[0]
    refusal = await peer.refused(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader(topic="Nowhere", group="G"))
    assert refusal == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nowhere] not exist")


async def test_who_consumes_a_topic(broker: Broker, peer: Peer) -> None:
    await peer.join("Online", "me", "T")
    broker.offsets.put("Offline", "T", 0, 1)
    broker.offsets.put("Online", "T", 0, 1)
    answer = await peer.expect(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic="T"))
    assert answer.body.group_list == ["Online", "Offline"]
    nobody = await peer.expect(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic="U"))
    assert nobody.body.group_list == []


async def test_all_offsets_are_listed(broker: Broker, peer: Peer) -> None:
    assert (await peer.expect(RequestCode.GET_ALL_CONSUMER_OFFSET)).body.offset_table == {}
    broker.offsets.put("G", "T", 3, 7)
    assert (await peer.expect(RequestCode.GET_ALL_CONSUMER_OFFSET)).body.offset_table == {"T@G": {3: 7}}


async def test_delay_offsets_come_from_the_one_who_delivers(broker: Broker, peer: Peer) -> None:
    broker.schedule.adopt({2: 5})
    assert (await peer.expect(RequestCode.GET_ALL_DELAY_OFFSET)).body.offset_table == {2: 5}
    table = (await peer.expect(RequestCode.GET_BROKER_RUNTIME_INFO)).body.table
    assert table["scheduleMessageOffset_2"] == "5,0"


@pytest.mark.parametrize(
    ("left_out", "compared", "expected"),
    [
        (None, "G", {0: 3, 1: 1}),
        ("", "Nobody", {0: 3, 1: 1}),
        ("H", "G", {0: 5, 1: 1}),
        ("H,G", "Nobody", {}),
        ("H", "H", {0: FOREVER, 1: 1}),
    ],
)
async def test_offsets_are_compared_and_never_touched(
    broker: Broker, peer: Peer, left_out: str | None, compared: str, expected: dict[int, int]
) -> None:
    offsets = broker.offsets
    offsets.put("G", "T", 0, 5)
    offsets.put("G", "T", 1, 1)
    offsets.put("H", "T", 0, 3)
    header = CorrectionOffsetHeader(filter_groups=left_out, compare_group=compared, topic="T")
    answer = await peer.expect(RequestCode.QUERY_CORRECTION_OFFSET, header)
    assert answer.body.correction_offsets == expected
    assert offsets.queues("G", "T") == {0: 5, 1: 1}
    assert offsets.queues("H", "T") == {0: 3}


async def test_offsets_are_cloned(broker: Broker, peer: Peer) -> None:
    for topic in ("T", "U"):
        await peer.make_topic(topic)
        broker.offsets.put("G", topic, 0, 5)
    broker.offsets.put("G", "Nowhere", 0, 5)

    async def clone(target: str, topic: str | None, *, offline: bool = True) -> list[str]:
        header = CloneGroupOffsetHeader(src_group="G", dest_group=target, topic=topic, offline=offline)
        await peer.expect(RequestCode.CLONE_GROUP_OFFSET, header)
        return broker.offsets.topics_of(target)

    assert await clone("A", "T") == ["T"]
    assert broker.offsets.queues("A", "T") == {0: 5}
    assert await clone("B", "Nowhere") == []
    assert await clone("C", None) == ["T", "U"]
    await peer.join("G", "me", "U")
    assert await clone("D", "", offline=False) == ["U"]
    assert await clone("E", "T", offline=True) == ["T"]
