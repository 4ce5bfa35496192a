"""A chain: fixed-size segments, one after the other, that together are one long range of positions.

Each file's name is the position of its first byte in 20 digits, so the chain needs no catalogue:

    00000000000000000000   00000000001073741824   00000000002147483648
    |------ segment -----| |------ segment -----| |------ segment -----|
    0                      1 GiB                  2 GiB
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path

from eruca._store.filesystem import FileSystem
from eruca._store.log.mappool import MapPool, PooledSegment
from eruca._store.log.segment import Segment
from eruca.errors import StoreError, StoreLayoutError

NAME_DIGITS = 20
# A new segment is created beside its directory and renamed in, so a crash never leaves a half-made file in the chain.
# It must not be inside: Apache RocketMQ refuses a chain with a file whose name is not a number.
_STAGING_PREFIX = ".eruca-new-"


class Chain:
    """Ordered segments of one size in one directory."""

    def __init__(
        self,
        disk: FileSystem,
        directory: Path,
        segment_bytes: int,
        *,
        durable: bool,
        size_key: str,
        executor: Executor | None = None,
        pool: MapPool | None = None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self._durable = durable
        self._size_key = size_key
        self._executor = executor
        # With a pool, files are mapped when they are used.
        self._pool = pool
        self._next: Future[Segment] | None = None
        # Removed from the chain, but still on the disk.
        self._detached: list[Segment] = []
        # Segments were created without syncing their names.
        self._names_unsynced = False
        # Files left out by a tolerant load, and what is wrong with the first of them.
        self.misfits: list[Path] = []
        self.misfit_reason = ""

    # -- opening -----------------------------------------------------------------------------------------------------

    def load(self, *, writable: bool = True, tolerant: bool = False) -> None:
        """Map the existing files; refuse a chain with a foreign file, a wrong size or a gap.

        A tolerant load leaves out a file of the wrong size (`misfits`), and all files after it or after a gap.
        """
        if writable:
            self.disk.make_directory(self.directory)
            for name in self.disk.list(self.directory.parent):
                if name.startswith(f"{_STAGING_PREFIX}{self.directory.name}-"):
                    self.disk.remove(self.directory.parent / name)
        starts: list[int] = []
        names = self.disk.list(self.directory)
        for number, name in enumerate(names):
            try:
                start = self.check_file(name)
                if starts and start != starts[-1] + self.segment_bytes:
                    raise StoreLayoutError(
                        f"{self.directory}: segment {starts[-1] + self.segment_bytes:020d} is missing before {name}",
                        hint="put the missing file back, or move the later ones out of the way",
                    )
            except StoreLayoutError as error:
                if not tolerant or not is_segment_name(name):
                    raise
                self.misfits = [self.directory / left_out for left_out in names[number:]]
                self.misfit_reason = str(error.args[0])
                break
            starts.append(start)
        for start in starts:
            path = self.path_of(start)
            self.segments.append(self._open_segment(path, start, writable=writable))

    def _open_segment(self, path: Path, start: int, *, writable: bool) -> Segment:
        if self._pool is not None:
            return PooledSegment(self.disk, path, start, self.segment_bytes, self._pool, writable=writable)
        mapping = self.disk.map(path, writable=writable, keeps=self._durable)
        return Segment(path, start, mapping, allocated=self._durable)

    def check_file(self, name: str) -> int:
        """Start position of a file of this chain; raise StoreLayoutError for a file that does not belong to it."""
        path = self.directory / name
        if not is_segment_name(name):
            raise StoreLayoutError(f"{path} is not a segment: its name is not a position in 20 digits", hint="move it")
        size = self.disk.size(path)
        if size != self.segment_bytes:
            raise StoreLayoutError(
                f"{path} has {size} bytes, but {self._size_key} is {self.segment_bytes}",
                hint=f"set {self._size_key}={size} if the whole store was created with it",
            )
        start = int(name)
        if start % self.segment_bytes:
            raise StoreLayoutError(f"{path} does not start at a multiple of {self.segment_bytes}", hint="move it")
        return start

    def path_of(self, start: int) -> Path:
        """The path of the segment that starts at a position."""
        return self.directory / f"{start:0{NAME_DIGITS}d}"

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """Position of the first byte; 0 for an empty chain."""
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """Position after the last byte of the last segment."""
        return self.segments[-1].end if self.segments else 0

    def find(self, position: int) -> Segment | None:
        """The segment that holds a position, or None."""
        if not self.segments:
            return None
        number = (position - self.segments[0].start) // self.segment_bytes
        if 0 <= number < len(self.segments):
            return self.segments[number]
        return None

    def from_position(self, position: int) -> Iterator[Segment]:
        """The segments from the one that holds a position to the end."""
        for segment in list(self.segments):  # a copy: the flush thread iterates while the loop removes segments
            if segment.end > position:
                yield segment

    # -- growing -----------------------------------------------------------------------------------------------------

    def segment_for(self, position: int) -> Segment:
        """The segment in which a position is to be written; created now if it was not prepared."""
        found = self.find(position)
        if found is not None:
            return found
        start = position - position % self.segment_bytes
        if self.segments and start != self.end:
            raise StoreError(f"{self.directory}: cannot write at {position}, the chain ends at {self.end}")
        if self._next is not None:
            waiting, self._next = self._next, None
            try:
                segment = waiting.result()
            except (StoreError, CancelledError):
                segment = self._make(start)  # there was no room for it earlier; there may be now
            if segment.start != start:
                raise StoreError(f"{self.directory}: prepared {segment.start}, needed {start}")
        else:
            segment = self._make(start)
        self.segments.append(segment)
        return segment

    def prepare_next(self, warm: Callable[[Segment], None] | None = None) -> None:
        """Start creating the next segment in the background, unless it exists or is being created."""
        if self._executor is None or self._next is not None:
            return
        start = self.end

        def make() -> Segment:
            segment = self._make(start)
            if warm is not None:
                warm(segment)
            return segment

        self._next = self._executor.submit(make)

    def _make(self, start: int) -> Segment:
        if not self.segments:
            self.disk.make_directory(self.directory)
        path = self.path_of(start)
        staging = self.directory.parent / f"{_STAGING_PREFIX}{self.directory.name}-{path.name}"
        mapping = self.disk.create(path, self.segment_bytes, staging=staging, durable=self._durable)
        self._names_unsynced = not self._durable
        if self._pool is not None:
            return PooledSegment(self.disk, path, start, self.segment_bytes, self._pool, mapping=mapping)
        return Segment(path, start, mapping, allocated=self._durable)

    def sync_names(self, up_to: Path) -> None:
        """Make the names of new segments durable, and those of their directories below `up_to`."""
        if not self._names_unsynced:
            return
        self._names_unsynced = False
        directory = self.directory
        try:
            while directory != up_to.parent:
                self.disk.sync_directory(directory)
                directory = directory.parent
        except StoreError:
            self._names_unsynced = True
            raise

    # -- shrinking ---------------------------------------------------------------------------------------------------

    def detach_first(self) -> Segment:
        """Remove the oldest segment from the chain; `dispose` deletes it, in a thread if that may take long."""
        segment = self.segments.pop(0)
        self._detached.append(segment)
        return segment

    def dispose(self, segment: Segment) -> None:
        """Delete a detached segment, and before it those that could not be deleted earlier.

        Always the oldest first: a chain with a gap on the disk could not be opened again.
        """
        while self._detached and self._detached[0].start <= segment.start:
            self.disk.remove(self._detached[0].path)
            self._detached.pop(0).close()

    def remove_from(self, position: int) -> None:
        """Delete the segments that start at a position or later."""
        while self.segments and self.segments[-1].start >= position:
            self.disk.remove(self.segments[-1].path)
            self.segments.pop().close()

    def remove_misfits(self) -> None:
        """Delete the files left out by a tolerant load."""
        while self.misfits:
            self.disk.remove(self.misfits[-1])
            self.misfits.pop()

    def destroy(self) -> None:
        """Delete every segment and the directory."""
        self.settle()
        self.remove_from(0)
        self.disk.remove_directory(self.directory)

    def zero_from(self, position: int) -> None:
        """Write zeros from a position to the end of its segment, so that stale bytes never come back as records."""
        segment = self.find(position)
        if segment is None:
            return
        zeros = bytes(64 * 1024)
        for at, stop in segment.list_written(position - segment.start, len(zeros)):
            if segment.buffer[at:stop] != zeros[: stop - at]:
                segment.buffer[at:stop] = zeros[: stop - at]

    # -- closing -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for a segment that is being created and add it."""
        if self._next is not None:
            waiting, self._next = self._next, None
            try:
                self.segments.append(waiting.result())
            except (StoreError, CancelledError):
                return  # no room for it, or the executor stopped; it is created again when needed

    def close(self) -> None:
        """Close every file."""
        self.settle()
        for segment in [*self._detached, *self.segments]:
            segment.close()
        self._detached.clear()
        self.segments.clear()


def is_segment_name(name: str) -> bool:
    """Is this the name of a segment?"""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
