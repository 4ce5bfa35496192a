"""The Java peer, the clusters and the programs around other clients, prepared once for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.clientprograms import ClientProgram, Stage, build_go, install_node
from tests.interop.javapeer import JavaNameServer, Peer, StoreClient, prepare_peer
from tests.needs import starts


@pytest.fixture(scope="session")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="session")
def name_server(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaNameServer]:
    with JavaNameServer(peer, tmp_path_factory.mktemp("name-server")) as server:
        yield server


@pytest.fixture(scope="session")
def java_client(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreClient]:
    with StoreClient(peer, tmp_path_factory.mktemp("java-client")) as client:
        yield client


# --- the Go and the Node client, against Eruca and against Java ---------------------------------------------------


@pytest.fixture(scope="session", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running system; every test that wants one runs once with each."""
    home = tmp_path_factory.mktemp(f"{request.param}-cluster")
    java = {**SETTINGS, **PATIENCE}
    with ErucaCluster(home) if request.param == "eruca" else JavaCluster(prepare_peer(), home, java) as started:
        yield started
        if isinstance(started, ErucaCluster):
            assert started.list_complaints() == []


@pytest.fixture(scope="session")
@starts("go")
def go_program(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    with ClientProgram("go", build_go(), tmp_path_factory.mktemp("go"), cluster) as program:
        yield program


@pytest.fixture(scope="session")
@starts("node")
def node_program(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    with ClientProgram("node", install_node(), tmp_path_factory.mktemp("node"), cluster) as program:
        yield program


@pytest.fixture
def go(go_program: ClientProgram, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(go_program, request.function.__name__)
    yield stage
    stage.close()


@pytest.fixture
def node(node_program: ClientProgram, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(node_program, request.function.__name__)
    yield stage
    stage.close()
