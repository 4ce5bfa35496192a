"""The two systems, and the Java program, for the parts of delivery that are shown with other clients and brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Failed assertions of the checks are to say as much as those of tests.
pytest.register_assert_rewrite(
    "tests.clients.stage",
    *[f"tests.delivery.{name}" for name in ("plans", "pythonparts", "replaycases", "toolcases")],
)

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster  # noqa: E402
from tests.interop.javapeer import Peer, prepare_peer  # noqa: E402


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs Java where `make test` found none; `make test-delivery` does not go on without it."""
    if not os.environ.get("ERUCA_WITHOUT_JAVA"):
        return
    left_out = [item for item in items if _needs_java(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the tests of this suite counted, and with which seeds."""
    told = [
        line
        for report in terminalreporter.stats.get("passed", [])
        if report.nodeid.startswith("tests/delivery/")
        for line in report.capstdout.splitlines()
    ]
    if told:
        terminalreporter.section("delivery")
        for line in told:
            terminalreporter.write_line(line)


def _needs_java(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or Path(__file__).parent not in item.path.parents:
        return False
    system = item.callspec.params.get("system") if hasattr(item, "callspec") else None
    return system == "java" or "peer" in item.fixturenames or "java" in item.path.name


@pytest.fixture(scope="session")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="session")
def eruca_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Eruca, with default delay levels."""
    with ErucaCluster(tmp_path_factory.mktemp("eruca-delivery")) as started:
        yield started
        assert started.list_complaints() == []


@pytest.fixture(scope="session")
def java_system(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The official servers, with the same settings."""
    with JavaCluster(peer, tmp_path_factory.mktemp("java-delivery"), {**SETTINGS, **PATIENCE}) as started:
        yield started


@pytest.fixture(scope="session")
def system(request: pytest.FixtureRequest) -> Cluster:
    """The system that a test names in its parameter."""
    started: Cluster = request.getfixturevalue(f"{request.param}_system")
    return started
