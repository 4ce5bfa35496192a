"""The timer log: pending messages of any delay, by the slot of the timing wheel they are due in.

Blocks of 24-byte cells in a chain of segments; a block has entries of one slot and never crosses a segment:

     0       4       8               16      20      24
    +-------+-------+---------------+-------+-------+
    | ETB1  | count |     slot      |  CRC  |   1   |   header; ETB0 instead: nothing more in this segment
    +-------+-------+-------+-------+-------+-------+
    |      due      |   position    |     size      |   an entry, `count` times
    +---------------+---------------+---------------+

The CRC covers position, count, slot and entries; where the last number of a header is 0, only the entries,
as an earlier version wrote it. The checkpoint has a CRC of its other fields.

The log holds nothing that is not also in the queue of the timer topic and its records. `checkpoint` records up to which
offset of that queue it was read, how far the log is good, and up to which time everything was delivered; what comes
after that is read again. So a lost or damaged log costs time and repeated deliveries, never a message.
"""

from __future__ import annotations

import logging
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import JsonFile
from eruca._store.log.chain import Chain
from eruca._store.log.segment import Segment
from eruca._store.tables.cancelled import Cancelled, CancelledFiles
from eruca.errors import StoreError

log = logging.getLogger(__name__)

CELL_BYTES = 24
SEGMENT_BYTES = 256 * 1024 * CELL_BYTES
_HEADER = struct.Struct(">4sIqII")
_BLOCK, _BLANK = b"ETB1", b"ETB0"
# Position, count and slot; and the mark of a block whose CRC covers them.
_HEAD = struct.Struct(">qIq")
_WHOLE = 1
_ENTRY_NUMBERS = 3
_ALLOCATE_STEP = 256 * 1024
_VERSION = 1


class TimerCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    """How far the timer has got."""

    # Offset of the timer topic's queue: everything before it is in the log, or done.
    read_offset: int = 0
    log_end: int = 0
    # Everything due up to this time is delivered.
    through_ms: int = 0
    version: int = _VERSION


class _OnDisk(msgspec.Struct, rename="camel"):
    """The checkpoint as it is written, with the start of the log and a CRC of both; an earlier version had neither."""

    read_offset: int
    log_end: int
    through_ms: int
    version: int
    log_start: int | None = None
    crc32: int | None = None


def encode_checkpoint(checkpoint: TimerCheckpoint, log_start: int | None = None) -> bytes:
    """The checkpoint as it is on the disk."""
    row = _OnDisk(**msgspec.structs.asdict(checkpoint), log_start=log_start)
    row.crc32 = zlib.crc32(msgspec.json.encode(row))
    return msgspec.json.encode(row)


def decode_checkpoint(data: bytes) -> tuple[TimerCheckpoint, int | None]:
    """Read a checkpoint and the start of the log. Raises one of BAD_JSON."""
    row = msgspec.json.decode(data, type=_OnDisk)
    crc, row.crc32 = row.crc32, None
    if crc is not None and zlib.crc32(msgspec.json.encode(row)) != crc:
        raise msgspec.DecodeError("the checksum of the timer's checkpoint is wrong")
    return TimerCheckpoint(row.read_offset, row.log_end, row.through_ms, row.version), row.log_start


class _LogDamaged(StoreError):
    """The log does not match its checkpoint."""


