"""Replay with the official tools, members and broker: mqadmin moves groups of Eruca, `eruca offset` those of Java."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.replaycases import CASES, HALF, Case, MqAdminTool, OurTool, Tool, reset_java_member, run_case
from tests.interop.brokers import Cluster
from tests.interop.javapeer import JavaProgram, Peer

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def program(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    with JavaProgram(peer, "eruca.interop.MqAdmin", tmp_path_factory.mktemp("replay-mqadmin")) as started:
        yield started


def make_tool(name: str, system: Cluster, program: JavaProgram) -> Tool:
    return OurTool(system) if name == "ours" else MqAdminTool(system, program)


@pytest.mark.parametrize(
    ("system", "tool"), [("eruca", "mqadmin"), ("java", "ours"), ("java", "mqadmin")], indirect=["system"]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_groups_are_moved(case: Case, system: Cluster, tool: str, program: JavaProgram) -> None:
    chosen = make_tool(tool, system, program)
    assert asyncio.run(run_case(case, system, chosen, f"{tool}-{case.__name__}")) == 2 * HALF


@pytest.mark.parametrize(
    ("system", "tool"), [("eruca", "ours"), ("eruca", "mqadmin"), ("java", "ours")], indirect=["system"]
)
def test_java_members_go_back(peer: Peer, system: Cluster, tool: str, program: JavaProgram, tmp_path: Path) -> None:
    chosen = make_tool(tool, system, program)
    deliveries = asyncio.run(reset_java_member(peer, system, chosen, f"member-{tool}", tmp_path))
    assert deliveries == 3 * HALF
