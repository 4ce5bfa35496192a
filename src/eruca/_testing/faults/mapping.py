"""Open files and locks of the fault disk."""

from __future__ import annotations

import errno

from eruca._store.filesystem import Buffer
from eruca._testing.faults.image import BLOCK, FileImage
from eruca._testing.faults.plan import Fault
from eruca._testing.faults.volume import Volume, make_error


class SimulatedMapping:
    """A file of the fault disk in memory; all mappings of a file share its bytes."""

    __slots__ = ("_image", "_path", "_volume", "_writable", "buffer", "size")

    def __init__(self, volume: Volume, path: str, image: FileImage, *, writable: bool) -> None:
        self._volume = volume
        self._path = path
        self._image: FileImage | None = image
        self._writable = writable
        self.size = len(image.current)
        self.buffer: Buffer = image.current
        volume.mapped[id(self)] = image

    def allocate(self, start: int, end: int) -> None:
        """Reserve disk blocks for a range, so that writing it cannot fail."""
        doing = f"allocate {end - start} bytes of {self._path}"
        with self._volume.guard:
            fault = self._volume.begin("allocate", self._path)
            image = self._find_writable(doing)
            if not 0 <= start < end <= self.size:
                raise ValueError(f"{doing}: {start} to {end} is not inside {self.size}")
            if fault is not None:
                raise make_error(fault.errno, doing)
            if not self._volume.has_room(image.count_missing_blocks(start, end)):
                raise make_error(errno.ENOSPC, doing)
            image.allocate(start, end)

    def populate(self, start: int, end: int) -> None:
        """Do nothing: this memory has no pages to touch."""

    def prefetch(self, start: int, end: int) -> None:
        """Do nothing: everything is in memory."""

    def write(self, at: int, data: bytes | memoryview) -> int:
        """Write through the file; returns how many bytes were written, which may be fewer than given."""
        doing = f"write {len(data)} bytes to {self._path}"
        with self._volume.guard:
            fault = self._volume.begin("write", self._path)
            image = self._find_writable(doing)
            if not 0 <= at <= at + len(data) <= self.size:
                raise ValueError(f"{doing}: {at} and {len(data)} more is not inside {self.size}")
            count = len(data)
            if fault is Fault.SHORT:
                count = self._volume.draw().randrange(1, count) if count > 1 else 0
            elif fault is not None:
                raise make_error(fault.errno, doing)
            count = self._fit(image, at, count)
            if count == 0 and data:
                raise make_error(errno.ENOSPC, doing)
            image.allocate(at, at + count)
            image.current[at : at + count] = data[:count]
            image.mark_dirty(at, at + count)
            image.modified_ms = self._volume.clock.now_ms()
            return count

    def sync(self) -> None:
        """Make the file durable; a failed sync forgets what was dirty."""
        with self._volume.guard:
            fault = self._volume.begin("sync", self._path)
            if self._image is None:
                raise make_error(errno.EBADF, f"sync {self._path}")
            self._volume.sync_image(self._path, self._image, fault)

    def rewrite(self, start: int, end: int) -> None:
        """Mark a range dirty again after a failed sync."""
        with self._volume.guard:
            if self._image is not None:
                self._image.mark_dirty(start, end)

    def next_data(self, at: int) -> int:
        """Return the start of the next block with a nonzero byte, or `at` if inside it; `size` if there is none."""
        step = 64 * 1024
        for start in range(at, self.size, step):
            chunk = bytes(self.buffer[start : start + step])
            zeros = len(chunk) - len(chunk.lstrip(b"\0"))
            if zeros < len(chunk):
                return max(at, (start + zeros) // BLOCK * BLOCK)
        return self.size

    def let_go(self) -> None:
        """Do nothing: this disk has no descriptors."""

    def close(self) -> None:
        """Close the file; `buffer` is empty from then on, so that a late reader fails."""
        with self._volume.guard:
            self._volume.mapped.pop(id(self), None)
            self._image = None
            self.buffer = bytearray()

    def _find_writable(self, doing: str) -> FileImage:
        if self._image is None or not self._writable:
            raise make_error(errno.EBADF, doing)
        return self._image

    def _fit(self, image: FileImage, at: int, count: int) -> int:
        """Return how many of these bytes have blocks; free blocks go to the first bytes that lack one."""
        if self._volume.has_room(image.count_missing_blocks(at, at + count)):
            return count
        free = self._volume.free_blocks() or 0
        end = at
        while end < at + count:
            free -= image.count_missing_blocks(end, end + 1)
            if free < 0:
                break
            end = (end // BLOCK + 1) * BLOCK
        return max(0, min(end, at + count) - at)


class SimulatedLock:
    """An exclusive hold on a lock file of the fault disk."""

    __slots__ = ("_path", "_volume")

    def __init__(self, volume: Volume, path: str) -> None:
        self._volume: Volume | None = volume
        self._path = path
        volume.locked.add(path)

    def release(self) -> None:
        """Release the file; a second time does nothing."""
        if self._volume is not None:
            self._volume.locked.discard(self._path)
            self._volume = None
