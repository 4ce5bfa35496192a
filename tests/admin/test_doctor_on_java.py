"""`eruca doctor` on a Java cluster: nothing when it is healthy, and each of the faults that clients and operators make.

On Eruca the same cases, and all faults of servers, are in `tests/integration/admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eruca.admin import Admin
from tests.integration.admin.faults import CASES, LIMITS, Stage, Wanted, wait_for, work_well
from tests.interop.brokers import PATIENCE, SETTINGS, JavaCluster
from tests.interop.javapeer import JavaBroker, JavaNameServer, prepare_peer
from tests.needs import starts


@pytest.fixture(scope="module")
@starts("java")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """A cluster of its own, because the doctor looks at all of it."""
    with JavaCluster(prepare_peer(), tmp_path_factory.mktemp("doctor"), {**SETTINGS, **PATIENCE}) as it:
        yield it


async def test_nothing_is_found_in_a_healthy_cluster(java: JavaCluster) -> None:
    """The first test of this file: the others leave their faults behind."""
    async with Admin(java.name_server) as admin, AsyncExitStack() as stack:
        stage = Stage(admin, "healthy", stack)
        await work_well(stage)
        found = await admin.doctor.examine(limits=LIMITS)
        assert (found.findings, found.left_out, found.is_healthy) == ([], [], True)
        assert found.looked_at["brokers"] == 1 and found.looked_at["members"] == 2
        only, _ = await admin.doctor.examine_group(stage.group, limits=LIMITS)
        assert only.findings == []


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_is_found(name: str, java: JavaCluster) -> None:
    async with Admin(java.name_server) as admin, AsyncExitStack() as stack:
        finding, _ = await wait_for(admin, await CASES[name](Stage(admin, name, stack)))
        assert finding.evidence and finding.what and finding.advice


@pytest.fixture
@starts("java")
def ignorant(tmp_path: Path) -> Iterator[JavaNameServer]:
    """A name server that no broker registers with."""
    with JavaNameServer(prepare_peer(), tmp_path) as it:
        yield it


@pytest.mark.whole
async def test_name_servers_that_disagree_are_found(java: JavaCluster, ignorant: JavaNameServer) -> None:
    """One of them knows no broker, and yet everything else is looked at."""
    async with Admin(f"{ignorant.address};{java.name_server}") as admin:
        wanted = Wanted("nameservers-disagree", f"name server {ignorant.address}")
        _, found = await wait_for(admin, wanted)
        assert found.looked_at["brokers"] == 1 and "not-examined" not in {each.id for each in found.findings}


@pytest.fixture
@starts("java")
def pair(tmp_path: Path) -> Iterator[tuple[JavaNameServer, JavaBroker]]:
    """A name server, and a master with a slave."""
    peer = prepare_peer()
    with JavaNameServer(peer, tmp_path / "names") as names:

        def start(role: str) -> JavaBroker:
            home, properties = tmp_path / role, {**PATIENCE, "brokerRole": role, "brokerId": int(role == "SLAVE")}
            return JavaBroker(peer, names.address, home / "store", name="pair", home=home, properties=properties)

        with start("ASYNC_MASTER") as master, start("SLAVE"):
            yield names, master


@pytest.mark.whole
async def test_a_lost_master_is_found(pair: tuple[JavaNameServer, JavaBroker]) -> None:
    names, master = pair
    async with Admin(names.address) as admin:
        await asyncio.to_thread(master.__exit__, None, None, None)
        finding, _ = await wait_for(admin, Wanted("no-master", "broker pair"))
        assert finding.evidence["members"] == 1
