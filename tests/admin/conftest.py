"""The two systems that the cases of the admin run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.guarded import Guarded, GuardedEruca, GuardedJava
from tests.interop.javapeer import prepare_peer


@pytest.fixture(scope="session", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running system; every test that wants one runs once with each."""
    home = tmp_path_factory.mktemp(f"{request.param}-admin")
    java = {**SETTINGS, **PATIENCE}
    with ErucaCluster(home, SETTINGS) if request.param == "eruca" else JavaCluster(prepare_peer(), home, java) as it:
        yield it
        if isinstance(it, ErucaCluster):
            assert it.list_complaints() == []


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A running system with accounts; the parameter is its kind."""
    home = tmp_path_factory.mktemp(f"{request.param}-guarded")
    with GuardedEruca(home) if request.param == "eruca" else GuardedJava(prepare_peer(), home) as it:
        yield it
