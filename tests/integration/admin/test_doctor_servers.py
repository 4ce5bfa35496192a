"""`eruca doctor` finds faults of servers: masters, slaves, clocks, name servers, retention, permissions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from eruca import Producer
from eruca._admin.doctor.checks import CHECKS, NOT_EXAMINED
from eruca._broker.options import BrokerRole
from eruca._client.options import ClientOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca.admin import Admin, Limits, Rules, Severity
from tests.accounts import describe, enable_accounts
from tests.integration.admin.faults import CASES, LIMITS, Stage, Wanted, wait_for
from tests.integration.admin.staging import prepare, wait_until
from tests.integration.admin.test_doctor import group, open_admin, stack
from tests.integration.broker.conftest import allow_new_files
from tests.integration.broker.peer import find_port
from tests.integration.broker.replication.conftest import allow_cuts
from tests.integration.broker.replication.keys import MEMBERS
from tests.integration.broker.replication.members import Group, ShiftedClock, wait_for_copy
from tests.integration.cli.upprocess import make_command, make_environment

__all__ = ["allow_cuts", "allow_new_files", "group", "stack"]

_MINUTE_MS = 60_000
#: The findings that are made here; those of `faults` are made by clients.
MADE_HERE = {
    *(
        "no-broker",
        "no-master",
        "broker-unreachable",
        "insync-too-small",
        "slave-disconnected",
        "slave-behind",
        "brokers-uneven",
    ),
    *("clock-apart", "unread-deleted", "transactions-given-up", "nameserver-unreachable", "nameservers-disagree"),
    NOT_EXAMINED,
}


def test_every_finding_is_made() -> None:
    names = {name for its in CHECKS.values() for name in its} | {NOT_EXAMINED}
    assert names == MADE_HERE | set(CASES) and not MADE_HERE & set(CASES)


async def has_roles(admin: Admin, *roles: str) -> bool:
    return sorted(row.role for row in (await admin.cluster.members()).items if row.role) == sorted(roles)


# --- replication ------------------------------------------------------------------------------------------------------


async def test_a_lost_master_is_found(group: Group, stack: AsyncExitStack) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER", "SLAVE"), "master and slave")
    await wait_for_copy(slave, master)
    await group.remove(master)
    finding, found = await wait_for(admin, Wanted("no-master", "broker broker-a"))
    assert finding.severity is Severity.CRITICAL
    assert finding.command == f"eruca cluster promote {slave.standing.address}"
    lost = Wanted("slave-disconnected", f"broker broker-a ({slave.standing.address})")
    _, found = await wait_for(admin, lost)
    assert {each.id for each in found.findings} == {"no-master", "slave-disconnected"}


async def test_too_few_copies_are_found(group: Group, stack: AsyncExitStack) -> None:
    master = await group.add(0, BrokerRole.SYNC_MASTER)
    slave = await group.add(1)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER", "SLAVE"), "master and slave")
    await wait_for_copy(slave, master)

    async def is_healthy() -> bool:
        return not (await admin.doctor.examine(limits=LIMITS)).findings

    await wait_until(is_healthy, "a slave in sync")
    await group.remove(slave)
    wanted = Wanted("insync-too-small", f"broker broker-a ({master.standing.address})")
    finding, found = await wait_for(admin, wanted)
    assert (finding.evidence["copies"], finding.evidence["members"]) == (1, 2)
    assert [each.id for each in found.findings] == ["insync-too-small"]


@asynccontextmanager
async def run_slave(group: Group, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a slave in a process that can be frozen."""
    options = ["--option", "brokerId=1", "--option", "brokerRole=SLAVE", "--option", f"listenPort={find_port()}"]
    options += ["--option", f"storePathRootDir={directory}"]
    command = make_command("broker", "start", "-o", "json", "-n", group.nameserver.address, *options)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=make_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        await process.communicate()


