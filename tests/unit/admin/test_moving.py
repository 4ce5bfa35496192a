"""Moves of a group, and the offsets that undo them."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca._admin.moving import Move, conclude, split_by_broker
from eruca._admin.savedoffsets import SavedOffset, SavedOffsets
from eruca._wire.bodies import MessageQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def move(queue: int, before: int | None, after: int | None, outcome: str = "written") -> Move:
    return Move(topic="t", broker="a", queue=queue, before=before, after=after, outcome=outcome)


def test_undo_has_what_was_moved() -> None:
    moved = conclude(
        "billing",
        [move(3, 1, None, "failed"), move(2, None, 5), move(1, 4, 4), move(0, 7, 9), move(4, 2, 1, "told")],
        NOW,
    )
    assert [each.queue for each in moved.moves] == [0, 1, 2, 3, 4] and moved.failed
    (call,) = moved.undo
    before = [
        SavedOffset(topic="t", broker="a", queue=0, offset=7),
        SavedOffset(topic="t", broker="a", queue=4, offset=2),
    ]
    assert call.method == "offsets.restore"
    assert call.arguments == {"saved": SavedOffsets(group="billing", taken_at=NOW, offsets=before)}


def test_nothing_moved_needs_no_undo() -> None:
    assert conclude("billing", [move(0, 1, 1), move(1, None, 2)], NOW).undo == []


def test_queues_by_broker() -> None:
    queues = [MessageQueue("b", 1, "t"), MessageQueue("a", 2, "t"), MessageQueue("b", 0, "t")]
    assert split_by_broker(queues) == {"a": [queues[1]], "b": [queues[2], queues[0]]}
