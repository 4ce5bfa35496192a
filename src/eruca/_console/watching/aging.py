"""How long messages have been waiting in queues, and for how long queues do not move, from one look to the next.

Brokers report offsets. When the message at an offset was stored follows from the looks: it was between the one whose
end did not include it and the one whose end did. So most ages cost no request; only for queues that do not move, and
whose message is older than the first look, is the message itself read, once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from eruca._admin.lag import QueueLag

# Looks that are remembered of each queue. When there are more, every second of the older half is forgotten.
_LOOKS_MAX: Final = 32

Place: TypeAlias = tuple[str, str, int]
GroupPlace: TypeAlias = tuple[str, str, str, int]


def name_place(row: QueueLag) -> Place:
    """Return topic, broker and queue."""
    return row.topic, row.broker, row.queue


def name_group_place(row: QueueLag) -> GroupPlace:
    """Return group, topic, broker and queue."""
    return row.group, row.topic, row.broker, row.queue


@dataclass(slots=True)
class Ends:
    """The end of one queue at several moments, the oldest first."""

    at: list[datetime] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def learn(self, now: datetime, end: int) -> None:
        """Add a look. A queue whose end went back is another one."""
        if self.ends and end < self.ends[-1]:
            self.at, self.ends = [], []
        if len(self.ends) > 1 and self.ends[-1] == self.ends[-2] == end:
            self.at[-1] = now  # the end of a pause is enough
            return
        self.at.append(now)
        self.ends.append(end)
        if len(self.ends) > _LOOKS_MAX:
            half = len(self.ends) // 2
            self.at = self.at[:half:2] + self.at[half:]
            self.ends = self.ends[:half:2] + self.ends[half:]

    def find_stored(self, offset: int) -> datetime | None:
        """Return when the message at an offset was stored, about; None if it was before the first look."""
        after = bisect_right(self.ends, offset)
        if after == 0 or after == len(self.ends):
            return None
        low, high = self.ends[after - 1], self.ends[after]
        share = (offset - low + 1) / (high - low)
        return self.at[after - 1] + (self.at[after] - self.at[after - 1]) * share


@dataclass(slots=True)
class _Seen:
    """A group in one queue at the last look."""

    offset: int
    end: int
    # Since when the offset has been this and messages have waited; None: they did not wait.
    still_since: datetime | None
    # It was so at the first look, so it may have been so for longer.
    is_minimum: bool
    # When the message at the offset was stored, as it was read.
    stored_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Aged:
    """A row with what the looks add to it. Times are in seconds."""

    row: QueueLag
    age: float | None
    # For how long it has not moved although messages wait.
    still: float
    is_minimum: bool
    # Messages stored and consumed since the last look; None at the first.
    incoming: int | None
    outgoing: int | None


class Aging:
    """Remembers looks at the queues of a cluster."""

    def __init__(self) -> None:
        self._ends: dict[Place, Ends] = {}
        self._seen: dict[GroupPlace, _Seen] = {}
        self._now: datetime | None = None

    def learn(self, rows: Sequence[QueueLag], now: datetime) -> list[Aged]:
        """Take a look, and return its rows with ages and movements."""
        self._learn_ends(rows, now)
        is_first = self._now is None
        self._now = now
        seen: dict[GroupPlace, _Seen] = {}
        aged = []
        for row in rows:
            key = name_group_place(row)
            before = self._seen.get(key)
            mine = _follow(before, row, now, is_first=is_first)
            seen[key] = mine
            aged.append(self._describe(row, mine, before, now))
        self._seen = seen
        return aged

    def _learn_ends(self, rows: Iterable[QueueLag], now: datetime) -> None:
        # Several groups read a queue; brokers may report its end to each at another moment.
        tops: dict[Place, int] = {}
        for row in rows:
            place = name_place(row)
            tops[place] = max(row.end, tops.get(place, 0))
        self._ends = {place: self._ends.get(place) or Ends() for place in tops}
        for place, end in tops.items():
            self._ends[place].learn(now, end)

    def _describe(self, row: QueueLag, mine: _Seen, before: _Seen | None, now: datetime) -> Aged:
        age = None
        if row.lag:
            stored_at = mine.stored_at or self._ends[name_place(row)].find_stored(row.offset) or row.consumed_at
            age = None if stored_at is None else max(0.0, (now - stored_at).total_seconds())
        still = 0.0 if mine.still_since is None else (now - mine.still_since).total_seconds()
        return Aged(
            row=row,
            age=age,
            # It does not move because nothing was there before.
            still=still if age is None or mine.is_minimum else min(still, age),
            is_minimum=mine.is_minimum,
            incoming=None if before is None else max(0, row.end - before.end),
            outgoing=None if before is None else max(0, row.offset - before.offset),
        )

    def list_unknown(self, aged: Iterable[Aged]) -> list[QueueLag]:
        """Return the rows whose message has to be read: it does not move, and is older than the first look."""
        return [
            each.row
            for each in aged
            if each.row.lag
            and self._seen[name_group_place(each.row)].stored_at is None
            and not each.outgoing
            and self._ends[name_place(each.row)].find_stored(each.row.offset) is None
        ]

    def learn_waits(self, rows: Iterable[QueueLag], now: datetime) -> None:
        """Take what was read: rows with the time that their next message has been waiting."""
        for row in rows:
            seen = self._seen.get(name_group_place(row))
            if seen is not None and seen.offset == row.offset and row.lag_time is not None:
                seen.stored_at = now - row.lag_time

    def correct(self, aged: Sequence[Aged], now: datetime) -> list[Aged]:
        """Return rows of the last look again, with what was read since."""
        return [self._correct(each, now) for each in aged]

    def _correct(self, each: Aged, now: datetime) -> Aged:
        mine = self._seen[name_group_place(each.row)]
        if mine.stored_at is None:
            return each
        age = max(0.0, (now - mine.stored_at).total_seconds())
        still = each.still if each.is_minimum else min(each.still, age)
        return Aged(each.row, age, still, each.is_minimum, each.incoming, each.outgoing)


def _follow(before: _Seen | None, row: QueueLag, now: datetime, *, is_first: bool) -> _Seen:
    if not row.lag:
        return _Seen(row.offset, row.end, None, is_minimum=False)
    if before is None or before.offset != row.offset:
        # A queue that appears later than the watch began was not there before.
        return _Seen(row.offset, row.end, now, is_minimum=before is None and is_first)
    since = now if before.still_since is None else before.still_since
    return _Seen(row.offset, row.end, since, before.is_minimum, before.stored_at)


def measure_rate(count: int, elapsed: timedelta) -> float:
    """Return messages per second."""
    seconds = elapsed.total_seconds()
    return round(count / seconds, 3) if seconds > 0 else 0.0
