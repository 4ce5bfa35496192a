"""The state of a broker as its slaves and tools see it."""

from __future__ import annotations

import asyncio

from eruca._broker.options import BrokerRole
from eruca._broker.replication.asking import MemberCaller, ask_state
from eruca._broker.replication.members import open_members
from eruca._net.caller import Caller
from eruca._wire.bodies import ReplicationState
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ChangeRoleHeader, EmptyHeader, ForgetMemberHeader
from eruca._wire.names import FENCED, MASTER, SLAVE
from tests.integration.broker.peer import Peer
from tests.integration.broker.replication.members import Group, tail_of, wait_for_copy, wait_until


async def ask(peer: Peer) -> ReplicationState:
    body: ReplicationState = (await peer.expect(RequestCode.REPLICATION_STATE, EmptyHeader())).body
    return body


async def test_a_master_tells_of_its_log_and_its_slaves(group: Group) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER, in_sync_replicas=2)
    slave = await group.add(1)
    # It counts from its first report on.
    await wait_until(lambda: master.acknowledgement.condition.is_available(tail_of(master)))
    peer = group.connect(master)
    await peer.send("T")
    await wait_for_copy(slave, master)
    await wait_until(lambda: master.acknowledgement.condition.confirmed == tail_of(master))
    state = await ask(peer)
    assert (state.role, state.writable, state.sync, state.required) == (MASTER, True, True, 2)
    assert (state.broker_name, state.broker_id, state.configured_id) == ("broker-a", 0, 0)
    assert (state.address, state.ha_address) == (master.standing.address, master.standing.ha_address)
    assert (state.epoch, [(item.epoch, item.start) for item in state.epochs]) == (1, [(1, 0)])
    assert state.tail == state.confirmed == tail_of(master)
    assert state.master is None and state.diverged == [] and state.failover == ""
    (copy,) = state.slaves
    assert (copy.broker_id, copy.address, copy.fenced, copy.in_sync) == (1, slave.standing.address, True, True)
    assert (copy.position, copy.lag_bytes) == (state.tail, 0)
    assert set(state.members) == {master.standing.address, slave.standing.address}


async def test_a_slave_tells_of_its_master(group: Group) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    peer = group.connect(slave)
    await wait_until(lambda: slave.replication.follower.state.connected and slave.replication.members.mode)
    await group.connect(master).send("T")
    await wait_for_copy(slave, master)
    state = await ask(peer)
    assert (state.role, state.writable, state.broker_id, state.configured_id) == (SLAVE, False, 1, 1)
    assert state.slaves == []
    followed = state.master
    assert followed is not None
    assert (followed.address, followed.ha_address) == (master.standing.address, master.standing.ha_address)
    assert (followed.connected, followed.epoch, followed.lag_bytes) == (True, 1, 0)
    assert (followed.sync, followed.required) == (True, 2)
    assert set(state.members) == {master.standing.address, slave.standing.address}


async def test_versions_change_with_the_tables(group: Group) -> None:
    master = await group.add(0)
    peer = group.connect(master)
    before = (await ask(peer)).versions
    assert (await ask(peer)).versions == before
    await peer.make_topic("T")
    after = (await ask(peer)).versions
    assert after.topics != before.topics and after.groups == before.groups
    await peer.join("G", "c", "T")
    assert (await ask(peer)).versions.groups != after.groups
    master.offsets.put("G", "T", 0, 3)
    assert (await ask(peer)).versions.offsets != after.offsets
    master.schedule.adopt({1: 5})
    assert (await ask(peer)).versions.delays != after.delays


async def test_a_slave_that_becomes_the_master_is_what_its_master_was(group: Group) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    await wait_until(lambda: slave.replication.members.mode)
    await group.remove(master)
    # It is remembered.
    await group.remove(slave)
    slave = await group.add(1)
    await slave.replication.roles.become_master(1000, why="the test says so")
    state = await ask(group.connect(slave))
    assert (state.role, state.sync, state.required, state.configured_id) == (MASTER, True, 2, 1)


async def test_what_makes_no_sense_is_refused(group: Group) -> None:
    master = await group.add(0)
    slave = await group.add(1)
    to_master, to_slave = group.connect(master), group.connect(slave)
    for peer, header, reason in (
        (to_master, ChangeRoleHeader(role="KING"), "expected MASTER, SLAVE or FENCED"),
        (to_slave, ChangeRoleHeader(role=FENCED), "not a master"),
        (to_master, ChangeRoleHeader(role=MASTER, epoch=1, force=True), ""),
    ):
        answer = await peer.ask(RequestCode.CHANGE_ROLE, header)
        assert answer.code == (ResponseCode.SYSTEM_ERROR if reason else ResponseCode.SUCCESS), answer.remark
        assert reason in (answer.remark or "")
    assert master.standing.state == MASTER and slave.standing.state == SLAVE


async def test_a_demotion_by_an_epoch_that_is_over_is_refused(group: Group) -> None:
    master = await group.add(0)
    await master.replication.roles.become_master(5000, why="the test says so")
    peer = group.connect(master)
    code, remark = await peer.refused(RequestCode.CHANGE_ROLE, ChangeRoleHeader(role=SLAVE, epoch=3000))
    assert code == ResponseCode.SYSTEM_ERROR and "5000" in remark
    assert (await ask(peer)).role == MASTER


async def test_a_member_that_is_gone_is_forgotten_by_the_broker_that_is_asked(group: Group) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    gone = "10.0.0.3:10911"
    slave.replication.members.meet([gone])
    await wait_until(lambda: slave.replication.members.mode and master.replication.server.list_slaves())
    to_master, to_slave = group.connect(master), group.connect(slave)
    for peer, address, reason in (
        (to_master, master.standing.address, "does not forget itself"),
        (to_master, slave.standing.address, "is connected to this broker"),
        (to_slave, master.standing.address, "is the master of this broker"),
    ):
        code, remark = await peer.refused(RequestCode.FORGET_MEMBER, ForgetMemberHeader(address))
        assert code == ResponseCode.SYSTEM_ERROR and reason in remark
    both = {master.standing.address, slave.standing.address}
    for _ in range(2):
        state = (await to_slave.expect(RequestCode.FORGET_MEMBER, ForgetMemberHeader(gone))).body
        assert set(state.members) == both
    # A crash after the answer does not bring it back.
    table = await asyncio.to_thread(open_members(slave.store.disk, slave.store.paths.config).load)
    assert gone not in table.members


async def test_nobody_but_an_eruca_has_a_state(group: Group) -> None:
    caller = Caller()
    master = await group.add(0)
    state = await ask_state(MemberCaller(caller, master._membership), master.standing.address)
    assert state is not None and state.role == MASTER
    await caller.close()
