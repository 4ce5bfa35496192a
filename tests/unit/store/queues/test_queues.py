"""All queues of a store: which directories are queues, and making and removing them."""

from __future__ import annotations

import pytest

from eruca._store.queues.queues import QUEUE_ID_MAX, Queues
from eruca._testing.faults import Fault, SimulatedDisk
from eruca.errors import InvalidName, StoreIOError, StoreLayoutError
from tests.unit.store.samples import ROOT, make_disk

DIRECTORY = ROOT / "consumequeue"


def make_queues(disk: SimulatedDisk) -> Queues:
    """Loaded queues with small files."""
    queues = Queues(disk, DIRECTORY, 200)
    queues.load()
    return queues


def put(queues: Queues, topic: str, queue_id: int, position: int) -> None:
    """Write one entry for a record of 100 bytes."""
    queue = queues.get_or_make(topic, queue_id)
    queue.reserve(1)
    queue.add(position, 100, 0)


def test_a_queue_is_made_once_and_without_files() -> None:
    disk = make_disk()
    queues = make_queues(disk)
    assert queues.get("t", 0) is None
    queue = queues.get_or_make("t", 0)
    assert queues.get_or_make("t", 0) is queue is queues.get("t", 0)
    assert not disk.exists(DIRECTORY)
    assert len(queues) == 1


def test_queues_come_back_in_the_order_of_topic_and_number() -> None:
    disk = make_disk()
    queues = make_queues(disk)
    for topic, queue_id in (("b", 10), ("b", 2), ("%RETRY%g", 0), ("a", 1)):
        put(queues, topic, queue_id, queue_id * 100)
    again = make_queues(disk.kill())
    names = [("%RETRY%g", 0), ("a", 1), ("b", 2), ("b", 10)]
    assert [(queue.topic, queue.queue_id) for queue in again] == names
    assert again.end_position() == 1100
    assert make_queues(make_disk()).end_position() == -1


@pytest.mark.parametrize("queue_id", [-1, QUEUE_ID_MAX + 1])
def test_a_number_that_no_queue_has_is_refused(queue_id: int) -> None:
    with pytest.raises(InvalidName):
        make_queues(make_disk()).get_or_make("t", queue_id)


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a.b", "t" * 256])
def test_a_name_that_no_topic_has_never_reaches_the_disk(topic: str) -> None:
    disk = make_disk()
    with pytest.raises(InvalidName):
        make_queues(disk).get_or_make(topic, 0)
    assert disk.files() == []


@pytest.mark.parametrize("name", ["x", "-1", "1.5", "00", "01", "²", "٣", str(QUEUE_ID_MAX + 1), "1_0"])
def test_a_foreign_directory_is_refused(name: str) -> None:
    disk = make_disk()
    disk.make_directory(DIRECTORY / "t" / name)
    with pytest.raises(StoreLayoutError, match="is not a queue number"):
        make_queues(disk)


def test_a_file_among_topics_or_queues_is_refused() -> None:
    disk = make_disk()
    disk.make_directory(DIRECTORY)
    disk.write_file(DIRECTORY / "notes", b"")
    with pytest.raises(StoreLayoutError, match="where a topic's directory belongs"):
        make_queues(disk)
    other = make_disk()
    other.make_directory(DIRECTORY / "t")
    other.write_file(DIRECTORY / "t" / "0", b"")
    with pytest.raises(StoreLayoutError, match="is not a queue number"):
        make_queues(other)


def test_a_topic_directory_with_a_name_no_topic_has_is_refused() -> None:
    disk = make_disk()
    disk.make_directory(DIRECTORY / "a.b" / "0")
    with pytest.raises(StoreLayoutError, match="is not a topic"):
        make_queues(disk)


def test_a_segment_left_in_the_making_is_removed() -> None:
    disk = make_disk()
    put(make_queues(disk), "t", 1, 0)
    left = DIRECTORY / "t" / f".eruca-new-1-{200:020d}"
    disk.write_file(left, b"")
    assert len(make_queues(disk.kill())) == 1
    killed = disk.kill()
    make_queues(killed)
    assert not killed.exists(left)


def test_removing_a_topic_removes_its_directory_and_no_other() -> None:
    disk = make_disk()
    queues = make_queues(disk)
    for topic, queue_id in (("a", 0), ("a", 1), ("ab", 0)):
        put(queues, topic, queue_id, 0)
    queues.detach_topic("a")()
    assert disk.list(DIRECTORY) == ["ab"]
    assert [queue.topic for queue in queues] == ["ab"]
    queues.detach_topic("never-there")()
    queues.clear()
    assert (disk.list(DIRECTORY), len(queues)) == ([], 0)


def test_a_sync_reaches_every_queue_also_after_one_failed() -> None:
    disk = make_disk()
    queues = make_queues(disk)
    for queue_id in range(3):
        put(queues, "t", queue_id, queue_id * 100)
    disk.fail_next("sync", Fault.EIO)
    with pytest.raises(StoreIOError):
        queues.sync()
    queues.sync()
    assert [queue.max_offset for queue in make_queues(disk.crash("drop"))] == [1, 1, 1]


def test_close_lets_go_of_every_file() -> None:
    disk = make_disk()
    queues = make_queues(disk)
    put(queues, "t", 0, 0)
    queues.close()
    assert (len(queues), disk.mapped) == (0, {})
