"""The disk as the store sees it: a few calls that tests can replace with a faulty, forgetful or slow disk.

A `Mapping` is one file of fixed size in memory. Its bytes are written through `buffer`, which cannot fail, because
`allocate` has reserved the blocks: so a full disk raises an error here and does not kill the process with a signal.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from eruca._ground import smallfiles
from eruca.errors import StoreError, StoreFull, StoreIOError, StoreLayoutError, StoreLocked

# Both support slicing, `find`, `struct.pack_into` and `memoryview`, which is all the store needs.
Buffer: TypeAlias = mmap.mmap | bytearray


class Mapping(Protocol):
    """One file of fixed size in memory."""

    size: int
    buffer: Buffer

    def allocate(self, start: int, end: int) -> None:
        """Reserve disk blocks for a range, so that writing it cannot fail."""

    def populate(self, start: int, end: int) -> None:
        """Touch the pages of a range ahead of use; best effort, changes no byte, safe from any thread."""

    def prefetch(self, start: int, end: int) -> None:
        """Read a range into memory ahead of use; best effort, safe from any thread."""

    def write(self, at: int, data: bytes | memoryview) -> int:
        """Write through the file, not the mapping; returns how many bytes were written."""

    def sync(self) -> None:
        """Return when every byte written so far is on the disk."""

    def rewrite(self, start: int, end: int) -> None:
        """Mark a range dirty again after a failed sync: the kernel forgets what it could not write."""

    def next_data(self, at: int) -> int:
        """The first position at or after `at` that may hold a byte other than zero; `size` when there is none."""

    def let_go(self) -> None:
        """The file is complete: keep no descriptor open until one is needed again."""

    def close(self) -> None:
        """Close the file."""


class Lock(Protocol):
    """An exclusive lock on a directory."""

    def release(self) -> None:
        """Release the lock."""


class FileSystem(Protocol):
    """What the store needs from a disk."""

    def map(self, path: Path, *, writable: bool = True, keeps: bool = False) -> Mapping:
        """Map an existing file whole. With `keeps`, its descriptor stays open from first use until `let_go`."""

    def create(self, path: Path, size: int, *, staging: Path, durable: bool) -> Mapping:
        """Create a file of zeros that appears under its name whole or not at all, and map it."""

    def read_file(self, path: Path) -> bytes:
        """All bytes of a small file."""

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file and sync it."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename, replacing an existing file, and sync the directory."""

    def remove(self, path: Path) -> None:
        """Delete a file; a missing file is not an error."""

    def remove_directory(self, path: Path) -> None:
        """Delete an empty directory; a missing or non-empty one is left alone."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk."""

    def list(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty for one that does not exist."""

    def is_directory(self, path: Path) -> bool:
        """Is there a directory?"""

    def exists(self, path: Path) -> bool:
        """Is there a file or directory?"""

    def size(self, path: Path) -> int:
        """Length of a file in bytes."""

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, in milliseconds since the epoch."""

    def used_ratio(self, path: Path) -> float:
        """How full the disk is that holds a path, from 0 to 1."""

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of a file, or raise StoreLocked."""


# What to do when a system limit is reached.
_HINTS = {
    errno.EMFILE: "raise the limit on open files (`ulimit -n`, LimitNOFILE=)",
    errno.ENFILE: "raise fs.file-max on this machine",
    errno.ENOMEM: "raise vm.max_map_count on this machine, or use fewer queues",
}


def translate_os_error(error: OSError, doing: str) -> StoreError:
    """Turn the system's error into ours; the only place that does so for the disk."""
    text = f"{doing}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(text, hint="free space or lower fileReservedTime; appends then resume automatically")
    return StoreIOError(text, hint=_HINTS.get(error.errno or 0, ""))


def replace_file(disk: FileSystem, path: Path, data: bytes) -> None:
    """Replace the content of a small file atomically: after a crash it has the old content or the new, never a mix."""
    disk.make_directory(path.parent)
    staging = path.with_name(path.name + ".tmp")
    disk.write_file(staging, data)
    disk.rename(staging, path)


# Linux 5.14; older kernels return EINVAL, and pages are then faulted in on first use.
_MADV_POPULATE_READ = 22
_MADV_POPULATE_WRITE = 23
_libc = ctypes.CDLL(None, use_errno=True)


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, which holds the address of an object's bytes."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _find_address(buffer: mmap.mmap) -> int:
    found = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), ctypes.byref(found), 0)
    try:
        return int(found.buf)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(found))  # an exported buffer would make close() fail


