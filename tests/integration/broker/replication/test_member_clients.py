"""Our clients when a master stops: producers find the next one at once, consumers continue from a slave and return."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest

from eruca import Flow, Offsets, Rebalance
from eruca._broker.app import Broker
from eruca._client.options import ClientOptions
from eruca._client.push.consumer import Consumer
from eruca._wire.bodies import GroupConfig
from eruca._wire.codes import RequestCode
from eruca.errors import SendFailed
from tests.integration.broker.delivery import stored
from tests.integration.broker.replication.members import Group, wait_for_copy, wait_until
from tests.integration.client.conftest import MakeProducer

# Routes are polled so seldom that it is not the polling that finds the new master.
OPTIONS = ClientOptions(ip="127.0.0.1", route_interval=3600)


@pytest.fixture
def make_producer(group: Group, make_producer: MakeProducer) -> MakeProducer:
    """Starts producers for the group, and closes them in the end."""
    return partial(make_producer, group.nameserver.address, options=OPTIONS)


class Reader:
    """A consumer that counts the messages it gets."""

    def __init__(self, group: Group, **how: Any) -> None:
        usual: dict[str, Any] = {
            "start": "earliest",
            "offsets": Offsets(interval=0.02),
            "rebalance": Rebalance(interval=0.1),
            "drain": 1.0,
        }
        usual["flow"] = Flow(error_pause=0.05, hold=0.5)
        self.consumer = Consumer(group.nameserver.address, group="readers", options=OPTIONS, **usual | how)
        self.consumer.handler("T")(self._take)
        self.seen: Counter[bytes] = Counter()

    async def _take(self, message: Any) -> None:
        self.seen[message.body] += 1

    async def __aenter__(self) -> Reader:
        await self.consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()

    def has(self, *bodies: bytes) -> bool:
        return all(body in self.seen for body in bodies)


async def make_pair(group: Group, **options: Any) -> tuple[Broker, Broker]:
    master, slave = await group.add(0, **options), await group.add(1, **options)
    await wait_until(lambda: slave.replication.follower.state.connected)
    await group.connect(master).make_topic("T", queues=1)
    await wait_until(lambda: slave.topics.get("T") is not None)
    return master, slave


async def kill(group: Group, broker: Broker) -> None:
    """Stop a broker as a kill does: it does not unregister."""
    broker.standing.may_register = False
    await group.remove(broker)


def bodies_of(broker: Broker) -> list[bytes]:
    return [message.body for message in stored(broker, "T")]


# -- producers -------------------------------------------------------------------------------------------------------


async def test_a_send_waits_for_the_next_master(group: Group, make_producer: MakeProducer) -> None:
    master, slave = await make_pair(group)
    producer = await make_producer()
    await producer.send("T", b"before")
    await wait_for_copy(slave, master)
    await kill(group, master)
    work = asyncio.create_task(producer.send("T", b"between", timeout=30))
    await asyncio.sleep(0.2)  # it would fail at once if it did not wait for a master
    assert not work.done()
    await slave.replication.roles.become_master(1000, why="the test says so")
    begun = asyncio.get_running_loop().time()
    await work
    # Long before its timeout.
    assert asyncio.get_running_loop().time() - begun < 15.0
    assert bodies_of(slave) == [b"before", b"between"]


async def test_a_send_that_is_refused_as_by_a_slave_looks_for_the_master(
    group: Group, make_producer: MakeProducer
) -> None:
    master, slave = await make_pair(group)
    producer = await make_producer()
    await producer.send("T", b"before")
    await wait_for_copy(slave, master)
    await master.replication.roles.fence("the test says so")
    work = asyncio.create_task(producer.send("T", b"after", timeout=30))
    await asyncio.sleep(0.1)  # it would fail at once if it did not wait for a master
    assert not work.done()
    await slave.replication.roles.become_master(1000, why="the test says so")
    await work
    assert bodies_of(slave) == [b"before", b"after"]


async def test_a_send_ends_with_its_time_when_nobody_becomes_the_master(
    group: Group, make_producer: MakeProducer
) -> None:
    master, _ = await make_pair(group)
    producer = await make_producer()
    await producer.send("T", b"before")
    await kill(group, master)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(SendFailed) as caught:
        await producer.send("T", b"after", timeout=0.5)
    assert 0.4 < asyncio.get_running_loop().time() - begun < 15.0
    assert caught.value.retryable


# -- consumers -------------------------------------------------------------------------------------------------------


async def test_consumers_go_on_from_the_slave_and_back_to_the_master(group: Group) -> None:
    master, slave = await make_pair(group)
    peer = group.connect(master)
    for number in range(40):
        await peer.send("T", body=b"%d" % number)
    await wait_for_copy(slave, master)
    port = master.standing.port
    # One message at a time, so that the master goes in the middle.
    flow = Flow(error_pause=0.05, hold=0.5, batch=1, count_max=1)
    async with Reader(group, flow=flow) as reader:
        await wait_until(lambda: len(reader.seen) >= 5)
        await kill(group, master)
        await wait_until(lambda: len(reader.seen) == 40, "the rest comes from the slave")
        # And the offsets are committed there.
        await wait_until(lambda: slave.offsets.get("readers", "T", 0) == 40)
        master = await group.add(0, port=port)
        await group.connect(master).send("T", body=b"new")
        await wait_until(lambda: reader.has(b"new"), "it comes back to the master")
        # It learns how far the group got without it.
        await wait_until(lambda: master.offsets.get("readers", "T", 0) == 41)
    assert set(reader.seen.values()) == {1}


async def test_consumers_resume_when_a_slave_is_promoted(group: Group, make_producer: MakeProducer) -> None:
    master, slave = await make_pair(group)
    producer = await make_producer()
    async with Reader(group) as reader:
        await producer.send("T", b"before")
        await wait_until(lambda: reader.has(b"before"))
        await wait_until(lambda: slave.offsets.get("readers", "T", 0) == 1)
        await kill(group, master)
        await slave.replication.roles.become_master(1000, why="the test says so")
        await producer.send("T", b"after", timeout=30)
        await wait_until(lambda: reader.has(b"after"))
        await wait_until(lambda: slave.offsets.get("readers", "T", 0) == 2)
    assert set(reader.seen.values()) == {1}


async def test_messages_that_take_the_place_of_lost_ones_are_not_skipped(
    group: Group, make_producer: MakeProducer
) -> None:
    master, slave = await make_pair(group)
    producer = await make_producer()
    async with Reader(group) as reader:
        await producer.send("T", b"both")
        await wait_until(lambda: reader.has(b"both"))
        await wait_until(lambda: slave.offsets.get("readers", "T", 0) == 1)
        await slave.replication.follower.stop()
        await slave.replication.metadata.stop()
        await producer.send("T", b"only the old master")
        await wait_until(lambda: reader.has(b"only the old master"))
        await kill(group, master)
        await slave.replication.roles.become_master(1000, why="the test says so")
        # They are at offsets that the consumer has seen already.
        peer = group.connect(slave)
        for number in range(3):
            await peer.send("T", body=b"new %d" % number)
        await wait_until(lambda: reader.has(b"new 0", b"new 1", b"new 2"))
    assert set(reader.seen.values()) == {1}


async def test_an_ordered_consumer_goes_on_with_the_next_master(group: Group, make_producer: MakeProducer) -> None:
    master, slave = await make_pair(group)
    producer = await make_producer()
    found: list[bytes] = []
    consumer = Consumer(
        group.nameserver.address,
        group="readers",
        options=OPTIONS,
        start="earliest",
        flow=Flow(error_pause=0.05, hold=0.5, span_max=None),
        offsets=Offsets(interval=0.02),
        rebalance=Rebalance(interval=0.1, lock_interval=0.1),
    )

    async def take(message: Any) -> None:
        found.append(message.body)

    consumer.handler("T", ordered=True)(take)
    async with consumer:
        await producer.send("T", b"before")
        await wait_until(lambda: found == [b"before"])
        await wait_until(lambda: slave.offsets.get("readers", "T", 0) == 1)
        await kill(group, master)
        await slave.replication.roles.become_master(1000, why="the test says so")
        await producer.send("T", b"after", timeout=30)
        await wait_until(lambda: len(found) == 2)
    assert found == [b"before", b"after"]


async def test_consumers_follow_the_suggestion_of_the_broker(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = await make_pair(group, slave_read=True, memory_ratio_max=0)
    peer = group.connect(master)
    config = GroupConfig(group_name="readers", which_broker_when_consume_slowly=1)
    await peer.expect(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
    await wait_until(lambda: slave.groups.find("readers") is not None)
    for number in range(100):
        await peer.send("T", body=b"%d" % number)
    await wait_for_copy(slave, master)
    given = Counter[Broker]()
    for broker in (master, slave):
        handle = broker.pull._encode_head

        def count(*args: Any, broker: Broker = broker, handle: Any = handle) -> bytes:
            given[broker] += args[2].count
            answer: bytes = handle(*args)
            return answer

        monkeypatch.setattr(broker.pull, "_encode_head", count)
    flow = Flow(error_pause=0.05, hold=0.5, batch=10)
    async with Reader(group, flow=flow) as reader:
        await wait_until(lambda: len(reader.seen) == 100)
    assert set(reader.seen.values()) == {1}
    assert given[slave] >= 80
    # Offsets of what was read there are committed at the master.
    assert master.offsets.get("readers", "T", 0) == 100
