"""Real brokers in one process that elect their master in a real etcd: pauses, ids, the set, tails, operators."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca import ClientOptions, Producer
from eruca._broker.app import Broker
from eruca._broker.options import BrokerRole
from eruca._broker.replication.failover import FailoverDriver
from eruca._client.produce.outgoing import SendStatus
from eruca._core.failover.view import Phase
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ChangeRoleHeader, EmptyHeader
from eruca._wire.names import MASTER, SLAVE
from eruca.admin import Admin
from eruca.errors import ConfigError, NoRoute, SendFailed
from tests.figures import note_figures
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import find_port
from tests.integration.broker.replication.members import Group, read_log, tail_of, wait_for_copy, wait_until
from tests.integration.broker.requests import try_send
from tests.replication.etcdserver import EtcdServer

# With such a short lease, masters change on their own on a machine that is busy with other tests: not for the slice.
LEASE_S = 1
pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def allow_disk_work(forbid_blocking_calls: BlockBuster) -> None:
    """Let the store make files and cut its log in the loop, as in the tests of brokers."""
    for name, function in forbid_blocking_calls.functions.items():
        function.can_block_in("eruca/_store/lineage/lineage.py", {"truncate"})
        function.can_block_in("eruca/_store/log/commitlog.py", {"start_copy_at"})
        if name in ("os.rename", "os.mkdir", "os.stat", "os.fsync"):
            function.can_block_in("eruca/_store/filesystem.py", {"create", "make_directory"})
    forbid_blocking_calls.functions["threading.Lock.acquire"].can_block_in("eruca/_store/log/chain.py", {"segment_for"})


class Elected:
    """Members that elect their master."""

    def __init__(self, group: Group, etcd: EtcdServer) -> None:
        self.group = group
        self.etcd = etcd
        self.brokers: dict[int, Broker] = {}

    async def start(self, *numbers: int, **options: Any) -> None:
        """Start members, all of them configured as in a broker.conf."""
        for number in numbers:
            self.brokers[number] = await self.group.add(
                number,
                BrokerRole.SLAVE if number else BrokerRole.SYNC_MASTER,
                failover="etcd",
                etcd_endpoints=self.etcd.endpoint,
                failover_lease_s=LEASE_S,
                **options,
            )

    async def wait_for_master(self, *numbers: int) -> Broker:
        """Wait until one of these leads and everybody else follows it."""

        def find() -> Broker | None:
            for number, broker in self.brokers.items():
                if number in numbers and driver_of(broker).phase is Phase.LEADING:
                    others = self.brokers.keys() - {number}
                    if {link.member for link in broker.replication.server.links if link.is_joined} >= others:
                        return broker
            return None

        await wait_until(find, f"one of {numbers} is the master of all")
        master = find()
        assert master is not None
        return master

    async def wait_for_set(self, *numbers: int) -> None:
        """Wait until the in-sync set is this, for all."""
        drivers = [driver_of(broker) for broker in self.brokers.values()]
        await wait_until(lambda: all(driver.in_sync == set(numbers) for driver in drivers), f"the set {numbers}")

    async def kill(self, number: int) -> Broker:
        """Let a member vanish without notifying etcd or other members."""
        broker = self.brokers.pop(number)
        driver = driver_of(broker)
        await driver._fall_silent()
        await driver._client.close()
        broker.replication.failover = None
        broker.standing.may_register = False
        await self.group.remove(broker)
        return broker


def driver_of(broker: Broker) -> FailoverDriver:
    assert broker.replication.failover is not None
    return broker.replication.failover


@pytest.fixture
async def elected(etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Elected]:
    group = Group(tmp_path)
    await group.start()
    yield Elected(group, etcd)
    etcd.thaw()
    await group.stop()


async def test_first_start_and_sync_sends(elected: Elected) -> None:
    await elected.start(0, 1, 2)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    peer = elected.group.connect(master)
    for number in range(20):
        await peer.send("T", body=b"%d" % number)
    # Acknowledged means that every member of the set has it.
    logs = [read_log(broker) for broker in elected.brokers.values()]
    assert logs[0] == logs[1] == logs[2]
    addresses = {number: broker.standing.address for number, broker in elected.brokers.items()}
    await wait_until(lambda: elected.group.route() == addresses, "the route")


async def test_dead_master_is_replaced_and_ids_change_places(elected: Elected) -> None:
    await elected.start(0, 1, 2)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    peer = elected.group.connect(master)
    await peer.send("T", body=b"first")
    before = time.monotonic()
    await elected.kill(0)
    successor = await elected.wait_for_master(1, 2)
    pause_s = time.monotonic() - before
    await elected.group.connect(successor).send("T", body=b"second")
    assert [message.body for message in stored(successor, "T", 0)] == [b"first", b"second"]
    assert successor.store.lineage.epochs[-1].epoch // 1000 == 2
    # The old master comes back as a slave, with the id that its successor left.
    await elected.start(0)
    await elected.wait_for_master(1, 2)
    await elected.wait_for_set(0, 1, 2)
    await wait_for_copy(elected.brokers[0], successor)
    assert elected.brokers[0].standing.state == SLAVE
    number = successor.options.broker_id
    await wait_until(lambda: elected.group.route().get(0) == successor.standing.address, "the successor has id 0")
    await wait_until(
        lambda: elected.group.route().get(number) == elected.brokers[0].standing.address, "the ids changed places"
    )
    note_figures(f"failover with a lease of {LEASE_S} s: the successor led {pause_s:.2f} s after its master vanished")


async def test_a_member_that_starts_alone_after_etcd_lost_its_data_waits_for_the_others(
    elected: Elected, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {number: find_port() for number in range(3)}
    for number, port in ports.items():
        await elected.start(number, port=port)
    await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    await elected.group.remove(elected.brokers.pop(0))
    successor = await elected.wait_for_master(1, 2)
    peer = elected.group.connect(successor)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        await peer.send("T", body=body)
    for number in (1, 2):
        await elected.group.remove(elected.brokers.pop(number))
    await elected.etcd.lose_data()
    await elected.start(0, port=ports[0])
    await wait_until(lambda: "waiting for the members at" in caplog.text, "it says for whom it waits")
    assert driver_of(elected.brokers[0]).phase is Phase.WAITING
    for number in (1, 2):
        await elected.start(number, port=ports[number])
    master = await elected.wait_for_master(1, 2)
    assert [message.body for message in stored(master, "T", 0)] == bodies
    await elected.wait_for_set(0, 1, 2)
    await elected.group.connect(master).send("T", body=b"after")
    # While all of them run, no operator is needed.
    await elected.etcd.lose_data()
    again = await elected.wait_for_master(0, 1, 2)
    assert [message.body for message in stored(again, "T", 0)] == [*bodies, b"after"]
    await elected.wait_for_set(0, 1, 2)
    assert all(broker.store.lineage.record.diverged == [] for broker in elected.brokers.values())


async def test_too_few_in_the_set_is_not_acknowledged(elected: Elected) -> None:
    await elected.start(0)
    await wait_until(lambda: driver_of(elected.brokers[0]).phase is Phase.LEADING, "the first master")
    peer = elected.group.connect(elected.brokers[0])
    answer = await try_send(peer)
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    await elected.start(1)
    await elected.wait_for_set(0, 1)
    assert (await try_send(peer)).code == ResponseCode.SUCCESS


async def test_dead_slave_leaves_the_set_and_sends_go_on(elected: Elected) -> None:
    await elected.start(0, 1, 2)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    peer = elected.group.connect(master)
    await peer.send("T")
    await elected.kill(2)
    await peer.send("T")
    await elected.wait_for_set(0, 1)
    await elected.start(2)
    await elected.wait_for_set(0, 1, 2)
    await peer.send("T")
    assert read_log(elected.brokers[2]) == read_log(master)


async def test_tail_that_was_never_acknowledged_is_set_aside(elected: Elected) -> None:
    await elected.start(0, 1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    peer = elected.group.connect(master)
    await peer.send("T", body=b"acknowledged")
    # The slave's link is blocked, and with it the acknowledgement.
    await elected.brokers[1].replication.follower.stop()
    answer = await try_send(peer, body=b"not acknowledged")
    assert answer.code in (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
    assert tail_of(master) > tail_of(elected.brokers[1])
    await elected.kill(0)
    await wait_until(lambda: driver_of(elected.brokers[1]).phase is Phase.LEADING, "the slave leads")
    await elected.start(0)
    successor = await elected.wait_for_master(1)
    await elected.wait_for_set(0, 1)
    await elected.group.connect(successor).send("T", body=b"after")
    await wait_for_copy(elected.brokers[0], successor)
    assert read_log(elected.brokers[0]) == read_log(successor)
    assert [message.body for message in stored(successor, "T", 0)] == [b"acknowledged", b"after"]
    (diverged,) = elected.brokers[0].store.lineage.record.diverged
    assert diverged.epoch == 1000


async def test_master_without_etcd_fences_itself(elected: Elected) -> None:
    await elected.start(0, 1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    peer = elected.group.connect(master)
    await peer.send("T", body=b"before")
    elected.etcd.freeze()
    await wait_until(lambda: not driver_of(master).gate.is_open(), "the gate closes")
    answer = await try_send(peer)
    assert answer.code in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    await wait_until(lambda: not master.standing.writable, "the fence")
    assert (await try_send(peer)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [message.body for message in stored(elected.brokers[1], "T", 0)][:1] == [b"before"]
    elected.etcd.thaw()
    again = await elected.wait_for_master(0, 1)
    await elected.wait_for_set(0, 1)
    await elected.group.connect(again).send("T", body=b"after")


async def test_operator_moves_the_mastership(elected: Elected) -> None:
    await elected.start(0, 1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    slave = elected.brokers[1]
    promote = ChangeRoleHeader(role=MASTER)
    code, remark = await elected.group.connect(slave).refused(RequestCode.CHANGE_ROLE, promote)
    assert code == ResponseCode.SYSTEM_ERROR
    assert "elect their master" in remark
    forced = ChangeRoleHeader(role=MASTER, force=True)
    code, remark = await elected.group.connect(slave).refused(RequestCode.CHANGE_ROLE, forced)
    assert "is the master; stop or demote it" in remark
    await elected.group.connect(master).expect(RequestCode.CHANGE_ROLE, ChangeRoleHeader(role=SLAVE))
    assert await elected.wait_for_master(1) is slave
    state = (await elected.group.connect(slave).expect(RequestCode.REPLICATION_STATE, EmptyHeader())).body
    assert (state.role, state.failover, state.epoch) == (MASTER, "etcd", 2100)


async def test_admin_command_moves_the_mastership(elected: Elected) -> None:
    await elected.start(0, 1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    async with Admin(elected.group.nameserver.address) as admin:
        report = await admin.cluster.demote(master.standing.address)
    assert report.done
    assert report.master == elected.brokers[1].standing.address
    assert await elected.wait_for_master(1) is elected.brokers[1]


async def test_operator_forces_a_member_outside_the_set(elected: Elected, caplog: pytest.LogCaptureFixture) -> None:
    await elected.start(0, 1, in_sync_replicas=1)
    master = await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1)
    slave = elected.brokers[1]
    await elected.group.connect(master).send("T", body=b"both")
    await slave.replication.follower.stop()
    await elected.wait_for_set(0)
    await elected.group.connect(master).send("T", body=b"only the master")
    await elected.kill(0)
    await wait_until(lambda: "may lack acknowledged messages" in caplog.text, "a word")
    peer = elected.group.connect(slave)
    await peer.expect(RequestCode.CHANGE_ROLE, ChangeRoleHeader(role=MASTER, force=True))
    assert slave.standing.state == MASTER
    await peer.send("T", body=b"forced")
    assert [message.body for message in stored(slave, "T", 0)] == [b"both", b"forced"]


async def test_producer_sees_a_short_pause(elected: Elected, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    await elected.start(0, 1, 2)
    await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    pauses: list[float] = []
    sent: list[bytes] = []
    options = ClientOptions(route_interval=0.2, call_timeout=1)
    async with Producer(
        elected.group.nameserver.address, group="feeder", timeout=2.0, try_timeout=1.0, options=options
    ) as producer:
        number = 0
        for _ in range(3):
            master = await elected.wait_for_master(0, 1, 2)
            await elected.wait_for_set(0, 1, 2)
            for _ in range(20):
                number += 1
                await producer.send("T", b"%d" % number)
                sent.append(b"%d" % number)
            victim = master.options.broker_id
            killed_at = time.monotonic()
            await elected.kill(victim)
            while True:
                number += 1
                try:
                    receipt = await producer.send("T", b"%d" % number)
                except (NoRoute, SendFailed):
                    await asyncio.sleep(0.02)
                    continue
                if receipt.status is SendStatus.STORED:
                    break
            sent.append(b"%d" % number)
            pauses.append(time.monotonic() - killed_at)
            await elected.start(victim)
        master = await elected.wait_for_master(0, 1, 2)
    bodies = {message.body for queue in range(8) for message in stored(master, "T", queue)}
    assert bodies >= set(sent)
    note_figures(
        f"failover with a lease of {LEASE_S} s, members in one process: a producer paused"
        f" {', '.join(f'{pause:.2f} s' for pause in pauses)} (median {median(pauses):.2f} s), 0 acknowledged lost"
    )


async def test_what_contradicts_itself_is_refused_at_the_start(elected: Elected) -> None:
    with pytest.raises(ConfigError, match="only `etcd` is supported"):
        await elected.group.add(0, failover="zookeeper")
    with pytest.raises(ConfigError, match="etcdEndpoints"):
        await elected.group.add(0, failover="etcd")
    with pytest.raises(ConfigError, match="haMasterAddress"):
        await elected.group.add(1, failover="etcd", etcd_endpoints=elected.etcd.endpoint, ha_master="127.0.0.1:1")
