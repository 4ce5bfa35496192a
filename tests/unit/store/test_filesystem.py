"""The machine's own disk: errors are the store's errors, nothing half-made stays, locks exclude."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from eruca._store.filesystem import LocalFileSystem, translate_os_error
from eruca.errors import StoreFull, StoreIOError, StoreLayoutError, StoreLocked

DISK = LocalFileSystem()
Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_an_error_of_its_own(number: int) -> None:
    error = translate_os_error(OSError(number, "x"), "write a file")
    assert isinstance(error, StoreFull) and error.retryable and error.hint
    assert str(error).startswith(f"write a file: {os.strerror(number)}")


def test_any_other_failure_is_an_io_error() -> None:
    for error in (OSError(errno.EIO, "x"), OSError("odd")):
        assert isinstance(translate_os_error(error, "sync"), StoreIOError)
    assert str(translate_os_error(OSError("odd"), "sync")) == "sync: odd"


# --- mappings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_create_makes_a_file_of_zeros_without_a_trace_of_its_making(tmp_path: Path, durable: bool) -> None:
    mapping = DISK.create(tmp_path / "file", 10_000, staging=tmp_path / "staging", durable=durable)
    assert mapping.size == 10_000
    assert DISK.list(tmp_path) == ["file"]
    assert DISK.read_file(tmp_path / "file") == bytes(10_000)
    blocks = (tmp_path / "file").stat().st_blocks
    assert blocks >= 10_000 // 512 if durable else blocks == 0
    mapping.buffer[5000:5005] = b"hello"
    assert DISK.read_file(tmp_path / "file")[5000:5005] == b"hello"
    mapping.close()


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync", "rename", "ftruncate"])
def test_create_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StoreFull):
            DISK.create(tmp_path / "file", 4096, staging=tmp_path / "staging", durable=True)
    assert DISK.list(tmp_path) == []
    before = os.listdir("/proc/self/fd")
    DISK.create(tmp_path / "file", 4096, staging=tmp_path / "staging", durable=True).close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_create_whose_directory_sync_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreIOError("no")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "sync_directory", fail)
        with pytest.raises(StoreIOError):
            DISK.create(tmp_path / "file", 4096, staging=tmp_path / "staging", durable=True)
    assert DISK.list(tmp_path) == []


def test_a_mapping_reads_and_writes_its_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100_000))
    mapping = DISK.map(tmp_path / "file")
    assert mapping.write(10, b"abc") == 3
    assert mapping.buffer[10:13] == b"abc"  # one file, however it is written
    mapping.buffer[50_000:50_003] = b"xyz"
    mapping.sync()
    mapping.rewrite(0, mapping.size)
    mapping.allocate(0, mapping.size)
    mapping.populate(0, mapping.size + 1)
    mapping.populate(200_000, 300_000)
    mapping.prefetch(0, mapping.size + 1)
    mapping.prefetch(200_000, 300_000)
    data = (tmp_path / "file").read_bytes()
    assert (data[10:13], data[50_000:50_003], data.count(0)) == (b"abc", b"xyz", 100_000 - 6)
    mapping.close()
    mapping.close()


def test_a_read_only_mapping_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a" * 5000)
    mapping = DISK.map(tmp_path / "file", writable=False)
    with pytest.raises(TypeError):
        mapping.buffer[0] = 1
    with pytest.raises(StoreIOError):
        mapping.write(0, b"x")
    mapping.populate(0, 5000)
    mapping.prefetch(0, 5000)
    mapping.close()
    assert (tmp_path / "file").read_bytes() == b"a" * 5000


def test_a_mapping_may_be_closed_while_a_slice_is_on_its_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a" * 5000)
    mapping = DISK.map(tmp_path / "file")
    view = memoryview(mapping.buffer)[:100]
    mapping.close()
    (tmp_path / "file").unlink()
    assert bytes(view) == b"a" * 100
    view.release()


def test_next_data_steps_over_holes(tmp_path: Path) -> None:
    mapping = DISK.create(tmp_path / "file", 64 * mmap.PAGESIZE, staging=tmp_path / "staging", durable=False)
    assert mapping.next_data(0) == mapping.size
    mapping.write(20 * mmap.PAGESIZE + 5, b"x")
    place = mapping.next_data(0)
    assert place <= 20 * mmap.PAGESIZE + 5
    assert mapping.next_data(20 * mmap.PAGESIZE + 3) == 20 * mmap.PAGESIZE + 3
    assert mapping.next_data(mapping.size) == mapping.size
    mapping.close()


def test_what_cannot_be_mapped_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="open"):
        DISK.map(tmp_path / "none")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(StoreLayoutError, match="is empty"):
        DISK.map(tmp_path / "empty")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreLayoutError):
        DISK.map(tmp_path / "empty")
    assert len(os.listdir("/proc/self/fd")) == before


# --- files and directories ------------------------------------------------------------------------------------------


def test_missing_files_are_fine_where_the_contract_says_so(tmp_path: Path) -> None:
    DISK.remove(tmp_path / "none")
    DISK.remove_directory(tmp_path / "none")
    assert DISK.list(tmp_path / "none") == []
    assert not DISK.exists(tmp_path / "none")
    for call in (DISK.read_file, DISK.size, DISK.modified_ms, DISK.used_ratio, DISK.sync_directory):
        with pytest.raises(StoreIOError):
            call(tmp_path / "none")


def test_rename_replaces(tmp_path: Path) -> None:
    DISK.write_file(tmp_path / "a", b"new")
    DISK.write_file(tmp_path / "b", b"old")
    DISK.rename(tmp_path / "a", tmp_path / "b")
    assert DISK.list(tmp_path) == ["b"]
    assert DISK.read_file(tmp_path / "b") == b"new"
    with pytest.raises(StoreIOError, match="rename a to c"):
        DISK.rename(tmp_path / "a", tmp_path / "c")


def test_directories_are_made_with_their_parents_and_removed_when_empty(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    DISK.make_directory(deep)
    DISK.make_directory(deep)
    assert DISK.is_directory(deep)
    DISK.remove_directory(tmp_path / "a")
    assert DISK.is_directory(deep)
    DISK.remove_directory(deep)
    DISK.write_file(tmp_path / "file", b"")
    for call in (DISK.make_directory, DISK.remove_directory, DISK.list):
        with pytest.raises(StoreIOError):
            call(tmp_path / "file")
    with pytest.raises(StoreIOError):
        DISK.remove(tmp_path / "a")
    with pytest.raises(StoreIOError):
        DISK.write_file(tmp_path / "none" / "file", b"")


def test_times_are_milliseconds(tmp_path: Path) -> None:
    DISK.write_file(tmp_path / "file", b"abc")
    os.utime(tmp_path / "file", ns=(1_700_000_000_123_456_789,) * 2)
    assert DISK.modified_ms(tmp_path / "file") == 1_700_000_000_123
    assert DISK.size(tmp_path / "file") == 3


@pytest.mark.parametrize(
    ("usage", "ratio"),
    [
        (Usage(100, 25, 75), 0.25),
        # What root keeps for itself is neither used nor free; `df` and Java leave it out.
        (Usage(100, 76, 19), 0.8),
        (Usage(0, 0, 0), 0.0),
    ],
)
def test_the_disk_is_as_full_as_df_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: Usage, ratio: float
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert DISK.used_ratio(tmp_path) == pytest.approx(ratio)


def test_the_real_disk_has_a_ratio(tmp_path: Path) -> None:
    assert 0 <= DISK.used_ratio(tmp_path) <= 1


# --- the lock -------------------------------------------------------------------------------------------------------


def test_a_lock_excludes_a_second_one_in_this_process(tmp_path: Path) -> None:
    held = DISK.lock(tmp_path / "lock")
    with pytest.raises(StoreLocked, match="already open in this process"):
        DISK.lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b"lock"
    held.release()
    held.release()
    DISK.lock(tmp_path / "lock").release()


def test_a_lock_excludes_another_process_on_javas_byte(tmp_path: Path) -> None:
    script = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            DISK.lock(path)
        other.communicate()
    held = DISK.lock(path)
    probe = "import fcntl, os, sys; fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    assert subprocess.run([sys.executable, "-c", probe, str(path)], stderr=subprocess.DEVNULL, check=False).returncode
    held.release()
    assert not subprocess.run([sys.executable, "-c", probe, str(path)], check=False).returncode
    assert fcntl.LOCK_EX


def test_a_lock_that_cannot_be_made_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(StoreIOError):
        DISK.lock(tmp_path / "none" / "lock")
