"""What a damaged state is worth: its previous value, and only to members that saw it."""

from __future__ import annotations

import pytest

from eruca._core.failover.ballot import carry_state
from eruca._core.failover.view import StateEntry, View

BEFORE = View(8, state=StateEntry(4, frozenset({0, 1}), 8, 3))


def damaged(version: int, revision: int = 20) -> View:
    return View(revision, state=StateEntry(0, frozenset(), revision, version, is_damaged=True))


def test_the_change_that_was_damaged_does_not_count() -> None:
    carried = carry_state(damaged(4), BEFORE)
    assert carried == View(20, state=StateEntry(4, frozenset({0, 1}), 20, 4, is_damaged=True))
    assert carry_state(damaged(4, 21), carried).state == StateEntry(4, frozenset({0, 1}), 21, 4, is_damaged=True)
    twice = carry_state(damaged(5, 22), carried)
    assert twice.state == StateEntry(4, frozenset({0, 1}), 22, 5, is_damaged=True), "damaged twice in a row"


@pytest.mark.parametrize("version", [1, 2, 5, 6])
def test_a_change_that_was_missed_may_have_said_anything(version: int) -> None:
    assert carry_state(damaged(version), BEFORE) == damaged(version)


def test_who_has_seen_nothing_knows_nothing() -> None:
    assert carry_state(damaged(1), None) == damaged(1)
    assert carry_state(damaged(1), View(5)) == damaged(1)


def test_what_can_be_read_is_taken_as_it_is() -> None:
    later = View(30, state=StateEntry(6, frozenset({1}), 30, 4))
    assert carry_state(later, BEFORE) is later
    assert carry_state(View(31), BEFORE) == View(31)
