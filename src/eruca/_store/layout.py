"""Where everything is in a store directory, and which sizes an existing store was created with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from eruca._ground.config import StoreOptions
from eruca._store.filesystem import FileSystem
from eruca._store.queues.indexfile import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

# Java's default has four index entries for each slot; the file size alone does not determine both numbers.
_INDEX_UNIT_BYTES = SLOT_BYTES + 4 * ENTRY_BYTES


class StorePaths:
    """The files and directories of one store."""

    def __init__(self, root: Path, commitlog: Path | None = None) -> None:
        self.root = root
        self.commitlog = commitlog or root / "commitlog"
        self.consumequeue = root / "consumequeue"
        self.index = root / "index"
        self.config = root / "config"
        # Only Eruca's: Java knows neither these directories nor their content.
        self.timer = root / "eruca-timer"
        self.diverged = root / "eruca-diverged"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self.lock = root / "lock"
        self.damage = root / "config" / "damage.json"
        self.removed = root / "config" / "removedTopics.json"
        self.archived = root / "config" / "archived.json"
        # Options changed at run time on a broker without a `.conf` file.
        self.options = root / "config" / "erucaOptions.properties"
        self.once = root / "config" / "erucaOnce.json"
        self.queue_ends = root / "config" / "erucaQueueEnds"
        self.replication = root / "config" / "erucaReplication.json"


def detect_options(disk: FileSystem, paths: StorePaths, base: StoreOptions | None = None) -> StoreOptions:
    """The options a store was created with, judging by the sizes of its files."""
    options = base or StoreOptions()
    size = _find_common_size(disk, [paths.commitlog])
    if size:
        options = replace(options, commitlog_segment_bytes=size)
    topics = [paths.consumequeue / topic for topic in disk.list(paths.consumequeue)]
    queues = [topic / number for topic in topics if disk.is_directory(topic) for number in disk.list(topic)]
    size = _find_common_size(disk, queues)
    if size:
        options = replace(options, consumequeue_segment_bytes=size)
    size = _find_common_size(disk, [paths.index])
    if size > HEADER_BYTES and (size - HEADER_BYTES) % _INDEX_UNIT_BYTES == 0:
        slots = (size - HEADER_BYTES) // _INDEX_UNIT_BYTES
        options = replace(options, index_slots=slots, index_entries=4 * slots)
    return options


def _find_common_size(disk: FileSystem, directories: Iterable[Path]) -> int:
    """The most common size of files named by a number (the larger of two), so that one odd file does not decide."""
    sizes: Counter[int] = Counter()
    for directory in directories:
        if disk.is_directory(directory):
            sizes.update([disk.size(directory / name) for name in disk.list(directory) if name.isdigit()])
    del sizes[0]  # a file that was being created when the machine died
    return max(sizes, key=lambda size: (sizes[size], size), default=0)
