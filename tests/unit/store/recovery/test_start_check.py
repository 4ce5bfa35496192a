"""What a start finds wrong with queues and index, and what it does: nothing acknowledged is lost silently."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eruca._store.messagestore import MessageStore
from eruca._store.reading.slices import ReadBounds
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._testing.faults.image import FileImage
from eruca._wire.record import decode_record
from tests.unit.store.samples import ROOT, get_queue, make_disk, make_message, open_small

MESSAGES = 200
# More than one segment of the log, and several of each queue.
QUEUE = ROOT / "consumequeue" / "orders" / "0"
LISTED = ROOT / "config" / "erucaQueueEnds"
STOPS = pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])


def write_store(disk: SimulatedDisk, *, clean: bool = True, clean_list: bool = True) -> SimulatedDisk:
    """A store with 200 messages in one queue and as many in another, closed or killed."""
    clock = VirtualClock()
    store = open_small(disk, clock, consumequeue_segment_bytes=20 * 150)
    for number in range(MESSAGES):
        store.append(make_message("orders", body=b"%d" % number, KEYS=f"k{number}"))
    clock.advance(10_000)  # by now the first ones are certainly on the disk
    for number in range(MESSAGES):
        store.append(make_message("payments", 1, body=b"%d" % number, KEYS=f"p{number}"))
    if clean:
        store.close()
        left = disk
    else:
        store.flusher.sync_log()
        store.flusher.sync_derived()
        left = disk.kill()
    if not clean_list:
        left.remove(LISTED)
    return left


def reopen(disk: SimulatedDisk) -> MessageStore:
    return open_small(disk, consumequeue_segment_bytes=20 * 150)


def remove_tree(disk: SimulatedDisk, folder: Path) -> None:
    for path in [path for path in disk.files() if path.is_relative_to(folder)]:
        disk.remove(path)
    for path in sorted([path for path in disk.directories() if path.is_relative_to(folder)], reverse=True):
        disk.remove_directory(path)


def spoil(disk: SimulatedDisk, path: Path, at: int, data: bytes) -> None:
    image = disk.journal.tree[str(path)]
    assert isinstance(image, FileImage)
    image.damage(at, data)


def read_bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """Every message of a queue, read as a consumer does."""
    bodies: list[bytes] = []
    offset, end = 0, get_queue(store, topic, queue_id).max_offset
    while offset < end:
        result = store.reader.read(topic, queue_id, offset, ReadBounds(32, 65536))
        assert result.next_offset > offset, "the reader stands still"
        bodies += [decode_record(bytes(piece)).body for piece in result.slices]
        offset = result.next_offset
    return bodies


def check_whole(store: MessageStore) -> None:
    """Every message is there, and the next one gets a new offset."""
    wanted = [b"%d" % number for number in range(MESSAGES)]
    assert read_bodies(store) == wanted
    assert read_bodies(store, "payments", 1) == wanted
    assert store.append(make_message("orders")).queue_offset == MESSAGES
    assert store.append(make_message("payments", 1)).queue_offset == MESSAGES
    for number in (0, 77, 199):
        assert len(store.reader.find_by_key("orders", f"k{number}", 0, 2**53)) == 1
        assert len(store.reader.find_by_key("payments", f"p{number}", 0, 2**53)) == 1


@STOPS
@pytest.mark.parametrize("with_list", [True, False], ids=["with the list of ends", "without it"])
def test_a_queue_directory_that_is_missing_is_built_again(
    clean: bool, with_list: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = write_store(make_disk(), clean=clean, clean_list=with_list)
    remove_tree(disk, QUEUE)
    store = reopen(disk)
    check_whole(store)
    assert "orders queue 0" in caplog.text


@STOPS
def test_a_topic_directory_that_is_missing_is_built_again(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    remove_tree(disk, QUEUE.parent)
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
@pytest.mark.parametrize("with_list", [True, False], ids=["with the list of ends", "without it"])
@pytest.mark.parametrize("at", [0, 117 * 20, 149 * 20])
def test_a_bad_entry_loses_nothing(clean: bool, with_list: bool, at: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean, clean_list=with_list)
    spoil(disk, QUEUE / f"{0:020d}", at, bytes(20))
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
@pytest.mark.parametrize("place", [(0, 0), (0, 1024), (20 * 150, 0), (20 * 150, 512)])
@pytest.mark.parametrize("data", [bytes(512), b"\x5a" * 512], ids=["zeros", "garbage"])
def test_a_spoilt_sector_of_a_queue_loses_nothing(
    clean: bool, place: tuple[int, int], data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = write_store(make_disk(), clean=clean)
    spoil(disk, QUEUE / f"{place[0]:020d}", place[1], data)
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
@pytest.mark.parametrize("start", [0, 20 * 150])
def test_a_queue_file_that_is_missing_is_built_again(clean: bool, start: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    disk.remove(QUEUE / f"{start:020d}")
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
def test_a_queue_file_that_was_cut_short_is_built_again(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    path = QUEUE / f"{0:020d}"
    disk.write_file(path, disk.read_file(path)[:777])
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
def test_a_bit_of_a_position_that_flipped_loses_nothing(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    for offset, byte in ((31, 7), (99, 5), (140, 6)):
        disk.flip_bit(QUEUE / f"{0:020d}", offset * 20 + byte, 1)
    check_whole(reopen(disk))
    assert "orders queue 0" in caplog.text


@STOPS
def test_an_index_file_that_is_missing_is_made_again(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    names = disk.list(ROOT / "index")
    assert len(names) > 4
    disk.remove(ROOT / "index" / names[2])
    check_whole(reopen(disk))
    assert "index" in caplog.text


@STOPS
def test_the_header_of_an_index_file_that_is_zeros_is_found(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    for number in (0, 3):
        spoil(disk, ROOT / "index" / disk.list(ROOT / "index")[number], 0, bytes(40))
    check_whole(reopen(disk))
    assert "index" in caplog.text


def test_a_marker_that_went_missing_after_a_kill_costs_nothing() -> None:
    disk = write_store(make_disk(), clean=False)
    disk.remove(ROOT / "abort")
    remove_tree(disk, QUEUE)
    check_whole(reopen(disk))


@STOPS
def test_the_last_record_is_damaged_and_its_offset_is_not_given_again(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = make_disk()
    store = open_small(disk)
    for number in range(10):
        last = store.append(make_message(body=b"body %d" % number))
    if clean:
        store.close()
    else:
        store.flusher.sync_log()
        store.flusher.sync_derived()
        disk = disk.kill()
    disk.flip_bit(ROOT / "commitlog" / f"{0:020d}", last.position + 90, 3)
    store = open_small(disk)
    assert read_bodies(store) == [b"body %d" % number for number in range(9)]
    assert store.append(make_message()).queue_offset == 10
    assert f"damaged at {last.position}" in caplog.text


@STOPS
@pytest.mark.parametrize("at", [12, 88 + 6 + 1 + 5], ids=["the queue number", "the topic"])
def test_a_record_of_a_queue_that_cannot_be_is_no_reason_not_to_start(
    clean: bool, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The checksum of a record is about its body, so any name and number may be left in its place."""
    disk = make_disk()
    store = open_small(disk)
    stored = [store.append(make_message(body=b"body %d" % number)) for number in range(9)]
    if clean:
        store.close()
    else:
        store.flusher.sync_log()
        store.flusher.sync_derived()
        disk = disk.kill()
    if disk.exists(LISTED):
        disk.remove(LISTED)
    spoil(disk, ROOT / "commitlog" / f"{0:020d}", stored[4].position + at, b"\x81" if at == 12 else b"\x01")
    store = open_small(disk)
    kept = [number for number in range(9) if number != 4]
    assert read_bodies(store) == [b"body %d" % number for number in kept]
    assert store.append(make_message()).queue_offset == 9
    assert [queue.topic for queue in store.queues] == ["orders"]


