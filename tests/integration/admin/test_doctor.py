"""`eruca doctor` finds each of its faults in a cluster of real brokers, and nothing in a healthy one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eruca._broker.options import BrokerRole
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca.admin import Admin
from tests.integration.admin.faults import CASES, LIMITS, Stage, wait_for, work_well
from tests.integration.admin.staging import wait_until
from tests.integration.broker.conftest import allow_new_files
from tests.integration.broker.replication.conftest import allow_cuts
from tests.integration.broker.replication.members import Group, wait_for_copy

__all__ = ["allow_cuts", "allow_new_files"]


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    """A broker name without members yet."""
    group = Group(tmp_path)
    await group.start()
    yield group
    await group.stop()


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[AsyncExitStack]:
    """Ends admins and clients before the brokers and their files."""
    async with AsyncExitStack() as stack:
        yield stack


async def open_admin(stack: AsyncExitStack, *servers: str) -> Admin:
    return await stack.enter_async_context(Admin(list(servers)))


# --- a healthy cluster ------------------------------------------------------------------------------------------------


async def test_nothing_is_found_in_a_healthy_cluster(group: Group, stack: AsyncExitStack, tmp_path: Path) -> None:
    """Two name servers, a synchronous master with its slave, a second master; messages, members, a transaction."""
    other = NameServer(NameServerOptions(listen_port=0, kv_config_path=str(tmp_path / "kv2.json")))
    await other.start()
    stack.push_async_callback(other.stop)
    both = f"{group.nameserver.address};{other.address}"
    master = await group.add(0, BrokerRole.SYNC_MASTER, nameservers=both)
    slave = await group.add(1, nameservers=both)
    await group.add(0, name="broker-b", nameservers=both)
    admin = await open_admin(stack, group.nameserver.address, other.address)
    await wait_until(lambda: _has_members(admin, 3), "three members")
    stage = Stage(admin, "healthy", stack)
    await work_well(stage)
    await wait_for_copy(slave, master)
    found = await admin.doctor.examine(limits=LIMITS)
    assert (found.findings, found.left_out, found.is_healthy) == ([], [], True)
    assert found.looked_at["brokers"] == 3 and found.looked_at["members"] == 2
    only, shown = await admin.doctor.examine_group(stage.group, limits=LIMITS)
    assert only.findings == [] and len(shown.members) == 2


async def _has_members(admin: Admin, count: int) -> bool:
    return len([row for row in (await admin.cluster.members()).items if row.role]) == count


# --- faults that clients and operators make ---------------------------------------------------------------------------

#: What is found too, because the fault brings it.
ALSO = {
    "backlog-uneven": {"group-absent"},
    "unread-expiring": {"group-absent"},
    "queue-without-owner": {"members-uneven"},
}


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_is_found(name: str, group: Group, stack: AsyncExitStack) -> None:
    await group.add(0)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: _has_members(admin, 1), "a master")
    wanted = await CASES[name](Stage(admin, name, stack))
    assert wanted.id == name
    finding, found = await wait_for(admin, wanted)
    assert {each.id for each in found.findings} <= {name} | ALSO.get(name, set()), found.findings
    assert finding.evidence and finding.what and finding.advice


async def test_a_single_group_is_looked_at(group: Group, stack: AsyncExitStack) -> None:
    await group.add(0)
    admin = await open_admin(stack, group.nameserver.address)
    await wait_until(lambda: _has_members(admin, 1), "a master")
    stage = Stage(admin, "one", stack)
    wanted = await CASES["group-stuck"](stage)
    await wait_for(admin, wanted)
    found, shown = await admin.doctor.examine_group(stage.group, rules=wanted.rules, limits=LIMITS)
    assert [finding.id for finding in found.findings] == ["group-stuck"]
    assert shown.lag == 20 and found.findings[0].evidence["owner"] == shown.members[0].client_id
