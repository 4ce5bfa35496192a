"""`eruca offset` moves groups of a running Eruca. test_replay_java.py has mqadmin, Java members and the Java broker."""

from __future__ import annotations

import pytest

from eruca.admin import Admin
from tests.delivery.replaycases import CASES, HALF, NEW, Case, OurTool, Reader, Scene, run_case
from tests.integration.admin.staging import wait_until
from tests.interop.brokers import Cluster


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_our_tool_moves_groups(case: Case, eruca_system: Cluster) -> None:
    tool = OurTool(eruca_system)
    assert await run_case(case, eruca_system, tool, f"ours-{case.__name__}") == 2 * HALF


async def test_a_group_that_was_never_there_begins_at_a_time(eruca_system: Cluster) -> None:
    async with Admin(eruca_system.name_server) as admin:
        scene = Scene(eruca_system, admin, "from-a-time")
        await scene.fill()
        await OurTool(eruca_system).reset(scene.group, scene.topic, scene.moment_ms)
        async with Reader(scene) as reader:
            await wait_until(lambda: reader.has(NEW, 1), "the new half")
            await wait_until(lambda: scene.is_at(scene.group, scene.ends), "the offsets")
            assert set(reader.seen) == set(NEW)