@STOPS
def test_the_last_segment_of_the_log_is_gone_and_no_offset_is_given_again(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = write_store(make_disk(), clean=clean)
    last = [path for path in disk.files() if path.parent.name == "commitlog"][-2:]  # one is made ahead
    for path in last:
        disk.remove(path)
    store = reopen(disk)
    assert store.append(make_message("payments", 1)).queue_offset == MESSAGES
    assert read_bodies(store) == [b"%d" % number for number in range(MESSAGES)]
    assert "commit log" in caplog.text and "is missing" in caplog.text


@STOPS
def test_a_log_that_is_gone_is_named_and_no_offset_is_given_again(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = write_store(make_disk(), clean=clean)
    remove_tree(disk, ROOT / "commitlog")
    store = reopen(disk)
    assert store.append(make_message("orders")).queue_offset == MESSAGES
    assert store.append(make_message("payments", 1)).queue_offset == MESSAGES
    assert "is missing" in caplog.text


def test_the_first_segment_is_gone_and_that_is_named(caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk())
    disk.remove(ROOT / "commitlog" / f"{0:020d}")
    store = reopen(disk)
    assert "commit log" in caplog.text and "is missing" in caplog.text
    assert store.append(make_message("orders")).queue_offset == MESSAGES


def test_a_whole_store_is_opened_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk())
    caplog.set_level(logging.INFO)
    store = reopen(disk)
    assert store.recovered is not None and store.recovered.dispatch_from is None
    assert not caplog.records
    check_whole(store)


def test_a_list_that_is_damaged_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk())
    data = disk.read_file(LISTED)
    at = data.index(b"200")
    spoil(disk, LISTED, at, b"9")
    check_whole(reopen(disk))
    assert LISTED.name in caplog.text


def test_a_deleted_topic_does_not_come_back() -> None:
    disk = write_store(make_disk())
    store = reopen(disk)
    store.detach_topic("orders")()
    store = reopen(disk.kill())
    assert store.queues.get("orders", 0) is None
    store.close()


@STOPS
def test_a_checkpoint_of_a_wrong_size_is_made_again(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = write_store(make_disk(), clean=clean)
    disk.write_file(ROOT / "checkpoint", b"short")
    check_whole(reopen(disk))
    assert "checkpoint" in caplog.text


def test_a_recovery_that_was_interrupted_leaves_nothing_to_report(caplog: pytest.LogCaptureFixture) -> None:
    """It made index files again under other names, and was killed before they were listed."""
    disk = write_store(make_disk(), clean=False)
    before = {path.name for path in disk.files() if path.parent == ROOT / "index"}
    later = VirtualClock()
    later.advance(60_000)
    open_small(disk, later, consumequeue_segment_bytes=20 * 150)
    disk = disk.kill()
    assert before - {path.name for path in disk.files() if path.parent == ROOT / "index"}
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        store = reopen(disk)
    assert caplog.messages == []
    ((_, record),) = store.reader.find_by_key("payments", "p199", 0, 2**62)
    assert decode_record(record).body == b"199"
