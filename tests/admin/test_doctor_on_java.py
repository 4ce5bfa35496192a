"""`eruca doctor` on a Java cluster: nothing when it is healthy, and each of the faults that clients and operators make.

On Eruca the same cases, and the faults of servers, are in `tests/integration/admin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from eruca.admin import Admin
from tests.integration.admin.faults import CASES, LIMITS, Stage, wait_for, work_well
from tests.interop.brokers import PATIENCE, SETTINGS, JavaCluster
from tests.interop.javapeer import prepare_peer
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
