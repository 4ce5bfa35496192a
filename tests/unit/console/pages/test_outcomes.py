"""What a change as a whole has led to, from its parts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca._admin.moving import Move, conclude, is_same_move
from eruca._console.pages.outcomes import OutcomeRow, Outcomes, read_outcomes

NOW = datetime(2026, 11, 19, tzinfo=UTC)


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        ([], "unchanged"),
        (["unchanged"], "unchanged"),
        (["unchanged", "done"], "done"),
        (["written"], "done"),
        (["told", "unchanged"], "done"),
        (["planned", "unchanged"], "planned"),
        (["written", "failed"], "failed"),
    ],
)
def test_the_whole_from_its_parts(outcomes: list[str], whole: str) -> None:
    assert Outcomes(rows=[OutcomeRow(where="broker-a", outcome=each) for each in outcomes]).outcome == whole


def move(before: int | None, after: int, outcome: str = "planned") -> Move:
    return Move(topic="orders", broker="broker-a", queue=0, before=before, after=after, outcome=outcome)


def test_a_move_that_was_written_is_done() -> None:
    found = read_outcomes(conclude("billing", [move(3, 5, "written")], NOW))
    assert (found.outcome, found.before, found.after) == ("done", {"orders broker-a:0": 3}, {"orders broker-a:0": 5})


@pytest.mark.parametrize(
    ("later", "to_end", "is_same"),
    [
        (move(3, 9), False, True),
        # It consumed in the meantime.
        (move(5, 9), False, True),
        (move(2, 9), False, False),
        (move(None, 9), False, False),
        (move(3, 12), False, False),
        (move(3, 12), True, True),
        (move(3, 8), True, False),
        (move(3, 9, "failed"), False, False),
    ],
)
def test_a_move_is_still_what_was_shown(later: Move, to_end: bool, is_same: bool) -> None:
    shown, now = conclude("billing", [move(3, 9)], NOW), conclude("billing", [later], datetime.now(UTC))
    assert is_same_move(shown, now, to_end=to_end) is is_same
