"""Where everything is in a store directory, and what an existing one tells about the sizes it was made with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eruca.config import StoreOptions
from eruca.store.filesystem import FileSystem
from eruca.store.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

# Java's default has four index entries for each slot; without it the file size alone cannot tell the two apart.
_INDEX_UNIT_BYTES = SLOT_BYTES + 4 * ENTRY_BYTES


class StorePaths:
    """The files and directories of one store."""

    def __init__(self, root: Path, commitlog: Path | None = None) -> None:
        self.root = root
        self.commitlog = commitlog or root / "commitlog"
        self.consumequeue = root / "consumequeue"
        self.index = root / "index"
        self.config = root / "config"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self.lock = root / "lock"
        self.damage = root / "config" / "damage.json"


def detect_options(disk: FileSystem, paths: StorePaths, base: StoreOptions | None = None) -> StoreOptions:
    """The options a store must have been made with, judged by the sizes of its files."""
    options = base or StoreOptions()
    sizes = [disk.size(paths.commitlog / name) for name in disk.list(paths.commitlog) if name.isdigit()]
    if sizes:
        options = replace(options, commitlog_segment_bytes=sizes[0])
    for topic in disk.list(paths.consumequeue):
        for number in disk.list(paths.consumequeue / topic):
            directory = paths.consumequeue / topic / number
            sizes = [disk.size(directory / name) for name in disk.list(directory) if name.isdigit()]
            if sizes:
                options = replace(options, consumequeue_segment_bytes=sizes[0])
                break
    sizes = [disk.size(paths.index / name) for name in disk.list(paths.index) if name.isdigit()]
    if sizes and (sizes[0] - HEADER_BYTES) % _INDEX_UNIT_BYTES == 0:
        slots = (sizes[0] - HEADER_BYTES) // _INDEX_UNIT_BYTES
        options = replace(options, index_slots=slots, index_entries=4 * slots)
    return options
