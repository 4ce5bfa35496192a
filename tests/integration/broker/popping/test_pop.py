"""Popping over remoting: each message to one member, again when its time is over, never again once acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from eruca._broker.app import Broker
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import DeleteGroupHeader, QueryConsumerOffsetHeader, TopicHeader
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.integration.broker.popping.popper import (
    GROUP,
    INVISIBLE_MS,
    TOPIC,
    ack,
    ack_batch,
    bodies,
    change,
    pop,
    revive,
    try_ack,
    try_change,
    try_pop,
    wait_until_parked,
)
from tests.integration.broker.replication.members import wait_until

DAY_MS = 24 * 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(make_broker: MakeBroker, clock: VirtualClock) -> Broker:
    """Its time stands still."""
    return await make_broker(clock=clock)


@pytest.fixture
def peer(broker: Broker, make_peer: MakePeer) -> Peer:
    return make_peer(broker)


async def fill(peer: Peer, count: int, queues: int = 4, **properties: str) -> list[str]:
    await peer.make_topic(TOPIC, queues)
    for number in range(count):
        await peer.send(TOPIC, number % queues, b"%03d" % number, **properties)
    return [f"{number:03}" for number in range(count)]


async def test_every_message_is_delivered_once(peer: Peer) -> None:
    sent = await fill(peer, 100)
    got = []
    while more := await pop(peer):
        assert len(more) <= 32
        got += more
    assert bodies(got) == sent
    await ack(peer, *got)
    assert peer.broker.popping.service.in_flight == 0


async def test_what_is_acknowledged_does_not_come_again(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 8)
    got = await pop(peer)
    await ack(peer, *got[:5])
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    again = await pop(peer)
    assert bodies(again) == bodies(got[5:])
    assert {each.before for each in again} == {1}
    assert {each.record.get_property("RETRY_TOPIC") for each in again} == {TOPIC}
    await ack(peer, *again)
    clock.advance(DAY_MS)
    revive(broker)
    assert await pop(peer) == []


async def test_nothing_comes_before_its_time(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 4)
    assert len(await pop(peer)) == 4
    clock.advance(INVISIBLE_MS - 1)
    revive(broker)
    assert await pop(peer) == []


async def test_a_batch_is_acknowledged_in_one_request(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 20, queues=1)
    got = await pop(peer)
    answer = await ack_batch(peer, [*got[:3], *got[10:]])
    assert answer.code == ResponseCode.SUCCESS
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    assert bodies(await pop(peer)) == bodies(got[3:10])


async def test_a_void_handle_is_refused(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 2, queues=1)
    first, second = await pop(peer)
    await ack(peer, first)
    assert (await try_ack(peer, first)).code == ResponseCode.NO_MESSAGE
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    assert (await try_ack(peer, second)).code == ResponseCode.NO_MESSAGE
    assert (await try_change(peer, second, 1000)).code == ResponseCode.NO_MESSAGE
    assert (await try_ack(peer, second, extra_info="1 2 3")).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await try_ack(peer, second, offset=0)).code == ResponseCode.MESSAGE_ILLEGAL


async def test_the_time_can_be_changed(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 1)
    (got,) = await pop(peer)
    longer = await change(peer, got, 10 * INVISIBLE_MS)
    assert (await try_ack(peer, got)).code == ResponseCode.NO_MESSAGE
    clock.advance(9 * INVISIBLE_MS)
    revive(broker)
    assert await pop(peer) == []
    at_once = await change(peer, longer, 0)
    clock.advance(1000)
    revive(broker)
    assert (await try_ack(peer, at_once)).code == ResponseCode.NO_MESSAGE
    (again,) = await pop(peer)
    assert again.before == 1


async def test_a_suspended_delivery_does_not_count(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 1)
    (got,) = await pop(peer)
    await change(peer, got, 100, suspend=True)
    clock.advance(1000)
    revive(broker)
    (again,) = await pop(peer)
    assert again.before == 0


async def test_after_the_last_try_a_message_is_dead(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 1)
    for attempt in range(17):
        (got,) = await pop(peer)
        assert got.before == attempt
        clock.advance(INVISIBLE_MS + 1000)
        revive(broker)
    assert await pop(peer) == []
    dead = broker.store.queues.get(f"%DLQ%{GROUP}", 0)
    assert dead is not None
    assert dead.max_offset == 1
    assert broker.popping.service.in_flight == 0


async def test_the_offset_of_the_group_moves_with_the_pop(peer: Peer) -> None:
    await fill(peer, 10, queues=1)
    await pop(peer, max_message_nums=7)
    # Once the pop is on disk, so that no saved offset is ahead of it.
    await wait_until(lambda: peer.broker.offsets.get(GROUP, TOPIC, 0) == 7)
    header = QueryConsumerOffsetHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    answer = await peer.expect(RequestCode.QUERY_CONSUMER_OFFSET, header)
    assert answer.header.offset == 7
    await pop(peer, max_message_nums=1)
    assert peer.broker.offsets.get(GROUP, TOPIC, 0) == 8
    assert (await try_pop(peer, max_message_nums=1)).header.rest_num == 1


@pytest.mark.parametrize(("kind", "text"), [("TAG", "red || green"), ("SQL92", "colour IN ('red', 'green')")])
async def test_filters(peer: Peer, broker: Broker, clock: VirtualClock, kind: str, text: str) -> None:
    await peer.make_topic(TOPIC)
    for number, colour in enumerate(["red", "blue", "green", "blue", "red"] * 3):
        await peer.send(TOPIC, number % 4, colour.encode(), TAGS=colour, colour=colour)
    got = await pop(peer, exp_type=kind, exp=text)
    assert bodies(got) == ["green"] * 3 + ["red"] * 6
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    assert bodies(await pop(peer, exp_type=kind, exp=text)) == bodies(got)
    bad = await try_pop(peer, exp_type="SQL92", exp="colour IN (")
    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pop_waits_for_a_message(peer: Peer, broker: Broker) -> None:
    await peer.make_topic(TOPIC)
    waiting = asyncio.ensure_future(pop(peer, poll_time=20_000))
    others = asyncio.ensure_future(pop(peer, poll_time=20_000, consumer_group="others"))
    await wait_until_parked(broker, 2)
    await peer.send(TOPIC, 3, b"late")
    assert bodies(await waiting) == ["late"]
    assert bodies(await others) == ["late"]
    assert len(broker.popping.service.waiting) == 0


async def test_a_pop_waits_for_a_filter(peer: Peer, broker: Broker) -> None:
    await peer.make_topic(TOPIC)
    waiting = asyncio.ensure_future(pop(peer, poll_time=20_000, exp="red"))
    await wait_until_parked(broker)
    await peer.send(TOPIC, 0, b"no", TAGS="blue")
    await peer.send(TOPIC, 0, b"yes", TAGS="red")
    assert bodies(await waiting) == ["yes"]


async def test_a_pop_waits_for_what_runs_out(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    await fill(peer, 1)
    await pop(peer)
    waiting = asyncio.ensure_future(pop(peer, poll_time=20_000))
    await wait_until_parked(broker)
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    assert bodies(await waiting) == ["000"]


async def test_too_many_do_not_wait(peer: Peer, make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(name="full", pop_waiting_of_group_max=1)
    full = make_peer(broker)
    await full.make_topic(TOPIC)
    waiting = asyncio.ensure_future(try_pop(full, poll_time=20_000))
    await wait_until_parked(broker)
    assert (await try_pop(full, poll_time=20_000)).code == ResponseCode.POLLING_FULL
    broker.popping.service.waiting.release_all()
    assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


async def test_in_flight_is_bounded(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(pop_in_flight_max=5)
    peer = make_peer(broker)
    await fill(peer, 8, queues=1)
    got = await pop(peer)
    assert len(got) == 5
    assert await pop(peer) == []
    await ack(peer, *got)
    assert len(await pop(peer)) == 3


async def test_two_groups_get_everything(peer: Peer) -> None:
    sent = await fill(peer, 10)
    assert bodies(await pop(peer)) == sent
    assert bodies(await pop(peer, consumer_group="others")) == sent


async def test_groups_whose_retry_topics_have_one_name(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    for group, topic in (("a", "b_c"), ("a_b", "c")):
        await peer.make_topic(topic, 1)
        await peer.send(topic, 0, group.encode())
        assert bodies(await pop(peer, consumer_group=group, topic=topic)) == [group]
    clock.advance(INVISIBLE_MS + 1000)
    revive(broker)
    for group, topic in (("a", "b_c"), ("a_b", "c")):
        again = await pop(peer, consumer_group=group, topic=topic)
        assert bodies(again) == [group]
        assert again[0].record.topic == "%RETRY%a_b_c"
    await peer.join("x_y", "client", TOPIC)
    await peer.make_topic("y", 1)
    assert "retry topic" in ((await try_pop(peer, consumer_group="x", topic="y")).remark or "")


async def test_refusals(peer: Peer) -> None:
    await fill(peer, 1)
    assert (await try_pop(peer, topic="Nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await try_pop(peer, queue_id=9)).code == ResponseCode.SYSTEM_ERROR
    assert (await try_pop(peer, invisible_time=0)).code == ResponseCode.SYSTEM_ERROR
    assert (await try_pop(peer, max_message_nums=0)).code == ResponseCode.SYSTEM_ERROR
    assert (await try_pop(peer, consumer_group="g" * 125)).code == ResponseCode.SYSTEM_ERROR
    assert (await try_pop(peer, topic=f"%RETRY%{GROUP}")).code != ResponseCode.SUCCESS


async def test_a_deleted_group_has_nothing_in_flight(peer: Peer, broker: Broker) -> None:
    await fill(peer, 4)
    await pop(peer)
    await peer.expect(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group_name=GROUP))
    assert broker.popping.service.in_flight == 0


async def test_a_deleted_topic_has_nothing_in_flight(peer: Peer, broker: Broker) -> None:
    await fill(peer, 4)
    await pop(peer)
    await peer.expect(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=TOPIC))
    assert broker.popping.service.in_flight == 0


async def test_many_queues(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pop that has time for one queue only goes on with the others."""
    monkeypatch.setattr("eruca._broker.popping.taking._SECONDS_MAX", 0.0)
    monkeypatch.setattr("eruca._broker.popping.service._TURNS_MAX", 0)
    await peer.make_topic(TOPIC, 64)
    waiting = asyncio.ensure_future(pop(peer, poll_time=20_000))
    await wait_until_parked(peer.broker)
    monkeypatch.setattr("eruca._broker.popping.taking._SECONDS_MAX", 3600.0)
    await peer.send(TOPIC, 63, b"here")
    assert bodies(await waiting) == ["here"]
