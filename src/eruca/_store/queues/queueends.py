"""The list of queue ends: the state of queues and index when everything before a position was on the disk.

Consume queues and index are derived from the log, but a missing file of theirs leaves no trace in the log's last
segments. So their ends are written down: at every clean stop, and whenever the log enters a new segment.

    {"crc32": 3735928559, "ends": {"position": ..., "logStart": ..., "queues": {topic: {number: [first, end, at]}},
                                   "index": [[name, nextEntry, begin, end], ...]}}

`first` is the first offset in the files of a queue, `end` the next offset, `at` the end of its last record. A
list with a wrong checksum is ignored. Java does not know the file; after a run of Java its position is too low.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import JsonFile
from eruca._store.queues.consumequeue import ENTRY_BYTES, ConsumeQueue
from eruca._store.queues.index import Index

QueueKey = tuple[str, int]


class QueueEnd(NamedTuple):
    """One queue: the first offset its files have, the next offset, and the end of the last record it points at."""

    first: int
    end: int
    position: int


class IndexEnd(NamedTuple):
    """One index file: its name, the number of its next entry, and the positions of its first and last record."""

    name: str
    next_entry: int
    begin_position: int
    end_position: int


class Ends(msgspec.Struct, rename="camel"):
    """The ends of all queues and index files, of the log before a position."""

    position: int
    log_start: int
    queues: dict[str, dict[int, QueueEnd]]
    index: list[IndexEnd]

    def by_key(self) -> dict[QueueKey, QueueEnd]:
        """The queues by topic and number."""
        return {(topic, number): end for topic, ends in self.queues.items() for number, end in ends.items()}


class _Checked(msgspec.Struct):
    crc32: int
    ends: msgspec.Raw


def _encode(ends: Ends | None) -> bytes:
    content = msgspec.json.encode(ends)
    return msgspec.json.encode(_Checked(crc32(content), msgspec.Raw(content)))


def _decode(data: bytes) -> Ends | None:
    checked = msgspec.json.decode(data, type=_Checked)
    if crc32(bytes(checked.ends)) != checked.crc32:
        raise msgspec.DecodeError("its checksum is wrong")
    return msgspec.json.decode(checked.ends, type=Ends)


class EndsFile:
    """The file with the list. Written when queues and index are synced, read when a store opens."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._file: JsonFile[Ends | None] = JsonFile(disk, path, _decode, _encode)
        # Position of the list on the disk; -1 when there is none, or when it is outdated.
        self.position = -1

    def load(self) -> Ends | None:
        """Read the list; None when there is none. A damaged list is logged and ignored."""
        found = self._file.read_or(None, "the ends of queues are read from the log")
        self.position = -1 if found is None else found.position
        return found

    def is_due(self, position: int, segment_bytes: int) -> bool:
        """Has the log entered another segment since the list was written?"""
        return self.position < 0 or position // segment_bytes != self.position // segment_bytes

    def expire(self) -> None:
        """Have the list written again at the next sync: something other than an append changed the queues."""
        self.position = -1

    def write(self, position: int, log_start: int, queues: Iterable[ConsumeQueue], index: Index | None) -> None:
        """Write the ends of the records before a position that are on the disk; may run in a thread."""
        listed: dict[str, dict[int, QueueEnd]] = {}
        for queue in queues:
            end = _find_end(queue, position)
            if end is not None:
                listed.setdefault(queue.topic, {})[queue.queue_id] = end
        files = [] if index is None else list(index.files)
        rows = [
            IndexEnd(file.path.name, file.next_entry, file.begin_position, file.end_position)
            for file in files
            if file.next_entry > 1
        ]
        self._file.write(Ends(position, log_start, listed, rows))
        self.position = position

    def remove(self) -> None:
        """Remove the list before the log is cut: it would list messages that are about to be removed."""
        self.position = -1
        self._file.remove()


def _find_end(queue: ConsumeQueue, position: int) -> QueueEnd | None:
    """The end of a queue as of a position; the loop may append after it at the same time."""
    end = queue.max_offset
    at = queue.end_position
    if at > position:
        end = queue.find_end(position)
        last = queue.entry(end - 1)
        at = -1 if last is None else min(position, last.position + last.size)
    if end <= 0:
        return None
    return QueueEnd(queue.chain.start // ENTRY_BYTES if queue.chain.segments else end, end, at)
