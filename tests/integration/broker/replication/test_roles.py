"""Roles: a slave follows and refuses, a promotion takes over without a loss, a demoted master follows its successor."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._broker.replication import roles
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ChangeRoleHeader, EmptyHeader
from eruca._wire.names import FENCED, MASTER, SLAVE
from eruca.errors import ConnectFailed, StoreError, StoreFull
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import find_port
from tests.integration.broker.replication.members import (
    Group,
    read_log,
    tail_of,
    wait_for_copy,
    wait_until,
)
from tests.integration.broker.requests import try_send
from tests.unit.store.samples import read_aside


async def make_pair(group: Group, **options: Any) -> tuple[Broker, Broker]:
    """A master and a slave that follows it."""
    master = await group.add(0, **options)
    slave = await group.add(1, **options)
    await wait_until(lambda: slave.replication.follower.state.connected, "the slave is connected")
    return master, slave


def is_following(broker: Broker) -> bool:
    return broker.replication.follower.state.connected


def bodies_of(broker: Broker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in stored(broker, topic, queue_id)]


async def test_a_slave_copies_the_log_and_is_in_the_route(group: Group) -> None:
    master, slave = await make_pair(group)
    peer = group.connect(master)
    for number in range(50):
        await peer.send("T", body=b"%d" % number)
    await wait_for_copy(slave, master)
    assert read_log(slave) == read_log(master)
    assert bodies_of(slave) == [b"%d" % number for number in range(50)]
    assert group.route() == {0: master.standing.address, 1: slave.standing.address}


async def test_a_slave_refuses_messages(group: Group) -> None:
    master, slave = await make_pair(group)
    peer = group.connect(slave)
    answer = await try_send(peer)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.ext is not None and "MSG_REGION" in answer.ext
    assert slave.topics.get("T") is None
    assert master.standing.state == MASTER and slave.standing.state == SLAVE


async def test_a_master_begins_an_epoch_at_every_start(group: Group) -> None:
    master = await group.add(0)
    peer = group.connect(master)
    await peer.send("T")
    first = master.store.lineage.epochs
    assert [item.epoch for item in first] == [1]
    end = tail_of(master)
    await group.remove(master)
    again = await group.add(0)
    assert [item[:2] for item in again.store.lineage.epochs] == [(1, 0), (2, end)]
    assert again.standing.epoch == 2


async def test_a_promoted_slave_takes_over(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T", body=b"before")
    await wait_for_copy(slave, master)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    assert slave.standing.broker_id == 0 and not slave.standing.is_slave
    await group.connect(slave).send("T", body=b"after")
    assert bodies_of(slave) == [b"before", b"after"]
    assert group.route() == {0: slave.standing.address}
    record = slave.store.lineage.record
    assert record.role == MASTER
    assert [item.epoch for item in record.epochs] == [1, 1000]


async def test_a_promotion_outlasts_a_restart(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T")
    await wait_for_copy(slave, master)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await group.remove(slave)
    again = await group.add(1)
    assert again.standing.state == MASTER
    assert again.standing.broker_id == 0 and again.options.broker_id == 1
    assert again.standing.epoch == 1001


async def test_an_old_epoch_does_not_begin(group: Group) -> None:
    _, slave = await make_pair(group)
    await wait_until(lambda: slave.replication.roles.epoch == 1)
    with pytest.raises(StoreError, match="epoch 1 cannot start"):
        await slave.replication.roles.become_master(1, why="the test says so")
    assert slave.standing.state == SLAVE
    await wait_until(lambda: slave.replication.follower.state.connected)


async def test_a_master_that_comes_back_follows_its_successor(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T", body=b"both")
    await wait_for_copy(slave, master)
    await group.remove(slave)
    await group.connect(master).send("T", body=b"only the old master")
    await group.remove(master)
    slave = await group.add(1)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await group.connect(slave).send("T", body=b"only the new one")
    old = await group.add(0)
    assert old.standing.state == SLAVE
    await wait_until(lambda: bodies_of(old) == [b"both", b"only the new one"])
    # They have changed places.
    await wait_until(lambda: group.route() == {0: slave.standing.address, 1: old.standing.address})
    assert old.options.broker_id == 0
    (tail,) = old.store.lineage.record.diverged
    lost = await asyncio.to_thread(read_aside, old.store, tail.file)
    assert lost == [b"only the old master"]
    assert read_log(old) == read_log(slave)


async def test_a_fenced_master_takes_and_acknowledges_nothing(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    await wait_until(lambda: master.acknowledgement.condition.is_available(tail_of(master)), "the slave counts")
    peer = group.connect(master)
    await peer.send("T")
    # It responds, but does not accept messages anymore.
    monkeypatch.setattr(slave.replication.follower, "on_frames", lambda frames: None)
    waiting = asyncio.create_task(try_send(peer, body=b"waits"))
    await wait_until(lambda: master.acknowledgement.waiting)
    await master.replication.roles.fence("the test says so")
    assert (await waiting).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert (await try_send(peer)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreError):
        master.store.append(stored(master, "T")[0])
    assert master.standing.state == FENCED


async def test_a_fence_in_the_middle_of_a_promotion_wins(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.remove(master)
    work = asyncio.create_task(slave.replication.roles.become_master(1000, why="the test says so"))
    await asyncio.sleep(0)
    await slave.replication.roles.fence("somebody else is it")
    with pytest.raises(StoreError, match="did not become the master"):
        await work
    assert slave.standing.state == FENCED and not slave.standing.writable


async def test_a_master_that_made_room_for_its_successor_does_not_lead_after_a_restart(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T", body=b"both")
    await wait_for_copy(slave, master)
    # As an operator's tool does it, up to where the old master is killed before it is told which broker to follow.
    await master.replication.roles.fence("the test says so", epoch=1100)
    await slave.replication.roles.become_master(1100, why="the test says so")
    await group.remove(master)
    await group.connect(slave).send("T", body=b"only the new one")
    old = await group.add(0)
    assert old.standing.state == SLAVE and slave.standing.state == MASTER
    await wait_until(lambda: bodies_of(old) == [b"both", b"only the new one"])
    assert slave.replication.roles.epoch == 1100 and old.store.lineage.seen_epoch == 1100


@pytest.mark.parametrize("way", ["fence", "become_slave"])
async def test_a_crash_while_a_mastership_ends_leaves_no_master(
    group: Group, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    master = await group.add(0)
    store = master.store

    def crash(epoch: int) -> None:
        raise StoreFull("the end of this process")

    monkeypatch.setattr(store.lineage, "see_epoch", crash)
    with pytest.raises(StoreFull):
        if way == "fence":
            await master.replication.roles.fence("the test says so", epoch=1100)
        else:
            await master.replication.roles.become_slave(None, why="the test says so", epoch=1100)
    assert store.lineage.record.role == SLAVE and not master.standing.writable


async def test_a_promotion_that_the_disk_forbids_leaves_a_slave_that_follows(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = await make_pair(group)

    def fail() -> None:
        raise StoreFull("no room for the rest of the log")

    with monkeypatch.context() as patch:
        patch.setattr(slave.replication.follower._agreement, "finish", fail)
        with pytest.raises(StoreFull):
            await slave.replication.roles.become_master(1000, why="the test says so")
    assert slave.standing.state == SLAVE and master.standing.state == MASTER
    await group.connect(master).send("T")
    await wait_for_copy(slave, master)


async def test_a_replaced_master_whose_disk_is_full_becomes_a_slave_later(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "_STEP_DOWN_AGAIN_S", 0.01)
    master, slave = await make_pair(group)
    await group.connect(master).send("T")
    await wait_for_copy(slave, master)
    store = master.store
    save, tries = store.lineage.save_role, 0

    def save_at_last(role: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise StoreFull("no room for a role")
        save(role)

    monkeypatch.setattr(store.lineage, "save_role", save_at_last)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await wait_until(lambda: tries, "it hears of its successor")
    assert master.standing.state == FENCED
    await wait_until(lambda: master.standing.state == SLAVE, "it is a slave")
    assert tries == 3 and store.lineage.seen_epoch == 1000


async def test_an_address_of_a_master_without_a_port_is_no_mistake_of_ours(group: Group) -> None:
    slave = await group.add(1, ha_master="nowhere")
    assert slave.replication.master.find() == ("", "nowhere")
    assert slave.replication.describe().role == SLAVE


async def test_a_name_server_that_knows_a_newer_master_fences_this_one(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T", body=b"both")
    await wait_for_copy(slave, master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await wait_until(lambda: master.standing.state == SLAVE, "the old master steps down")
    await group.connect(slave).send("T", body=b"new")
    await wait_until(lambda: bodies_of(master) == [b"both", b"new"])
    await wait_until(lambda: group.route() == {0: slave.standing.address, 1: master.standing.address})
    assert master.store.lineage.record.diverged == []


async def test_roles_change_back_and_forth_while_messages_come(group: Group) -> None:
    first, second = await make_pair(group)
    taken: list[bytes] = []
    stopping = False

    async def produce() -> None:
        peers = {broker: group.connect(broker) for broker in (first, second)}
        number = 0
        while not stopping:
            for broker, peer in peers.items():
                body = b"%d" % number
                if broker.standing.state == MASTER and (await try_send(peer, body=body)).code == ResponseCode.SUCCESS:
                    taken.append(body)
                number += 1
            await asyncio.sleep(0)

    def has_taken(count: int) -> bool:
        return len(taken) > count

    work = asyncio.create_task(produce())
    epoch, old, new = 1000, first, second
    for turn in range(4):
        await wait_until(partial(has_taken, 20 * (turn + 1)))
        await old.replication.roles.fence("a change of places")
        await wait_for_copy(new, old)
        await new.replication.roles.become_master(epoch, why="a change of places")
        await old.replication.roles.become_slave(
            (new.standing.address, new.standing.ha_address), why="a change of places"
        )
        await wait_until(partial(is_following, old))
        epoch, old, new = epoch + 1000, new, old
    stopping = True
    await work
    await wait_for_copy(new, old)
    assert read_log(new) == read_log(old)
    # A message that was stored and still waiting when its master was fenced exists, but was not acknowledged.
    stored, acknowledged = bodies_of(new), set(taken)
    assert [body for body in stored if body in acknowledged] == taken
    assert len(set(stored)) == len(stored) and bodies_of(old) == stored
    assert first.store.lineage.record.diverged == second.store.lineage.record.diverged == []


async def test_an_operator_changes_roles(group: Group) -> None:
    master, slave = await make_pair(group)
    await group.connect(master).send("T", body=b"both")
    to_master, to_slave = group.connect(master), group.connect(slave)
    fenced = await to_master.expect(RequestCode.CHANGE_ROLE, ChangeRoleHeader(role=FENCED, epoch=1000))
    assert fenced.body.role == FENCED and not fenced.body.writable
    header = ChangeRoleHeader(role=MASTER, epoch=1000, wait_position=fenced.body.tail)
    promoted = await to_slave.expect(RequestCode.CHANGE_ROLE, header)
    assert (promoted.body.role, promoted.body.epoch, promoted.body.writable) == (MASTER, 1000, True)
    header = ChangeRoleHeader(role=SLAVE, epoch=1000, master_address=slave.standing.address)
    assert (await to_master.expect(RequestCode.CHANGE_ROLE, header)).body.role == SLAVE
    await wait_until(lambda: master.replication.follower.state.connected)
    await to_slave.send("T", body=b"new")
    await wait_until(lambda: bodies_of(master) == [b"both", b"new"])


async def test_a_slave_that_lacks_messages_is_not_promoted(group: Group) -> None:
    _, slave = await make_pair(group)
    header = ChangeRoleHeader(role=MASTER, epoch=1000, wait_position=tail_of(slave) + 1)
    peer = group.connect(slave)
    code, remark = await peer.refused(RequestCode.CHANGE_ROLE, header)
    assert code == ResponseCode.SYSTEM_ERROR and "not up to" in remark
    state = await peer.expect(RequestCode.REPLICATION_STATE, EmptyHeader())
    assert state.body.role == SLAVE


async def test_a_start_without_the_port_for_slaves_leaves_nothing_behind(group: Group) -> None:
    port = find_port()
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port + 1)
    with pytest.raises(ConnectFailed, match="the port for slaves"):
        await group.add(0, port=port)
    taken.close()
    await taken.wait_closed()
    master = await group.add(0, port=port)
    await group.connect(master).send("T")
    assert bodies_of(master) == [b"hello"]
