"""The index: from a key of a message to the positions of the messages that have it, in files of fixed size.

     0            40                      40 + 4 * slots                      40 + 4 * slots + 20 * entries
    +------------+-----------------------+-----------------------------------+
    |   header   |  slots, 4 bytes each  |  entries, 20 bytes each           |
    +------------+-----------------------+-----------------------------------+

    header:  begin time 8 | end time 8 | begin position 8 | end position 8 | used slots 4 | next entry 4
    slot:    number of the newest entry of its chain, 0 for none
    entry:   key hash 4 | position 8 | seconds since begin time 4 | previous entry of the chain 4

Entry 0 is never used. A file's name is the local time it was made at, so names sort by age.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from eruca.clock import Clock
from eruca.errors import StoreIOError, StoreLayoutError
from eruca.store.filesystem import FileSystem, Mapping
from eruca.wire.javahash import index_key_hash

HEADER_BYTES = 40
SLOT_BYTES = 4
ENTRY_BYTES = 20
HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
_INT_MAX = 2**31 - 1
_ALLOCATE_STEP = 1024 * 1024
_STAGING_NAME = ".eruca-new-index"
# The same millisecond cannot name two files; one later is close enough, and bounded.
_NAME_TRIES_MAX = 10_000


def file_bytes(slots: int, entries: int) -> int:
    """Size of an index file with that many slots and entries."""
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


class IndexFile:
    """One index file."""

    __slots__ = (
        "_allocated_end",
        "_entries_at",
        "_mapping",
        "begin_position",
        "begin_time",
        "buffer",
        "dirty",
        "end_position",
        "end_time",
        "entries_max",
        "next_entry",
        "path",
        "slots",
        "used_slots",
    )

    def __init__(self, path: Path, mapping: Mapping, slots: int, entries: int, *, allocated_end: int) -> None:
        self.path = path
        self._mapping = mapping
        self.buffer = mapping.buffer
        self.slots = slots
        self.entries_max = entries
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES
        self._allocated_end = allocated_end
        self.dirty = False
        self.begin_time: int = 0
        self.end_time: int = 0
        self.begin_position: int = 0
        self.end_position: int = 0
        self.used_slots: int = 0
        self.next_entry: int = 1
        self.read_header()

    def read_header(self) -> None:
        """Take the header's fields from the file."""
        (
            self.begin_time,
            self.end_time,
            self.begin_position,
            self.end_position,
            self.used_slots,
            next_entry,
        ) = HEADER.unpack_from(self.buffer, 0)
        self.next_entry = max(1, min(next_entry, self.entries_max))

    def write_header(self) -> None:
        """Put the header's fields into the file."""
        HEADER.pack_into(
            self.buffer,
            0,
            self.begin_time,
            self.end_time,
            self.begin_position,
            self.end_position,
            self.used_slots,
            self.next_entry,
        )
        self.dirty = True

    @property
    def is_full(self) -> bool:
        """Is there no entry left?"""
        return self.next_entry >= self.entries_max

    @property
    def write_end(self) -> int:
        """Offset in the file behind the last entry."""
        return self._entries_at + self.next_entry * ENTRY_BYTES

    def reserve(self, count: int) -> None:
        """Reserve blocks for the next entries (and the slots), so that writing them cannot fail."""
        needed = min(self.next_entry + count, self.entries_max) * ENTRY_BYTES + self._entries_at
        if needed > self._allocated_end:
            goal = min(self._mapping.size, needed + _ALLOCATE_STEP)
            self._mapping.allocate(self._allocated_end, goal)
            self._allocated_end = goal

    def put(self, key_hash: int, position: int, store_time: int) -> None:
        """Add one entry; the caller has checked that the file is not full and reserved room."""
        number = self.next_entry
        buffer = self.buffer
        slot_at = HEADER_BYTES + (key_hash % self.slots) * SLOT_BYTES
        (previous,) = SLOT.unpack_from(buffer, slot_at)
        if previous <= 0 or previous > number:
            previous = 0
        if number <= 1:
            self.begin_time = store_time
            self.begin_position = position
            seconds = 0
        else:
            elapsed = store_time - self.begin_time
            seconds = min(_INT_MAX, elapsed // 1000) if elapsed > 0 and self.begin_time > 0 else 0
        ENTRY.pack_into(buffer, self._entries_at + number * ENTRY_BYTES, key_hash, position, seconds, previous)
        SLOT.pack_into(buffer, slot_at, number)
        if previous == 0:
            self.used_slots += 1
        self.next_entry = number + 1
        self.end_position = position
        self.end_time = store_time

    def find(self, key_hash: int, begin: int, end: int, count_max: int) -> Iterator[int]:
        """Positions of entries with that key hash and a time in the range, newest first."""
        (number,) = SLOT.unpack_from(self.buffer, HEADER_BYTES + (key_hash % self.slots) * SLOT_BYTES)
        found = 0
        while 0 < number < self.next_entry and found < count_max:
            entry_hash, position, seconds, previous = ENTRY.unpack_from(
                self.buffer, self._entries_at + number * ENTRY_BYTES
            )
            if seconds < 0:
                return
            time = self.begin_time + seconds * 1000
            if entry_hash == key_hash and begin <= time <= end:
                found += 1
                yield position
            # A chain only leads to older entries; anything else is damage, and would lead in circles.
            if previous >= number or time < begin:
                return
            number = previous

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, position, seconds and previous entry of one entry."""
        fields: tuple[int, int, int, int] = ENTRY.unpack_from(self.buffer, self._entries_at + number * ENTRY_BYTES)
        return fields

    def overlaps(self, begin: int, end: int) -> bool:
        """Could the file have an entry in that time range?"""
        return begin <= self.end_time and end >= self.begin_time

    def truncate(self, position: int) -> None:
        """Keep only the entries of records before a position, and make the slots anew from them."""
        kept: list[tuple[int, int, int]] = []
        last = 0
        # The header may be older than the entries after a crash, so they say themselves where they end.
        for number in range(1, self.entries_max):
            key_hash, at, seconds, _ = self.entry(number)
            if at >= position or at < last or key_hash < 0 or (at == 0 and number > 1 and key_hash == 0):
                break
            kept.append((key_hash, at, seconds))
            last = at
        begin_time = self.begin_time
        self.next_entry = max(self.next_entry, len(kept) + 1)
        self._allocated_end = 0
        self.reserve(0)
        stop = self._allocated_end
        for at in range(HEADER_BYTES, stop, _ALLOCATE_STEP):
            self.buffer[at : min(stop, at + _ALLOCATE_STEP)] = bytes(min(stop, at + _ALLOCATE_STEP) - at)
        self.used_slots, self.next_entry = 0, 1
        for key_hash, at, seconds in kept:
            self.put(key_hash, at, begin_time + seconds * 1000)
        self.write_header()

    def sync(self) -> None:
        """Return when the file is on the disk."""
        if not self.dirty:
            return
        self.dirty = False
        try:
            self._mapping.sync()
        except StoreIOError:
            self.dirty = True
            self._mapping.rewrite(0, min(self._mapping.size, self.write_end))
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._mapping.close()


class Index:
    """All index files, oldest first."""

    def __init__(self, disk: FileSystem, directory: Path, slots: int, entries: int, clock: Clock) -> None:
        self._disk = disk
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._clock = clock
        self._staging = directory.parent / _STAGING_NAME
        self.files: list[IndexFile] = []

    def load(self, *, writable: bool = True) -> None:
        """Map the files that are there."""
        if writable:
            self._disk.make_directory(self._directory)
            self._disk.remove(self._staging)
        size = file_bytes(self._slots, self._entries)
        for name in self._disk.list(self._directory):
            path = self._directory / name
            if not name.isdigit():
                raise StoreLayoutError(f"{path} is not an index file: its name is not a time", hint="move it")
            found = self._disk.size(path)
            if found != size:
                raise StoreLayoutError(
                    f"{path} has {found} bytes, but maxHashSlotNum={self._slots} and maxIndexNum={self._entries} "
                    f"make {size}",
                    hint="set both to the values the store was made with, or run `eruca store rebuild`",
                )
            mapping = self._disk.map(path, writable=writable)
            file = IndexFile(path, mapping, self._slots, self._entries, allocated_end=0)
            if writable and file.next_entry <= 1:
                self._remove(file)  # made in advance and never used
            else:
                self.files.append(file)

    def reserve(self, count: int) -> None:
        """Make sure `count` entries can be written without fail, making a new file if the last one is full."""
        last = self.files[-1] if self.files else None
        if last is None or last.is_full:
            last = self._make_file()
        last.reserve(count)
        if last.entries_max - last.next_entry < count < self._entries:
            # The rest goes to a file that must exist before the first entry is written.
            self._spare_or_make(count)

    def _spare_or_make(self, count: int) -> None:
        if self._spare is None:
            self._spare = self._create()
        self._spare.reserve(count)

    _spare: IndexFile | None = None

    def put(self, topic: str, keys: list[str], position: int, store_time: int) -> None:
        """Index the keys of one record; one that the last file already passed is left out (it is a repetition)."""
        if not self.files:
            self._make_file()
        if position <= self.end_position:
            return
        for key in keys:
            file = self.files[-1]
            if file.is_full:
                file.write_header()
                file = self._make_file()
            file.put(index_key_hash(topic, key), position, store_time)
        self.files[-1].write_header()

    def _make_file(self) -> IndexFile:
        made, self._spare = (self._spare or self._create()), None
        if self.files:
            previous = self.files[-1]
            made.begin_time = made.end_time = previous.end_time
            made.begin_position = made.end_position = previous.end_position
            made.write_header()
        self.files.append(made)
        return made

    def _create(self) -> IndexFile:
        now = self._clock.now_ms()
        taken = {file.path.name for file in self.files}
        for later in range(_NAME_TRIES_MAX):
            stamp = now + later
            name = datetime.fromtimestamp(stamp // 1000).strftime("%Y%m%d%H%M%S") + f"{stamp % 1000:03d}"
            if name not in taken and (not self.files or name > self.files[-1].path.name):
                break
        path = self._directory / name
        size = file_bytes(self._slots, self._entries)
        self._disk.make_directory(self._directory)
        mapping = self._disk.create(path, size, staging=self._staging, durable=False)
        start = HEADER_BYTES + self._slots * SLOT_BYTES
        try:
            mapping.allocate(0, start)
        except Exception:
            mapping.close()
            self._disk.remove(path)
            raise
        return IndexFile(path, mapping, self._slots, self._entries, allocated_end=start)

    def find(self, topic: str, key: str, begin: int, end: int, count_max: int) -> list[int]:
        """Positions of records with a key, newest file first; the caller checks the key itself (hashes collide)."""
        key_hash = index_key_hash(topic, key)
        positions: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin, end):
                positions.extend(file.find(key_hash, begin, end, count_max - len(positions)))
            if len(positions) >= count_max or file.begin_time < begin:
                break
        return positions

    @property
    def end_time(self) -> int:
        """Store time of the newest indexed record."""
        return self.files[-1].end_time if self.files else 0

    @property
    def end_position(self) -> int:
        """Position of the newest indexed record, -1 without any."""
        if not self.files or (len(self.files) == 1 and self.files[0].next_entry <= 1):
            return -1
        return self.files[-1].end_position

    def truncate(self, position: int) -> None:
        """Forget the records from a position on."""
        while self.files and self.files[-1].begin_position >= position:
            self._remove(self.files.pop())
        if self.files:
            self.files[-1].truncate(position)
            if self.files[-1].next_entry <= 1:
                self._remove(self.files.pop())

    def remove_before(self, position: int) -> int:
        """Delete files whose records are all gone, never the last one; returns how many."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_position < position:
            self._remove(self.files.pop(0))
            removed += 1
        return removed

    def clear(self) -> None:
        """Delete every file."""
        while self.files:
            self._remove(self.files.pop())

    def _remove(self, file: IndexFile) -> None:
        self._disk.remove(file.path)
        file.close()

    def sync(self) -> None:
        """Return when every entry written so far is on the disk."""
        for file in self.files:
            file.sync()

    def close(self) -> None:
        """Let go of the files."""
        if self._spare is not None:
            self._remove(self._spare)
            self._spare = None
        for file in self.files:
            file.close()
        self.files.clear()
