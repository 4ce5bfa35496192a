"""Whose log another one is: identities, bytes that are compared, and stores from before there were identities."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eruca._core.replication.epochs import Epoch, find_common_end
from eruca._core.replication.kinship import History, Kinship, choose_check, find_common, judge_kinship
from eruca._ground.limits import EPOCH_MAX, HA_CHECK_BYTES_MAX
from eruca._wire.epoch import is_epoch, join_oldest

OURS = History("a" * 32, 0, [Epoch(1, 0), Epoch(2, 5000)], 0, 0, 9000)
SUCCESSOR = replace(OURS, epochs=[Epoch(1, 0), Epoch(2, 5000), Epoch(1000, 8000)], tail=12_000)
STRANGER = replace(SUCCESSOR, store_id="b" * 32)
# From an older version, or from Java.
OLD = replace(OURS, store_id="")


@pytest.mark.parametrize(
    ("mine", "theirs", "is_alike", "expected"),
    [
        (OURS, SUCCESSOR, True, Kinship.SAME),
        (OURS, SUCCESSOR, None, Kinship.SAME),
        (OURS, SUCCESSOR, False, Kinship.STRANGER),
        (OURS, STRANGER, True, Kinship.STRANGER),
        (OURS, STRANGER, None, Kinship.STRANGER),
        (replace(OURS, tail=0), STRANGER, None, Kinship.EMPTY),
        (replace(OURS, tail=0), SUCCESSOR, None, Kinship.SAME),
        # An old store, and a master that got its identity when its log was there already.
        (OLD, replace(SUCCESSOR, given_at=8000), True, Kinship.SAME),
        (OLD, replace(SUCCESSOR, given_at=8000), None, Kinship.STRANGER),
        (OLD, replace(SUCCESSOR, given_at=8000), False, Kinship.STRANGER),
        # A store that was new when it got its identity has never been that of an old log.
        (OLD, SUCCESSOR, True, Kinship.STRANGER),
        # Two old members that became masters without knowing of each other.
        (replace(OURS, given_at=100), replace(STRANGER, given_at=200), True, Kinship.SAME),
        (replace(OURS, given_at=100), replace(STRANGER, given_at=200), None, Kinship.STRANGER),
        (replace(OURS, given_at=100), STRANGER, True, Kinship.STRANGER),
        # A master of an older version reports neither its identity nor its bytes.
        (OLD, replace(SUCCESSOR, store_id=""), None, Kinship.UNPROVEN),
        (OURS, replace(SUCCESSOR, store_id=""), None, Kinship.STRANGER),
    ],
)
def test_kinship(mine: History, theirs: History, is_alike: bool | None, expected: Kinship) -> None:
    assert judge_kinship(mine, theirs, is_alike) is expected


def test_the_end_of_the_common_part_is_compared() -> None:
    assert find_common(OURS, SUCCESSOR) == 8000
    assert choose_check(OURS, SUCCESSOR) == (8000 - HA_CHECK_BYTES_MAX, 8000)
    assert choose_check(OURS, replace(SUCCESSOR, start=7000)) == (7000, 8000)
    assert choose_check(OURS, replace(SUCCESSOR, start=8000)) == (0, 0)
    assert choose_check(OURS, replace(SUCCESSOR, epochs=[Epoch(7, 0)])) == (0, 0)


def test_what_a_crash_may_have_changed_is_not_compared() -> None:
    assert choose_check(replace(OURS, unsure=6000), SUCCESSOR) == (6000 - HA_CHECK_BYTES_MAX, 6000)
    doubtful = replace(SUCCESSOR, epochs=[Epoch(1, 0), Epoch(2, 5000), Epoch(1000, 8000, 3000)])
    assert choose_check(OURS, doubtful) == (0, 3000)
    assert choose_check(replace(OURS, epochs=doubtful.epochs), doubtful)[1] == 9000


@pytest.mark.parametrize("number", [-1, EPOCH_MAX + 1, 2**63 - 1])
def test_numbers_that_are_no_epochs(number: int) -> None:
    assert not is_epoch(number) and is_epoch(0) and is_epoch(EPOCH_MAX)


def test_a_list_of_epochs_is_kept_short() -> None:
    epochs = [Epoch(number, number * 10) for number in range(1, 8)]
    assert join_oldest(epochs, 0, 7) == (epochs, 0)
    kept, joined = join_oldest(epochs, 0, 3)
    assert (kept, joined) == ([Epoch(5, 10), Epoch(6, 60), Epoch(7, 70)], 5)
    again, joined = join_oldest([*kept, Epoch(8, 80)], joined, 3)
    assert (again, joined) == ([Epoch(6, 10), Epoch(7, 70), Epoch(8, 80)], 6)


def test_masterships_that_wrote_nothing_go_first_and_leave_their_doubts() -> None:
    epochs = [Epoch(1, 0), Epoch(2, 50, 40), Epoch(3, 50), Epoch(4, 50, 45), Epoch(5, 90), Epoch(6, 90)]
    assert join_oldest(epochs, 0, 3) == ([Epoch(1, 0), Epoch(4, 50, 40), Epoch(6, 90)], 0)


@pytest.mark.parametrize("kept", [2, 3, 5, 9])
def test_a_short_list_and_a_long_one_part_where_they_did(kept: int) -> None:
    long = [Epoch(number, number * 10 - 10) for number in range(1, 11)]
    theirs = [*long[:8], Epoch(1000, 77)]
    short, joined = join_oldest(long, 0, kept)
    assert find_common_end(short, 120, theirs, 200, joined=joined) == find_common_end(long, 120, theirs, 200) or (
        joined > 8  # inside the joined part only the bytes tell
    )
    assert find_common_end(theirs, 200, short, 120, joined=joined) == find_common_end(
        short, 120, theirs, 200, joined=joined
    )
