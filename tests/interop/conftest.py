"""The Java peer, prepared once for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.javapeer import JavaNameServer, Peer, StoreClient, prepare_peer


@pytest.fixture(scope="session")
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
