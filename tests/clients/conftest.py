"""The two systems the behaviour cases run against, and the cases on their way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.running import Run
from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import prepare_peer

# A first retry comes at level 3, which by default is ten seconds away.
DELAY_LEVELS = " ".join(["1s", "2s"] + ["1s"] * 16)


@pytest.fixture(scope="session", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running system; every test that wants one runs once with each."""
    home = tmp_path_factory.mktemp(f"{request.param}-behaviour")
    settings = {**SETTINGS, "messageDelayLevel": DELAY_LEVELS}
    java = {**settings, **PATIENCE}
    with ErucaCluster(home, settings) if request.param == "eruca" else JavaCluster(prepare_peer(), home, java) as it:
        yield it
        if isinstance(it, ErucaCluster):
            assert it.list_complaints() == []


@pytest.fixture(scope="session")
def run(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Run]:
    """All chosen cases, on their way against one system."""
    chosen = {
        str(item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.name.startswith("test_behaviour[")
    }
    with Run(cluster.name_server, sorted(chosen)) as started:
        yield started
