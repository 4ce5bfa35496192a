"""Segments of consume queues and index files, written whole from columns, in the tasks of a rebuild.

Entries are written as brokers write them (`store.kernel`). A file appears under its name when it is whole and on the
disk, so a task may run twice, and two of them at the same time.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eruca._spark.kernel.derived import put_index_entries, put_queue_entries
from eruca._store.log.chain import NAME_DIGITS
from eruca._store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE
from eruca._store.queues.indexfile import file_bytes
from eruca.errors import StoreError

# Names that begin so are files on their way; a store does not look at them.
STAGING_PREFIX = ".eruca-new-"

QUEUE_ENTRY = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
INDEX_ENTRY = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


def write_queue_segment(
    directory: Path, segment_bytes: int, number: int, offsets: Longs, positions: Longs, sizes: Ints, codes: Longs
) -> bool:
    """Write segment `number` of a queue from its entries, sorted by offset; False when they do not make one.

    They do when no offset is missing or comes twice and the positions rise. Before the first one there are fillers: a
    queue may begin in the middle of a segment, but only its first one, and that is for the caller to see.
    """
    count_max = segment_bytes // ENTRY_BYTES
    first = number * count_max
    if not 0 <= first <= int(offsets[0]) <= int(offsets[-1]) < first + count_max:
        return False
    if (np.diff(offsets) != 1).any() or (np.diff(positions) <= 0).any():
        return False
    ahead = int(offsets[0]) - first
    entries = np.zeros((ahead + len(offsets)) * ENTRY_BYTES, np.uint8)
    nowhere = np.zeros(ahead, np.int64)
    put_queue_entries(entries, nowhere, np.full(ahead, FILLER_SIZE, np.int32), nowhere)
    put_queue_entries(entries[ahead * ENTRY_BYTES :], positions, sizes, codes)
    name = f"{number * segment_bytes:0{NAME_DIGITS}d}"
    _write_whole(directory / name, segment_bytes, entries)
    return True


def write_index_file(path: Path, slots: int, entries_max: int, hashes: Ints, positions: Longs, times: Longs) -> None:
    """Write an index file from its entries, in the order of the log."""
    count = len(hashes)
    if not 0 < count < entries_max:
        raise StoreError(f"{path}: {count} entries do not fit an index file for {entries_max}")
    data = np.zeros(file_bytes(slots, count + 1), np.uint8)
    put_index_entries(data, slots, hashes, positions, times)
    _write_whole(path, file_bytes(slots, entries_max), data)


def _write_whole(path: Path, size: int, data: npt.NDArray[np.uint8]) -> None:
    """Make a file that begins with some bytes and goes on with zeros; it has its name when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.parent / f"{STAGING_PREFIX}{path.name}-{uuid.uuid4().hex}"
    try:
        with staging.open("wb", buffering=0) as file:
            os.ftruncate(file.fileno(), size)
            rest = memoryview(data.data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        staging.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    finally:
        staging.unlink(missing_ok=True)
