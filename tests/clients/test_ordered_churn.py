"""Ordered consumers that join, leave and die: no key ever goes backwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.churnruns import LOCK_LIVE_MS, MIXED, PATIENT_SECONDS, QUEUES, ChurnRun, run_churn
from tests.clients.members import MemberSettings
from tests.figures import note_figures
from tests.interop.brokers import SETTINGS, ErucaCluster
from tests.interop.javapeer import Peer, prepare_peer
from tests.needs import starts

SEED = 20_260_117
PYTHON = ("python", "python", "plain", "plain")
CHANGES_MIN = 8
# Handlers are often at work, some of them for long, when their queue goes to another.
BUSY: dict[str, Any] = {"work_ms": 2, "threads": QUEUES}
CRASHES_MIN = 3


@pytest.fixture(scope="module")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="module")
def eruca(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    # A killed member leaves its locks behind.
    settings = {**SETTINGS, "rebalanceLockMaxLiveTime": LOCK_LIVE_MS}
    with ErucaCluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield cluster
        assert cluster.list_complaints() == []


def test_order_is_kept_over_a_few_changes(peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    settings = MemberSettings(eruca.name_server, "group-few", "ordered-few", ordered=True, **BUSY)
    run = ChurnRun(
        seed=SEED,
        places=PYTHON,
        changes=3,
        between=300,
        per_second=1000,
        keys=40,
        count=5000,
        window_s=PATIENT_SECONDS,
    )
    result = run_churn(run, peer, eruca, tmp_path, settings)
    assert result.sent == run.count
    assert result.crashes >= 1


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "run"),
    [
        ("python", ChurnRun(seed=SEED, places=PYTHON, between=2000, per_second=1200, keys=40, count=100_000)),
        ("mixed", ChurnRun(seed=SEED, places=MIXED, between=600, per_second=600, keys=40, count=30_000)),
    ],
)
def test_order_is_kept_whoever_comes_and_goes(
    kind: str, run: ChurnRun, peer: Peer, eruca: ErucaCluster, tmp_path: Path
) -> None:
    topic = f"ordered-{kind}"
    settings = MemberSettings(eruca.name_server, f"group-{topic}", topic, ordered=True, **BUSY)
    result = run_churn(run, peer, eruca, tmp_path, settings)
    note_figures(f"{topic}: {run.keys} keys in {QUEUES} queues, 0 out of order")
    assert result.sent == run.count
    assert result.kinds.total() >= CHANGES_MIN
    assert result.crashes >= CRASHES_MIN
