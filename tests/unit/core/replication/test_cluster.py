"""Three members on a bad network: what was acknowledged is never lost, and the logs become one again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.core.replication.cluster import Cluster


def run(seed: int, steps: int) -> Counter[str]:
    cluster = Cluster(seed)
    for _ in range(steps):
        cluster.do_something()
    cluster.heal()
    return Counter(cluster.counts)


def test_nothing_acknowledged_is_lost_whatever_happens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        counts += run(seed, 2000)
    # It was a test: all of it happened, and often.
    assert counts["acknowledged"] > 1000
    assert counts["connected"] > 500
    assert counts["promoted"] > 200
    assert counts["damaged"] > 100
    assert counts["set aside"] > 30


@pytest.mark.whole
@pytest.mark.parametrize("block", range(10))
def test_nothing_acknowledged_is_lost_in_many_seeds(block: int) -> None:
    counts = sum((run(seed, 5000) for seed in range(1000 + block * 100, 1100 + block * 100)), Counter[str]())
    assert counts["acknowledged"] > 1000