_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MAP_FAILED = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1


def _map_file(fd: int, size: int, *, writable: bool) -> tuple[mmap.mmap, int]:
    """Map a file without keeping a descriptor; returns the mapping and its address.

    Python's mmap of a file keeps a duplicate of the descriptor for its whole life, and a store may have 40,000 queues.
    So anonymous memory is mapped first and the file is mapped over it; closing that mapping unmaps the file.
    """
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    room = mmap.mmap(-1, size, flags=flags, prot=protection)
    address = _find_address(room)
    found = _libc.mmap(address, size, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
    if found in (None, _MAP_FAILED):
        number = ctypes.get_errno()
        room.close()
        raise OSError(number, os.strerror(number))
    return room, address


class LocalMapping:
    """A mapped file on the local disk.

    Its descriptor is opened when needed. With `keeps` it then stays open until `let_go`: for a log that is synced
    all the time.
    """

    __slots__ = ("_address", "_closed", "_fd", "_keeps", "_path", "_writable", "buffer", "size")

    def __init__(self, path: Path, fd: int, size: int, *, writable: bool, keeps: bool) -> None:
        self._path = path
        self._fd = -1
        self._closed = False
        self._keeps = keeps
        self._writable = writable
        self.size = size
        buffer, address = _map_file(fd, size, writable=writable)
        self.buffer: Buffer = buffer
        self._address = address if writable else 0

    @contextmanager
    def _opened(self, doing: str) -> Iterator[int]:
        """Yield the descriptor, and translate system errors."""
        fd = self._fd
        try:
            if self._closed:
                # Another file may have this name by now.
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if fd < 0:
                fd = os.open(self._path, os.O_RDWR if self._writable else os.O_RDONLY)
                if self._keeps:
                    self._fd = fd
            yield fd
        except OSError as error:
            raise translate_os_error(error, doing) from error
        finally:
            if fd >= 0 and fd != self._fd:
                os.close(fd)

    def let_go(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def allocate(self, start: int, end: int) -> None:
        with self._opened(f"allocate {end - start} bytes of {self._path.name}") as fd:
            os.posix_fallocate(fd, start, end - start)

    def populate(self, start: int, end: int) -> None:
        self._advise(start, end, _MADV_POPULATE_WRITE)

    def prefetch(self, start: int, end: int) -> None:
        self._advise(start, end, _MADV_POPULATE_READ)

    def _advise(self, start: int, end: int, advice: int) -> None:
        start -= start % mmap.PAGESIZE
        end = min(end, self.size)
        if self._address and end > start:  # ctypes releases the GIL, mmap.madvise does not
            _libc.madvise(ctypes.c_void_p(self._address + start), ctypes.c_size_t(end - start), ctypes.c_int(advice))

    def write(self, at: int, data: bytes | memoryview) -> int:
        with self._opened(f"write {len(data)} bytes to {self._path.name}") as fd:
            return os.pwrite(fd, data, at)

    def sync(self) -> None:
        with self._opened(f"sync {self._path.name}") as fd:
            os.fdatasync(fd)  # writes the mapping's dirty pages too, and releases the GIL (msync does not)

    def rewrite(self, start: int, end: int) -> None:
        step = 1024 * 1024
        for at in range(start, end, step):
            stop = min(end, at + step)
            self.buffer[at:stop] = self.buffer[at:stop]

    def next_data(self, at: int) -> int:
        with self._opened(f"look into {self._path.name}") as fd:
            try:
                return max(at, os.lseek(fd, at, os.SEEK_DATA))
            except OSError as error:
                return self.size if error.errno == errno.ENXIO else at

    def close(self) -> None:
        self._address = 0
        self._closed = True
        try:
            if isinstance(self.buffer, mmap.mmap):
                self.buffer.close()
        except BufferError:
            pass  # a slice is still being sent; the mapping is freed after it
        self.let_go()


@dataclass(slots=True)
class _LocalLock:
    fd: int
    key: Path

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            _locked_here.discard(self.key)


# POSIX locks do not exclude a second open in the same process, so those are tracked here.
_locked_here: set[Path] = set()


class LocalFileSystem:
    """The local disk."""

    def map(self, path: Path, *, writable: bool = True, keeps: bool = False) -> Mapping:
        try:
            fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
            try:
                size = os.fstat(fd).st_size
                if size == 0:
                    raise StoreLayoutError(f"{path} is empty", hint="move it out of the store directory")
                return LocalMapping(path, fd, size, writable=writable, keeps=keeps)
            finally:
                os.close(fd)
        except OSError as error:
            raise translate_os_error(error, f"open {path}") from error

    def create(self, path: Path, size: int, *, staging: Path, durable: bool) -> Mapping:
        try:
            fd = os.open(staging, os.O_RDWR | os.O_CREAT | os.O_TRUNC, smallfiles.FILE_MODE)
            try:
                os.ftruncate(fd, size)
                if durable:
                    os.posix_fallocate(fd, 0, size)
                    os.fsync(fd)
                os.rename(staging, path)
                if durable:
                    self.sync_directory(path.parent)
                return LocalMapping(path, fd, size, writable=True, keeps=durable)
            except BaseException:
                staging.unlink(missing_ok=True)
                path.unlink(missing_ok=True)  # the caller checked that the name was unused
                raise
            finally:
                os.close(fd)
        except OSError as error:
            raise translate_os_error(error, f"create {path} of {size} bytes") from error

    def read_file(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise translate_os_error(error, f"read {path}") from error

    def write_file(self, path: Path, data: bytes) -> None:
        try:
            smallfiles.write_file(path, data)
        except OSError as error:
            raise translate_os_error(error, f"write {path}") from error

    def rename(self, old: Path, new: Path) -> None:
        try:
            smallfiles.rename_file(old, new)
        except OSError as error:
            raise translate_os_error(error, f"rename {old.name} to {new.name}") from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise translate_os_error(error, f"delete {path}") from error

    def remove_directory(self, path: Path) -> None:
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise translate_os_error(error, f"delete {path}") from error

    def make_directory(self, path: Path) -> None:
        try:
            smallfiles.make_directories(path)
        except OSError as error:
            raise translate_os_error(error, f"make directory {path}") from error

    def sync_directory(self, path: Path) -> None:
        try:
            smallfiles.sync_directory(path)
        except OSError as error:
            raise translate_os_error(error, f"sync the directory {path}") from error

    def list(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise translate_os_error(error, f"list {path}") from error

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            raise translate_os_error(error, f"look at {path}") from error

    def modified_ms(self, path: Path) -> int:
        try:
            return path.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise translate_os_error(error, f"look at {path}") from error

    def used_ratio(self, path: Path) -> float:
        try:
            usage = shutil.disk_usage(path)
        except OSError as error:
            raise translate_os_error(error, f"look at the disk of {path}") from error
        # As `df` and Java count: blocks reserved for root are neither used nor free. Some file systems report zeros.
        return usage.used / ((usage.used + usage.free) or 1)

    def lock(self, path: Path) -> Lock:
        key = path.absolute()
        if key in _locked_here:
            raise StoreLocked(f"{path.parent} is already open in this process", hint="close it first")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, smallfiles.FILE_MODE)
        except OSError as error:
            raise translate_os_error(error, f"open {path}") from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLocked(
                    f"{path.parent} is in use by another process", hint="stop that broker, or use another directory"
                ) from error
            raise translate_os_error(error, f"lock {path}") from error
        _locked_here.add(key)
        return _LocalLock(fd, key)
