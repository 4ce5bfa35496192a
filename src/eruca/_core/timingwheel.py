"""When messages of any delay are due: a wheel of ten-second slots, of which only the next few are in memory.

    through              opened                                          the roll window's end
       |  heap, in order   |  slots: entries saved in the log, or waiting to be  |
    ---+-------------------+-----------------------------------------------------+--->  time

A slot that comes near is opened: its saved entries are loaded into the heap. The machine reads and writes nothing;
it returns the slot to load, keeps what is not saved yet, and knows up to which time everything is done.
"""

from __future__ import annotations

import heapq
from array import array
from typing import NamedTuple

SLOT_MS = 10_000
# A slot is opened this long before it begins.
AHEAD_MS = 10_000
# Entries held back because the wall clock was set forward: about 150 bytes each.
HELD_MAX = 200_000
# Numbers of an entry in an array: due time, position, size.
ENTRY_NUMBERS = 3


class TimerEntry(NamedTuple):
    """One pending message: when it is due, and where its record is."""

    due_ms: int
    position: int
    size: int


def slot_of(time_ms: int) -> int:
    """The slot a time belongs to."""
    return time_ms // SLOT_MS


class TimingWheel:
    """Pending entries, the near ones in order. The first slot must be loaded before anything is put."""

    def __init__(self, through_ms: int, saved_count: int = 0) -> None:
        # Everything due up to this time is done; it never goes back, whatever the clock does.
        self.through_ms = through_ms
        # The number of entries that are not done, wherever they are.
        self.pending = saved_count
        # The time with which late entries were saved.
        self._late_ms = through_ms
        self._opened = slot_of(through_ms + 1)
        self._heap: list[TimerEntry] = []
        # Entries that are due by the wall clock because it was set forward: until when each is held, and the entry.
        self._held: list[tuple[int, TimerEntry]] = []
        # While there are such entries, nothing from this time on counts as done.
        self._held_from_ms = 0
        self._unsaved: dict[int, array[int]] = {}

    @property
    def next_due_ms(self) -> int | None:
        """When the first of the entries in memory is due."""
        times = [self._heap[0].due_ms] if self._heap else []
        if self._held:
            times.append(self._held[0][0])
        return min(times, default=None)

    @property
    def is_saved(self) -> bool:
        """Is everything saved in the log?"""
        return not self._unsaved

    def put(self, due_ms: int, position: int, size: int) -> None:
        """Add an entry; one that is already due comes next."""
        # Saved with a time that is not done yet: a restart skips all earlier times.
        saved_ms = due_ms
        if due_ms <= self.through_ms:
            saved_ms = self._late_ms = self.through_ms + 1
        slot = slot_of(saved_ms)
        unsaved = self._unsaved.get(slot)
        if unsaved is None:
            unsaved = self._unsaved[slot] = array("q")
        unsaved.extend((saved_ms, position, size))
        self.pending += 1
        if slot < self._opened:
            heapq.heappush(self._heap, TimerEntry(due_ms, position, size))

    # -- slots -------------------------------------------------------------------------------------------------------

    def find_slot(self, now_ms: int) -> int | None:
        """The slot to load next; None while the next one is far ahead, or while there is enough to do."""
        # Late entries are saved as due right after everything that is done, so the slot of that time is always open.
        if self._opened <= slot_of(self.through_ms + 1):
            return self._opened
        if self._heap and self._heap[0].due_ms <= now_ms:
            return None
        return self._opened if self._opened <= slot_of(now_ms + AHEAD_MS) else None

    def load(self, slot: int, saved: array[int]) -> None:
        """Open a slot: `saved` is its content in the log."""
        if slot != self._opened:
            raise ValueError(f"slot {slot} is not the next one, which is {self._opened}")
        self._opened += 1
        found = [entry for entry in read_entries(saved) if entry.due_ms > self.through_ms]
        self.pending -= len(saved) // ENTRY_NUMBERS - len(found)
        found += read_entries(self._unsaved.get(slot, array("q")))
        if not found:
            return
        self._heap += found
        heapq.heapify(self._heap)

    def first_unsaved(self) -> tuple[int, array[int]]:
        """A slot with unsaved entries, and those entries."""
        slot = next(iter(self._unsaved))
        return slot, self._unsaved[slot]

    def mark_saved(self, slot: int) -> None:
        """The log has the unsaved entries of a slot; those of unopened slots are dropped from memory."""
        del self._unsaved[slot]

    # -- time --------------------------------------------------------------------------------------------------------

    def peek(self, now_ms: int) -> TimerEntry | None:
        """The first entry that is due and not done."""
        while self._held and self._held[0][0] <= now_ms:
            heapq.heappush(self._heap, heapq.heappop(self._held)[1])
        if self._heap and self._heap[0].due_ms <= now_ms:
            return self._heap[0]
        return None

    def finish(self) -> None:
        """The entry that `peek` returned is done."""
        heapq.heappop(self._heap)
        self.pending -= 1

    def hold(self, until_ms: int) -> None:
        """The entry that `peek` returned is not due before a time."""
        entry = heapq.heappop(self._heap)
        self._held_from_ms = min(self._held_from_ms, entry.due_ms) if self._held else entry.due_ms
        heapq.heappush(self._held, (until_ms, entry))

    @property
    def is_holding_much(self) -> bool:
        """Are enough entries held that others should stay where they are?"""
        return len(self._held) >= HELD_MAX

    def settle(self, now_ms: int) -> None:
        """Update up to which time everything is done."""
        # Late entries, which were saved with a later time than their own, are done by then as well.
        limit = min(max(now_ms, self._late_ms), self._opened * SLOT_MS - 1)
        if self._heap:
            limit = min(limit, self._heap[0].due_ms - 1)
        if self._held:
            limit = min(limit, self._held_from_ms - 1)
        self.through_ms = max(self.through_ms, limit)


def read_entries(numbers: array[int]) -> list[TimerEntry]:
    """The entries of an array."""
    return [TimerEntry(*entry) for entry in zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True)]