class TimerLog:
    """The files of one timer. `save` and `dispose` may run in a thread, one at a time."""

    def __init__(self, disk: FileSystem, directory: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._checkpoint = JsonFile(
            disk, directory / "checkpoint", decode_checkpoint, lambda pair: encode_checkpoint(*pair)
        )
        #: The cancelled messages.
        self.cancelled = CancelledFiles(disk, directory)
        self._chain = self._make_chain()
        # Positions of the blocks of each slot.
        self._blocks: dict[int, array[int]] = {}
        # The last slot that has a block in a segment, by the segment's start.
        self._last_slots: dict[int, int] = {}
        self._synced = 0
        self._saved: TimerCheckpoint | None = None
        self.end = 0

    def _make_chain(self) -> Chain:
        return Chain(self._disk, self._directory / "log", self._segment_bytes, durable=False, size_key="segment size")

    # -- opening -----------------------------------------------------------------------------------------------------

    def open(self) -> TimerCheckpoint | None:
        """Read the files; None when there are none, or none that can be trusted."""
        try:
            saved = self._checkpoint.read()
            if saved is None:
                if self._disk.list(self._chain.directory):
                    log.error("the timer has no checkpoint: rebuilding its log from its queue")
                self.clear()
                return None
            checkpoint, log_start = saved
            if checkpoint.version != _VERSION:
                raise _LogDamaged(f"the timer's checkpoint has version {checkpoint.version}")
            if self._disk.exists(self._chain.directory):
                self._chain.load()
            if log_start is not None and self._chain.start > log_start:
                raise _LogDamaged(f"the timer log begins at {self._chain.start} instead of {log_start}")
            self._scan(checkpoint.log_end)
        except StoreError as error:
            log.error("rebuilding the timer log from its queue; messages may be delivered twice: %s", error)
            self.clear()
            return None
        self.end = self._synced = checkpoint.log_end
        self._saved = checkpoint
        return checkpoint

    def _scan(self, end: int) -> None:
        chain = self._chain
        position = chain.start
        if not position <= end <= chain.end:
            raise _LogDamaged(f"the timer log has {chain.start}..{chain.end}, its checkpoint has {end}")
        while position < end:
            segment = chain.find(position)
            assert segment is not None
            at = position - segment.start
            magic, count, slot, crc, form = _HEADER.unpack_from(segment.buffer, at)
            if magic == _BLANK and not (count or slot or crc or form):
                position = segment.end
                continue
            after = at + CELL_BYTES * (1 + count)
            if (
                magic != _BLOCK
                or after > segment.size
                or _find_crc(memoryview(segment.buffer)[at + CELL_BYTES : after], form, position, count, slot) != crc
            ):
                raise _LogDamaged(f"the timer log has no block at {position}")
            self._know(slot, position, segment)
            position = segment.start + after

    def _know(self, slot: int, position: int, segment: Segment) -> None:
        self._blocks.setdefault(slot, array("q")).append(position)
        self._last_slots[segment.start] = max(slot, self._last_slots.get(segment.start, 0))

    def clear(self) -> None:
        """Start over with an empty log."""
        self._chain.close()
        directory = self._directory / "log"
        for name in self._disk.list(directory):
            self._disk.remove(directory / name)
        self._chain = self._make_chain()
        self._blocks.clear()
        self._last_slots.clear()
        self.end = self._synced = 0

    # -- entries -----------------------------------------------------------------------------------------------------

    def append(self, slot: int, entries: array[int]) -> None:
        """Add entries of a slot. If it raises StoreError, nothing was added."""
        before = self.end
        places: list[tuple[int, Segment]] = []
        at = 0
        try:
            while at < len(entries):
                segment = self._enter()
                start = self.end - segment.start
                room = (segment.size - start) // CELL_BYTES - 1
                count = min(room, (len(entries) - at) // _ENTRY_NUMBERS)
                data = _to_bytes(entries[at : at + count * _ENTRY_NUMBERS])
                stop = start + CELL_BYTES + len(data)
                segment.ensure_allocated(stop, _ALLOCATE_STEP)
                crc = _find_crc(data, _WHOLE, self.end, count, slot)
                _HEADER.pack_into(segment.buffer, start, _BLOCK, count, slot, crc, _WHOLE)
                segment.buffer[start + CELL_BYTES : stop] = data
                places.append((self.end, segment))
                self.end = segment.start + stop
                at += count * _ENTRY_NUMBERS
        except StoreError:
            self.end = before
            raise
        for position, segment in places:
            self._know(slot, position, segment)

    def _enter(self) -> Segment:
        """The segment the next block goes to: one that has room for a header and an entry."""
        segment = self._chain.segment_for(self.end)
        if segment.end - self.end >= 2 * CELL_BYTES:
            return segment
        at = self.end - segment.start
        segment.ensure_allocated(segment.size, _ALLOCATE_STEP)
        _HEADER.pack_into(segment.buffer, at, _BLANK, 0, 0, 0, 0)
        self.end = segment.end
        return self._chain.segment_for(self.end)

    def read(self, slot: int) -> array[int]:
        """The entries of a slot."""
        found = array("q")
        for position in self._blocks.get(slot, ()):
            segment, at, count = self._find_block(position)
            found.extend(_from_bytes(segment.buffer[at + CELL_BYTES : at + CELL_BYTES * (1 + count)]))
        return found

    def count_from(self, slot: int) -> int:
        """The number of entries of a slot and all later ones."""
        later = [blocks for number, blocks in self._blocks.items() if number >= slot]
        return sum([self._find_block(position)[2] for blocks in later for position in blocks])

    def _find_block(self, position: int) -> tuple[Segment, int, int]:
        """A block: its segment, its place in the segment, and its number of entries."""
        segment = self._chain.find(position)
        if segment is None:
            raise StoreError(f"the timer log has lost its block at {position}")
        at = position - segment.start
        return segment, at, _HEADER.unpack_from(segment.buffer, at)[1]

    def forget_below(self, slot: int) -> list[Segment]:
        """Forget the slots before `slot`, which are done and saved as such; returns segments to `dispose` of."""
        for done in [number for number in self._blocks if number < slot]:
            del self._blocks[done]
        detached: list[Segment] = []
        segments = self._chain.segments
        while (
            len(segments) > 1 and segments[0].end <= self._synced and self._last_slots.get(segments[0].start, 0) < slot
        ):
            self._last_slots.pop(segments[0].start, None)
            detached.append(self._chain.detach_first())
        return detached

    # -- the disk ----------------------------------------------------------------------------------------------------

    def dispose(self, detached: list[Segment]) -> None:
        """Delete segments, after the checkpoint records that they are not needed."""
        if detached and self._saved is not None:
            self._write(self._saved)
        for segment in detached:
            self._chain.dispose(segment)

    def save(
        self, checkpoint: TimerCheckpoint, cancelled: Sequence[Cancelled] = (), *, everything: bool = False
    ) -> None:
        """Sync the log up to a checkpoint, then cancellations, those that changed or all, then the checkpoint."""
        self._sync(checkpoint.log_end)
        if everything:
            self.cancelled.replace(cancelled)
        elif cancelled:
            self.cancelled.add(cancelled)
        self._write(checkpoint)

    def _write(self, checkpoint: TimerCheckpoint) -> None:
        self._saved = checkpoint
        self._checkpoint.write((checkpoint, self._chain.start))

    def _sync(self, end: int) -> None:
        if end <= self._synced:
            return
        self._chain.sync_names(self._directory.parent)
        for segment in self._chain.from_position(self._synced):
            if segment.start >= end:
                break
            try:
                segment.mapping.sync()
            except StoreError:
                low = max(0, self._synced - segment.start)
                segment.mapping.rewrite(low, min(segment.size, self.end - segment.start))
                raise
        self._synced = end

    def discard(self) -> None:
        """Delete everything: while this broker was a slave, its master's timer continued, so this one is outdated."""
        self._checkpoint.remove()  # first: without it nothing else counts
        self.cancelled.discard()
        self.clear()

    def close(self) -> None:
        """Close the files."""
        self._chain.close()


def _find_crc(entries: bytes | memoryview, form: int, position: int, count: int, slot: int) -> int:
    """The CRC of a block, computed in the form given by the last number of its header."""
    return zlib.crc32(entries, zlib.crc32(_HEAD.pack(position, count, slot)) if form == _WHOLE else 0)


def _to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_bytes(data: bytes | bytearray) -> array[int]:
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
