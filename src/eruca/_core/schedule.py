"""When delayed messages are delivered: one cursor for each delay level, moved in order.

A level has one delay, so the messages of its queue are due in the order they were stored, and checking the first one
is enough. The machine reads no queue and writes no message: it is given the content of a queue from the cursor on and
returns what to deliver now; it is told the result and moves on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

# A delivery refused by the store is tried again this much later, as in Java.
RETRY_MS = 10_000


@dataclass(frozen=True, slots=True)
class QueueRead:
    """The content of a level's queue: its bounds, and (position, size, due time) of entries from the cursor on.

    The size of an entry that points at nothing is 0. Times are those of a clock that only runs forward: nothing is
    delivered early because the wall clock was set.
    """

    level: int
    low: int
    high: int
    entries: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The message at an offset was delivered, or there was none to deliver."""

    level: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """The store refused the message at an offset."""

    level: int
    offset: int


Event: TypeAlias = QueueRead | Delivered | DeliveryFailed


@dataclass(frozen=True, slots=True)
class Deliver:
    """Deliver the record at a position to its destination."""

    level: int
    offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Skip:
    """The entry of an offset points at nothing: a message lost to damage. Report it as delivered."""

    level: int
    offset: int


@dataclass(frozen=True, slots=True)
class Correct:
    """The cursor was outside the queue and was moved; worth a line in the log."""

    level: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing is due in this level before a time."""

    level: int
    due_ms: int


Action: TypeAlias = Deliver | Skip | Correct | WaitUntil


class DelaySchedule:
    """The cursors of all levels, and what is due. `levels` are their numbers, 1 first."""

    def __init__(self, levels: int, offsets: Mapping[int, int]) -> None:
        self.levels = list(range(1, levels + 1))
        # Offsets of levels that are no longer in the level string are kept: it may be changed back.
        self._offsets = dict(offsets)
        self._paused_until: dict[int, int] = {}

    @property
    def offsets(self) -> dict[int, int]:
        """The next offset of each level that has delivered something."""
        return dict(self._offsets)

    def cursor(self, level: int) -> int:
        """The offset at which a level continues."""
        return self._offsets.get(level, 0)

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Process an event; returns the actions to take now."""
        if isinstance(event, QueueRead):
            return self._look(event, now_ms)
        if isinstance(event, Delivered):
            self._offsets[event.level] = event.offset + 1
            self._paused_until.pop(event.level, None)
            return []
        self._paused_until[event.level] = now_ms + RETRY_MS
        return [WaitUntil(event.level, now_ms + RETRY_MS)]

    def _look(self, queue: QueueRead, now_ms: int) -> list[Action]:
        level, cursor = queue.level, self.cursor(queue.level)
        inside = max(queue.low, min(cursor, queue.high))
        if inside != cursor:
            self._offsets[level] = inside
            return [Correct(level, cursor, inside)]
        paused_until = self._paused_until.get(level, 0)
        if now_ms < paused_until:
            return [WaitUntil(level, paused_until)]
        actions: list[Action] = []
        for offset, (position, size, due_ms) in enumerate(queue.entries, cursor):
            if now_ms < due_ms:
                actions.append(WaitUntil(level, due_ms))
                break
            actions.append(Deliver(level, offset, position, size) if size else Skip(level, offset))
        return actions
