"""One file of the fault disk: what programs see, what is on the disk, and what survives a power loss."""

from __future__ import annotations

import random
from enum import StrEnum

SECTOR = 512  # the unit of a disk write; smaller than a page, so a store that relies on whole pages fails
BLOCK = 4096  # the unit of allocation of the file system
_CHUNK = 64 * 1024  # compared whole before its sectors are

assert _CHUNK % SECTOR == 0


class CrashMode(StrEnum):
    """What happens to unsynced bytes in a power loss."""

    DROP = "drop"  # all lost
    RANDOM = "random"  # each sector independently old, new or torn
    SECTORS = "sectors"  # each sector old or new, none torn: what disks guarantee
    PREFIX = "prefix"  # of each file, the sectors before a random point survive


def find_differing_sectors(one: bytes | bytearray, other: bytes | bytearray) -> list[int]:
    """Return the numbers of the sectors in which two images of the same length differ, ascending."""
    found: list[int] = []
    if one == other:
        return found
    for start in range(0, len(one), _CHUNK):
        left = bytes(one[start : start + _CHUNK])
        right = bytes(other[start : start + _CHUNK])
        if left == right:
            continue
        for at in range(0, len(left), SECTOR):
            if left[at : at + SECTOR] != right[at : at + SECTOR]:
                found.append((start + at) // SECTOR)
    return found


class FileImage:
    """The bytes of one file, twice: as in the page cache and as on the disk."""

    __slots__ = ("_forgotten", "allocated", "current", "durable", "grows", "modified_ms")

    def __init__(self, current: bytearray, *, grows: bool, modified_ms: int) -> None:
        self.current = current
        self.durable = bytearray()
        # A file made by `create` gets its length from the journal, a small file by writing its bytes.
        self.grows = grows
        self.modified_ms = modified_ms
        self.allocated = bytearray(_count_blocks(len(current)))  # one flag for each block
        # Sectors that a failed sync gave up on, with their content then: clean for the kernel, but not on the disk.
        self._forgotten: dict[int, bytes] = {}

    def copy(self) -> FileImage:
        """Return an independent copy of the file."""
        twin = FileImage(bytearray(self.current), grows=self.grows, modified_ms=self.modified_ms)
        twin.durable = bytearray(self.durable)
        twin.allocated = bytearray(self.allocated)
        twin._forgotten = dict(self._forgotten)
        return twin

    # --- blocks ---

    def count_missing_blocks(self, start: int, end: int) -> int:
        """Return the number of blocks of a range that are not reserved yet."""
        return self.allocated.count(0, start // BLOCK, _count_blocks(end))

    def allocate(self, start: int, end: int) -> None:
        """Reserve the blocks of a range."""
        first, last = start // BLOCK, _count_blocks(end)
        self.allocated[first:last] = b"\x01" * (last - first)

    def allocated_bytes(self) -> int:
        """The number of bytes allocated on the disk."""
        return self.allocated.count(1) * BLOCK

    # --- page cache and disk ---

    def write_new(self, data: bytes) -> None:
        """Write the bytes of an empty file and allocate its blocks; nothing is on the disk yet."""
        self.current.extend(data)
        self.allocated = bytearray(b"\x01" * _count_blocks(len(data)))

    def position_of(self, sector: int) -> int:
        """Return the position of the first byte of a sector."""
        return sector * SECTOR

    def set_size(self, size: int) -> None:
        """Set the length on the disk; new bytes are zeros."""
        if len(self.durable) < size:
            self.durable.extend(bytes(size - len(self.durable)))

    def find_dirty(self) -> list[int]:
        """Return the sectors that the kernel would write in a sync: dirty, and not given up on."""
        for sector in [sector for sector, data in self._forgotten.items() if self._read(sector) != data]:
            del self._forgotten[sector]  # written to since, so the kernel knows it as dirty again
        dirty = find_differing_sectors(self.current, self._padded_durable())
        return [sector for sector in dirty if sector not in self._forgotten]

    def sync(self, dirty: list[int]) -> None:
        """Write these sectors to the disk."""
        if len(self.durable) != len(self.current):
            self.durable = self._padded_durable()
        for sector in dirty:
            start = sector * SECTOR
            data = self._read(sector)
            self.durable[start : start + len(data)] = data

    def forget(self, dirty: list[int]) -> None:
        """Give up on these sectors, as the kernel does after a failed sync: now clean, but not on the disk."""
        for sector in dirty:
            self._forgotten[sector] = self._read(sector)

    def mark_dirty(self, start: int, end: int) -> None:
        """Make the next sync write a range again that an earlier sync gave up on."""
        if self._forgotten:
            for sector in range(start // SECTOR, -(-end // SECTOR)):
                self._forgotten.pop(sector, None)

    def damage(self, start: int, data: bytes) -> None:
        """Change bytes on the disk and in memory without any call, as hardware damage does."""
        self.current[start : start + len(data)] = data
        room = max(0, min(len(data), len(self.durable) - start))
        self.durable[start : start + room] = data[:room]

    def survive(self, rng: random.Random, mode: CrashMode, size: int) -> FileImage:
        """Return what is left of the file after a power loss, if its length in the journal is `size` bytes.

        A sector that a failed sync gave up on is no longer written back. The failed write may still have reached the
        disk; only `RANDOM` simulates that, and rarely.
        """
        new = bytes(self.current)
        old = bytearray(self.durable)
        size = len(new) if self.grows else size
        old.extend(bytes(max(0, size - len(old))))
        end = len(self.durable)
        if mode is not CrashMode.DROP and size == len(new):
            end = max(end, self._mix(rng, mode, old, new))
        if self.grows:
            del old[end:]
        left = FileImage(old, grows=self.grows, modified_ms=self.modified_ms)
        left.durable = bytearray(old)
        left.allocated[:] = self.allocated[: len(left.allocated)]
        return left

    def _mix(self, rng: random.Random, mode: CrashMode, image: bytearray, new: bytes) -> int:
        """Overwrite `image` with the unsynced sectors that survive; returns where the last of them ends."""
        unsynced = find_differing_sectors(new, image)
        end = 0
        if not unsynced:
            return end
        chance = rng.choice((0.1, 0.5, 0.9))  # that a sector is new; 0.5 alone never leaves long runs
        point = rng.randint(0, len(unsynced)) if mode is CrashMode.PREFIX else 0
        for index, sector in enumerate(unsynced):
            start = sector * SECTOR
            stop = min(start + SECTOR, len(new))
            given_up = self._forgotten.get(sector) == new[start:stop]
            torn = rng.random() < 0.1 and mode is not CrashMode.SECTORS
            if mode is CrashMode.PREFIX:
                if index > point or given_up:
                    continue
                torn = index == point  # the disk was writing this one
            elif (given_up and rng.random() < 0.75) or (not torn and rng.random() >= chance):
                continue
            if torn:
                cut = rng.randint(start, stop)
                if rng.random() < 0.25:  # some disks write a sector from its end
                    start = cut
                else:
                    stop = cut
            image[start:stop] = new[start:stop]
            end = max(end, stop)
        return end

    def _read(self, sector: int) -> bytes:
        return bytes(self.current[sector * SECTOR : (sector + 1) * SECTOR])

    def _padded_durable(self) -> bytearray:
        missing = len(self.current) - len(self.durable)
        return self.durable + bytes(missing) if missing > 0 else self.durable


def _count_blocks(size: int) -> int:
    return -(-size // BLOCK)
