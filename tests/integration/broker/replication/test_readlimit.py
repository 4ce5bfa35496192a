"""Reading only what no change of the master can take back: what is hidden, when it is shown, that none is skipped."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions, BrokerRole, ReadConfirmed
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import QueueHeader, SearchOffsetHeader
from eruca._wire.record import decode_records
from eruca._wire.replication import Report, encode_fenced
from tests.integration.broker.conftest import MakeBroker, MakePeer
from tests.integration.broker.peer import Answer, Peer
from tests.integration.broker.replication.members import Group, tail_of, wait_for_copy, wait_until
from tests.integration.broker.replication.rawslave import Connect, FencedSlave, RawSlave
from tests.integration.broker.requests import EXPRESSION, HOLD, pull_header, send_header, try_pull, try_send

ON: dict[str, Any] = {"read_confirmed": ReadConfirmed.ALWAYS}
SYNC_ON: dict[str, Any] = ON | {"role": BrokerRole.SYNC_MASTER, "slave_timeout_ms": 8000}


async def make_pair(group: Group, **options: Any) -> tuple[Broker, Broker]:
    """A master that waits for its slave, and the slave, which knows that."""
    options = ON | options
    master = await group.add(0, BrokerRole.SYNC_MASTER, **options)
    slave = await group.add(1, **options)
    await wait_until(lambda: can_lead(slave) and is_available(master), "the slave is there")
    return master, slave


def can_lead(slave: Broker) -> bool:
    return slave.replication.members.mode == (True, 2)


def is_available(master: Broker) -> bool:
    return master.acknowledgement.condition.is_available(tail_of(master))


async def find_max(peer: Peer) -> int:
    answer = await peer.expect(RequestCode.GET_MAX_OFFSET, QueueHeader(topic="T", queue_id=0))
    return int(answer.header.offset)


async def read(peer: Peer, offset: int = 0) -> list[bytes]:
    """What can be read from an offset on."""
    answer = await try_pull(peer, queue_offset=offset)
    return [message.body for message in decode_records(answer.command.body)] if answer.code == 0 else []


async def hold(peer: Peer, offset: int = 0, **fields: Any) -> asyncio.Task[Answer]:
    """A pull that its broker has parked."""
    holds = peer.broker.pull.holds
    before = len(holds)
    header = pull_header(queue_offset=offset, sys_flag=EXPRESSION | HOLD, **fields)
    task = asyncio.create_task(peer.ask(RequestCode.PULL_MESSAGE, header))
    await wait_until(lambda: len(holds) > before, "the pull is parked")
    return task


# -- when it applies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "failover", "expected"),
    [
        (ReadConfirmed.AUTO, "", False),
        (ReadConfirmed.AUTO, "etcd", True),
        (ReadConfirmed.ALWAYS, "", True),
        (ReadConfirmed.NEVER, "etcd", False),
    ],
)
def test_by_itself_it_goes_with_failover(chosen: ReadConfirmed, failover: str, expected: bool) -> None:
    assert BrokerOptions(read_confirmed=chosen, failover=failover).reads_confirmed is expected


async def test_an_asynchronous_master_shows_everything(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(**ON))
    await peer.send("T", body=b"x")
    assert (await read(peer), await find_max(peer)) == ([b"x"], 1)


async def test_a_master_that_asks_for_no_copy_shows_everything(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(**SYNC_ON, in_sync_replicas=1))
    task = await hold(peer, topic="TBW102")
    await peer.send("TBW102", body=b"x")
    assert (await task).code == ResponseCode.SUCCESS


# -- what is hidden ----------------------------------------------------------------------------------------------------


async def make_left_alone(group: Group) -> tuple[Broker, Peer]:
    """A master that lost its slave: both have the first message, and the second was not acknowledged."""
    master, slave = await make_pair(group)
    peer = group.connect(master)
    await peer.send("T", body=b"both")
    await group.remove(slave)
    await wait_until(lambda: not is_available(master))
    assert (await try_send(peer, body=b"one")).code == ResponseCode.SLAVE_NOT_AVAILABLE
    return master, peer


async def test_what_a_slave_lacks_is_shown_when_it_has_it(group: Group) -> None:
    _, peer = await make_left_alone(group)
    assert (await read(peer), await find_max(peer)) == ([b"both"], 1)
    answer = await try_pull(peer, queue_offset=1)
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)
    assert answer.header.max_offset == 1
    search = SearchOffsetHeader(topic="T", queue_id=0, timestamp=1 << 50)
    assert (await peer.expect(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)).header.offset <= 1
    task = await hold(peer, 1)
    await group.add(1, **ON)
    assert (await task).header.next_begin_offset == 2
    assert (await read(peer), await find_max(peer)) == ([b"both", b"one"], 2)


async def test_who_was_told_a_higher_offset_is_not_sent_back(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    peer = make_peer(await make_broker(**SYNC_ON))
    for _ in range(3):
        await try_send(peer)
    for offset in range(4):
        answer = await try_pull(peer, queue_offset=offset)
        assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, offset)
    answer = await try_pull(peer, queue_offset=4)
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_a_master_that_starts_alone_shows_what_it_showed_before(group: Group) -> None:
    master, _ = await make_left_alone(group)
    await group.remove(master)
    master = await group.add(0, BrokerRole.SYNC_MASTER, **ON)
    assert await read(group.connect(master)) == [b"both"]


async def test_a_store_from_before_is_shown(group: Group) -> None:
    master = await group.add(0)
    await group.connect(master).send("T", body=b"old")
    await group.remove(master)
    master = await group.add(0, BrokerRole.SYNC_MASTER, **ON)
    peer = group.connect(master)
    await try_send(peer, body=b"new")
    assert await read(peer) == [b"old"]


# -- waking ------------------------------------------------------------------------------------------------------------


async def join(broker: Broker, connect: Connect) -> RawSlave:
    """A slave that has everything so far, and reports the rest on demand."""
    slave = await connect(broker, FencedSlave)
    slave.hello(broker, tail_of(broker))
    slave.say(encode_fenced(Report(broker.replication.roles.epoch, tail_of(broker))))
    await wait_until(lambda: is_available(broker))
    return slave


def confirm(broker: Broker, position: int | None = None) -> None:
    """The slave reports, in this turn of the loop."""
    (link,) = broker.replication.server.links
    broker.replication.server.on_confirm(link, tail_of(broker) if position is None else position)


@pytest.fixture
async def broker(make_broker: MakeBroker, make_peer: MakePeer, connect: Connect) -> Broker:
    """A master with a topic, and a slave that reports on demand."""
    broker = await make_broker(**SYNC_ON)
    await join(broker, connect)
    await make_peer(broker).make_topic("T")
    return broker


async def test_a_held_pull_wakes_in_the_turn_of_the_report(broker: Broker, make_peer: MakePeer) -> None:
    peer = make_peer(broker)
    task = await hold(make_peer(broker))
    sends = []
    for number in range(3):
        sends.append(asyncio.create_task(try_send(peer, body=b"%d" % number)))
        await wait_until(lambda number=number: broker.acknowledgement.waiting == number + 1)  # type: ignore[misc]
    # A pull parked behind them waits for them in the same way.
    late = await hold(make_peer(broker))
    queue = broker.store.queues.get("T", 0)
    assert queue is not None
    second = queue.entry(1)
    assert second is not None
    confirm(broker, second.position + second.size - 1)
    assert len(broker.pull.holds) == 0, "woken by the first message, before anything else ran"
    for answer in (await task, await late):
        assert (answer.header.next_begin_offset, answer.header.max_offset) == (1, 1)
    assert [send.done() for send in sends] == [True, False, False]
    again = await hold(make_peer(broker), 1)
    confirm(broker)
    assert len(broker.pull.holds) == 0
    assert (await again).header.next_begin_offset == 3
    assert [(await send).code for send in sends] == [ResponseCode.SUCCESS] * 3


async def test_nothing_is_read_again_and_again_before_the_report(
    broker: Broker, make_peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = make_peer(broker)
    task = await hold(make_peer(broker))
    woken = 0
    resume = broker.pull.holds._resume

    def count(*args: Any) -> None:
        nonlocal woken
        woken += 1
        resume(*args)

    monkeypatch.setattr(broker.pull.holds, "_resume", count)
    sends = [asyncio.create_task(try_send(peer)) for _ in range(20)]
    await wait_until(lambda: broker.acknowledgement.waiting == 20)
    for _ in broker.pull.holds.scan(unmatched=True):
        pass
    assert woken == 0
    confirm(broker)
    assert (await task).header.next_begin_offset == 20
    assert woken == 1
    await asyncio.gather(*sends)


async def test_a_batch_wakes_with_its_report(broker: Broker, make_peer: MakePeer) -> None:
    peer = make_peer(broker)
    task = await hold(make_peer(broker), subscription="red")
    body = encode_batch([BatchItem(0, b"%d" % number, b"TAGS\x01red") for number in range(5)])
    send = asyncio.create_task(peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), body))
    await wait_until(lambda: broker.acknowledgement.waiting == 1)
    assert len(broker.pull.holds) == 1
    confirm(broker)
    assert len(broker.pull.holds) == 0
    assert (await task).header.next_begin_offset == 5
    assert (await send).code == ResponseCode.SUCCESS


async def test_a_filter_is_asked_when_messages_become_readable(broker: Broker, make_peer: MakePeer) -> None:
    peer = make_peer(broker)
    task = await hold(make_peer(broker), subscription="red")
    for tag in ("green", "red"):
        send = asyncio.create_task(try_send(peer, properties=f"TAGS\x01{tag}"))
        await wait_until(lambda: broker.acknowledgement.waiting == 1)
        confirm(broker)
        assert len(broker.pull.holds) == (tag == "green")
        await send
    assert (await task).header.next_begin_offset == 2


# -- the option changes ------------------------------------------------------------------------------------------------


async def change(peer: Peer, value: str) -> None:
    await peer.expect(RequestCode.UPDATE_BROKER_CONFIG, None, {"readConfirmedOnly": value})


async def test_the_option_changes_while_the_broker_runs(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(**SYNC_ON)
    peer = make_peer(broker)
    await peer.make_topic("T")
    task = await hold(make_peer(broker))
    await try_send(peer, body=b"0")
    assert len(broker.pull.holds) == 1
    await change(peer, "false")
    assert (await task).header.next_begin_offset == 1
    await try_send(peer, body=b"1")
    assert await read(peer) == [b"0", b"1"]
    await change(peer, "true")
    assert (await read(peer), await find_max(peer)) == ([], 0)
    # A reader that has already read more waits at its offset.
    task = await hold(make_peer(broker), 2)
    await change(peer, "auto")
    assert await read(peer) == [b"0", b"1"]
    await try_send(peer, body=b"2")
    assert (await task).header.next_begin_offset == 3


# -- slaves ------------------------------------------------------------------------------------------------------------


async def test_a_slave_shows_what_its_master_says(group: Group) -> None:
    master, slave = await make_pair(group, ha_heartbeat_ms=3_600_000)
    peer = group.connect(master)
    await peer.make_topic("T")
    await wait_until(lambda: slave.topics.get("T") is not None)
    task = await hold(group.connect(slave))
    await peer.send("T", body=b"x")
    # Without another message, and without a heartbeat.
    assert (await task).header.next_begin_offset == 1
    assert slave.replication.describe().confirmed == tail_of(slave) == tail_of(master)


async def test_a_slave_whose_master_is_not_confirmed_hides_it(group: Group) -> None:
    master, slave = await group.add(0, **SYNC_ON, in_sync_replicas=3), await group.add(1, **ON)
    peer = group.connect(master)
    assert (await try_send(peer)).code == ResponseCode.SLAVE_NOT_AVAILABLE
    await wait_for_copy(slave, master)
    await wait_until(lambda: slave.topics.get("T") is not None)
    assert await read(group.connect(slave)) == []
    assert slave.replication.describe().confirmed == 0
    await group.add(2, **ON)
    await wait_until(lambda: slave.acknowledgement.reads.certain == tail_of(master))
    assert await read(group.connect(slave)) == [b"hello"]
    assert slave.replication.describe().confirmed == tail_of(master)


async def test_a_master_that_steps_down_does_not_show_what_it_hid(group: Group) -> None:
    master, peer = await make_left_alone(group)
    await master.replication.roles.fence("the test says so")
    assert await read(peer) == [b"both"]
    await master.replication.roles.become_slave(None, why="the test says so")
    assert await read(peer) == [b"both"]


# -- a set of members that may be elected ------------------------------------------------------------------------------


async def test_alone_in_the_set_a_master_shows_everything(make_broker: MakeBroker, make_peer: MakePeer) -> None:
    broker = await make_broker(**SYNC_ON)
    peer = make_peer(broker)
    replication = broker.acknowledgement
    replication.condition.set_members(frozenset({1}))
    await try_send(peer, body=b"0")
    task = await hold(make_peer(broker))
    replication.condition.set_members(frozenset())
    replication.release()
    assert (await task).header.next_begin_offset == 1
    task = await hold(make_peer(broker), 1)
    await try_send(peer, body=b"1")
    assert (await task).header.next_begin_offset == 2


# -- what it is for ----------------------------------------------------------------------------------------------------


async def cut_off(master: Broker, slave: Broker) -> None:
    """Make a master lose its slave, which keeps running."""
    await slave.replication.follower.stop()
    await wait_until(lambda: not is_available(master))


async def promote(slave: Broker) -> None:
    """Make a slave take over."""
    await slave.replication.roles.become_master(slave.replication.roles.epoch + 1000, why="the test says so")


async def follow(old: Broker, new: Broker) -> None:
    """Make one member the slave of the other, and wait until it counts."""
    await old.replication.roles.become_slave((new.standing.address, new.standing.ha_address), why="the test says so")
    await wait_until(lambda: is_available(new) and can_lead(old), "the slave counts")


@pytest.mark.parametrize(("chosen", "got"), [(ReadConfirmed.ALWAYS, [b"acknowledged"]), (ReadConfirmed.AUTO, [])])
async def test_what_was_never_acknowledged_takes_nobodys_place(
    group: Group, chosen: ReadConfirmed, got: list[bytes]
) -> None:
    """A reader that continues from its own position; without the option it skips a message, as in RocketMQ."""
    master, slave = await make_pair(group, read_confirmed=chosen)
    peer = group.connect(master)
    await peer.send("T", body=b"both")
    await cut_off(master, slave)
    await try_send(peer, body=b"one")
    position = len(await read(peer))
    await master.replication.roles.fence("it is cut off")
    await promote(slave)
    await follow(master, slave)
    peer = group.connect(slave)
    await peer.send("T", body=b"acknowledged")
    assert await read(peer, position) == got


async def test_who_waits_for_what_was_cut_off_gets_what_takes_its_place(group: Group) -> None:
    master, slave = await make_pair(group)
    peer = group.connect(master)
    await peer.send("T", body=b"both")
    await cut_off(master, slave)
    for _ in range(3):
        await try_send(peer, body=b"one")
    await master.replication.roles.fence("it is cut off")
    await promote(slave)
    await follow(master, slave)
    task = await hold(peer, 1)
    await group.connect(slave).send("T", body=b"acknowledged")
    answer = await task
    assert [message.body for message in decode_records(answer.command.body)] == [b"acknowledged"]


@pytest.mark.parametrize("seed", range(4))
async def test_no_reader_skips_an_acknowledged_message(group: Group, seed: int) -> None:
    chance = random.Random(seed)
    master, slave = await make_pair(group)
    acknowledged: list[bytes] = []
    got: list[bytes] = []
    position = number = 0

    async def send(peer: Peer) -> None:
        nonlocal number
        number += 1
        body = b"%d" % number
        if (await try_send(peer, body=body)).code == ResponseCode.SUCCESS:
            acknowledged.append(body)

    async def consume(peer: Peer) -> None:
        nonlocal position
        answer = await try_pull(peer, queue_offset=position)
        assert answer.code != ResponseCode.PULL_OFFSET_MOVED, "what was read is gone"
        if answer.code == ResponseCode.SUCCESS:
            got.extend(message.body for message in decode_records(answer.command.body))
            position = answer.header.next_begin_offset

    await send(group.connect(master))
    for _ in range(6):
        peer = group.connect(master)
        for _ in range(chance.randrange(8)):
            await chance.choice((send, consume))(peer)
        await cut_off(master, slave)
        for _ in range(chance.randrange(8)):
            await chance.choice((send, consume))(peer)
        await master.replication.roles.fence("it is cut off")
        if chance.random() < 0.5:
            await consume(peer)
        await promote(slave)
        if chance.random() < 0.5:
            await consume(group.connect(slave))
        await follow(master, slave)
        if chance.random() < 0.5:
            await consume(peer)
        master, slave = slave, master
    peer = group.connect(master)
    await send(peer)
    while position < await find_max(peer):
        await consume(peer)
    assert len(got) == len(set(got))
    assert [body for body in got if body in set(acknowledged)] == acknowledged
