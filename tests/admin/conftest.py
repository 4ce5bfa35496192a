"""The two systems that the cases of the admin run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

# Failed assertions of the cases are to say as much as those of tests.
pytest.register_assert_rewrite(
    "tests.admin.stage",
    # The guide's test is that of the clients' guide.
    "tests.clients.stage",
    *[f"tests.admin.{path.stem}" for path in Path(__file__).parent.glob("cases_*.py")],
)

from tests.interop.brokers import PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster  # noqa: E402
from tests.interop.guarded import Guarded, GuardedEruca, GuardedJava  # noqa: E402
from tests.interop.javapeer import prepare_peer  # noqa: E402


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
