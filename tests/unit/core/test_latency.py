"""Slow brokers are avoided for as long as Java avoids them, and the better half is used when all are slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca._core.latency import LatencyFaults, compute_avoided_ms

NOW = 1_000_000

# The last latency that is still avoided for this long, and the first that is avoided longer.
TABLE = [
    (0, 0),
    (49, 0),
    (50, 0),
    (99, 0),
    (100, 0),
    (549, 0),
    (550, 30_000),
    (999, 30_000),
    (1_000, 60_000),
    (1_999, 60_000),
    (2_000, 120_000),
    (2_999, 120_000),
    (3_000, 180_000),
    (14_999, 180_000),
    (15_000, 600_000),
    (1_000_000, 600_000),
]


def make_faults(*sends: tuple[str, int], isolate: bool = False) -> LatencyFaults:
    faults = LatencyFaults(enabled=True)
    for broker, latency_ms in sends:
        faults.update(broker, latency_ms, isolate, NOW)
    return faults


@pytest.mark.parametrize(("latency_ms", "avoided_ms"), TABLE)
def test_a_broker_is_avoided_as_long_as_the_table_says(latency_ms: int, avoided_ms: int) -> None:
    assert compute_avoided_ms(latency_ms) == avoided_ms
    faults = make_faults(("a", latency_ms))
    assert faults.is_available("a", NOW + avoided_ms)
    assert not avoided_ms or not faults.is_available("a", NOW + avoided_ms - 1)


def test_a_failure_counts_as_thirty_seconds() -> None:
    faults = make_faults(("a", 3), isolate=True)
    assert not faults.is_available("a", NOW + 600_000 - 1)
    assert faults.is_available("a", NOW + 600_000)


def test_a_quick_answer_ends_the_avoidance() -> None:
    faults = make_faults(("a", 20_000))
    assert not faults.is_available("a", NOW + 1)
    faults.update("a", 5, False, NOW + 1)
    assert faults.is_available("a", NOW + 1)


def test_what_is_not_known_is_available() -> None:
    faults = make_faults(("a", 20_000))
    assert faults.is_available("b", NOW)
    faults.forget("a")
    assert faults.is_available("a", NOW)
    assert faults.pick_best(NOW) is None
    faults.forget("a")
    assert faults.pick_best(NOW) is None


def test_not_enabled_means_no_broker_is_avoided() -> None:
    faults = LatencyFaults()
    faults.update("a", 20_000, True, NOW)
    assert faults.is_available("a", NOW)
    assert faults.pick_best(NOW) is None


def test_available_comes_before_quick_and_quick_before_soon() -> None:
    # Avoided, though the send itself was over at once.
    faults = make_faults(("failed", 1), isolate=True)
    faults.update("slow", 700, False, NOW)
    later = NOW + 30_000
    assert faults.pick_best(NOW) == "failed"
    assert faults.pick_best(later - 1) == "failed"
    assert faults.pick_best(later) == "slow"
    # As slow, but known for longer, hence available sooner.
    faults = make_faults(("early", 700))
    faults.update("late", 700, False, NOW + 1)
    assert faults.pick_best(NOW + 1) == "early"
    faults.update("early", 700, False, NOW + 2)
    assert faults.pick_best(NOW + 2) == "late"


def test_one_broker_alone_is_picked_whatever_it_did() -> None:
    faults = make_faults(("a", 20_000))
    assert [faults.pick_best(NOW), faults.pick_best(NOW)] == ["a", "a"]


@pytest.mark.parametrize(("count", "expected"), [(2, "aaaa"), (3, "aaaa"), (4, "abab"), (5, "abab"), (6, "abca")])
def test_the_better_half_is_picked_in_turn(count: int, expected: str) -> None:
    sends = [(broker, 1_000 + number) for number, broker in enumerate("abcdef"[:count])]
    faults = make_faults(*reversed(sends))
    assert "".join(faults.pick_best(NOW) or "" for _ in expected) == expected


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 20_000), min_size=1), st.integers(0, 700_000))
def test_a_broker_that_is_not_picked_is_never_better(latencies: dict[str, int], passed_ms: int) -> None:
    faults = make_faults(*latencies.items())
    now_ms = NOW + passed_ms
    picked = {faults.pick_best(now_ms) for _ in latencies}
    assert len(picked) == max(1, len(latencies) // 2)
    for broker in latencies.keys() - picked:
        for better in picked:
            assert better is not None
            ours = (not faults.is_available(broker, now_ms), latencies[broker])
            assert ours >= (not faults.is_available(better, now_ms), latencies[better])