async def test_a_slave_that_hangs_is_found(group: Group, stack: AsyncExitStack, tmp_path: Path) -> None:
    """It still is registered and connected, but does not answer, and does not copy either."""
    await group.add(0, slave_timeout_ms=60_000)
    admin = await open_admin(stack, group.nameserver.address)
    process = await stack.enter_async_context(run_slave(group, tmp_path / "frozen"))
    assert process.stdout is not None
    address = json.loads(await process.stdout.readline())["broker"]
    await wait_until(lambda: has_roles(admin, "MASTER", "SLAVE"), "master and slave")

    async def copies() -> bool:
        return [row.told_by for row in (await admin.cluster.lag()).items] == ["master"]

    await wait_until(copies, "a slave that copies")
    process.send_signal(signal.SIGSTOP)
    stage = Stage(admin, "hangs", stack)
    await stage.create()
    async with Producer(group="stage-senders", options=admin.options) as producer:
        for _ in range(20):
            await producer.send(stage.topic, os.urandom(20_000))
    where = f"broker broker-a ({address})"
    finding, _ = await wait_for(admin, Wanted("broker-unreachable", where))
    assert finding.severity is Severity.WARNING
    finding, found = await wait_for(admin, Wanted("slave-behind", where, Rules(slave_lag_bytes=100_000)))
    assert {each.id for each in found.findings} <= {"broker-unreachable", "slave-behind", "insync-too-small"}
    assert found.seconds < 20


async def test_an_uneven_load_is_found(group: Group, stack: AsyncExitStack) -> None:
    await group.add(0)
    await group.add(0, name="broker-b")
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER", "MASTER"), "two masters")
    await admin.topics.create("uneven", queues=2, brokers=["broker-a"])
    busy = asyncio.create_task(_keep_sending(admin))
    stack.callback(busy.cancel)
    wanted = Wanted("brokers-uneven", "broker broker-a of DefaultCluster", Rules(uneven_rate=1.0))
    finding, _ = await wait_for(admin, wanted)
    assert float(str(finding.evidence["rate"])) > 1


async def _keep_sending(admin: Admin) -> None:
    async with Producer(group="stage-senders", options=admin.options) as producer:
        while True:
            await producer.send("uneven", b"x")
            await asyncio.sleep(0.01)


# --- clocks, retention, transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift_ms", "severity"), [(-30_000, Severity.WARNING), (5 * _MINUTE_MS, Severity.CRITICAL)])
async def test_a_wrong_clock_is_found(shift_ms: int, severity: Severity, group: Group, stack: AsyncExitStack) -> None:
    clock = ShiftedClock()
    clock.shift_ms = shift_ms
    master = await group.add(0, clock=clock)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER"), "a master")
    finding, found = await wait_for(admin, Wanted("clock-apart", f"broker broker-a ({master.standing.address})"))
    assert finding.severity is severity and [each.id for each in found.findings] == ["clock-apart"]
    assert abs(float(str(finding.evidence["ahead_seconds"])) - shift_ms / 1000) < 2


async def test_messages_that_were_deleted_unread_are_found(group: Group, stack: AsyncExitStack) -> None:
    clock = ShiftedClock()
    await group.add(0, clock=clock, commitlog_segment_bytes=1 << 16)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER"), "a master")
    stage = Stage(admin, "deleted", stack)
    await stage.create(queues=1)
    await admin.offsets.reset(stage.group, stage.topic, "earliest")
    async with Producer(group="stage-senders", options=admin.options) as producer:
        for _ in range(40):
            await producer.send(stage.topic, os.urandom(10_000))
    clock.shift_ms = 100 * 60 * _MINUTE_MS

    async def has_begun_later() -> bool:
        await admin.brokers.delete_expired_log()
        return (await admin.topics.queues(stage.topic)).items[0].begin > 0

    await wait_until(has_begun_later, "messages deleted")
    clock.shift_ms = 0
    finding, found = await wait_for(admin, Wanted("unread-deleted", f"group {stage.group}"))
    begin = (await admin.topics.queues(stage.topic)).items[0].begin
    assert finding.evidence["deleted_messages"] == begin
    assert {each.id for each in found.findings} == {"unread-deleted", "group-absent"}


async def test_transactions_that_were_given_up_are_found(group: Group, stack: AsyncExitStack) -> None:
    await group.add(0, transaction_check_interval_ms=50, transaction_timeout_ms=50, transaction_check_max=1)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_roles(admin, "MASTER"), "a master")
    stage = Stage(admin, "given-up", stack)
    await stage.create()
    await prepare(admin, stage.topic, "given-up-half")
    finding, _ = await wait_for(admin, Wanted("transactions-given-up", "producer group stage-payments"))
    assert finding.evidence["given_up"] == 1


