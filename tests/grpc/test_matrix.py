"""Every official client for gRPC with every scenario, on the official proxy: what Eruca will be compared with.

All cells of a run begin together, so that those that wait (for a delay, an invisible time, a check-back) do not wait
one after the other; each test then takes the facts of its own cell.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.grpc.expected import EXPECTED, LACKING, PECULIAR, find_outcome
from tests.grpc.programs import BUILDERS
from tests.grpc.scenarios import SCENARIOS, Facts
from tests.needs import needs

SERVERS = ("proxy",)
# The tools of the programs; the Python client needs none.
TOOLS = {"java": ["java"], "go": ["go"], "node": ["node"], "python": [], "rust": ["rust"]}


def _list_cells() -> list[object]:
    cells: list[object] = []
    for server in SERVERS:
        for client in BUILDERS:
            for scenario in SCENARIOS:
                if (client, scenario) in LACKING:
                    continue
                tools = {*TOOLS[client], *(["java"] if server == "proxy" else [])}
                marks = [needs(*sorted(tools))] if tools else []
                # The port of the proxy has no setting for its address and listens on all of them.
                marks.append(pytest.mark.whole)
                cells.append(pytest.param(server, client, scenario, marks=marks))
    return cells


@pytest.mark.parametrize(("server", "client", "scenario"), _list_cells(), scope="session")
def test_cell(server: str, client: str, scenario: str, find_facts: Callable[[str, str], Facts]) -> None:
    assert find_facts(client, scenario) == find_outcome(client, scenario)


def test_every_scenario_has_an_outcome() -> None:
    assert SCENARIOS.keys() == EXPECTED.keys()
    cells = {(client, scenario) for client in BUILDERS for scenario in SCENARIOS}
    assert cells >= LACKING.keys() | PECULIAR.keys()
    assert not LACKING.keys() & PECULIAR.keys()
