"""Segments of consume queues and index files, written whole from columns, in the tasks of a rebuild.

`store.consumequeue` and `store.indexfile` have the layouts and write the same bytes entry by entry. A file appears
under its name when it is whole and on the disk, so a task may run twice, and two of them at the same time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eruca.errors import StoreError
from eruca.store.log.chain import NAME_DIGITS
from eruca.store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE
from eruca.store.queues.indexfile import HEADER, HEADER_BYTES, SLOT_BYTES, file_bytes

# Names that begin so are files on their way; a store does not look at them.
STAGING_PREFIX = ".eruca-new-"
_INT_MAX = 2**31 - 1

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
    entries = np.zeros(ahead + len(offsets), QUEUE_ENTRY)
    entries["size"][:ahead] = FILLER_SIZE
    entries["position"][ahead:] = positions
    entries["size"][ahead:] = sizes
    entries["tags"][ahead:] = codes
    name = f"{number * segment_bytes:0{NAME_DIGITS}d}"
    _write_whole(directory / name, segment_bytes, [(0, entries)])
    return True


def write_index_file(path: Path, slots: int, entries_max: int, hashes: Ints, positions: Longs, times: Longs) -> None:
    """Write an index file from its entries, in the order of the log."""
    count = len(hashes)
    if not 0 < count < entries_max:
        raise StoreError(f"{path}: {count} entries do not fit an index file for {entries_max}")
    begin_time = int(times[0])
    entries = np.zeros(count + 1, INDEX_ENTRY)
    entries["hash"][1:] = hashes
    entries["position"][1:] = positions
    if begin_time > 0:
        entries["seconds"][1:] = np.clip((times - begin_time) // 1000, 0, _INT_MAX)
    # Entries of one slot stand together, each behind the one it leads to.
    places = hashes % slots
    order = np.argsort(places, kind="stable")
    places = places[order]
    is_first = np.empty(count, np.bool_)
    is_first[0] = True
    np.not_equal(places[1:], places[:-1], out=is_first[1:])
    previous = np.empty(count, np.int32)
    previous[0] = 0
    previous[1:] = order[:-1] + 1
    previous[is_first] = 0
    entries["previous"][order + 1] = previous
    is_last = np.append(is_first[1:], True)
    table = np.zeros(slots, ">i4")
    table[places[is_last]] = order[is_last] + 1
    header = HEADER.pack(
        begin_time, int(times[-1]), int(positions[0]), int(positions[-1]), int(is_first.sum()), count + 1
    )
    entries_at = HEADER_BYTES + slots * SLOT_BYTES
    _write_whole(path, file_bytes(slots, entries_max), [(0, header), (HEADER_BYTES, table), (entries_at, entries)])


def _write_whole(path: Path, size: int, parts: Sequence[tuple[int, Any]]) -> None:
    """Make a file of zeros with some parts that are not, which appears under its name when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.parent / f"{STAGING_PREFIX}{path.name}-{uuid.uuid4().hex}"
    try:
        with staging.open("wb", buffering=0) as file:
            os.ftruncate(file.fileno(), size)
            for at, part in parts:
                _write_all(file.fileno(), at, memoryview(part).cast("B"))
            os.fsync(file.fileno())
        staging.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    finally:
        staging.unlink(missing_ok=True)


def _write_all(handle: int, at: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(handle, data, at)
        at += written
        data = data[written:]
