"""Descriptors and mappings of a store with many queues."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eruca._ground.config import StoreOptions
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.mappool import MapPool
from eruca._store.messagestore import open_store
from eruca._store.queues.queues import Queues
from eruca.errors import StoreError
from tests.paths import REPOSITORY
from tests.unit.store.samples import make_message

OPTIONS = StoreOptions(
    commitlog_segment_bytes=1 << 20, consumequeue_segment_bytes=20 * 300, index_slots=100, index_entries=400
)
QUEUES = 400


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Let this process have only a few more descriptors than it has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(os.listdir("/proc/self/fd")) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_queues_need_no_descriptors(tmp_path: Path, few_descriptors: int) -> None:
    store = open_store(tmp_path / "store", OPTIONS)
    for _ in range(2):
        for number in range(QUEUES):
            store.append(make_message(f"topic-{number % 100}", number // 100))
        store.flusher.sync_log()
        store.flusher.sync_derived()
    store.close()
    store = open_store(tmp_path / "store", OPTIONS)
    assert len(store.queues) == QUEUES
    assert all(queue.max_offset == 2 for queue in store.queues)
    assert len(os.listdir("/proc/self/fd")) < few_descriptors - 30
    store.close()


def test_a_log_of_many_segments_needs_no_descriptors(tmp_path: Path, few_descriptors: int) -> None:
    options = StoreOptions(
        commitlog_segment_bytes=4096, consumequeue_segment_bytes=20 * 300, index_slots=100, index_entries=400
    )
    store = open_store(tmp_path / "store", options)
    for _ in range(300):
        store.append(make_message(body=b"x" * 1500))
        store.flusher.sync_log()
    assert len(store.log.chain.segments) > 100
    store.close()
    store = open_store(tmp_path / "store", options)
    assert store.queues.get("orders", 0) is not None
    store.close()


def count_maps(directory: Path) -> int:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if str(directory) in line)


def test_queues_that_are_not_used_are_not_mapped(tmp_path: Path) -> None:
    queues = Queues(LocalFileSystem(), tmp_path / "queues", 4096 // 20 * 20, MapPool(10))
    for offset in range(5):
        for number in range(100):
            queue = queues.get_or_make("orders", number)
            queue.add(100 * offset, 50 + number, number)
    assert count_maps(tmp_path) <= 20
    queues.sync()
    for number in range(100):
        queue = queues.get_or_make("orders", number)
        assert [entry[:2] for entry in queue.entries(0, 10)] == [(100 * n, 50 + number) for n in range(5)]
    assert count_maps(tmp_path) <= 20
    queues.close()
    queues.load()
    assert [queue.max_offset for queue in queues] == [5] * 100
    assert count_maps(tmp_path) <= 20
    queues.close()
    assert count_maps(tmp_path) == 0


def test_bytes_that_are_being_read_outlive_the_mapping(tmp_path: Path) -> None:
    queues = Queues(LocalFileSystem(), tmp_path / "queues", 4096 // 20 * 20, MapPool(2))
    queues.get_or_make("orders", 0).add(7, 50, 9)
    held = queues.get_or_make("orders", 0).view_entries(0, 1)
    for number in range(1, 20):
        queues.get_or_make("orders", number).add(1, 50, 1)
    assert bytes(held) == (7).to_bytes(8, "big") + (50).to_bytes(4, "big") + (9).to_bytes(8, "big")
    queues.get_or_make("orders", 0).add(60, 51, 9)
    assert [entry[:2] for entry in queues.get_or_make("orders", 0).entries(0, 10)] == [(7, 50), (60, 51)]
    queues.close()


def test_a_limit_that_is_reached_says_what_to_raise(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
    try:
        with pytest.raises(OSError):
            while True:
                held.append(os.open(tmp_path, os.O_RDONLY))
        with pytest.raises(StoreError, match="ulimit -n"):
            LocalFileSystem().map(tmp_path / "file")
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_of_a_store_are_not_for_everybody(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nos.umask(0o022)\n"
        "from eruca._store.messagestore import open_store\nfrom tests.unit.store.samples import make_message\n"
        "from tests.unit.store.test_descriptors import OPTIONS\n"
        "store = open_store(Path(sys.argv[1]), OPTIONS)\nstore.append(make_message(KEYS='k'))\nstore.close()\n"
    )
    root = tmp_path / "store"
    subprocess.run([sys.executable, "-c", code, str(root)], cwd=REPOSITORY, check=True)
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o007, f"{path.relative_to(tmp_path)} has mode {mode:o}"
        assert mode & 0o600 == 0o600
