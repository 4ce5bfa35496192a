"""Exclusive queues while members join, leave and die: never two members at once, and only a crash repeats messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.churnruns import LOCK_LIVE_MS, PATIENT_SECONDS, QUEUES, ChurnResult, ChurnRun, run_churn
from tests.clients.members import MemberSettings
from tests.interop.brokers import SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import Peer, prepare_peer
from tests.needs import starts

SEED = 20_261_018
# Coroutines and plain functions in threads.
PLACES = ("python", "python", "plain", "plain")
# Handlers are at work when their queue goes to another.
BUSY: dict[str, Any] = {"work_ms": 20, "threads": QUEUES, "cached_max": 10}


@pytest.fixture(scope="module")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="module", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A system whose locks expire soon: a killed member leaves its own behind."""
    home = tmp_path_factory.mktemp(f"{request.param}-exclusive")
    if request.param == "eruca":
        with ErucaCluster(home, {**SETTINGS, "rebalanceLockMaxLiveTime": LOCK_LIVE_MS}) as eruca:
            yield eruca
            assert eruca.list_complaints() == []
    else:
        with JavaCluster(peer, home, system={"rocketmq.broker.rebalance.lockMaxLiveTime": LOCK_LIVE_MS}) as java:
            yield java


def _run(cluster: Cluster, peer: Peer, home: Path, topic: str, **how: Any) -> ChurnResult:
    settings = MemberSettings(cluster.name_server, f"group-{topic}", topic, exclusive=True, **BUSY)
    run = ChurnRun(seed=SEED, places=PLACES, window_s=PATIENT_SECONDS, keys=40, **how)
    result = run_churn(run, peer, cluster, home, settings)
    assert result.sent == run.count
    return result


def test_a_few_changes(cluster: Cluster, peer: Peer, tmp_path: Path) -> None:
    result = _run(cluster, peer, tmp_path, "exclusive-few", changes=4, between=300, per_second=600, count=4000)
    assert result.kinds.total() > result.crashes >= 1


@pytest.mark.whole
def test_many_changes(cluster: Cluster, peer: Peer, tmp_path: Path) -> None:
    result = _run(cluster, peer, tmp_path, "exclusive-many", changes=30, between=600, per_second=600, count=30_000)
    assert result.kinds.total() > result.crashes >= 3
