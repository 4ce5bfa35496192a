"""A slave that becomes the master knows what is in flight and what is acknowledged; a slave itself pops nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca._wire.codes import ResponseCode
from tests.integration.broker.popping.popper import (
    INVISIBLE_MS,
    TOPIC,
    ack,
    bodies,
    pop,
    revive,
    try_ack,
    try_pop,
)
from tests.integration.broker.replication.members import Group, ShiftedClock, wait_for_copy, wait_until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """A broker name without members yet."""
    group = Group(tmp_path)
    await group.start()
    yield group
    await group.stop()


async def test_a_promoted_slave_continues(group: Group) -> None:
    clock = ShiftedClock()
    master = await group.add(0, clock=clock)
    slave = await group.add(1, clock=clock)
    await wait_until(lambda: slave.replication.follower.state.connected, "the slave is connected")
    peer = group.connect(master)
    await peer.make_topic(TOPIC, 2)
    for number in range(20):
        await peer.send(TOPIC, number % 2, b"%03d" % number)
    got = await pop(peer, max_message_nums=15)
    await ack(peer, *got[:6])
    ordered = await pop(peer, max_message_nums=5, order=True, consumer_group="ordered", queue_id=0)
    assert (await try_pop(group.connect(slave))).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.topics.get(TOPIC) is not None, "the slave has the topic")
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    peer = group.connect(slave)
    assert slave.popping.service.count_in_flight("workers", TOPIC) == 9
    assert (await try_ack(peer, got[0])).code == ResponseCode.NO_MESSAGE
    await ack(peer, *got[6:10])
    rest = await pop(peer)
    assert bodies([*got, *rest]) == [f"{number:03}" for number in range(20)]
    assert await pop(peer, order=True, consumer_group="ordered", queue_id=0) == []
    await ack(peer, *rest)
    clock.shift_ms += INVISIBLE_MS + 1000
    revive(slave)
    assert bodies(await pop(peer)) == bodies(got[10:])
    again = await pop(peer, max_message_nums=5, order=True, consumer_group="ordered", queue_id=0)
    assert bodies(again) == bodies(ordered)
