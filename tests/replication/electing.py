"""Members of a broker name that are only logs, with the real driver of automatic failover and a real etcd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from eruca._broker.options import BrokerOptions
from eruca._broker.replication.acknowledging import Gate
from eruca._broker.replication.copies import LogEnd
from eruca._broker.replication.failover import FailoverDriver, open_client
from eruca._broker.replication.failoverkeys import Keys
from eruca._broker.standing import Standing
from eruca._core.failover.rules import Rules
from eruca._core.failover.view import Phase, Progress
from eruca._ground.clock import SystemClock
from eruca._net.etcd import EtcdClient
from eruca.errors import StoreError
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer

WAIT_S = PATIENCE_S
# With such a short lease, masters change on their own on a machine that is busy with other tests: not for the slice.
LEASE_S = 1
RULES = Rules(cold_s=1.0, slave_timeout_s=0.6, alone_s=1.6, hold_s=1.0)


class FakeBroker:
    """A log that is only a number, copied from its master on every access."""

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
        self.known: set[str] = set()
        options = BrokerOptions(host=f"member{number}", broker_id=number, failover_lease_s=LEASE_S)
        clock, this = SystemClock(), cast(Any, self)  # it serves as both roles and copies
        self.driver = FailoverDriver(options, Standing(options), clock, this, this, client, Gate(clock), rules=RULES)

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
        return LogEnd(self.position, self.epoch, self.epoch, frozenset(self.known))

    def meet(self, addresses: Iterable[str]) -> None:
        self.known.update(addresses)

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
        return self.driver._role_change.is_running

    @property
    def is_master(self) -> bool:
        return self.driver.phase is Phase.LEADING and self.driver.gate.is_open()

    async def kill(self) -> None:
        """Crash without notifying etcd."""
        await self.driver._fall_silent()
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
                broker.position, broker.epoch, broker.known = before.position, before.epoch, before.known
            await broker.driver.start()

    async def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                masters = [broker.number for broker in self.brokers.values() if broker.driver.gate.is_open()]
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
        """Wait until the master knows this set, and etcd holds it."""

        def is_known() -> bool:
            return any(b.is_master and b.driver.in_sync == set(numbers) for b in self.brokers.values())

        async with asyncio.timeout(WAIT_S):
            while True:
                await self.wait_for(is_known, f"the set {numbers}")
                state = await self.client.get(self.keys.state)
                if state is not None and json.loads(state.value)["held"]["inSync"] == sorted(numbers):
                    return

    def is_readable(self) -> bool:
        """Whether all members that run see nothing that is damaged."""
        views = [broker.driver.machine.view for broker in self.brokers.values() if broker.is_running]
        return all(view is not None and not self.keys.find_damaged(view) for view in views)

    async def produce(self) -> None:
        """Send to the current master while there is one."""
        while True:
            for broker in self.brokers.values():
                if broker.driver.gate.is_open():
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
