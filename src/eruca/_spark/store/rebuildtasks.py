"""The tasks of a rebuild: each writes one segment of a consume queue, one queue with gaps, or one index file.

Entries are written as brokers write them (`store.kernel`). A file gets its final name only when it is complete and
synced, so a task may run twice, even at the same time.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eruca._ground.smallfiles import make_directories, open_private
from eruca._spark.kernel.derived import put_index_entries, put_queue_entries
from eruca._spark.store.entryrows import make_arrow
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.chain import NAME_DIGITS
from eruca._store.log.scan import Damage
from eruca._store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.indexfile import file_bytes
from eruca._store.queues.queues import Queues
from eruca._storetools.rebuild import remove_tree
from eruca.errors import StoreError

# Files that are being written start with this prefix; a store ignores them.
STAGING_PREFIX = ".eruca-new-"

# What each kind of task returns.
WRITTEN = (
    "topic string, queueId int, segment bigint, dense boolean, first bigint, last bigint, firstPosition bigint, "
    "lastPosition bigint"
)
REPLAYED = "topic string, queueId int, entries bigint"
INDEXED = "file int, entries bigint, beginTime bigint"

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Work = Callable[[tuple[Any, ...], Any], Any]


def as_function(work: Work) -> Work:
    """Return a plain function: Spark counts arguments and would count `self`."""

    def call(key: tuple[Any, ...], table: Any) -> Any:
        return work(key, table)

    return call


class SegmentWriter:
    """Writes one segment of a queue from the entries in it."""

    def __init__(self, directory: str, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes

    def __call__(self, key: tuple[Any, ...], table: Any) -> Any:
        topic, queue_id, segment = (each.as_py() for each in key)
        table = table.sort_by([("queueOffset", "ascending"), ("physicalOffset", "ascending")])
        offsets, positions, sizes, codes = (
            table.column(name).to_numpy() for name in ("queueOffset", "physicalOffset", "size", "tagsCode")
        )
        directory = Path(self._directory) / topic / str(queue_id)
        dense = write_queue_segment(directory, self._segment_bytes, segment, offsets, positions, sizes, codes)
        ends = [int(each) for each in (offsets[0], offsets[-1], positions[0], positions[-1])]
        schema = make_arrow(WRITTEN)
        row = dict(zip(schema.names, (topic, queue_id, segment, dense, *ends), strict=True))
        return pa.Table.from_pylist([row], schema)


class QueueReplayer:
    """Builds a queue entry by entry, as the broker does when the log has lost some records."""

    def __init__(self, directory: str, segment_bytes: int, damage: Sequence[Damage]) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._damage = damage

    def __call__(self, key: tuple[Any, ...], table: Any) -> Any:
        topic, queue_id = (each.as_py() for each in key)
        disk = LocalFileSystem()
        remove_tree(disk, Path(self._directory) / topic / str(queue_id))  # left by a task that died
        queues = Queues(disk, Path(self._directory), self._segment_bytes)
        dispatch = Dispatch(queues, None, [])
        passed, begin, end = 0, -1, 0
        for offset, position, size, code in _iter_rows(table.sort_by("physicalOffset")):
            passed = dispatch.pass_damage(self._damage, passed, position)
            queue = dispatch.put_entry(topic, queue_id, offset, position, size, code)
            if queue is not None:
                begin, end = (offset if begin < 0 else begin), queue.max_offset
        queues.sync()
        queues.close()
        row = {"topic": topic, "queueId": queue_id, "entries": end - max(0, begin)}
        return pa.Table.from_pylist([row], make_arrow(REPLAYED))


def _iter_rows(table: Any) -> Iterator[tuple[int, int, int, int]]:
    columns = (table.column(name).to_pylist() for name in ("queueOffset", "physicalOffset", "size", "tagsCode"))
    return zip(*columns, strict=True)


class IndexWriter:
    """Writes one index file from the keys of the log stretches that belong to it."""

    def __init__(self, directory: str, slots: int, entries_max: int, bases: Mapping[int, int]) -> None:
        self._directory = directory
        self._slots = slots
        self._entries_max = entries_max
        self._bases = dict(bases)

    def __call__(self, key: tuple[Any, ...], table: Any) -> Any:
        file: int = key[0].as_py()
        table = table.sort_by("physicalOffset").combine_chunks()
        counts = pc.list_value_length(table.column("keyHashes")).to_numpy()
        hashes = pc.list_flatten(table.column("keyHashes")).to_numpy()
        positions = table.column("physicalOffset").to_numpy().repeat(counts)
        times = table.column("storeTime").to_numpy().repeat(counts)
        capacity = self._entries_max - 1
        begin = file * capacity - self._bases[file]
        mine = slice(begin, begin + capacity)
        path = Path(self._directory) / name_draft(file)
        write_index_file(path, self._slots, self._entries_max, hashes[mine], positions[mine], times[mine])
        row = {"file": file, "entries": len(hashes[mine]), "beginTime": int(times[begin])}
        return pa.Table.from_pylist([row], make_arrow(INDEXED))


def name_draft(number: int) -> str:
    return f"{STAGING_PREFIX}{number:08d}"


# -- files ------------------------------------------------------------------------------------------------------------


def write_queue_segment(
    directory: Path, segment_bytes: int, number: int, offsets: Longs, positions: Longs, sizes: Ints, codes: Longs
) -> bool:
    """Write segment `number` of a queue from its entries, sorted by offset; returns False if they are not contiguous.

    They are if no offset is missing or repeated and the positions increase. Fillers precede the first entry: a queue
    may begin in the middle of its first segment. The caller checks that it is the first one.
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
    """Write a file with some bytes followed by zeros; it gets its name when it is synced."""
    make_directories(path.parent)
    staging = path.parent / f"{STAGING_PREFIX}{path.name}-{uuid.uuid4().hex}"
    try:
        with open(staging, "wb", buffering=0, opener=open_private) as file:
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
