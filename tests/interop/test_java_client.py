"""The official Java client against a freshly started Eruca, and the same cases against the official Java broker.

All cases of a run begin together, eight at a time in one Java process, so that those that wait (for a delay, a retry, a
check-back) do not wait one after the other; each test then takes the facts of its own case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.interop.behaviour import BehaviourProgram, Facts
from tests.interop.brokers import Cluster
from tests.interop.javacases import CASES, SLICE
from tests.interop.javapeer import Peer

# Run by a process whose frames have the binary header.
BINARY = "binary_headers"
CASES_MIN = 60

FindFacts = Callable[[str], Facts]


@pytest.fixture(scope="session")
def find_facts(
    cluster: Cluster, peer: Peer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[FindFacts]:
    """Begin all cases that this run wants of this cluster; returns what one of them found."""
    wanted = [name for kind, name in map(_read_parameters, request.session.items) if kind == cluster.kind]
    with ExitStack() as stack:

        def start(headers: str) -> BehaviourProgram:
            return stack.enter_context(BehaviourProgram(peer, tmp_path_factory.mktemp(f"java-{headers}"), headers))

        programs = {name: start("ROCKETMQ") for name in wanted if name == BINARY}
        plain = start("JSON")
        for name in wanted:
            programs.setdefault(name, plain).submit(name, cluster)
        yield lambda name: programs[name].wait_for_facts(name, cluster)


def _read_parameters(item: pytest.Item) -> tuple[str, str]:
    """The cluster and the case of a test; nothing for tests of another kind."""
    spec = getattr(item, "callspec", None)
    if spec is None or getattr(item, "function", None) is not test_java_client:
        return "", ""
    return spec.params["cluster"], spec.params["case"]


def _list_parameters() -> list[object]:
    return [pytest.param(name, marks=[] if name in SLICE else pytest.mark.whole) for name in CASES]


@pytest.mark.parametrize("case", _list_parameters())
def test_java_client(case: str, cluster: Cluster, find_facts: FindFacts) -> None:
    assert find_facts(case) == CASES[case]


def test_table_names_every_case_of_the_program(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> None:
    with BehaviourProgram(peer, tmp_path_factory.mktemp("java-list"), "JSON") as program:
        assert sorted(CASES) == program.list_cases()
    assert len(CASES) >= CASES_MIN
    assert CASES.keys() >= SLICE
