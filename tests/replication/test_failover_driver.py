"""The driver of automatic failover against a real etcd, with brokers that are only logs: who is master, and when."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eruca.broker.failover import FailoverDriver, LogEnd, open_client
from eruca.broker.failoverkeys import Keys
from eruca.broker.options import BrokerOptions
from eruca.clock import SystemClock
from eruca.core.failover.machine import Phase, Rules
from eruca.core.failover.view import Progress
from eruca.errors import ConfigError, StoreError
from eruca.net.etcd import EtcdClient, open_etcd
from tests.figures import note_figures
from tests.replication.etcdserver import EtcdServer, run_cluster

WAIT_S = 30.0
# With a lease so short, a machine that is busy with other tests changes masters by itself: not for the slice.
LEASE_S = 1
pytestmark = pytest.mark.whole
RULES = Rules(cold_s=1.0, slave_timeout_s=0.6, alone_s=1.6, hold_s=1.0)


class FakeBroker:
    """A log that is a number, copied from its master whenever somebody looks."""

    def __init__(self, cluster: Cluster, number: int, client: EtcdClient) -> None:
        self._cluster = cluster
        self.number = number
        self.position = 0
        self.epoch = 0
        self.master: FakeBroker | None = None
        self.is_writable = False
        self.is_linked = True
        self.needed: frozenset[int] = frozenset()
        self.refuses = False
        self.history: list[str] = []
        options = BrokerOptions(host=f"member{number}", configured_id=number, failover_lease_s=LEASE_S)
        self.driver = FailoverDriver(options, SystemClock(), self, self, client, rules=RULES)

    async def become_master(self, epoch: int, *, why: str) -> None:
        if self.refuses:
            raise StoreError("the disk is full")
        assert epoch > self.epoch
        assert self.position >= self._cluster.acknowledged, "what was acknowledged is lost"
        self.master, self.epoch, self.is_writable = None, epoch, True
        self.history.append(f"master {epoch}")

    async def become_slave(self, master: tuple[str, str] | None, *, why: str, epoch: int = 0) -> None:
        self.copy()
        self.is_writable = False
        self.master = None if master is None else self._cluster.find(master[0])
        self.history.append(f"slave of {self.master.number}" if self.master is not None else "alone")

    async def fence(self, why: str) -> None:
        self.is_writable = False
        self.history.append("fenced")

    def copy(self) -> None:
        if self.master is not None and self.is_linked and self.master.is_writable:
            self.position, self.epoch = self.master.position, self.master.epoch

    def find_log_end(self) -> LogEnd:
        return LogEnd(self.position, self.epoch, self.epoch)

    def measure(self) -> Progress:
        slaves = [b for b in self._cluster.brokers.values() if b.master is self and b.is_linked and b.is_running]
        for slave in slaves:
            slave.copy()
        return Progress(self.position, self.position, 2, {slave.number: slave.position for slave in slaves})

    def require(self, members: frozenset[int]) -> None:
        self.needed = members

    def release(self) -> None:
        pass

    @property
    def is_running(self) -> bool:
        return bool(self.driver._services)

    @property
    def is_master(self) -> bool:
        return self.driver.phase is Phase.LEADING and self.driver.may_acknowledge()

    async def kill(self) -> None:
        """Die without a word to etcd."""
        self.driver._until = float("-inf")
        for task in [*self.driver._services, *self.driver._calls]:
            task.cancel()
        await asyncio.gather(*self.driver._services, *self.driver._calls, return_exceptions=True)
        self.driver._services.clear()
        await self.driver._client.close()


class Cluster:
    """Members of one broker name."""

    def __init__(self, etcd: EtcdServer, client: EtcdClient, *others: EtcdServer) -> None:
        self.etcd = etcd
        self.endpoints = ";".join(server.endpoint for server in (etcd, *others))
        self.client = client
        self.brokers: dict[int, FakeBroker] = {}
        self.acknowledged = 0
        self.sent = 0
        self.keys = Keys("/eruca", "DefaultCluster", "broker-a")

    def find(self, address: str) -> FakeBroker:
        return self.brokers[int(address.removeprefix("member").partition(":")[0])]

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            before = self.brokers.get(number)
            options = BrokerOptions(failover="etcd", etcd_endpoints=self.endpoints, failover_lease_s=LEASE_S)
            broker = self.brokers[number] = FakeBroker(self, number, await open_client(options))
            if before is not None:
                broker.position, broker.epoch = before.position, before.epoch
            await broker.driver.start()

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                masters = [broker.number for broker in self.brokers.values() if broker.driver.may_acknowledge()]
                assert len(masters) <= 1, f"{masters} may all acknowledge while waiting for {what}"
                await asyncio.sleep(0.01)

    async def wait_for_master(self, *numbers: int) -> FakeBroker:
        """Wait until one of these is the master and all others that run follow it."""
        master: FakeBroker | None = None

        def settled() -> bool:
            nonlocal master
            running = [broker for broker in self.brokers.values() if broker.is_running]
            master = next((broker for broker in running if broker.is_master and broker.number in numbers), None)
            return master is not None and all(broker.master is master for broker in running if broker is not master)

        await self.wait_for(settled, f"one of {numbers} to be the master")
        assert master is not None
        return master

    async def wait_for_set(self, *numbers: int) -> None:
        def is_known() -> bool:
            return any(b.is_master and b.driver.in_sync == set(numbers) for b in self.brokers.values())

        await self.wait_for(is_known, f"the set {numbers}")
        state = await self.client.get(self.keys.state)
        assert state is not None
        assert json.loads(state.value)["inSync"] == sorted(numbers)

    async def produce(self) -> None:
        """Send to whoever is the master, as long as one is."""
        while True:
            for broker in self.brokers.values():
                if broker.driver.may_acknowledge():
                    broker.position += 1
                    self.sent += 1
                    reports = broker.measure().reports
                    has_all = all(reports.get(member, -1) >= broker.position for member in broker.needed)
                    if has_all and len(reports) >= 1:
                        assert broker.position > self.acknowledged, "a master without what was acknowledged"
                        self.acknowledged = broker.position
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                await broker.driver.stop()
        await self.client.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with EtcdServer(tmp_path / "etcd") as etcd:
        cluster = Cluster(etcd, await open_etcd([etcd.endpoint], timeout_s=5))
        yield cluster
        etcd.thaw()
        await cluster.stop()


async def test_first_start_waits_for_the_configured_master(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await cluster.start(1, 2)
        await cluster.wait_for(lambda: "waiting for the member that is configured" in caplog.text, "a word")
    assert await cluster.client.get(cluster.keys.state) is None
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    assert master.epoch == 1000
    await cluster.wait_for_set(0, 1, 2)
    assert master.needed == {1, 2}
    held = await cluster.client.get(cluster.keys.master)
    assert held is not None
    assert json.loads(held.value) == {
        "epoch": 1000,
        "configuredId": 0,
        "address": "member0:10911",
        "haAddress": "member0:10912",
    }
    member = await cluster.client.get(cluster.keys.member(1))
    assert member is not None
    assert member.lease
    assert member.lease != held.lease


async def test_killed_master_is_replaced_by_the_one_with_the_most_data(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    # Nothing is acknowledged here, so nobody has to leave the set: one is a bit ahead of the other.
    slaves = cluster.brokers[1], cluster.brokers[2]
    for slave in slaves:
        slave.master = None
    slaves[0].position, slaves[1].position = 700, 800
    await master.kill()
    assert (await cluster.wait_for_master(2)).epoch == 2200
    await cluster.start(0)
    assert (await cluster.wait_for_master(2)).position == 800
    await cluster.wait_for_set(0, 1, 2)
    assert cluster.brokers[0].position == 800


async def test_stopped_master_does_not_let_others_wait(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    await master.driver.stop()
    assert await cluster.client.get(cluster.keys.member(0)) is None
    assert (await cluster.wait_for_master(1)).epoch == 2100


async def test_slave_leaves_the_set_and_comes_back(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    cluster.brokers[2].is_linked = False
    await cluster.wait_for_set(0, 1)
    await cluster.wait_for(lambda: master.needed == {1}, "the member to be needed no more")
    master.position = 500
    cluster.brokers[2].is_linked = True
    await cluster.wait_for_set(0, 1, 2)
    assert master.needed == {1, 2}


async def test_master_fences_itself_when_etcd_is_silent(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    cluster.etcd.freeze()
    frozen = asyncio.get_running_loop().time()
    await cluster.wait_for(lambda: not master.driver.may_acknowledge(), "the gate to close")
    assert asyncio.get_running_loop().time() - frozen <= LEASE_S
    await cluster.wait_for(lambda: master.driver.phase is Phase.FENCED and not master.is_writable, "the fence")
    assert cluster.brokers[1].master is master, "slaves go on as they are"
    cluster.etcd.thaw()
    again = await cluster.wait_for_master(0, 1)
    assert again.epoch // 1000 == 2


async def test_member_outside_the_set_waits_until_it_is_forced(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    slave = cluster.brokers[1]
    slave.is_linked = False
    master.position = 100
    await cluster.wait_for_set(0)
    with pytest.raises(ConfigError, match="member 0 at member0:10911 is the master"):
        await slave.driver.force()
    await master.kill()
    await cluster.wait_for(lambda: "may lack acknowledged messages" in caplog.text, "a word")
    assert slave.driver.phase is Phase.WAITING
    await slave.driver.force()
    assert (await cluster.wait_for_master(1)).epoch == 2100
    assert "what only others have is lost" in caplog.text
    await cluster.wait_for_set(1)


async def test_operator_moves_the_mastership(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    stepping = asyncio.create_task(master.driver.step_down(5.0))
    await cluster.wait_for(lambda: not master.driver.may_acknowledge(), "the gate to close")
    await stepping
    assert (await cluster.wait_for_master(1)).epoch == 2100
    assert master.history[-3:] == ["fenced", "alone", "slave of 1"]


async def test_member_that_cannot_be_master_leaves_it_to_another(cluster: Cluster) -> None:
    await cluster.start(0, 1, 2)
    master = await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1, 2)
    cluster.brokers[1].refuses = True
    await master.kill()
    assert (await cluster.wait_for_master(2)).epoch == 3200


async def test_members_find_each_other_after_etcd_was_away(cluster: Cluster) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    await cluster.etcd.stop()
    await cluster.wait_for(lambda: cluster.brokers[0].driver.phase is Phase.FENCED, "the fence")
    await cluster.etcd.start()
    assert (await cluster.wait_for_master(0, 1)).epoch >= 2000
    await cluster.wait_for_set(0, 1)


async def test_members_start_before_etcd(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.etcd.stop()
    await cluster.start(0, 1)
    await cluster.wait_for(lambda: "etcd cannot be reached" in caplog.text, "a word")
    assert cluster.brokers[0].history == ["alone"]
    await cluster.etcd.start()
    assert (await cluster.wait_for_master(0)).epoch == 1000


async def test_foreign_key_is_not_believed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0)
    await cluster.wait_for_master(0)
    revision = await cluster.client.put(cluster.keys.member(7), b"not ours")
    await cluster.wait_for(lambda: "is not one of ours" in caplog.text, "a word")
    assert revision
    await cluster.client.delete_prefix(cluster.keys.member(7))
    await cluster.wait_for_master(0)


async def test_a_damaged_key_of_a_member_is_written_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0, 1)
    await cluster.wait_for_master(0)
    await cluster.wait_for_set(0, 1)
    for member in (0, 1):
        key = cluster.keys.member(member)
        found = await cluster.client.get(key)
        assert found is not None
        await cluster.client.put(key, found.value.replace(b"position", b"po3ition"), found.lease)
        await cluster.wait_for(lambda key=key: f"{key} is not one of ours" in caplog.text, "a word")  # type: ignore[misc]

    def are_readable() -> bool:
        views = [broker.driver.machine.view for broker in cluster.brokers.values()]
        return all(view is not None and all(e.is_readable for e in view.members.values()) for view in views)

    await cluster.wait_for(are_readable, "keys that can be read")
    await cluster.brokers[0].kill()
    await cluster.wait_for_master(1)


async def test_nobody_to_step_down_for(cluster: Cluster) -> None:
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    with pytest.raises(ConfigError, match="no other member"):
        await master.driver.step_down()
    assert master.is_master


async def test_force_does_not_wait_for_ever(cluster: Cluster) -> None:
    await cluster.start(1)
    broker = cluster.brokers[1]
    await cluster.wait_for(lambda: broker.driver.phase is Phase.WAITING, "a slave without a master")
    cluster.etcd.freeze()
    # A claim that was sent may come true whenever etcd reads it, so there must be no lease to send one with.
    await cluster.wait_for(lambda: time.monotonic() > broker.driver.machine._deadline, "the end of the lease")
    with pytest.raises(ConfigError, match="is etcd there"):
        await broker.driver.force(0.2)
    cluster.etcd.thaw()
    # What an operator does not wait for any more does not happen later.
    await cluster.start(0)
    await cluster.wait_for_master(0)


async def test_etcd_that_went_back_in_time_is_not_believed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await cluster.start(0)
    master = await cluster.wait_for_master(0)
    master.driver._mirror.revision += 1_000_000
    await cluster.wait_for(lambda: "restored from a backup?" in caplog.text, "a word")
    assert master.epoch == 1000


async def test_one_of_three_etcd_servers_dies(tmp_path: Path) -> None:
    async with run_cluster(tmp_path, 3) as servers:
        client = await open_etcd([server.endpoint for server in servers], timeout_s=5)
        cluster = Cluster(servers[0], client, *servers[1:])
        await cluster.start(0, 1)
        master = await cluster.wait_for_master(0)
        await cluster.wait_for_set(0, 1)
        # All of them began with the first one.
        await servers[0].stop()
        slave = cluster.brokers[1]
        slave.is_linked = False
        await cluster.wait_for_set(0)
        slave.is_linked = True
        await cluster.wait_for_set(0, 1)
        await master.kill()
        assert (await cluster.wait_for_master(1)).epoch > 1000
        await cluster.stop()


@pytest.mark.parametrize("steps", [8, pytest.param(100, marks=[pytest.mark.whole, pytest.mark.timeout(900)])])
async def test_trouble_of_all_kinds(cluster: Cluster, steps: int) -> None:
    chance = random.Random(steps)
    await cluster.start(0, 1, 2)
    await cluster.wait_for_master(0)
    producing = asyncio.create_task(cluster.produce())
    epochs: set[int] = set()
    for _ in range(steps):
        master = await cluster.wait_for_master(0, 1, 2)
        epochs.add(master.epoch)
        await cluster.wait_for_set(0, 1, 2)
        before = cluster.acknowledged
        await cluster.wait_for(lambda before=before: cluster.acknowledged > before, "acknowledgements")  # type: ignore[misc]
        trouble = chance.choice(["kill", "kill", "stop", "freeze", "unlink", "kill slave"])
        victim = master if trouble != "kill slave" else cluster.brokers[(master.number + 1) % 3]
        if trouble == "stop":
            await master.driver.stop()
        elif trouble == "freeze":
            cluster.etcd.freeze()
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            cluster.etcd.thaw()
        elif trouble == "unlink":
            slave = cluster.brokers[(master.number + 1) % 3]
            slave.is_linked = False
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            slave.is_linked = True
        else:
            await victim.kill()
        if not victim.is_running:
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            await cluster.start(victim.number)
        assert not producing.done(), producing.exception()
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    note_figures(
        f"failover driver with a real etcd: {steps} troubles, {len(epochs)} masters, {cluster.sent} sent,"
        f" {cluster.acknowledged} acknowledged, 0 lost"
    )
    assert len(epochs) > 1


def test_names_cannot_leave_their_place() -> None:
    keys = Keys("/eruca/", "a/b", "c d")
    assert keys.prefix == "/eruca/a%2Fb/c%20d/"
    assert keys.member(3) == "/eruca/a%2Fb/c%20d/members/3"
