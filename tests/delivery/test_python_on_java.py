"""Our clients against the Java broker: each part of delivery with many messages and an exact account.

The plans and the expected results are those of `test_java_on_eruca.py`. All parts start together, each with its own
loop in a thread. The whole suite also runs them against Eruca.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from blockbuster import BlockBuster

from tests.delivery.plans import PARTS, SEED
from tests.delivery.pythonparts import PYTHON_PARTS
from tests.figures import note_figures
from tests.interop.behaviour import Facts
from tests.interop.brokers import Cluster
from tests.patience import PATIENCE_S

PART_SECONDS_MAX = PATIENCE_S

AT_ONCE = 5
SYSTEMS = ["java", pytest.param("eruca", marks=pytest.mark.whole)]

FindFacts = Callable[[str], Facts]


@pytest.fixture
def excuse_calls() -> Callable[[BlockBuster], None]:
    """Allow loops that run in parallel to block on each other's imports, and on nothing else."""

    def excuse(buster: BlockBuster) -> None:
        del buster.functions["threading.Lock.acquire"]

    return excuse


@pytest.fixture(scope="session")
def find_python_facts(system: Cluster, request: pytest.FixtureRequest) -> Iterator[FindFacts]:
    """Return the result of one part for this system; the first request starts all selected parts."""
    wanted = [name for kind, name in map(_read_parameters, request.session.items) if kind == system.kind]
    begun: dict[str, Future[Facts]] = {}
    threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="part")

    def find(name: str) -> Facts:
        if not begun:
            begun.update({name: threads.submit(_run_part, system.name_server, name) for name in wanted})
        return begun[name].result()

    yield find
    threads.shutdown(cancel_futures=True)


def _run_part(nameserver: str, name: str) -> Facts:
    part = PARTS[name]

    async def run() -> Facts:
        async with asyncio.timeout(PART_SECONDS_MAX):
            unique = f"delivery-{name}".replace(" ", "_").replace(",", "")
            return await PYTHON_PARTS[part.case](nameserver, unique, part.plan)

    return asyncio.run(run())


def _read_parameters(item: pytest.Item) -> tuple[str, str]:
    spec = getattr(item, "callspec", None)
    if spec is None or getattr(item, "originalname", None) != test_python_clients.__name__:
        return "", ""
    return spec.params["system"], spec.params["name"]


@pytest.mark.parametrize("system", SYSTEMS, indirect=True)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.whole] if part.is_whole else []) for name, part in PARTS.items()]
)
def test_python_clients(name: str, system: Cluster, find_python_facts: FindFacts) -> None:
    part = PARTS[name]
    told = part.check(part.plan, find_python_facts(name))
    note_figures(f"Python clients on {system.kind}, {name}, seed {SEED}: {told}")
