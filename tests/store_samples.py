"""Small stores for tests: every chain has several segments, every table is there, and times are known."""

from __future__ import annotations

import hashlib
from pathlib import Path

from eruca._ground.config import StoreOptions, from_properties
from eruca._store.filesystem import FileSystem
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._wire.bodies import ConsumerOffsets, TopicConfigTable
from eruca._wire.bodies.topics import TopicConfig
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record

# Java keys, as a .conf file would have them.
PROPERTIES = {
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}
OPTIONS = from_properties(StoreOptions, PROPERTIES)
START_MS = 1_700_000_000_000


def make_message(number: int, topic: str = "Orders", queues: int = 2) -> Record:
    """A message that can be told from the others by its body, its key and its unique id."""
    properties = {"KEYS": f"key-{number} common", "UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 3}"}
    return Record(
        topic=topic,
        queue_id=number % queues,
        body=f"body {number} ".encode() * 8,
        properties=encode_properties(properties),
        born_timestamp=START_MS - 1000 + number,
    )


def fill_store(
    root: Path, count: int = 120, *, options: StoreOptions = OPTIONS, disk: FileSystem | None = None
) -> list[Record]:
    """Make a store with messages of two topics, close it cleanly, and say what is in it."""
    clock = VirtualClock(START_MS)
    store = open_store(root, options, disk=disk, clock=clock)
    messages = append_messages(store, clock, count)
    tables = Tables(store.disk, store.paths.config)
    topics = {topic: TopicConfig(topic_name=topic) for topic in ("Orders", "Bills")}
    for _ in range(2):  # the second save keeps the first as its backup
        tables.topics.save(TopicConfigTable(topic_config_table=topics))
        tables.consumer_offsets.save(ConsumerOffsets(offset_table={"Orders@g": {0: 5, 1: 2}}))
    store.close()
    return messages


def append_messages(store: MessageStore, clock: VirtualClock, count: int) -> list[Record]:
    """Append messages, one second apart, every fourth to another topic."""
    messages = []
    for number in range(count):
        clock.advance(1000)
        topic = "Bills" if number % 4 == 3 else "Orders"
        messages.append(store.append(make_message(number, topic)))
    return messages


def read_all(store: MessageStore) -> dict[tuple[str, int, int], bytes]:
    """Every message that readers get, by queue and offset: the whole record."""
    found = {}
    for queue in store.queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.reader.read(queue.topic, queue.queue_id, offset)
            for view in result.slices:
                record = bytes(view)
                found[queue.topic, queue.queue_id, int.from_bytes(record[20:28], "big")] = record
            assert result.next_offset > offset
            offset = result.next_offset
    return found


def hash_files(root: Path) -> dict[str, str]:
    """The SHA-256 of every file under a directory."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def find_segment(root: Path, position: int, size: int = OPTIONS.commitlog_segment_bytes) -> tuple[Path, int]:
    """The commit-log file that holds a position, and the place in it."""
    start = position - position % size
    return root / "commitlog" / f"{start:020d}", position - start


def patch(path: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, mask: int = 0x01) -> None:
    """Turn bits of one byte of a file over."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def forget_promises(root: Path) -> None:
    """Take away what says how far the disk had everything, as a crash leaves it before the first sync."""
    patch(root / "checkpoint", 24, bytes(16))
    (root / "config" / "erucaQueueEnds").unlink()
