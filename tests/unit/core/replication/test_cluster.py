"""Three members on a bad network: what was acknowledged is never lost, and the logs become one again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.figures import note_figures
from tests.unit.core.replication.cluster import Cluster


def run(seed: int, steps: int) -> Counter[str]:
    cluster = Cluster(seed)
    for _ in range(steps):
        cluster.do_something()
    cluster.heal()
    return Counter(cluster.counts)


def note(first: int, seeds: int, counts: Counter[str]) -> None:
    said = ", ".join(f"{what} {number}" for what, number in counts.items())
    note_figures(f"replication machines, three members: {seeds} seeds from {first}: {said}; 0 acknowledged bytes lost")


def test_nothing_acknowledged_is_lost_whatever_happens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        counts += run(seed, 2000)
    note(0, 40, counts)
    # It was a test: all of it happened, and often.
    assert counts["acknowledged"] > 1000
    assert counts["connected"] > 500
    assert counts["promoted"] > 200
    assert counts["damaged"] > 100
    assert counts["set aside"] > 30


@pytest.mark.whole
@pytest.mark.parametrize("block", range(10))
def test_nothing_acknowledged_is_lost_in_many_seeds(block: int) -> None:
    first = 1000 + block * 100
    counts = sum((run(seed, 5000) for seed in range(first, first + 100)), Counter[str]())
    note(first, 100, counts)
    assert counts["acknowledged"] > 1000
