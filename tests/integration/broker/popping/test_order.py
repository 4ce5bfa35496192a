"""Popping in order: nothing behind an unacknowledged message of a queue, and nothing acknowledged again."""

from __future__ import annotations

import asyncio

import pytest

from eruca._broker.app import Broker
from eruca._testing.clock import VirtualClock
from eruca._wire.codes import ResponseCode
from eruca._wire.handle import ORDERED_QUEUE
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Peer
from tests.integration.broker.popping.popper import (
    GROUP,
    INVISIBLE_MS,
    TOPIC,
    Got,
    ack,
    change,
    pop,
    try_ack,
    wait_until_parked,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def broker(make_broker: MakeBroker, clock: VirtualClock) -> Broker:
    return await make_broker(clock=clock)


@pytest.fixture
async def peer(broker: Broker, make_peer: MakePeer) -> Peer:
    peer = make_peer(broker)
    await peer.make_topic(TOPIC, 1)
    for number in range(10):
        await peer.send(TOPIC, 0, b"%d" % number)
    return peer


async def take(peer: Peer, count: int = 3, attempt: str = "", **fields: object) -> list[Got]:
    """Pop in order."""
    usual = {"order": True, "max_message_nums": count, "attempt_id": attempt or None}
    return await pop(peer, **usual | fields)


def texts(messages: list[Got]) -> str:
    return "".join(each.body for each in messages)


async def test_a_queue_is_blocked_until_all_is_acknowledged(peer: Peer) -> None:
    got = await take(peer)
    assert texts(got) == "012"
    assert got[0].handle.revive_queue == ORDERED_QUEUE
    assert await take(peer) == []
    await ack(peer, got[0], got[2])
    assert await take(peer) == []
    await ack(peer, got[1])
    assert texts(await take(peer)) == "345"


async def test_what_runs_out_comes_again_first(peer: Peer, clock: VirtualClock) -> None:
    got = await take(peer)
    await ack(peer, got[1])
    clock.advance(INVISIBLE_MS + 1)
    again = await take(peer)
    # 1 is acknowledged.
    assert texts(again) == "023"
    assert [each.before for each in again] == [1, 1, 0]
    assert (await try_ack(peer, got[0])).code == ResponseCode.NO_MESSAGE
    await ack(peer, *again)
    assert texts(await take(peer)) == "456"


async def test_a_lost_answer_is_given_again(peer: Peer) -> None:
    assert texts(await take(peer, attempt="one")) == "012"
    again = await take(peer, attempt="one")
    assert texts(again) == "012"
    assert [each.before for each in again] == [0, 0, 0]
    assert await take(peer, attempt="two") == []
    await ack(peer, *again)
    assert texts(await take(peer, attempt="two")) == "345"


async def test_the_time_can_be_changed(peer: Peer, clock: VirtualClock) -> None:
    got = await take(peer, 1)
    later = await change(peer, got[0], 5000)
    assert (await try_ack(peer, got[0])).code == ResponseCode.NO_MESSAGE
    assert await take(peer) == []
    clock.advance(5001)
    again = await take(peer)
    assert texts(again) == "012"
    assert again[0].before == 1
    assert (await try_ack(peer, later)).code == ResponseCode.NO_MESSAGE


async def test_suspended(peer: Peer, clock: VirtualClock) -> None:
    (got,) = await take(peer, 1)
    await change(peer, got, 5000, suspend=True)
    clock.advance(5001)
    (again,) = await take(peer, 1)
    assert again.before == 0


async def test_a_waiting_pop_is_woken_by_the_acknowledgement(peer: Peer, broker: Broker) -> None:
    got = await take(peer)
    waiting = asyncio.ensure_future(take(peer, poll_time=20_000))
    await wait_until_parked(broker)
    await ack(peer, *got)
    assert texts(await waiting) == "345"


async def test_after_the_last_try_a_message_is_dead(peer: Peer, broker: Broker, clock: VirtualClock) -> None:
    for attempt in range(17):
        (got,) = await take(peer, 1)
        assert (got.body, got.before) == ("0", attempt)
        clock.advance(INVISIBLE_MS + 1)
    assert texts(await take(peer, 2)) == "1"
    dead = broker.store.queues.get(f"%DLQ%{GROUP}", 0)
    assert dead is not None
    assert dead.max_offset == 1


async def test_it_outlives_a_restart(
    peer: Peer, broker: Broker, clock: VirtualClock, make_broker: MakeBroker, make_peer: MakePeer
) -> None:
    got = await take(peer)
    await ack(peer, got[1])
    await broker.stop()
    broker = await make_broker(clock=clock)
    peer = make_peer(broker)
    assert await take(peer) == []
    assert broker.popping.service.in_flight == 2
    clock.advance(INVISIBLE_MS + 1)
    again = await take(peer)
    assert texts(again) == "023"
    await ack(peer, *again)
    assert texts(await take(peer, 32)) == "456789"


async def test_another_queue_is_not_blocked(peer: Peer) -> None:
    await peer.make_topic(TOPIC, 2)
    await peer.send(TOPIC, 1, b"a")
    assert sorted(texts(await take(peer, 32))) == list("0123456789a")
    await peer.send(TOPIC, 1, b"b")
    assert await take(peer) == []


async def test_what_does_not_match_blocks_nothing(peer: Peer, clock: VirtualClock) -> None:
    for number in range(3):
        await peer.send(TOPIC, 0, b"%d" % number, TAGS="red")
    assert texts(await take(peer, 32, exp="red")) == "012"
    assert await take(peer, 32, exp="red") == []
    clock.advance(INVISIBLE_MS + 1)
    # Nobody wants them any more.
    assert await take(peer, 32, exp="blue") == []
    await peer.send(TOPIC, 0, b"b", TAGS="blue")
    assert texts(await take(peer, 32, exp="blue")) == "b"
