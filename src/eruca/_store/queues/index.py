"""The index of a store: its files in order, and lookups in all of them. The layout is drawn in `indexfile`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from pathlib import Path

from eruca._ground.clock import Clock
from eruca._store.filesystem import FileSystem
from eruca._store.queues.indexfile import HEADER_BYTES, SECOND_MS, SLOT_BYTES, IndexFile, file_bytes
from eruca._wire.javahash import index_key_hash
from eruca.errors import StoreLayoutError

_STAGING_NAME = ".eruca-new-index"
_NAME_FORMAT = "%Y%m%d%H%M%S"


def name_file(now_ms: int, last: str) -> str:
    """The name of an index file made now: the local time, or a number after the last name if the clock was set back."""
    name = _format_time(now_ms)
    # Set back manually, or because summer time ended. The next number may not be a valid time, but it is never parsed.
    return name if name > last else f"{int(last) + 1:0{len(last)}d}"


def _format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000).strftime(_NAME_FORMAT) + f"{ms % 1000:03d}"


class Index:
    """All index files, oldest first."""

    def __init__(
        self,
        disk: FileSystem,
        directory: Path,
        slots: int,
        entries: int,
        clock: Clock,
        executor: Executor | None = None,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._directory = directory
        self._slots = slots
        self._entries = entries
        self._clock = clock
        self._staging = directory.parent / _STAGING_NAME
        self.files: list[IndexFile] = []
        # Damaged files: recovery rebuilds the index.
        self.misfits: list[Path] = []
        self._spare: IndexFile | None = None
        self._names_unsynced = False

    def load(self, *, writable: bool = True) -> None:
        """Map the existing files."""
        if writable:
            self._disk.make_directory(self._directory)
            self._disk.remove(self._staging)
        size = file_bytes(self._slots, self._entries)
        wrong: StoreLayoutError | None = None
        for name in self._disk.list(self._directory):
            path = self._directory / name
            if not (name.isascii() and name.isdigit()):
                raise StoreLayoutError(f"{path} is not an index file: its name is not a time", hint="move it away")
            found = self._disk.size(path)
            if found != size:
                wrong = wrong or StoreLayoutError(
                    f"{path} has {found} bytes, but maxHashSlotNum={self._slots} and maxIndexNum={self._entries} "
                    f"make {size}",
                    hint="set both to the values the store was made with, or run `eruca store rebuild`",
                )
                self.misfits.append(path)
                continue
            mapping = self._disk.map(path, writable=writable)
            file = IndexFile(path, mapping, self._slots, self._entries, allocated_end=0)
            if file.next_entry <= 1 and file.entry(1) != (0, 0, 0, 0):
                self.misfits.append(path)  # its header is unreadable
                file.close()
            elif writable and file.next_entry <= 1:
                self._remove(file)  # made in advance and never used
            else:
                self.files.append(file)
        if wrong is not None and (not writable or not self.files):
            raise wrong  # no file has the expected size, so the options are wrong and not the files
        # Not by name: a file created after the clock was set back has an older name.
        self.files.sort(key=lambda file: (file.begin_position, file.path.name))

    def reserve(self, count: int) -> None:
        """Make sure `count` entries can be written without failing, creating a new file if the last one is full."""
        file = self.files[-1] if self.files else None
        if file is not None and count <= file.room:
            return
        if file is None or file.is_full:
            file = self._make_file()
        file.reserve(count)
        if file.room < count:
            # The rest goes to the next file, which must exist before the first entry is written.
            self._spare_or_make(count)

    def _spare_or_make(self, count: int) -> None:
        if self._spare is None:
            self._spare = self._create()
        self._spare.reserve(count)

    def add(self, hashes: list[int], position: int, store_time: int) -> None:
        """Make room for the entries of a record and write them; if it raises, none was written."""
        self.reserve(len(hashes))
        file = self.files[-1]
        if len(hashes) > file.room and not file.is_full:
            file.reserve(len(hashes))  # room is reserved in steps; the next file is used only when this one is full
        while len(hashes) > file.room:
            if file.room > 0:
                hashes, fitting = hashes[file.room :], hashes[: file.room]
                file.put(fitting, position, store_time)
            file = self._make_file()
            file.reserve(len(hashes))
        file.put(hashes, position, store_time)

    def _make_file(self) -> IndexFile:
        made, self._spare = (self._spare or self._create()), None
        if self.files:
            made.start_after(self.files[-1])
        self.files.append(made)
        self._names_unsynced = True
        return made

    def _create(self) -> IndexFile:
        # The last name need not be the newest file: Java's names go back with the clock.
        name = name_file(self._clock.now_ms(), max((file.path.name for file in self.files), default=""))
        path = self._directory / name
        size = file_bytes(self._slots, self._entries)
        self._disk.make_directory(self._directory)
        mapping = self._disk.create(path, size, staging=self._staging, durable=False)
        start = HEADER_BYTES + self._slots * SLOT_BYTES
        try:
            mapping.allocate(0, start)
        except Exception:
            mapping.close()
            self._disk.remove(path)
            raise
        return IndexFile(path, mapping, self._slots, self._entries, allocated_end=start)

    def find(self, topic: str, key: str, begin: int, end: int, count_max: int) -> list[int]:
        """Positions of records with a key, newest file first; the caller checks the key itself (hashes collide)."""
        key_hash = index_key_hash(topic, key)
        positions: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin, end):
                positions.extend(file.find(key_hash, begin, end, count_max - len(positions)))
            if len(positions) >= count_max or file.begin_time + SECOND_MS <= begin:
                break
        return positions

    @property
    def end_time(self) -> int:
        """Store time of the newest indexed record."""
        return self.files[-1].end_time if self.files else 0

    @property
    def end_position(self) -> int:
        """Position of the newest indexed record, -1 without any."""
        if not self.files or (len(self.files) == 1 and self.files[0].next_entry <= 1):
            return -1
        return self.files[-1].end_position

    def truncate(self, position: int) -> None:
        """Forget the records from a position on.

        After a crash the headers of the newest files may be old or torn, so the entries decide.
        """
        kept: list[IndexFile] = []
        for file in self.files:
            if not file.is_whole_before(position):
                file.truncate(position)
            if file.next_entry <= 1:
                self._remove(file)
            else:
                kept.append(file)
        self.files = sorted(kept, key=lambda file: file.begin_position)

    def drop_from(self, position: int, read_time: Callable[[int], int]) -> None:
        """Remove the newest entries, those of records from a position on; `read_time` returns the times of the others.

        Takes time proportional to the entries removed. The files must be whole: after a crash use `truncate`.
        """
        while self.files and self.files[-1].begin_position >= position:
            self._remove(self.files[-1])
            self.files.pop()
            self._names_unsynced = True
        if self.files:
            self.files[-1].drop_from(position, read_time)

    def keep_first(self, count: int, read_time: Callable[[int], int]) -> None:
        """Delete damaged files and all but the first `count` others.

        The caller continues after the last record that these files are known to have.

        That record may have had further entries in the next file, so its entries are removed as well.
        """
        while self.misfits:
            self._disk.remove(self.misfits[-1])
            self.misfits.pop()
        while len(self.files) > count:
            self._remove(self.files[-1])
            self.files.pop()
        if self.files:
            self.drop_from(self.files[-1].end_position, read_time)

    def detach_before(self, position: int) -> list[IndexFile]:
        """Remove the files whose records are all before a position; `dispose` deletes them, possibly in a thread."""
        detached: list[IndexFile] = []
        while len(self.files) > 1 and self.files[0].end_position < position:
            detached.append(self.files.pop(0))
        return detached

    def dispose(self, file: IndexFile) -> None:
        """Delete a detached file."""
        self._remove(file)

    def clear(self) -> None:
        """Delete every file."""
        while self.files:
            self._remove(self.files[-1])
            self.files.pop()

    def _remove(self, file: IndexFile) -> None:
        self._disk.remove(file.path)
        # The name is gone now; freeing the blocks of a large file may take a second, so it is done in the background.
        if self._executor is not None:
            self._executor.submit(file.close)
        else:
            file.close()

    def sync(self) -> None:
        """Return when every entry written so far is on the disk."""
        if self._names_unsynced:
            self._disk.sync_directory(self._directory)
            self._names_unsynced = False
        for file in list(self.files):
            file.sync()

    def close(self) -> None:
        """Close the files."""
        if self._spare is not None:
            self._remove(self._spare)
            self._spare = None
        for file in self.files:
            file.close()
        self.files.clear()
