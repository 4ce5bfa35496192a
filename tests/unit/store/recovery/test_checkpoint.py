"""The checkpoint and the abort marker."""

from __future__ import annotations

import struct

import pytest

from eruca._store.recovery.checkpoint import AbortMarker, Checkpoint
from eruca._testing.faults import Fault, SimulatedDisk
from eruca.errors import StoreError, StoreLayoutError
from tests.unit.store.samples import ROOT, make_disk

PATH = ROOT / "checkpoint"


def make_checkpoint(disk: SimulatedDisk) -> Checkpoint:
    """A loaded checkpoint."""
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.load()
    return checkpoint


def test_the_layout_is_javas_with_our_position_behind() -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    assert disk.read_file(PATH) == bytes(4096)
    checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time = 1, 2, 3
    checkpoint.position = 4
    checkpoint.save()
    assert disk.read_file(PATH) == struct.pack(">qqqqq", 1, 2, 3, 4, ~4) + bytes(4056)


def test_a_saved_checkpoint_survives_and_an_unsaved_one_does_not() -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    checkpoint.log_time = 7
    assert make_checkpoint(disk.kill()).log_time == 0
    checkpoint.save()
    again = make_checkpoint(disk.crash("drop"))
    assert (again.log_time, again.queue_time, again.index_time, again.position) == (7, 0, 0, None)


@pytest.mark.parametrize("position", [0, 1, 2**40])
def test_a_position_comes_back(position: int) -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    checkpoint.position = position
    checkpoint.save()
    assert make_checkpoint(disk.kill()).position == position


@pytest.mark.parametrize("place", range(24, 40, 3))
def test_a_torn_position_counts_as_none(place: int) -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    checkpoint.position = 12345
    checkpoint.save()
    killed = disk.kill()
    killed.flip_bit(PATH, place, 4)
    assert make_checkpoint(killed).position is None


def test_a_checkpoint_of_java_has_no_position() -> None:
    disk = make_disk()
    disk.write_file(PATH, struct.pack(">qqq", 5000, 6000, 7000) + bytes(4072))
    checkpoint = make_checkpoint(disk)
    assert (checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time) == (5000, 6000, 7000)
    assert checkpoint.position is None


def test_the_safe_time_has_javas_margin() -> None:
    checkpoint = make_checkpoint(make_disk())
    checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time = 9000, 8000, 7000
    assert checkpoint.safe_time(with_index=False) == 5000
    assert checkpoint.safe_time(with_index=True) == 4000
    checkpoint.index_time = 100
    assert checkpoint.safe_time(with_index=True) == 0


@pytest.mark.parametrize("size", [1, 24, 4095, 4097])
def test_a_checkpoint_of_another_size_is_named_and_made_again(size: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = make_disk()
    disk.write_file(PATH, b"\x01" * size)
    with pytest.raises(StoreLayoutError, match="instead of 4096"):
        Checkpoint(disk, PATH).load(writable=False)
    checkpoint = make_checkpoint(disk)
    assert (checkpoint.log_time, checkpoint.position) == (0, None)
    assert disk.size(PATH) == 4096
    assert "instead of 4096" in caplog.text


def test_a_checkpoint_opened_to_look_is_not_made() -> None:
    disk = make_disk()
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.load(writable=False)
    checkpoint.save()
    assert not disk.exists(PATH)


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_failed_save_is_made_again(fault: Fault) -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    checkpoint.log_time = 7
    disk.fail_next("sync", fault)
    with pytest.raises(StoreError):
        checkpoint.save()
    checkpoint.save()
    assert make_checkpoint(disk.crash("drop")).log_time == 7


def test_close_lets_go_of_the_file() -> None:
    disk = make_disk()
    checkpoint = make_checkpoint(disk)
    checkpoint.close()
    checkpoint.close()
    checkpoint.save()
    assert disk.mapped == {}


def test_the_abort_marker_is_an_empty_file_and_survives_a_power_loss() -> None:
    disk = make_disk()
    disk.sync_directory(ROOT)
    marker = AbortMarker(disk, ROOT / "abort")
    assert not marker.is_set()
    marker.set()
    assert marker.is_set()
    disk.strict_datasync = True
    assert AbortMarker(disk.crash("drop"), ROOT / "abort").is_set()
    assert disk.read_file(ROOT / "abort") == b""
    marker.clear()
    marker.clear()
    assert not marker.is_set()
