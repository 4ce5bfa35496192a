"""Java and Python members share one group: one owner for each queue after each change, nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.churnruns import LOCK_LIVE_MS, ChurnRun, run_churn
from tests.clients.members import MemberSettings
from tests.interop.brokers import SETTINGS, ErucaCluster
from tests.interop.javapeer import SETUP_SECONDS_MAX, Peer, prepare_peer

# The first run on a machine may have to fetch the jars.
pytestmark = pytest.mark.timeout(SETUP_SECONDS_MAX + 300)

SEED = 20_260_116
CRASHES_MIN = 4


@pytest.fixture(scope="module")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="module")
def eruca(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    settings = {**SETTINGS, "rebalanceLockMaxLiveTime": LOCK_LIVE_MS}
    with ErucaCluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield cluster
        assert cluster.list_complaints() == []


def test_mixed_group_survives_a_few_changes(peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    settings = MemberSettings(eruca.name_server, "group-few", "mixed-few", work_ms=2)
    result = run_churn(ChurnRun(seed=SEED, changes=4, between=200), peer, eruca, tmp_path, settings)
    assert result.crashes >= 1


@pytest.mark.whole
@pytest.mark.parametrize("strategy", ["average", "circle", "consistent-hash"])
def test_mixed_group_survives_twenty_changes(strategy: str, peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    topic = f"mixed-{strategy}"
    settings = MemberSettings(eruca.name_server, f"group-{topic}", topic, strategy, work_ms=2)
    result = run_churn(ChurnRun(seed=SEED), peer, eruca, tmp_path, settings)
    assert result.crashes >= CRASHES_MIN
    assert result.quiet > result.sent / 10
