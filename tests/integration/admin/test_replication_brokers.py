"""Promotion with real brokers: they change places, take over from a dead one, come back as slaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions, BrokerRole
from eruca._cli.main import main
from eruca._client.options import ClientOptions
from eruca._client.produce.outgoing import SendStatus
from eruca._client.produce.producer import Producer
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca.admin import Admin
from eruca.errors import ConfigError, NetError, NoRoute, SendFailed
from tests.integration.admin.staging import wait_until
from tests.integration.broker.conftest import allow_new_files
from tests.integration.broker.peer import find_port
from tests.integration.broker.replication.conftest import allow_cuts

__all__ = ["allow_cuts", "allow_new_files"]

pytestmark = pytest.mark.usefixtures("allow_new_files", "allow_cuts")


class Pair:
    """A name server, a master and a slave (or more) on free ports."""

    def __init__(self, home: Path, slaves: int = 1) -> None:
        self.home = home
        self.nameserver = NameServer(NameServerOptions(listen_port=0))
        self.ports = [find_port() for _ in range(slaves + 1)]
        self.brokers: list[Broker | None] = [None] * (slaves + 1)
        self.roles = [BrokerRole.SYNC_MASTER] + [BrokerRole.SLAVE] * slaves

    async def __aenter__(self) -> Pair:
        await self.nameserver.start()
        for number in range(len(self.ports)):
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in range(len(self.ports)):
            await self.stop(number)
        await self.nameserver.stop()

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    async def start(self, number: int) -> Broker:
        options = BrokerOptions(
            name="a",
            broker_id=number,
            role=self.roles[number],
            port=self.ports[number],
            nameservers=self.nameserver.address,
            register_interval_ms=200,
            ha_reconnect_ms=50,
            ha_metadata_ms=50,
        )
        small = StoreOptions(
            commitlog_segment_bytes=1 << 20, consumequeue_segment_bytes=2000, index_slots=500, index_entries=2000
        )
        broker = Broker(options, small, self.home / f"member{number}")
        await broker.start()
        self.brokers[number] = broker
        return broker

    async def stop(self, number: int) -> None:
        broker, self.brokers[number] = self.brokers[number], None
        if broker is not None:
            await broker.stop()

    async def is_following(self, admin: Admin, number: int) -> bool:
        try:
            state = await admin.cluster.state(self.address(number))
        except NetError:
            return False  # it was away a moment ago
        master = state.master
        if state.role != "SLAVE" or master is None or not master.connected or master.lag_bytes:
            return False
        # One that was not told yet who the others are, and what they wait for, could not be promoted later.
        return len(state.members) == len(self.ports) and master.required > 0

    def count_slaves(self, number: int) -> int:
        """How many slaves a member feeds."""
        broker = self.brokers[number]
        assert broker is not None
        return len(broker.replication.server.links)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with Pair(tmp_path) as started:
        yield started


def make_admin(pair: Pair) -> Admin:
    return Admin(options=ClientOptions(nameservers=pair.nameserver.address, call_timeout=10))


@pytest.fixture
async def admin(pair: Pair) -> AsyncIterator[Admin]:
    async with make_admin(pair) as started:
        yield started


async def send(admin: Admin, body: bytes, wanted: SendStatus = SendStatus.STORED) -> None:
    """Send until it is acknowledged by as many as it should, or gets another answer that is wanted."""

    async def is_stored() -> bool:
        try:
            receipt = await producer.send("T", body)
        except (SendFailed, NoRoute):
            return False  # there is no master now, or another one, and the route does not say so yet
        return receipt.status is wanted

    async with Producer(group="p", options=admin.options) as producer:
        await wait_until(is_stored, "an acknowledgement")


async def test_they_change_places_and_back(pair: Pair, admin: Admin) -> None:
    await wait_until(lambda: pair.is_following(admin, 1), "the slave")
    await send(admin, b"one")
    report = await admin.cluster.promote(pair.address(1))
    assert (report.done, report.before, report.epoch, report.warnings) == (True, pair.address(0), 1100, [])
    await wait_until(lambda: pair.is_following(admin, 0), "the old master")
    await send(admin, b"two")
    rows = (await admin.cluster.members()).items
    assert [(row.broker_id, row.address, row.role) for row in rows] == [
        (0, pair.address(1), "MASTER"),
        (1, pair.address(0), "SLAVE"),
    ]
    (lag,) = (await admin.cluster.lag("a")).items
    assert (lag.address, lag.master, lag.fenced, lag.told_by) == (pair.address(0), pair.address(1), True, "master")
    report = await admin.cluster.demote("a:0")
    assert (report.done, report.master, report.epoch) == (True, pair.address(0), 2000)
    await wait_until(lambda: pair.is_following(admin, 1), "the slave again")
    await send(admin, b"three")


async def test_a_slave_takes_over_and_the_old_master_comes_back_as_a_slave(pair: Pair, admin: Admin) -> None:
    await wait_until(lambda: pair.is_following(admin, 1), "the slave")
    await send(admin, b"one")
    await pair.stop(0)
    report = await admin.cluster.promote(pair.address(1))
    assert report.done and report.objections == []
    await pair.start(0)
    await wait_until(lambda: pair.is_following(admin, 0), "the old master")
    await send(admin, b"two")
    assert (await admin.cluster.diverged()).items == []
    # What it became outlives a restart, whatever broker.conf says.
    await pair.stop(0)
    await pair.start(0)
    await wait_until(lambda: pair.is_following(admin, 0), "the old master")


async def test_a_master_that_did_not_wait_is_replaced_by_force_only(pair: Pair, admin: Admin) -> None:
    for number in (1, 0):
        await pair.stop(number)
    pair.roles[0] = BrokerRole.ASYNC_MASTER
    for number in (0, 1):
        await pair.start(number)
    await wait_until(lambda: pair.is_following(admin, 1), "the slave")
    await pair.stop(0)
    with pytest.raises(ConfigError, match="ASYNC_MASTER"):
        await admin.cluster.promote(pair.address(1))
    assert (await admin.cluster.promote(pair.address(1), force=True)).done


async def test_what_only_the_old_master_had_is_set_aside_and_can_be_read(pair: Pair, admin: Admin) -> None:
    await wait_until(lambda: pair.is_following(admin, 1), "the slave")
    await send(admin, b"kept")
    await pair.stop(1)

    async def is_alone() -> bool:
        return pair.count_slaves(0) == 0

    await wait_until(is_alone, "the master notices")
    await send(admin, b"only here", SendStatus.SLAVE_NOT_AVAILABLE)
    await pair.stop(0)
    await pair.start(1)
    report = await admin.cluster.promote(pair.address(1))
    assert report.done and report.objections == []  # it was not acknowledged
    await send(admin, b"new", SendStatus.SLAVE_NOT_AVAILABLE)
    await pair.start(0)
    await wait_until(lambda: pair.is_following(admin, 0), "the old master")
    (row,) = (await admin.cluster.diverged()).items
    assert (row.address, row.epoch, row.file) == (pair.address(0), 1, f"1-{row.begin}-{row.end}.log")
    home = str(pair.home / "member0")
    result = await asyncio.to_thread(CliRunner().invoke, main, ["store", "diverged", home, "-o", "json"])
    assert [json.loads(line)["file"] for line in result.stdout.splitlines()] == [row.file]
    result = await asyncio.to_thread(CliRunner().invoke, main, ["store", "diverged", home, row.file, "-o", "json"])
    messages = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(message["topic"], message["body"], message["position"]) for message in messages] == [
        ("T", "only here", row.begin)
    ]
    result = await asyncio.to_thread(CliRunner().invoke, main, ["store", "diverged", home, "../x"])
    assert result.exit_code == 1 and "nothing was set aside as" in result.stderr


async def test_an_empty_store_does_not_lead_a_name_that_others_have_led(pair: Pair, admin: Admin) -> None:
    await wait_until(lambda: pair.is_following(admin, 1), "the slave")
    await admin.cluster.promote(pair.address(1))
    await pair.stop(1)
    await pair.stop(0)
    await asyncio.to_thread(shutil.rmtree, pair.home / "member0")
    await pair.start(0)

    async def is_refused() -> bool:
        return (await admin.cluster.state(pair.address(0))).claimed_epoch == 1100

    # It does not step down, but name servers send nobody there.
    await wait_until(is_refused, "the name server's word")
    assert (await admin.connection.describe_clusters()).broker_addr_table.get("a") is None
    with pytest.raises(ConfigError, match="has heard of a master of epoch 1100"):
        await admin.cluster.promote(pair.address(0))
    report = await admin.cluster.promote(pair.address(0), force=True)
    assert report.done and report.epoch == 2000
    assert pair.nameserver.routes.describe_clusters().broker_addr_table["a"].broker_addrs == {0: pair.address(0)}


async def test_of_three_both_slaves_must_answer(tmp_path: Path) -> None:
    async with Pair(tmp_path, slaves=2) as three, make_admin(three) as admin:
        await wait_until(lambda: three.is_following(admin, 1), "the first slave")
        await wait_until(lambda: three.is_following(admin, 2), "the second slave")
        await send(admin, b"one")
        await wait_until(lambda: knows_all(admin, three, 1), "all members")
        await three.stop(2)
        await three.stop(0)
        with pytest.raises(ConfigError, match="1 of 3 members answer"):
            await admin.cluster.promote(three.address(1))
        await three.start(2)
        await wait_until(lambda: answers(admin, three.address(2)), "an answer")
        report = await admin.cluster.promote(three.address(1))
        assert report.done and report.objections == report.warnings == []
        await wait_until(lambda: three.is_following(admin, 2), "the other slave")
        await send(admin, b"two")
        await three.start(0)
        await wait_until(lambda: three.is_following(admin, 0), "the old master")
        rows = (await admin.cluster.members()).items
        assert [(row.broker_id, row.address, row.role) for row in rows] == [
            (0, three.address(1), "MASTER"),
            (1, three.address(0), "SLAVE"),
            (2, three.address(2), "SLAVE"),
        ]


async def knows_all(admin: Admin, pair: Pair, number: int) -> bool:
    state = await admin.cluster.state(pair.address(number))
    return len(state.members) == len(pair.ports)


async def answers(admin: Admin, address: str) -> bool:
    try:
        await admin.cluster.state(address)
    except NetError:
        return False  # it was away a moment ago
    return True


async def test_a_member_that_is_gone_for_good_is_forgotten(tmp_path: Path) -> None:
    async with Pair(tmp_path, slaves=2) as three, make_admin(three) as admin:
        await wait_until(lambda: three.is_following(admin, 1), "a slave")
        await wait_until(lambda: three.is_following(admin, 2), "another slave")
        gone = three.address(2)
        with pytest.raises(ConfigError, match="answers: it is a member of a"):
            await admin.cluster.forget(gone)
        await three.stop(2)

        async def is_known_by(count: int) -> bool:
            rows = (await admin.cluster.members()).items
            return [row.role for row in rows] == ["MASTER", "SLAVE", ""][:count]

        await wait_until(lambda: is_known_by(3), "a member that does not answer")
        planned = await admin.cluster.forget(gone, dry_run=True)
        assert [(change.where, change.outcome) for change in planned.changes] == [
            (three.address(0), "planned"),
            (three.address(1), "planned"),
        ]
        forgotten = await admin.cluster.forget(gone)
        assert not forgotten.failed and {change.outcome for change in forgotten.changes} == {"done"}
        for change in forgotten.changes:
            assert gone in (change.before or []) and gone not in (change.after or [gone])
        with pytest.raises(NoRoute, match="no member knows"):
            await admin.cluster.forget(gone)
        # With two members it is enough that the slave answers, and nobody learns of the third one again.
        await three.stop(0)
        await three.start(0)
        await wait_until(lambda: is_known_by(2), "two members")
        # It is a member again when it comes back.
        await three.start(2)
        await wait_until(lambda: three.is_following(admin, 2), "the third member")
        await send(admin, b"one")
