"""The in-sync set: who leaves and joins, when, and who is needed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

from eruca._core.failover.insync import InSync
from eruca._core.failover.view import Progress


def make_set(*members: int, start: int = 0) -> InSync:
    return InSync(0, frozenset(members), 1, start, 0.0, timeout_s=3.0, alone_s=6.0)


def look(
    sync: InSync, now: float, tail: int, reports: Mapping[int, int], *, confirmed: int | None = None, required: int = 2
) -> set[int] | None:
    sync.observe(Progress(tail, tail if confirmed is None else confirmed, required, reports), now)
    return set(sync.pending) if sync.pending is not None else None


def test_nothing_changes_while_everybody_keeps_up() -> None:
    sync = make_set(0, 1, 2)
    for step in range(100):
        tail = step * 1000
        # Always a little behind a tail that moves.
        assert look(sync, step * 0.1, tail, {1: tail - 900, 2: max(0, tail - 1500)}) is None
    assert sync.needed == {1, 2}


def test_members_have_time_to_connect_after_an_election() -> None:
    sync = make_set(0, 1, 2)
    assert look(sync, 2.9, 10, {1: 10}) is None
    assert look(sync, 3.1, 10, {1: 10}) == {0, 1}
    assert sync.needed == {1, 2}, "until etcd has said yes"
    sync.adopt(frozenset({0, 1}), 2)
    assert sync.needed == {1}


def test_lost_link_leaves_at_once_when_enough_are_left() -> None:
    sync = make_set(0, 1, 2)
    assert look(sync, 0.1, 10, {1: 10, 2: 10}) is None
    assert look(sync, 0.2, 10, {1: 10}) == {0, 1}


def test_last_one_stays_for_a_while() -> None:
    sync = make_set(0, 1)
    assert look(sync, 0.1, 10, {1: 10}) is None
    assert look(sync, 0.2, 10, {}) is None
    assert look(sync, 6.1, 10, {}) is None
    assert look(sync, 6.3, 10, {}) == {0}


def test_last_one_leaves_at_once_when_one_copy_is_enough() -> None:
    sync = make_set(0, 1)
    assert look(sync, 0.1, 10, {1: 10}, required=1) is None
    assert look(sync, 0.2, 10, {}, required=1) == {0}


def test_last_one_that_comes_back_gets_its_time_again() -> None:
    sync = make_set(0, 1)
    assert look(sync, 0.1, 10, {1: 10}) is None
    assert look(sync, 1.0, 5000, {}) is None
    assert look(sync, 6.0, 9000, {1: 10}) is None
    assert look(sync, 8.9, 9000, {1: 8000}) is None
    assert look(sync, 9.1, 9000, {1: 9000}) is None


def test_slave_that_falls_behind_leaves() -> None:
    sync = make_set(0, 1, 2)
    assert look(sync, 0.0, 100, {1: 100, 2: 100}) is None
    for step in range(1, 31):
        assert look(sync, step * 0.1, 100 + step * 100, {1: 100 + step * 100, 2: 100 + step}) is None
    assert look(sync, 3.2, 5000, {1: 5000, 2: 150}) == {0, 1}


def test_member_is_needed_before_it_is_in_the_set() -> None:
    sync = make_set(0, 1, start=50)
    assert look(sync, 0.1, 1000, {1: 1000, 2: 10}, confirmed=900) is None
    assert sync.needed == {1}
    # It has what was the end when it came.
    assert look(sync, 0.2, 2000, {1: 2000, 2: 1000}, confirmed=1900) is None
    assert sync.needed == {1, 2}
    assert look(sync, 0.3, 3000, {1: 3000, 2: 1899}, confirmed=1900) is None
    assert look(sync, 0.4, 3000, {1: 3000, 2: 1900}, confirmed=1900) == {0, 1, 2}
    assert sync.needed == {1, 2}
    sync.adopt(frozenset({0, 1, 2}), 3)
    assert look(sync, 0.5, 3000, {1: 3000, 2: 3000}) is None


def test_member_that_does_not_come_after_all_is_not_needed_for_long() -> None:
    sync = make_set(0, 1)
    look(sync, 0.1, 1000, {1: 1000, 2: 900}, confirmed=1000)
    look(sync, 0.2, 2000, {1: 2000, 2: 1000}, confirmed=2000)
    assert sync.needed == {1, 2}
    look(sync, 1.6, 3000, {1: 2000, 2: 1000}, confirmed=2000)
    assert sync.needed == {1, 2}
    assert look(sync, 1.8, 3000, {1: 3000, 2: 1000}, confirmed=2000) is None
    assert sync.needed == {1}


def test_member_whose_link_ends_while_it_joins_is_not_needed() -> None:
    sync = make_set(0, 1)
    look(sync, 0.1, 1000, {1: 1000, 2: 900}, confirmed=1000)
    look(sync, 0.2, 2000, {1: 2000, 2: 1000}, confirmed=2000)
    assert sync.needed == {1, 2}
    look(sync, 0.3, 2000, {1: 2000}, confirmed=2000)
    assert sync.needed == {1}


def test_what_earlier_masters_acknowledged_is_needed_too() -> None:
    sync = make_set(0, start=5000)
    # Nothing is confirmed in this mastership yet, and the log has not grown.
    assert look(sync, 0.1, 5000, {1: 4999}, confirmed=0) is None
    assert sync.needed == frozenset()
    assert look(sync, 0.2, 5000, {1: 5000}, confirmed=0) == {0, 1}


def test_one_step_can_replace_a_member() -> None:
    sync = make_set(0, 1)
    assert look(sync, 0.1, 100, {1: 100, 2: 100}) == {0, 1, 2}
    sync.adopt(frozenset({0, 1, 2}), 2)
    assert look(sync, 0.2, 100, {2: 100}) == {0, 2}
    assert sync.needed == {1, 2}


def test_set_that_etcd_holds_is_taken_as_it_is() -> None:
    sync = make_set(0, 1)
    sync.adopt(frozenset({0, 1, 7}), 9)
    assert sync.revision == 9
    assert look(sync, 1.0, 100, {1: 100}) is None, "the unknown one has time to connect"
    assert look(sync, 4.1, 100, {1: 100}) == {0, 1}
