"""The two systems, and the Java program, for the parts of delivery that are shown with other clients and brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import Peer, prepare_peer
from tests.needs import starts


@pytest.fixture(scope="session")
@starts("java")
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
