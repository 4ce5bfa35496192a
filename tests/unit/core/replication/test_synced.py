"""When enough copies are there: by count, by members, and never less than before."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest

from eruca._core.replication.synced import EVERYTHING, SyncCondition

NEAR = 256


def make_condition(required: int, **positions: int) -> SyncCondition:
    condition = SyncCondition(required, NEAR)
    for link_id, position in positions.items():
        condition.add(link_id, link_id)
        condition.report(link_id, position)
    return condition


@pytest.mark.parametrize(("required", "confirmed"), [(1, EVERYTHING), (2, 300), (3, 200), (4, 100), (5, 0)])
def test_so_many_copies_that_the_masters_own_is_one(required: int, confirmed: int) -> None:
    assert make_condition(required, a=100, b=300, c=200).confirmed == confirmed


@pytest.mark.parametrize(("required", "available"), [(1, True), (2, True), (3, True), (4, False)])
def test_slaves_that_are_near_make_waiting_worth_it(required: int, available: bool) -> None:
    condition = make_condition(required, a=300, b=301, c=44)
    assert condition.is_available(300) is available


def test_a_slave_that_is_too_far_behind_or_silent_is_none() -> None:
    condition = make_condition(2, a=0)
    assert condition.is_available(NEAR - 1)
    assert not condition.is_available(NEAR)
    condition.remove("a")
    condition.add("b")
    assert not condition.is_available(0)
    condition.report("b", 0)
    assert condition.is_available(0)


def test_what_is_confirmed_stays_when_slaves_leave() -> None:
    condition = make_condition(2, a=100)
    condition.remove("a")
    assert condition.confirmed == 100
    condition.add("a", "a")
    condition.report("a", 50)
    assert condition.confirmed == 100
    condition.report("a", 101)
    assert condition.confirmed == 101
    condition.report("a", 90)
    assert condition.confirmed == 101


def test_links_that_were_not_added_are_not_believed() -> None:
    condition = make_condition(2)
    condition.report("stranger", 100)
    assert condition.confirmed == 0
    condition.remove("stranger")


def test_a_member_counts_once_however_many_links_it_has() -> None:
    condition = SyncCondition(3, NEAR)
    for link_id in ("old", "new"):
        condition.add(link_id, 1)
        condition.report(link_id, 100)
    assert condition.confirmed == 0
    assert not condition.is_available(100)
    # The end of the old link does not touch the new one, and nothing comes over the old one anymore.
    condition.remove("old")
    condition.report("old", 500)
    condition.add("other", 2)
    condition.report("other", 70)
    assert condition.confirmed == 70
    # Links that do not know their member count each for itself, as in Java.
    condition.add("classic")
    condition.report("classic", 90)
    assert condition.confirmed == 90


def test_all_members_of_the_set_must_have_it() -> None:
    condition = make_condition(2, a=100, b=300)
    assert condition.confirmed == 300
    condition.set_members(frozenset({"a", "b"}))
    assert condition.members == frozenset[Hashable]({"a", "b"})
    condition.report("b", 400)
    # What was acknowledged stays so; what comes now needs both.
    assert condition.confirmed == 300
    condition.report("a", 350)
    assert condition.confirmed == 350
    condition.remove("a")
    condition.report("b", 500)
    assert condition.confirmed == 350
    condition.set_members(frozenset({"b"}))
    assert condition.confirmed == 500
    condition.set_members(None)
    assert condition.members is None


def test_the_set_counts_where_no_number_is_asked_for() -> None:
    condition = make_condition(1, a=100)
    assert condition.confirmed == EVERYTHING
    condition.set_members(frozenset({"a", "b"}))
    assert condition.confirmed == 0
    condition.add("b", "b")
    condition.report("b", 70)
    assert condition.confirmed == 70
    condition.set_members(frozenset())
    assert condition.confirmed == EVERYTHING


def test_the_number_can_be_changed() -> None:
    condition = make_condition(1, a=100, b=50)
    # While nothing was asked for, nothing was proven.
    condition.required = 3
    assert condition.required == 3
    assert condition.confirmed == 50
    condition.required = 2
    assert condition.confirmed == 100
    condition.required = 3
    assert condition.confirmed == 100


@pytest.mark.parametrize("seed", range(30))
def test_confirmed_is_always_on_enough_copies_and_never_falls(seed: int) -> None:
    """Against a slow count over everything that was ever reported."""
    source = random.Random(seed)
    required = source.randint(2, 4)
    condition = SyncCondition(required, NEAR)
    ever: dict[str, int] = {}
    members: frozenset[str] = frozenset()
    connected: set[str] = set()
    before = 0
    for _ in range(400):
        member = source.choice("abcd")
        match source.randrange(8):
            case 0:
                condition.add(member, member)
                connected.add(member)
            case 1:
                condition.remove(member)
                connected.discard(member)
            case 2:
                members = frozenset(source.sample("abcd", source.randint(0, 2)))
                condition.set_members(members or None)
            case _ if member in connected:
                position = ever.get(member, 0) + source.randint(0, 9)
                condition.report(member, position)
                ever[member] = position
            case _:
                pass
        confirmed = condition.confirmed
        assert confirmed >= before
        # A copy stays a copy when its member leaves.
        assert confirmed == 0 or sum(position >= confirmed for position in ever.values()) >= required - 1
        if confirmed > before:
            assert all(ever.get(each, -1) >= confirmed for each in members)
        before = confirmed
    assert before


# -- what cannot be taken back -----------------------------------------------------------------------------------------


def test_without_members_it_is_what_is_confirmed() -> None:
    assert make_condition(2, a=100, b=300).safe == 300
    assert make_condition(3, a=100).safe == 0
    assert make_condition(1).safe == EVERYTHING


def test_only_members_can_be_the_next_master_so_only_they_count() -> None:
    condition = make_condition(3, a=100, b=300, c=200)
    condition.set_members(frozenset({"b"}))
    assert (condition.confirmed, condition.safe) == (200, 300)
    condition.set_members(frozenset({"a", "b"}))
    assert condition.safe == 300, "it never falls"
    condition.report("a", 301)
    condition.report("b", 400)
    assert condition.safe == 301
    condition.remove("a")
    condition.report("b", 500)
    assert condition.safe == 301


def test_nobody_can_take_anything_from_a_master_that_is_alone_in_the_set() -> None:
    condition = make_condition(2)
    condition.set_members(frozenset())
    assert (condition.confirmed, condition.safe) == (0, EVERYTHING)
    condition.add("a", "a")
    condition.report("a", 70)
    condition.set_members(frozenset({"a"}))
    assert condition.safe == 70
