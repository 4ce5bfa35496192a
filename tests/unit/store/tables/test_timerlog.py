"""The timer log: what was appended is there again, up to the checkpoint and no further."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from eruca._store.filesystem import LocalFileSystem
from eruca._store.tables.cancelled import Cancelled, digest_key, digest_topic
from eruca._store.tables.timerlog import CELL_BYTES, TimerCheckpoint, TimerLog
from eruca.errors import StoreFull

SMALL = 10 * CELL_BYTES


def make(path: Path, disk: LocalFileSystem | None = None) -> TimerLog:
    return TimerLog(disk or LocalFileSystem(), path / "timer", segment_bytes=SMALL)


def entries(*numbers: int) -> array[int]:
    return array("q", [part for number in numbers for part in (number, number + 1, number + 2)])


def test_nothing_is_made_before_there_is_something(tmp_path: Path) -> None:
    log = make(tmp_path)
    assert log.open() is None
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_entries_come_back_by_slot_across_segments(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.open()
    expected: dict[int, array[int]] = {}
    for number in range(30):
        added = entries(*range(number, number + number % 14 + 1))
        log.append(number % 7, added)
        expected.setdefault(number % 7, array("q")).extend(added)
    checkpoint = TimerCheckpoint(30, log.end, 1234)
    cancelled = Cancelled(digest_topic("Orders"), digest_key("id"), 99)
    log.save(checkpoint, [cancelled])
    log.append(3, entries(1, 2, 3))  # behind the checkpoint
    assert log.read(3) == expected[3] + entries(1, 2, 3)
    log.close()
    log = make(tmp_path)
    assert log.open() == checkpoint
    assert log.cancelled.load() == [cancelled]
    assert {slot: log.read(slot) for slot in expected} == expected
    assert log.count_from(0) * 3 == sum(len(each) for each in expected.values())
    assert log.count_from(5) * 3 == len(expected[5]) + len(expected[6])
    assert log.read(99) == array("q")
    # What is behind the checkpoint is written over.
    log.append(4, entries(7))
    assert log.read(4) == expected[4] + entries(7)
    assert log.read(3) == expected[3]
    log.close()


def test_segments_go_when_their_slots_are_done(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.open()
    for slot in range(12):
        log.append(slot, entries(*range(4)))  # two blocks for each segment
    log.save(TimerCheckpoint(0, log.end, 0))
    detached = log.forget_below(5)
    assert len(detached) == 2
    log.dispose(detached)
    log.save(TimerCheckpoint(1, log.end, 0))
    log.close()
    assert len(list((tmp_path / "timer" / "log").iterdir())) == 4
    log = make(tmp_path)
    assert log.open() is not None
    assert log.read(6) == entries(*range(4))
    log.close()


@pytest.mark.parametrize("damage", ["entry", "header", "checkpoint", "segment", "version", "short"])
def test_a_damaged_log_is_begun_anew(tmp_path: Path, damage: str) -> None:
    log = make(tmp_path)
    log.open()
    for slot in range(6):
        log.append(slot, entries(*range(4)))
    log.save(TimerCheckpoint(6, log.end, 0, version=9 if damage == "version" else 1))
    log.close()
    first = tmp_path / "timer" / "log" / f"{0:020d}"
    data = bytearray(first.read_bytes())
    match damage:
        case "entry":
            data[CELL_BYTES + 3] ^= 1
            first.write_bytes(data)
        case "header":
            data[0] ^= 1
            first.write_bytes(data)
        case "checkpoint":
            (tmp_path / "timer" / "checkpoint").write_bytes(b"{")
        case "segment":
            (tmp_path / "timer" / "log" / f"{SMALL:020d}").unlink()
        case "short":
            (tmp_path / "timer" / "log" / f"{2 * SMALL:020d}").unlink()
    log = make(tmp_path)
    assert log.open() is None
    assert (log.end, log.count_from(0)) == (0, 0)
    log.append(1, entries(5))
    log.save(TimerCheckpoint(1, log.end, 0))
    log.close()
    log = make(tmp_path)
    assert log.open() == TimerCheckpoint(1, 2 * CELL_BYTES, 0)
    assert log.read(1) == entries(5)
    log.close()


class FullDisk(LocalFileSystem):
    """Has room for a given number of segments."""

    room = 1

    def create(self, path: Path, size: int, *, staging: Path, durable: bool):  # type: ignore[no-untyped-def]
        if self.room == 0:
            raise StoreFull("no space left")
        self.room -= 1
        return super().create(path, size, staging=staging, durable=durable)


def test_what_the_disk_does_not_take_is_not_there(tmp_path: Path) -> None:
    disk = FullDisk()
    log = make(tmp_path, disk)
    log.open()
    log.append(1, entries(1))
    before = log.end
    with pytest.raises(StoreFull):
        log.append(2, entries(*range(20)))
    assert log.end == before
    assert log.read(2) == array("q")
    disk.room = 9
    log.append(2, entries(*range(20)))
    assert log.read(2) == entries(*range(20))
    assert log.read(1) == entries(1)
    log.save(TimerCheckpoint(2, log.end, 0))
    log.close()
    log = make(tmp_path)
    assert log.open() is not None
    assert log.read(2) == entries(*range(20))
    log.close()
