"""Consume queues and index files as frames: each entry is a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from eruca._store.queues.indexfile import HEADER, HEADER_BYTES, SLOT_BYTES, file_bytes

QUEUE_ROWS = (
    "store string, path string, topic string, queueId int, queueOffset bigint, position bigint, size int, "
    "tagsCode bigint"
)
INDEX_ROWS = (
    "store string, path string, number int, keyHash int, position bigint, seconds int, beginTime bigint, reason string"
)
QUEUE_ENTRY = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
INDEX_ENTRY = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
# Entries in a batch: a consume-queue segment of the default size has 300,000.
_BATCH_ENTRIES = 65_536


def make_arrow(columns: str) -> Any:
    """Return the Arrow schema of a Spark schema string."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in (column.split() for column in columns.split(", "))])


def make_batch(columns: str, count: int, **values: Any) -> Any:
    """Return a batch of `count` rows; a single value is repeated in all of them."""
    schema = make_arrow(columns)
    arrays = []
    for field in schema:
        value = values[field.name]
        if isinstance(value, np.ndarray):
            arrays.append(pa.array(value.astype(value.dtype.newbyteorder("="), copy=False), field.type))
        elif isinstance(value, list):
            arrays.append(pa.array(value, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- consume queues ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One segment of a consume queue."""

    store: str
    path: str
    topic: str
    queue_id: int
    first_offset: int
    size: int
    # The last segment may end with unwritten entries.
    is_last: bool


def read_queue_rows(files: list[QueueFile]) -> Iterator[Any]:
    """Return every entry of some segments; unwritten entries at the end of a queue are left out."""
    for file in files:
        entries = np.fromfile(file.path, QUEUE_ENTRY)
        count = len(entries)
        if file.is_last:
            written = np.flatnonzero((entries["size"] != 0) | (entries["position"] != 0) | (entries["tags"] != 0))
            count = int(written[-1]) + 1 if len(written) else 0
        for at in range(0, count, _BATCH_ENTRIES):
            part = entries[at : min(count, at + _BATCH_ENTRIES)]
            yield make_batch(
                QUEUE_ROWS,
                len(part),
                store=file.store,
                path=str(Path(file.path).parent),
                topic=file.topic,
                queueId=file.queue_id,
                queueOffset=np.arange(file.first_offset + at, file.first_offset + at + len(part)),
                position=part["position"],
                size=part["size"],
                tagsCode=part["tags"],
            )


# -- index -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexFileName:
    """One index file."""

    store: str
    path: str
    slots: int
    entries_max: int
    # A running broker may write to it.
    is_open: bool

    @property
    def size(self) -> int:
        """The size in bytes."""
        return file_bytes(self.slots, self.entries_max)


def read_index_rows(files: list[IndexFileName]) -> Iterator[Any]:
    """Return every entry of index files, with errors in the file itself: chains, slots, header."""
    for file in files:
        with Path(file.path).open("rb") as opened:
            data = opened.read(file_bytes(file.slots, file.entries_max))
        if len(data) < HEADER_BYTES + SLOT_BYTES * file.slots:
            continue  # reported as a file of the wrong size
        yield from _read_index_file(file, data)


def _read_index_file(file: IndexFileName, data: bytes) -> Iterator[Any]:
    begin_time, _, begin, end, used, next_entry = HEADER.unpack_from(data)
    entries_at = HEADER_BYTES + SLOT_BYTES * file.slots
    count = max(1, min(next_entry, file.entries_max, (len(data) - entries_at) // INDEX_ENTRY.itemsize))
    slots = np.frombuffer(data, ">i4", file.slots, HEADER_BYTES)
    entries = np.frombuffer(data, INDEX_ENTRY, count, entries_at)[1:]
    hashes = entries["hash"].astype(np.int32)
    reasons: list[str | None] = [None] * len(entries)
    places = np.abs(hashes.astype(np.int64)) % file.slots
    order = np.argsort(places, kind="stable")
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = places[order][1:] != places[order][:-1]
    expected = np.zeros(len(order), np.int64)
    expected[order] = np.where(is_first, 0, np.roll(order, 1) + 1)
    for at in np.flatnonzero(entries["previous"] != expected).tolist():
        reasons[at] = f"its chain continues at entry {entries['previous'][at]} instead of {expected[at]}"
    for at in np.flatnonzero(hashes < 0).tolist():
        reasons[at] = f"key hash {hashes[at]} is negative"
    newest = np.zeros(file.slots, np.int64)
    newest[places[order]] = order + 1  # of equal places the last one stays
    about_file = [
        f"slot {slot} leads to entry {slots[slot]}, the newest of its chain is {newest[slot]}"
        for slot in np.flatnonzero(slots != newest).tolist()
        if not (file.is_open and slots[slot] >= count)
    ]
    if len(entries) and not about_file and not file.is_open:
        found = (int(is_first.sum()), int(entries["position"][0]), int(entries["position"][-1]))
        if (used, begin, end) != found:
            about_file.append(
                f"the header has {used} slots and positions {begin} to {end}, "
                f"the entries have {found[0]} and {found[1]} to {found[2]}"
            )
    yield make_batch(
        INDEX_ROWS,
        len(entries),
        store=file.store,
        path=file.path,
        number=np.arange(1, len(entries) + 1, dtype=np.int32),
        keyHash=hashes,
        position=entries["position"],
        seconds=entries["seconds"],
        beginTime=begin_time,
        reason=reasons,
    )
    if about_file:
        # Number 0 stands for the file.
        yield make_batch(
            INDEX_ROWS,
            len(about_file),
            store=file.store,
            path=file.path,
            number=0,
            keyHash=0,
            position=None,
            seconds=0,
            beginTime=begin_time,
            reason=about_file,
        )
