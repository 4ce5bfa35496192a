"""The tasks of a rebuild: each writes one segment of a consume queue, one odd queue, or one index file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eruca._spark.store.derivedfiles import STAGING_PREFIX, write_index_file, write_queue_segment
from eruca._spark.store.derivedrows import make_arrow
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.scan import Damage
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.queues import Queues
from eruca._storetools.rebuild import remove_tree

# What each kind of task says at its end.
WRITTEN = (
    "topic string, queueId int, segment bigint, dense boolean, first bigint, last bigint, firstPosition bigint, "
    "lastPosition bigint"
)
REPLAYED = "topic string, queueId int, entries bigint"
INDEXED = "file int, entries bigint, beginTime bigint"

Work = Callable[[tuple[Any, ...], Any], Any]


def as_function(work: Work) -> Work:
    """A plain function: Spark counts its arguments, and takes `self` for one."""

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
    """Makes a queue from its entries one by one, as the broker does when the log has lost some of them."""

    def __init__(self, directory: str, segment_bytes: int, damage: Sequence[Damage]) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._damage = damage

    def __call__(self, key: tuple[Any, ...], table: Any) -> Any:
        topic, queue_id = (each.as_py() for each in key)
        disk = LocalFileSystem()
        remove_tree(disk, Path(self._directory) / topic / str(queue_id))  # what a task that died left
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
    """Writes one index file from the keys of the stretches it is made of."""

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
