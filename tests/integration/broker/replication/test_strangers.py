"""Brokers that share only a name, and forged frames about masterships: no log is cut for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._ground.limits import EPOCH_MAX
from eruca._net.caller import Caller
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import ChangeRoleHeader, RegisterBrokerHeader
from eruca._wire.names import MASTER, SLAVE
from eruca.errors import ConfigError
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import find_port
from tests.integration.broker.replication.members import Group, read_log, tail_of, wait_for_copy, wait_until
from tests.integration.broker.requests import try_send

LAST_INT64 = 2**63 - 1


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[Group]:
    """Another installation, with its own name server."""
    group = Group(tmp_path / "elsewhere")
    await group.start()
    yield group
    await group.stop()


async def fill(group: Group, broker: Broker, count: int, topic: str = "T", word: bytes = b"ours") -> None:
    peer = group.connect(broker)
    for number in range(count):
        await peer.send(topic, body=b"%s %d" % (word, number))


def bodies_of(broker: Broker, topic: str = "T") -> list[bytes]:
    return [message.body for message in stored(broker, topic, 0)]


def register_rounds(group: Group, broker: Broker) -> Any:
    """Wait until a broker has registered several times."""
    return asyncio.gather(*[broker.registration.register_all() for _ in range(3)])


async def forge_registration(group: Group, epoch: int, address: str, store: str | None = None) -> int:
    caller = Caller()
    try:
        header = RegisterBrokerHeader("broker-a", address, "DefaultCluster", address, 0, eruca_epoch=epoch)
        header.eruca_store = store
        answer = await caller.call(group.nameserver.address, make_request(RequestCode.REGISTER_BROKER, header), 5000)
        return answer.code
    finally:
        await caller.close()


async def make_restarted(group: Group, times: int, count: int) -> None:
    """A store with a few messages and many masterships."""
    for turn in range(times):
        broker = await group.add(0)
        await fill(group, broker, count if turn == 0 else 1, word=b"theirs")
        await group.remove(broker)


@pytest.mark.parametrize("epoch", [LAST_INT64, EPOCH_MAX, EPOCH_MAX - 1, 5000])
async def test_a_forged_registration_makes_no_slave_of_a_master(group: Group, epoch: int) -> None:
    port = find_port()
    master = await group.add(0, port=port)
    await fill(group, master, 20)
    await forge_registration(group, epoch, "127.0.0.1:1")
    await register_rounds(group, master)
    assert master.standing.state == MASTER and master.standing.writable
    assert master.store.lineage.record.role != SLAVE
    assert (await try_send(group.connect(master))).code == ResponseCode.SUCCESS
    await wait_until(lambda: group.route().get(0) == master.standing.address, "producers find it again")
    await group.remove(master)
    again = await group.add(0, port=port)
    assert again.standing.state == MASTER and len(bodies_of(again)) == 21
    header = ChangeRoleHeader(role=MASTER, epoch=again.replication.roles.epoch + 1000, force=True)
    state = await group.connect(again).expect(RequestCode.CHANGE_ROLE, header)
    assert state.body.role == MASTER and state.body.writable


async def test_a_registration_that_knows_the_store_takes_the_name_no_longer_than_it_lasts(group: Group) -> None:
    master = await group.add(0)
    await fill(group, master, 5)
    store = master.store.lineage.store_id
    assert await forge_registration(group, 7000, "127.0.0.1:1", store) == ResponseCode.SUCCESS
    await wait_until(lambda: group.route().get(0) == master.standing.address, "producers find it again")
    assert master.standing.state == MASTER and master.replication.roles.epoch > 7000
    assert len(bodies_of(master)) == 5


@pytest.mark.parametrize("role", [SLAVE, MASTER, "FENCED"])
@pytest.mark.parametrize("epoch", [LAST_INT64, EPOCH_MAX, EPOCH_MAX // 2, -1])
async def test_no_request_makes_a_broker_believe_an_epoch_out_of_bounds(group: Group, role: str, epoch: int) -> None:
    master = await group.add(0)
    await fill(group, master, 3)
    code, remark = await group.connect(master).refused(RequestCode.CHANGE_ROLE, ChangeRoleHeader(role, epoch, True))
    assert code == ResponseCode.SYSTEM_ERROR and "epoch" in remark
    assert master.standing.state == MASTER and master.standing.writable
    record = master.store.lineage.record
    assert record.role == "" and record.seen_epoch == 1


async def test_nobody_makes_a_broker_follow_a_stranger(group: Group, elsewhere: Group) -> None:
    master = await group.add(0)
    await fill(group, master, 10)
    stranger = await elsewhere.add(0)
    await fill(elsewhere, stranger, 3, word=b"theirs")
    header = ChangeRoleHeader(SLAVE, 2000, True, master_address=stranger.standing.address)
    code, remark = await group.connect(master).refused(RequestCode.CHANGE_ROLE, header)
    assert code == ResponseCode.SYSTEM_ERROR and "a different store" in remark
    assert master.standing.state == MASTER and master.store.lineage.record.role == ""
    nobody = ChangeRoleHeader(SLAVE, 2000, True, master_address=f"127.0.0.1:{find_port()}")
    await group.connect(master).refused(RequestCode.CHANGE_ROLE, nobody)
    assert master.standing.state == MASTER and len(bodies_of(master)) == 10


@pytest.mark.parametrize("count", [0, 3])
async def test_a_second_master_of_a_name_does_not_start(group: Group, elsewhere: Group, count: int) -> None:
    ours = await group.add(0)
    await fill(group, ours, 200)
    topics = set(ours.topics.snapshot().topic_config_table)
    if count:
        await make_restarted(elsewhere, 5, count)
    with pytest.raises(ConfigError, match="another broker") as caught:
        await elsewhere.add(0, nameservers=group.nameserver.address)
    assert ours.standing.address in str(caught.value) and "brokerName" in str(caught.value)
    assert ours.standing.state == MASTER and len(bodies_of(ours)) == 200
    assert set(ours.topics.snapshot().topic_config_table) == topics
    # And it is as it was: alone it starts again.
    alone = await elsewhere.add(0)
    assert alone.standing.state == MASTER and len(bodies_of(alone)) == (count + 4 if count else 0)


async def test_two_masters_that_meet_leave_each_other_alone(group: Group, elsewhere: Group) -> None:
    await make_restarted(elsewhere, 5, 3)
    ours = await group.add(0)
    await fill(group, ours, 50)
    theirs = await elsewhere.add(0)
    assert theirs.replication.roles.epoch > ours.replication.roles.epoch
    theirs.registration.nameservers.addresses[:] = [group.nameserver.address]
    for _ in range(3):
        await register_rounds(elsewhere, theirs)
        await register_rounds(group, ours)
    assert ours.standing.state == theirs.standing.state == MASTER
    assert group.route() == {0: ours.standing.address}
    assert len(bodies_of(ours)) == 50 and len(bodies_of(theirs)) == 7
    assert ours.store.lineage.record.diverged == []


@pytest.mark.parametrize("restarts", [1, 5])
async def test_a_slave_with_a_log_of_its_own_is_never_cut_for_a_stranger(
    group: Group, elsewhere: Group, restarts: int, caplog: pytest.LogCaptureFixture
) -> None:
    await make_restarted(elsewhere, 2, 100)
    ours = await group.add(0)
    for _ in range(restarts):
        await fill(group, ours, 5)
        await group.remove(ours)
        ours = await group.add(0)
    # A master's store, whose configuration was changed to that of a slave.
    slave = await elsewhere.add(0, BrokerRole.SLAVE, nameservers=group.nameserver.address)
    await wait_until(lambda: "a different store" in caplog.text, "it says why")
    assert len(bodies_of(slave)) == 101 and bodies_of(slave)[0] == b"theirs 0"
    assert slave.store.lineage.record.diverged == []
    assert set(slave.topics.snapshot().topic_config_table) >= {"T"}


async def test_an_empty_slave_takes_the_identity_of_its_master(group: Group) -> None:
    master = await group.add(0)
    await fill(group, master, 5)
    slave = await group.add(1)
    await wait_for_copy(slave, master)
    ids = {broker.store.lineage.store_id for broker in (master, slave)}
    assert len(ids) == 1 and ids != {""}
    await group.remove(master)
    again = await group.add(0)
    assert {again.store.lineage.store_id} == ids


async def test_a_member_that_lost_its_disk_copies_all_again(group: Group, tmp_path: Path) -> None:
    port = find_port()
    master = await group.add(0, port=port)
    slave = await group.add(1)
    await fill(group, master, 5)
    await wait_for_copy(slave, master)
    await wait_until(lambda: len(slave.replication.members.members) == 2)
    await group.remove(master)
    await slave.replication.roles.become_master(1000, why="the test says so")
    await asyncio.to_thread((tmp_path / "store0").rename, tmp_path / "lost")
    again = await group.add(0, port=port)
    assert again.standing.state == SLAVE
    await wait_for_copy(again, slave)
    assert read_log(again) == read_log(slave)


async def test_a_log_that_differs_is_not_cut_though_the_list_is_the_same(group: Group, elsewhere: Group) -> None:
    master = await group.add(0)
    await fill(group, master, 20)
    await group.remove(master)
    other = await elsewhere.add(0)
    await fill(elsewhere, other, 40, word=b"diff")
    # As if the small file had been copied, but not the log.
    copied = (await group.add(0)).store.lineage.store_id
    await asyncio.to_thread(lambda: other.store.lineage.save(store_id=copied))
    tail = tail_of(other)
    await elsewhere.remove(other)
    slave = await elsewhere.add(0, BrokerRole.SLAVE, nameservers=group.nameserver.address)
    await asyncio.wait(
        {asyncio.create_task(slave.replication.follower._agreement.prepare(slave.replication.master.find))}
    )
    assert tail_of(slave) == tail and slave.store.lineage.record.diverged == []


async def forget_identity(broker: Broker) -> None:
    """Make a store one of an older version."""
    await asyncio.to_thread(lambda: broker.store.lineage.save(store_id="", store_id_given_at=0))


async def make_old_pair(group: Group, ports: tuple[int, int]) -> None:
    """A master and a slave with the same log, as an older version left them."""
    master = await group.add(0, port=ports[0])
    slave = await group.add(1, port=ports[1])
    await fill(group, master, 10)
    await wait_for_copy(slave, master)
    await slave.replication.follower.stop()
    await forget_identity(slave)
    await group.remove(slave)
    await fill(group, master, 1, word=b"late")
    await forget_identity(master)
    await group.remove(master)


async def test_a_pair_of_an_older_version_gets_its_identity_by_itself(group: Group) -> None:
    ports = find_port(), find_port()
    await make_old_pair(group, ports)
    slave = await group.add(1, port=ports[1])
    master = await group.add(0, port=ports[0])
    await wait_for_copy(slave, master)
    record = master.store.lineage.record
    await wait_until(lambda: slave.store.lineage.store_id == record.store_id != "")
    assert record.store_id_given_at == tail_of(master) and read_log(slave) == read_log(master)


async def test_members_of_an_older_version_that_both_led_find_together(group: Group) -> None:
    ports = find_port(), find_port()
    await make_old_pair(group, ports)
    # The slave is promoted before it has met its master again, and what that had alone is set aside.
    slave = await group.add(1, port=ports[1])
    await slave.replication.roles.become_master(1100, why="the test says so")
    await fill(group, slave, 5, word=b"new")
    given = slave.store.lineage.store_id
    await group.remove(slave)
    old = await group.add(0, port=ports[0], nameservers="127.0.0.1:1", register_timeout_ms=100)
    assert old.store.lineage.store_id not in ("", given)
    await group.remove(old)
    slave = await group.add(1, port=ports[1])
    old = await group.add(0, port=ports[0])
    assert slave.standing.state == MASTER and old.standing.state == SLAVE
    await wait_for_copy(old, slave)
    await wait_until(lambda: read_log(old) == read_log(slave))
    (aside,) = old.store.lineage.record.diverged
    assert aside.end > aside.begin
