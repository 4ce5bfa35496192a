"""The fault disk itself: the calls of `FileSystem`, power loss, process death, and damage."""

from __future__ import annotations

import errno
import posixpath
import random
from pathlib import Path
from typing import NoReturn, TypeAlias

from eruca._ground.clock import Clock
from eruca._store.filesystem import Lock, Mapping
from eruca._testing.faults.image import BLOCK, CrashMode, FileImage
from eruca._testing.faults.journal import Directory, Entry, Link, Move, Node, Resize, Unlink, list_names
from eruca._testing.faults.mapping import SimulatedLock, SimulatedMapping
from eruca._testing.faults.plan import Fault
from eruca._testing.faults.volume import Volume, make_error
from eruca.errors import StoreLayoutError, StoreLocked

Names: TypeAlias = list[str]  # in the class below, `list` is a method
Paths: TypeAlias = list[Path]
Entries: TypeAlias = list[Entry]

_CRASH_MODES = (CrashMode.DROP, CrashMode.PREFIX, CrashMode.RANDOM, CrashMode.RANDOM, CrashMode.RANDOM)


class SimulatedDisk(Volume):
    """An in-memory disk that loses unsynced data on power loss and fails on request; implements `FileSystem`.

    Relative paths start at its root, which is empty at first.
    """

    # --- the calls of FileSystem ---

    def map(self, path: Path, *, writable: bool = True, keeps: bool = False) -> Mapping:
        """Map an existing file whole."""
        key, doing = _key(path), f"open {path}"
        with self.guard:
            self._begin("map", key, doing)
            image = self._find_file(key, doing)
            if not image.current:
                raise StoreLayoutError(f"{path} is empty", hint="move it away")
            return SimulatedMapping(self, key, image, writable=writable)

    def create(self, path: Path, size: int, *, staging: Path, durable: bool) -> Mapping:
        """Create a file of zeros; on failure nothing has the name, but the staging file may be left."""
        key, staged, doing = _key(path), _key(staging), f"create {path} of {size} bytes"
        with self.guard:
            fault = self.begin("create", key)
            for name in (key, staged):
                self._check_place(name, doing)
            image = FileImage(bytearray(size), grows=False, modified_ms=self.clock.now_ms())
            number = fault.errno if fault else 0
            if not number and (self.full or (durable and not self.has_room(len(image.allocated)))):
                number = errno.ENOSPC
            if not number and durable and self.broken_sync:
                number = errno.EIO
            if number:
                self._leave_staging(staged, size)
                raise make_error(number, doing)
            self.journal.record(Link(staged, image), Resize(image, size), Move(staged, key))
            if durable:
                image.allocate(0, size)
                self.journal.commit()
            return SimulatedMapping(self, key, image, writable=True)

    def read_file(self, path: Path) -> bytes:
        """Return all bytes of a small file."""
        key, doing = _key(path), f"read {path}"
        with self.guard:
            self._begin("read_file", key, doing)
            return bytes(self._find_file(key, doing).current)

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file and sync it.

        The old content is truncated first, so a failure loses it: ENOSPC leaves an empty file, a short write
        the first half, EIO (of the sync) all bytes, but none of them on the disk.
        """
        key, doing = _key(path), f"write {path}"
        with self.guard:
            fault = self.begin("write_file", key)
            self._check_place(key, doing)
            image = FileImage(bytearray(), grows=True, modified_ms=self.clock.now_ms())
            self.journal.record(Link(key, image))
            taken = {Fault.ENOSPC: 0, Fault.SHORT: len(data) // 2}.get(fault, len(data)) if fault else len(data)
            free = self.free_blocks()
            taken = taken if free is None else min(taken, free * BLOCK)
            image.write_new(data[:taken])
            if taken < len(data) or fault in (Fault.ENOSPC, Fault.SHORT):
                raise make_error(errno.ENOSPC, doing)
            self.sync_image(key, image, fault)
            self.journal.commit()  # fsync, not fdatasync: also when `strict_datasync` is on

    def rename(self, old: Path, new: Path) -> None:
        """Rename durably; an injected EIO makes the rename fail or, after it, the sync of the directory."""
        source, target, doing = _key(old), _key(new), f"rename {old.name} to {new.name}"
        with self.guard:
            fault = self.begin("rename", source)
            node = self._find(source, doing)
            self._check_place(target, doing, directory_may_be_there=isinstance(node, Directory))
            if isinstance(node, Directory) and list_names(self.journal.tree, target):
                _refuse(errno.ENOTEMPTY, doing)
            if fault is not None and (fault is Fault.ENOSPC or self.draw().random() < 0.5):
                _refuse(fault.errno, doing)
            self.journal.record(Move(source, target))
            if fault is not None or self.broken_sync:
                _refuse(errno.EIO, doing)
            self.journal.commit()

    def remove(self, path: Path) -> None:
        """Delete a file; after a power loss it may be back."""
        key, doing = _key(path), f"delete {path}"
        with self.guard:
            self._begin("remove", key, doing)
            if key in self.journal.tree:
                self._find_file(key, doing)
                self.journal.record(Unlink(key))

    def remove_directory(self, path: Path) -> None:
        """Delete an empty directory; one that is gone or not empty is left alone."""
        key, doing = _key(path), f"delete {path}"
        with self.guard:
            self._begin("remove_directory", key, doing)
            node = self.journal.tree.get(key)
            if isinstance(node, FileImage):
                _refuse(errno.ENOTDIR, doing)
            if node is not None and not list_names(self.journal.tree, key):
                self.journal.record(Unlink(key))

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents."""
        key, doing = _key(path), f"make directory {path}"
        with self.guard:
            self._begin("make_directory", key, doing)
            missing: Names = []
            at = key
            while at not in self.journal.tree:
                missing.append(at)
                at = posixpath.dirname(at)
            if isinstance(self.journal.tree[at], FileImage):
                _refuse(errno.ENOTDIR if missing else errno.EEXIST, doing)
            if missing and self.full:
                _refuse(errno.ENOSPC, doing)
            for name in reversed(missing):
                self.journal.record(Link(name, Directory(self.clock.now_ms())))

    def sync_directory(self, path: Path) -> None:
        """Make every change of names so far durable."""
        key, doing = _key(path), f"sync the directory {path}"
        with self.guard:
            self._begin("sync_directory", key, doing)
            self._find(key, doing)
            if self.broken_sync:
                _refuse(errno.EIO, doing)
            self.journal.commit()

    def list(self, path: Path) -> Names:
        """Return the names in a directory, sorted; empty if it does not exist."""
        key, doing = _key(path), f"list {path}"
        with self.guard:
            self._begin("list", key, doing)
            if isinstance(self.journal.tree.get(key), FileImage):
                _refuse(errno.ENOTDIR, doing)
            return list_names(self.journal.tree, key)

    def is_directory(self, path: Path) -> bool:
        """Whether there is such a directory."""
        return isinstance(self.journal.tree.get(_key(path)), Directory)

    def exists(self, path: Path) -> bool:
        """Whether there is such a file or directory."""
        return _key(path) in self.journal.tree

    def size(self, path: Path) -> int:
        """Return the length of a file in bytes."""
        key, doing = _key(path), f"look at {path}"
        with self.guard:
            self._begin("size", key, doing)
            node = self._find(key, doing)
            return len(node.current) if isinstance(node, FileImage) else BLOCK

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last created, written, synced with changes, or touched."""
        key, doing = _key(path), f"look at {path}"
        with self.guard:
            self._begin("modified_ms", key, doing)
            return self._find(key, doing).modified_ms

    def used_ratio(self, path: Path) -> float:
        """Return how full the disk is: `usage` if a test set it, otherwise allocated blocks divided by capacity."""
        with self.guard:
            self._find(_key(path), f"look at the disk of {path}")
            if self.usage is not None:
                return self.usage
            return min(1.0, self.used_bytes() / self.capacity_bytes) if self.capacity_bytes else 0.0

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of a file, or raise StoreLocked."""
        key, doing = _key(path), f"lock {path}"
        with self.guard:
            self._begin("lock", key, doing)
            if key in self.locked:
                raise StoreLocked(f"{path.parent} is already open on this disk", hint="close it first")
            if key not in self.journal.tree:
                self._check_place(key, doing)
                if not self.has_room(1):
                    _refuse(errno.ENOSPC, doing)
                image = FileImage(bytearray(), grows=True, modified_ms=self.clock.now_ms())
                self.journal.record(Link(key, image))
                image.write_new(b"lock")
            self._find_file(key, doing)
            return SimulatedLock(self, key)

    # --- the end of a process or of the power ---

    def crash(self, mode: CrashMode | str | None = None, *, seed: int | None = None) -> SimulatedDisk:
        """Return the disk after a power loss; this disk is not changed, so that several crashes can be tried.

        The outcome depends only on the seed (this disk's by default) and the state: the same call returns the same.
        """
        with self.guard:
            seed = self.seed if seed is None else seed
            rng = random.Random(f"{seed}:crash")
            drawn = rng.choice(_CRASH_MODES)
            left = self._make_twin(rng.getrandbits(48))
            left.journal = self.journal.survive(rng, CrashMode(mode) if mode else drawn)
            return left

    def kill(self) -> SimulatedDisk:
        """Return the disk after kill -9: all bytes written, synced or not, and no lock held.

        Mappings of the dead process stay with the old disk and change nothing on the new one.
        """
        with self.guard:
            left = self._make_twin(self.seed)
            left.journal = self.journal.copy()
            return left

    # --- damage and inspection ---

    def flip_bit(self, path: Path, position: int, bit: int) -> None:
        """Flip one bit of a file, in memory and on the disk."""
        with self.guard:
            image = self._find_file(_key(path), f"damage {path}")
            image.damage(position, bytes([image.current[position] ^ (1 << bit)]))

    def tear(self, path: Path, position: int) -> None:
        """Overwrite a file with zeros from a position on, in memory and on the disk."""
        with self.guard:
            image = self._find_file(_key(path), f"damage {path}")
            image.damage(position, bytes(max(0, len(image.current) - position)))

    def touch(self, path: Path, ms: int) -> None:
        """Set the time a file was last written."""
        with self.guard:
            self._find(_key(path), f"touch {path}").modified_ms = ms

    def files(self) -> Paths:
        """Return all files, sorted."""
        with self.guard:
            return [
                Path(path)
                for path, node in sorted(self.journal.tree.items(), key=_path_of)
                if isinstance(node, FileImage)
            ]

    def directories(self) -> Paths:
        """Return all directories, sorted, the root first."""
        with self.guard:
            return [
                Path(path)
                for path, node in sorted(self.journal.tree.items(), key=_path_of)
                if isinstance(node, Directory)
            ]

    def snapshot(self, *, durable: bool = False) -> dict[Path, bytes]:
        """Return the bytes of every file as programs see them, or only what is certainly on the disk."""
        with self.guard:
            tree = self.journal.durable_tree() if durable else self.journal.tree
            return {
                Path(path): bytes(node.durable if durable else node.current)
                for path, node in sorted(tree.items(), key=_path_of)
                if isinstance(node, FileImage)
            }

    def pending(self) -> Entries:
        """Return the changes of names that a power loss may still undo, oldest first."""
        return self.journal.pending()

    @classmethod
    def load(cls, path: Path, *, at: Path = Path("/"), seed: int = 0, clock: Clock | None = None) -> SimulatedDisk:
        """Return a disk with a copy of a real directory at `at`, all of it durable, with the times of its files."""
        from eruca._testing.faults.tree import load_tree

        disk = cls(seed=seed, clock=clock)
        load_tree(disk, path, at)
        disk.calls = 0
        disk.trace.clear()
        return disk

    def dump(self, path: Path, *, at: Path = Path("/")) -> None:
        """Copy everything below `at` to a real directory."""
        from eruca._testing.faults.tree import dump_tree

        dump_tree(self, path, at)

    # --- what several calls share ---

    def _begin(self, operation: str, key: str, doing: str) -> None:
        """Count a call that changes nothing if it fails."""
        fault = self.begin(operation, key)
        if fault is not None:
            _refuse(fault.errno, doing)

    def _find(self, key: str, doing: str) -> Node:
        node = self.journal.tree.get(key)
        if node is None:
            _refuse(errno.ENOENT, doing)
        return node

    def _find_file(self, key: str, doing: str) -> FileImage:
        node = self._find(key, doing)
        if isinstance(node, Directory):
            _refuse(errno.EISDIR, doing)
        return node

    def _check_place(self, key: str, doing: str, *, directory_may_be_there: bool = False) -> None:
        """Raise an error for a new file whose directory is missing or whose name belongs to a directory."""
        parent = self.journal.tree.get(posixpath.dirname(key))
        if parent is None:
            _refuse(errno.ENOENT, doing)
        if isinstance(parent, FileImage):
            _refuse(errno.ENOTDIR, doing)
        there = self.journal.tree.get(key)
        if isinstance(there, Directory) and not directory_may_be_there:
            _refuse(errno.EISDIR, doing)
        if isinstance(there, FileImage) and directory_may_be_there:
            _refuse(errno.ENOTDIR, doing)

    def _leave_staging(self, staged: str, size: int) -> None:
        """Leave what a failed create may leave: nothing, an empty staging file, or a complete one."""
        left = self.draw().choice((None, 0, size))
        if left is not None:
            image = FileImage(bytearray(left), grows=False, modified_ms=self.clock.now_ms())
            self.journal.record(Link(staged, image), Resize(image, left))
        elif staged in self.journal.tree:
            self.journal.record(Unlink(staged))

    def _make_twin(self, seed: int) -> SimulatedDisk:
        twin = type(self)(seed=seed, capacity_bytes=self.capacity_bytes, clock=self.clock)
        twin.usage = self.usage
        twin.full = self.full
        twin.broken_sync = self.broken_sync
        twin.strict_datasync = self.strict_datasync
        return twin


def _path_of(item: tuple[str, Node]) -> str:
    return item[0]


def _key(path: Path) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _refuse(number: int, doing: str) -> NoReturn:
    raise make_error(number, doing)
