"""Where things are in a store directory, and which options can be derived from its files."""

from __future__ import annotations

import pytest

from eruca._ground.config import StoreOptions
from eruca._store.layout import StorePaths, detect_options
from eruca._store.queues.indexfile import file_bytes
from tests.unit.store.samples import ROOT, make_disk, make_message, make_options, open_small

PATHS = StorePaths(ROOT)


def test_the_paths_are_javas() -> None:
    found = {name: str(path) for name, path in vars(PATHS).items()}
    assert found == {
        "root": "/store",
        "commitlog": "/store/commitlog",
        "consumequeue": "/store/consumequeue",
        "index": "/store/index",
        "config": "/store/config",
        "timer": "/store/eruca-timer",  # these two are ours
        "diverged": "/store/eruca-diverged",
        "checkpoint": "/store/checkpoint",
        "abort": "/store/abort",
        "lock": "/store/lock",
        "damage": "/store/config/damage.json",
        "removed": "/store/config/removedTopics.json",
        "archived": "/store/config/archived.json",
        "once": "/store/config/erucaOnce.json",
        "queue_ends": "/store/config/erucaQueueEnds",
        "replication": "/store/config/erucaReplication.json",
        "options": "/store/config/erucaOptions.properties",
    }
    assert StorePaths(ROOT, ROOT / "elsewhere").commitlog == ROOT / "elsewhere"


def test_an_empty_store_has_the_default_options() -> None:
    assert detect_options(make_disk(), PATHS) == StoreOptions()
    assert detect_options(make_disk(), PATHS, make_options()) == make_options()


def test_a_store_tells_the_sizes_it_was_made_with() -> None:
    disk = make_disk()
    store = open_small(disk, index_slots=25, index_entries=100)
    for number in range(30):
        store.append(make_message(queue_id=number % 3, KEYS="k"))
    store.close()
    found = detect_options(disk, PATHS)
    assert (found.commitlog_segment_bytes, found.consumequeue_segment_bytes) == (4096, 200)
    assert (found.index_slots, found.index_entries) == (25, 100)


def test_one_odd_file_does_not_decide() -> None:
    disk = make_disk()
    for directory, sizes in (
        (PATHS.commitlog, (5000, 5000, 70, 0, 0, 0)),
        (PATHS.consumequeue / "t" / "0", (60, 80, 60)),
        (PATHS.index, (file_bytes(10, 40), 0)),
    ):
        disk.make_directory(directory)
        for number, size in enumerate(sizes):
            disk.write_file(directory / f"{number:020d}", bytes(size))
        disk.write_file(directory / "notes", bytes(999))
    disk.write_file(PATHS.consumequeue / "stray", b"x")
    found = detect_options(disk, PATHS)
    assert (found.commitlog_segment_bytes, found.consumequeue_segment_bytes) == (5000, 60)
    assert (found.index_slots, found.index_entries) == (10, 40)


@pytest.mark.parametrize("size", [40, 41, 40 + 84 + 1, 100])
def test_an_index_of_another_shape_tells_nothing(size: int) -> None:
    disk = make_disk()
    disk.make_directory(PATHS.index)
    disk.write_file(PATHS.index / "20231114221320123", bytes(size))
    found = detect_options(disk, PATHS)
    assert (found.index_slots, found.index_entries) == (StoreOptions().index_slots, StoreOptions().index_entries)
