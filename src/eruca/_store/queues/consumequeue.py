"""The consume queue: for one queue of one topic, where each message is in the commit log.

One entry, 20 bytes; entry n of the queue is at byte 20 * n of the chain:

     0               8       12              20
    +---------------+-------+---------------+
    |   position    | size  |   tags code   |
    +---------------+-------+---------------+

The tags code is the hash of the TAGS property; in the delay topic it is the time a message is due.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from eruca._store.filesystem import Buffer, FileSystem
from eruca._store.kernel import sizes
from eruca._store.log.chain import Chain
from eruca._store.log.mappool import MapPool
from eruca._store.log.segment import Segment
from eruca.errors import StoreError

ENTRY_BYTES = sizes.ENTRY_BYTES
ENTRY = struct.Struct(">qiq")
# What Java writes before the first real entry of a queue that does not start at 0; recognized by its size field.
FILLER_SIZE = sizes.FILLER_SIZE
# Blocks are reserved in steps, because a store may have thousands of queues with a handful of messages each.
_ALLOCATE_STEP = 64 * 1024


class Entry(NamedTuple):
    """One entry: the position of a message, the length of its record, and its tags code."""

    position: int
    size: int
    tags_code: int


class ConsumeQueue:
    """The entries of one queue, in order."""

    def __init__(
        self,
        disk: FileSystem,
        directory: Path,
        segment_bytes: int,
        *,
        topic: str,
        queue_id: int,
        pool: MapPool | None = None,
    ) -> None:
        self.topic = topic
        self.encoded_topic = topic.encode()
        self.queue_id = queue_id
        self.chain = Chain(
            disk,
            directory,
            segment_bytes,
            durable=False,
            size_key="mappedFileSizeConsumeQueue",
            pool=pool,
        )
        self._pool = pool
        self.min_offset = 0
        self.max_offset = 0
        # The offset the next message of this queue gets. It is ahead of max_offset only while records wait in a
        # transient buffer or a batch is being written.
        self.next_offset = 0
        # End of the last record this queue points at.
        self.end_position = -1
        self._dirty_from = 0
        self._segment: Segment | None = None
        self._buffer: Buffer = bytearray()
        self._at = 0
        self._room = 0

    # -- opening -----------------------------------------------------------------------------------------------------

    def load(self, *, writable: bool = True) -> None:
        """Map the files and find the last entry; when writable, a queue with a damaged file is opened as well."""
        self.chain.load(writable=writable, tolerant=writable)
        self.set_max(self._find_max())

    def _find_max(self) -> int:
        """Offset after the last entry ever written: everything after it is zeros."""
        for segment in reversed(self.chain.segments):
            count = _count_entries(segment)
            if count:
                return segment.start // ENTRY_BYTES + count
        return self.chain.start // ENTRY_BYTES

    def set_max(self, offset: int) -> None:
        """Continue writing at an offset."""
        self.max_offset = self.next_offset = self._dirty_from = offset
        self._segment = None
        self._room = 0
        last = self.entry(offset - 1)
        self.end_position = -1
        if last is not None:
            self.end_position = last.position + last.size if last.size != FILLER_SIZE else last.position or -1

    def raise_min(self, log_start: int) -> None:
        """Forget entries whose records the commit log no longer has."""
        self.min_offset = self.find_position(log_start)

    # -- writing -----------------------------------------------------------------------------------------------------

    def reserve(self, count: int) -> None:
        """Make sure the next `count` entries can be written without failing, even across a segment boundary."""
        if self._room >= count:
            return
        first = self.max_offset * ENTRY_BYTES
        last = first + count * ENTRY_BYTES
        position = first
        while position < last:
            segment = self.chain.segment_for(position)
            stop = min(last, segment.end)
            segment.ensure_allocated(stop - segment.start, _ALLOCATE_STEP)
            position = stop
        self._enter(first)

    def _enter(self, position: int) -> None:
        segment = self.chain.segment_for(position)
        self._segment = segment
        self._buffer = segment.buffer
        self._at = position - segment.start
        self._room = (segment.allocated_end - self._at) // ENTRY_BYTES
        if self._pool is not None:
            self._pool.add_writer(self._release)

    def _release(self) -> None:
        """Hold no buffer until the next write."""
        self._segment = None
        self._buffer = bytearray()
        self._room = 0

    def add(self, position: int, size: int, tags_code: int) -> None:
        """Make room for an entry and write it; if it raises, nothing has changed."""
        buffer, at, _ = self.find_room()
        ENTRY.pack_into(buffer, at, position, size, tags_code)
        self.add_run(1, position + size)

    def find_room(self) -> tuple[Buffer, int, int]:
        """Where the next entries go, and how many fit there consecutively; makes room for one, which may raise."""
        if self._room <= 0:
            self.reserve(1)
        return self._buffer, self._at, self._room

    def add_run(self, count: int, end_position: int) -> None:
        """Count entries that were written where `find_room` returned."""
        self._at += count * ENTRY_BYTES
        self._room -= count
        self.max_offset = end = self.max_offset + count
        if self.next_offset < end:  # noqa: PLR1730 - a call of max() takes a tenth of a microsecond of every append
            self.next_offset = end
        self.end_position = end_position

    def start_at(self, offset: int) -> None:
        """Begin an empty queue at an offset, as after older records were deleted; fills the segment before it."""
        segment_entries = self.chain.segment_bytes // ENTRY_BYTES
        first = offset - offset % segment_entries
        if self.chain.segments and self.chain.start != first * ENTRY_BYTES:
            self._release()
            self.chain.destroy()  # it was reserved for an entry at another offset
        if offset > first:
            self._segment = None
            self._room = 0
            self.max_offset = first
            self.reserve(offset - first)
            self.fill_to(offset, 0, FILLER_SIZE)
        self.set_max(offset)
        self._dirty_from = first
        self.min_offset = offset

    def fill_to(self, offset: int, position: int, size: int) -> None:
        """Write entries for offsets whose records were lost to damage, up to but excluding `offset`."""
        entry = ENTRY.pack(position, size, 0)
        while self.max_offset < offset:
            buffer, at, room = self.find_room()
            count = min(room, offset - self.max_offset)
            buffer[at : at + count * ENTRY_BYTES] = entry * count
            self.add_run(count, position + size)

    def correct(self, offset: int, position: int, size: int, tags_code: int) -> None:
        """Rewrite a damaged entry; the queue must have it."""
        at = offset * ENTRY_BYTES
        segment = self.chain.find(at)
        if segment is None or not 0 <= offset < self.max_offset:
            raise StoreError(f"{self.chain.directory} has no entry for offset {offset}")
        ENTRY.pack_into(segment.buffer, at - segment.start, position, size, tags_code)
        self._dirty_from = min(self._dirty_from, offset)
        if offset == self.max_offset - 1:
            self.end_position = position + size

    def give_up_to(self, offset: int) -> None:
        """Count the messages before an offset as lost: nothing is left of them, and their offsets are not reused."""
        if not self.chain.segments:
            self.start_at(offset)
            return
        dirty = min(self._dirty_from, self.max_offset)
        self.reserve(offset - self.max_offset)
        self.fill_to(offset, max(0, self.end_position), FILLER_SIZE)
        self.set_max(offset)
        self._dirty_from = dirty

    def truncate(self, offset: int) -> None:
        """Drop the entries from an offset on, leaving zeros."""
        position = offset * ENTRY_BYTES
        segment = self.chain.find(position)
        if segment is not None:
            self.chain.remove_from(segment.end)
            # The first file stays even when it becomes empty: only its name records the offset.
            if position == segment.start and (position == 0 or segment is not self.chain.segments[0]):
                self.chain.remove_from(segment.start)
            else:
                segment.ensure_allocated(segment.size if segment.allocated_end else position - segment.start, 0)
                self.chain.zero_from(position)
        dirty = self._dirty_from
        self.set_max(offset)
        # The zeros are not on the disk yet: the next sync includes the segment with the last entry.
        self._dirty_from = min(dirty, max(0, offset - 1))

    def sync(self) -> None:
        """Return when every entry written so far is on the disk."""
        dirty, goal = self._dirty_from, self.max_offset
        if dirty >= goal:
            return
        self.chain.sync_names(self.chain.directory.parent.parent)
        for segment in self.chain.from_position(dirty * ENTRY_BYTES):
            if segment.start > goal * ENTRY_BYTES:
                break
            try:
                segment.mapping.sync()
            except StoreError:
                # Entries written since are forgotten too, so the range extends to the current end of the queue.
                low = max(0, dirty * ENTRY_BYTES - segment.start)
                segment.mapping.rewrite(low, min(segment.size, self.max_offset * ENTRY_BYTES - segment.start))
                raise
        self._dirty_from = goal

    # -- reading -----------------------------------------------------------------------------------------------------

    def entry(self, offset: int) -> Entry | None:
        """The entry of an offset, or None when there is none."""
        if offset < 0 or offset >= self.max_offset:
            return None
        position = offset * ENTRY_BYTES
        segment = self.chain.find(position)
        if segment is None:
            return None
        return Entry(*ENTRY.unpack_from(segment.buffer, position - segment.start))

    def entries(self, offset: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Up to `count` entries from an offset on, never beyond the segment that holds it (as Java reads)."""
        return ENTRY.iter_unpack(self.view_entries(offset, count))

    def view_entries(self, offset: int, count: int) -> memoryview:
        """The bytes of up to `count` entries, as `entries`."""
        position = offset * ENTRY_BYTES
        segment = self.chain.find(position)
        if segment is None or offset >= self.max_offset:
            return memoryview(b"")
        start, last = segment.start, min(segment.end // ENTRY_BYTES, self.max_offset, offset + count)
        return memoryview(segment.buffer)[position - start : last * ENTRY_BYTES - start]

    def find_position(self, position: int) -> int:
        """The first offset whose record is at a commit-log position or later; max_offset when none does."""
        high = self.max_offset
        low = self.chain.start // ENTRY_BYTES if self.chain.segments else high
        while low < high:
            middle = (low + high) // 2
            found = self.entry(middle)
            # Fillers before the first real entry have position 0; fillers further on stand for lost messages.
            is_leading = found is not None and found.size == FILLER_SIZE and found.position == 0
            if found is not None and found.size > 0 and (found.position < position or is_leading):
                low = middle + 1
            else:
                high = middle
        return low

    def find_end(self, position: int) -> int:
        """The offset after the last message whose record ends at or before a commit-log position."""
        low, high = self.min_offset, self.max_offset
        if self.end_position <= position:
            return high
        while low < high:
            middle = (low + high) // 2
            found = self.entry(middle)
            # A filler has no record that could end too late.
            size = 0 if found is None or found.size == FILLER_SIZE else found.size
            if found is None or found.position + size <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def detach_expired(self) -> list[Segment]:
        """Remove the segments whose entries are all below min_offset, never the last one.

        The chain disposes of them, in a thread if that may take long.
        """
        detached: list[Segment] = []
        while len(self.chain.segments) > 1 and self.chain.segments[0].end <= self.min_offset * ENTRY_BYTES:
            detached.append(self.chain.detach_first())
        return detached

    def destroy(self) -> None:
        """Delete the queue's files."""
        self.chain.destroy()
        self.set_max(0)
        self.min_offset = 0

    def close(self) -> None:
        """Close the files."""
        self._release()
        self.chain.close()

    def check(self) -> None:
        """Assert the invariants that hold between calls; called when the log is opened."""
        if not 0 <= self.min_offset <= self.max_offset:
            raise StoreError(f"{self.chain.directory}: offsets {self.min_offset}..{self.max_offset} are inconsistent")


def _count_entries(segment: Segment) -> int:
    """The number of entries of a segment up to the last one that is not zeros.

    Only ranges the disk reports as written are read. A search for the first empty entry would touch more pages, and
    an entry in the middle may have been lost.
    """
    for at, stop in reversed(segment.list_written(0, _ALLOCATE_STEP)):
        written = len(segment.buffer[at:stop].rstrip(b"\0"))
        if written:
            return -(-(at + written) // ENTRY_BYTES)
    return 0
