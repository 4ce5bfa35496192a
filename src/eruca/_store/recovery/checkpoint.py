"""Small files that record how the last run ended: the checkpoint and the abort marker.

Checkpoint, 4096 bytes, of which Java uses 24; a time means "all records up to then are synced":

     0                  8                  16                 24                 32                 40
    +------------------+------------------+------------------+------------------+------------------+
    | commit log, ms   | queues, ms       | index, ms        | position         | its complement   |
    +------------------+------------------+------------------+------------------+------------------+

The position covers log, queues and index together, and does not depend on the clock: after a clock is set back, new
records have old times. Java leaves these bytes alone, so after a run of Java it is too low, which is safe.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path

from eruca._store.filesystem import FileSystem, Mapping
from eruca.errors import StoreError, StoreLayoutError

log = logging.getLogger(__name__)

CHECKPOINT_BYTES = 4096
_TIMES = struct.Struct(">qqq")
_POSITION = struct.Struct(">qq")
_FIELDS = struct.Struct(">qqqqq")
# Java's margin between the time of a record and the time its page was counted as flushed.
_MARGIN_MS = 3000


class Checkpoint:
    """Store times up to which each part is known to be on the disk."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._mapping: Mapping | None = None
        self.log_time = 0
        self.queue_time = 0
        self.index_time = 0
        # Every record before this is on the disk in log, queues and index; None when it is not recorded.
        self.position: int | None = None

    def load(self, *, writable: bool = True) -> None:
        """Read the file if there is one; otherwise create it."""
        if self._disk.exists(self._path):
            size = self._disk.size(self._path)
            if size != CHECKPOINT_BYTES:
                if not writable:
                    raise StoreLayoutError(f"{self._path} has {size} bytes instead of {CHECKPOINT_BYTES}")
                log.error(
                    "%s has %d bytes instead of %d and is created again; the whole commit log will be read once",
                    self._path,
                    size,
                    CHECKPOINT_BYTES,
                )
                self._disk.remove(self._path)
                self._make()
                return
            self._mapping = self._disk.map(self._path, writable=writable)
            self.log_time, self.queue_time, self.index_time, position, complement = _FIELDS.unpack_from(
                self._mapping.buffer, 0
            )
            self.position = position if position >= 0 and complement == ~position else None
        elif writable:
            self._make()

    def _make(self) -> None:
        staging = self._path.with_name(".eruca-new-checkpoint")
        self._mapping = self._disk.create(self._path, CHECKPOINT_BYTES, staging=staging, durable=True)

    def lower_to(self, position: int) -> None:
        """Lower the promise to a position at which the log is being cut."""
        if self.position is not None:
            self.position = min(self.position, position)

    def save(self) -> None:
        """Write the times and the position, and sync them."""
        if self._mapping is None:
            return
        _TIMES.pack_into(self._mapping.buffer, 0, self.log_time, self.queue_time, self.index_time)
        if self.position is not None:
            _POSITION.pack_into(self._mapping.buffer, _TIMES.size, self.position, ~self.position)
        try:
            self._mapping.sync()
        except StoreError:
            self._mapping.rewrite(0, _FIELDS.size)
            raise

    def safe_time(self, *, with_index: bool) -> int:
        """Records stored at or before this time are in every part of the store."""
        times = (self.log_time, self.queue_time, self.index_time) if with_index else (self.log_time, self.queue_time)
        return max(0, min(times) - _MARGIN_MS)

    def close(self) -> None:
        """Close the file."""
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None


class AbortMarker:
    """A file that exists while the store is open for writing; if it exists at start, the last run crashed."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._disk = disk
        self._path = path

    def is_set(self) -> bool:
        """Did the last run end without closing the store?"""
        return self._disk.exists(self._path)

    def set(self) -> None:
        """Mark the store as open."""
        self._disk.write_file(self._path, b"")
        self._disk.sync_directory(self._path.parent)

    def clear(self) -> None:
        """Mark the store as closed."""
        self._disk.remove(self._path)