# --- name servers and rights ------------------------------------------------------------------------------------------


async def test_a_name_server_that_is_away_is_found(group: Group, stack: AsyncExitStack) -> None:
    await group.add(0)
    away = f"127.0.0.1:{find_port()}"
    admin = await open_admin(stack, group.nameserver.address, away)
    finding, found = await wait_for(admin, Wanted("nameserver-unreachable", f"name server {away}"))
    assert finding.severity is Severity.WARNING and [each.id for each in found.findings] == ["nameserver-unreachable"]


async def test_without_any_name_server_that_is_all(stack: AsyncExitStack) -> None:
    away = f"127.0.0.1:{find_port()}"
    found = await (await open_admin(stack, away)).doctor.examine(limits=LIMITS)
    assert [(each.id, each.severity) for each in found.findings] == [("nameserver-unreachable", Severity.CRITICAL)]


async def test_a_cluster_without_brokers_is_one_finding(group: Group, stack: AsyncExitStack) -> None:
    admin = await open_admin(stack, group.nameserver.address)
    found = await admin.doctor.examine(limits=LIMITS)
    assert [(each.id, each.severity) for each in found.findings] == [("no-broker", Severity.CRITICAL)]


async def test_name_servers_that_know_different_brokers_are_found(
    group: Group, stack: AsyncExitStack, tmp_path: Path
) -> None:
    other = NameServer(NameServerOptions(listen_port=0, kv_config_path=str(tmp_path / "kv2.json")))
    await other.start()
    stack.push_async_callback(other.stop)
    master = await group.add(0)
    admin = await open_admin(stack, group.nameserver.address, other.address)
    _, found = await wait_for(admin, Wanted("nameservers-disagree", f"name server {other.address}"))
    # The brokers and topics that any of them knows are looked at.
    assert {each.id for each in found.findings} == {"nameservers-disagree"} and found.looked_at["brokers"] == 1
    assert any(f"broker-a:0 {master.standing.address}" in each.what for each in found.findings)


async def test_what_one_name_server_knows_is_found_in_every_run(
    group: Group, stack: AsyncExitStack, tmp_path: Path
) -> None:
    other = NameServer(NameServerOptions(listen_port=0, kv_config_path=str(tmp_path / "kv2.json")))
    await other.start()
    stack.push_async_callback(other.stop)
    await group.add(0)
    first = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: has_brokers(first), "a broker")
    await first.topics.create("T")
    # Each run of a command has a session of its own, which asks the name servers in another order.
    for _ in range(8):
        async with Admin(f"{other.address};{group.nameserver.address}") as admin:
            assert (await admin.topics.show("T")).queues
            assert [row.broker for row in (await admin.brokers.list()).items] == ["broker-a"]
            assert (await admin.brokers.config("broker-a")).items
            assert [row.name for row in (await admin.topics.list()).items] == ["T"]
            assert [message async for message in admin.messages.read("T")] == []
            found = await admin.doctor.examine(limits=LIMITS)
            assert {each.id for each in found.findings} == {"nameservers-disagree"}


async def test_what_may_not_be_looked_at_is_not_healthy(stack: AsyncExitStack, tmp_path: Path) -> None:
    access = await asyncio.to_thread(enable_accounts, tmp_path, describe(MEMBERS, defaultTopicPerm="PUB|SUB"))
    group = Group(tmp_path)
    await group.start()
    stack.push_async_callback(group.stop)
    await group.add(0, access=access)
    options = ClientOptions(
        nameservers=group.nameserver.address, access_key=MEMBERS.access_key, secret_key=MEMBERS.secret_key
    )
    admin = await stack.enter_async_context(Admin(options=options))
    await wait_until(lambda: has_brokers(admin), "a broker")
    found = await admin.doctor.examine(limits=Limits(sample=0.1))
    assert {each.id for each in found.findings} == {"not-examined"} and not found.is_healthy


async def has_brokers(admin: Admin) -> bool:
    return bool(await admin.connection.list_masters())
