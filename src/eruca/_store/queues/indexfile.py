"""The index: from a key of a message to the positions of the messages that have it, in files of fixed size.

     0            40                      40 + 4 * slots                      40 + 4 * slots + 20 * entries
    +------------+-----------------------+-----------------------------------+
    |   header   |  slots, 4 bytes each  |  entries, 20 bytes each           |
    +------------+-----------------------+-----------------------------------+

    header:  begin time 8 | end time 8 | begin position 8 | end position 8 | used slots 4 | next entry 4
    slot:    number of the newest entry of its chain, 0 for none
    entry:   key hash 4 | position 8 | seconds since begin time 4 | previous entry of the chain 4

Entry 0 is never used. A file is named after the local time of its creation, so names sort by age.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from eruca._store.filesystem import Mapping
from eruca._store.kernel.index import put_index_entries
from eruca._store.kernel.sizes import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from eruca.errors import StoreError

HEADER_BYTES = INDEX_HEADER_BYTES
SLOT_BYTES = INDEX_SLOT_BYTES
ENTRY_BYTES = INDEX_ENTRY_BYTES
HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
# An entry has whole seconds, so its record is up to a second newer.
SECOND_MS = 1000
# Blocks are reserved in steps; an index file of the default size has 420 MB.
_ALLOCATE_STEP = 1024 * 1024


def file_bytes(slots: int, entries: int) -> int:
    """Size of an index file with that many slots and entries."""
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


class IndexFile:
    """One index file."""

    __slots__ = ("_allocated_end", "_entries_at", "_mapping", "buffer", "dirty", "entries_max", "path", "room", "slots")

    def __init__(self, path: Path, mapping: Mapping, slots: int, entries: int, *, allocated_end: int) -> None:
        self.path = path
        self._mapping = mapping
        self.buffer = mapping.buffer
        self.slots = slots
        self.entries_max = entries
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES
        self._allocated_end = allocated_end
        self.dirty = False
        # Entries that can be written before the next call of `reserve`.
        self.room = 0

    # The header is kept in the file only, so there is no copy that could differ from it.

    @property
    def begin_time(self) -> int:
        """Store time of the first record."""
        return self._header(0)

    @property
    def end_time(self) -> int:
        """Store time of the last record."""
        return self._header(1)

    @property
    def begin_position(self) -> int:
        """Position of the first record."""
        return self._header(2)

    @property
    def end_position(self) -> int:
        """Position of the last record."""
        return self._header(3)

    @property
    def used_slots(self) -> int:
        """How many slots have a chain."""
        return self._header(4)

    @property
    def next_entry(self) -> int:
        """Number of the next entry; a new file has 0 and means 1."""
        return max(1, min(self._header(5), self.entries_max))

    def _header(self, field: int) -> int:
        value: int = HEADER.unpack_from(self.buffer, 0)[field]
        return value

    def start_after(self, previous: IndexFile) -> None:
        """Begin where another file ends, as Java writes it before the first entry."""
        time, position = previous.end_time, previous.end_position
        HEADER.pack_into(self.buffer, 0, time, time, position, position, 0, 1)
        self.dirty = True

    @property
    def is_full(self) -> bool:
        """Is there no room for another entry?"""
        return self.next_entry >= self.entries_max

    @property
    def write_end(self) -> int:
        """Offset in the file after the last entry."""
        return self._entries_at + self.next_entry * ENTRY_BYTES

    def reserve(self, count: int) -> None:
        """Reserve blocks for the next entries (and the slots), so that writing them cannot fail."""
        if count <= self.room:
            return
        next_entry = self.next_entry
        needed = min(next_entry + count, self.entries_max) * ENTRY_BYTES + self._entries_at
        if needed > self._allocated_end:
            goal = min(self._mapping.size, needed + _ALLOCATE_STEP)
            self._mapping.allocate(self._allocated_end, goal)
            self._allocated_end = goal
        self.room = min((self._allocated_end - self._entries_at) // ENTRY_BYTES, self.entries_max) - next_entry

    def put(self, hashes: list[int], position: int, store_time: int) -> None:
        """Add the entries of one record; the caller has reserved room for them."""
        put_index_entries(self.buffer, self.slots, hashes, position, store_time)
        self.room -= len(hashes)
        self.dirty = True

    def add_run(self, count: int) -> None:
        """Count entries written by `Dispatch`, which had room for them."""
        self.room -= count
        self.dirty = True

    def find(self, key_hash: int, begin: int, end: int, count_max: int) -> Iterator[int]:
        """Positions of entries with that key hash that may have a time in the range, newest first."""
        (number,) = SLOT.unpack_from(self.buffer, HEADER_BYTES + (key_hash % self.slots) * SLOT_BYTES)
        found = 0
        while 0 < number < self.next_entry and found < count_max:
            entry_hash, position, seconds, previous = ENTRY.unpack_from(
                self.buffer, self._entries_at + number * ENTRY_BYTES
            )
            if seconds < 0:
                return
            time = self.begin_time + seconds * 1000
            if entry_hash == key_hash and begin < time + SECOND_MS and time <= end:
                found += 1
                yield position
            # A chain only leads to older entries; anything else is damage, and could loop forever.
            if previous >= number or time + SECOND_MS <= begin:
                return
            number = previous

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, position, seconds and previous entry of one entry."""
        fields: tuple[int, int, int, int] = ENTRY.unpack_from(self.buffer, self._entries_at + number * ENTRY_BYTES)
        return fields

    def overlaps(self, begin: int, end: int) -> bool:
        """Could the file have an entry in that time range?"""
        return begin < self.end_time + SECOND_MS and end >= self.begin_time

    def is_consistent(self) -> bool:
        """Do header, first and last entry agree?"""
        count = self._header(5)
        return (
            1 < count <= self.entries_max
            and 0 <= self.begin_position <= self.end_position
            and self.entry(1)[1] == self.begin_position
            and self.entry(count - 1)[1] == self.end_position
        )

    def is_whole_before(self, position: int) -> bool:
        """Is the file full, and every record in it before a position?"""
        return (
            self.is_full
            and self.end_position < position
            and self.entry(1)[1] == self.begin_position
            and self.entry(self.entries_max - 1)[1] == self.end_position
        )

    def truncate(self, position: int) -> None:
        """Keep only the entries of records before a position, and rebuild the slots from them."""
        kept: list[tuple[int, int, int]] = []
        last = 0
        # After a crash the header may be older than the entries, so the entries decide where they end.
        for number in range(1, self.entries_max):
            key_hash, at, seconds, _ = self.entry(number)
            if at >= position or at < last or key_hash < 0 or (at == 0 and number > 1 and key_hash == 0):
                break
            kept.append((key_hash, at, seconds))
            last = at
        begin_time, begin_position = self.begin_time, self.begin_position
        if not kept or kept[0][1] != begin_position:  # or the header does not belong to these entries
            HEADER.pack_into(self.buffer, 0, 0, 0, 0, 0, 0, 1)
            return
        self._allocated_end = self.room = 0
        self.reserve(len(kept) + 1)
        stop = max(self._allocated_end, self.write_end)
        for at in range(HEADER_BYTES, stop, _ALLOCATE_STEP):
            self.buffer[at : min(stop, at + _ALLOCATE_STEP)] = bytes(min(stop, at + _ALLOCATE_STEP) - at)
        HEADER.pack_into(self.buffer, 0, begin_time, begin_time, begin_position, begin_position, 0, 1)
        for key_hash, at, seconds in kept:
            self.put([key_hash], at, begin_time + seconds * 1000)
        self.room = 0
        self.dirty = True

    def drop_from(self, position: int, read_time: Callable[[int], int]) -> None:
        """Remove the newest entries, as if those of records from a position on had never been written.

        `read_time` returns the store time of a record; the header gets that of the newest one left.
        """
        begin_time, _, begin_position, _, used, number = HEADER.unpack_from(self.buffer, 0)
        last_position = begin_position
        while number > 1:
            key_hash, last_position, seconds, previous = self.entry(number - 1)
            if last_position < position:
                break
            number -= 1
            # It was the newest of its chain, so the slot points to the one before it again.
            SLOT.pack_into(self.buffer, HEADER_BYTES + (key_hash % self.slots) * SLOT_BYTES, previous)
            ENTRY.pack_into(self.buffer, self._entries_at + number * ENTRY_BYTES, 0, 0, 0, 0)
            used -= previous == 0
        end_time = read_time(last_position)
        if end_time < 0:
            end_time = begin_time + seconds * 1000
        HEADER.pack_into(self.buffer, 0, begin_time, end_time, begin_position, last_position, used, number)
        self.room = 0
        self.dirty = True

    def sync(self) -> None:
        """Return when the file is on the disk."""
        if not self.dirty:
            return
        self.dirty = False
        try:
            self._mapping.sync()
        except StoreError:
            self.dirty = True
            self._mapping.rewrite(0, min(self._mapping.size, self.write_end))
            raise

    def close(self) -> None:
        """Close the file."""
        self._mapping.close()
