"""What the tests of the store room share: small stores on the fault disk, and messages for them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from eruca._ground.config import StoreOptions
from eruca._store.log.commitlog import CommitLog
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._storetools.diverged import dump_diverged
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, decode_record

ROOT = Path("/store")
SEGMENT_BYTES = 4096
QUEUE_ENTRIES = 10
HOST = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)


def make_options(**changes: Any) -> StoreOptions:
    """Options that make small files, so that a few messages meet every border."""
    small: dict[str, Any] = {
        "commitlog_segment_bytes": SEGMENT_BYTES,
        "consumequeue_segment_bytes": 20 * QUEUE_ENTRIES,
        "index_slots": 16,
        "index_entries": 64,
    }
    return StoreOptions(**(small | changes))


def make_disk() -> SimulatedDisk:
    """A fault disk with an empty store directory."""
    disk = SimulatedDisk(clock=VirtualClock())
    disk.make_directory(ROOT)
    return disk


def open_small(
    disk: SimulatedDisk, clock: VirtualClock | None = None, executor: Executor | None = None, **changes: Any
) -> MessageStore:
    """Open a store with small files on a fault disk."""
    return open_store(ROOT, make_options(**changes), disk=disk, clock=clock or VirtualClock(), executor=executor)


def make_message(
    topic: str = "orders", queue_id: int = 0, body: bytes = b"body", sys_flag: int = 0, **properties: str
) -> Record:
    """A message with the properties given by name."""
    return Record(
        topic,
        queue_id,
        body=body,
        properties=encode_properties(properties),
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def sized_message(size: int, topic: str = "orders", queue_id: int = 0) -> Record:
    """A message whose record has exactly this size."""
    fixed = 91 + len(topic)
    assert size >= fixed
    return make_message(topic, queue_id, body=b"x" * (size - fixed))


def get_queue(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> ConsumeQueue:
    """A queue that must be there."""
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    return queue


def read_bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0, start: int | None = None) -> list[bytes]:
    """The bodies of all messages of a queue, read as a consumer reads them."""
    queue = get_queue(store, topic, queue_id)
    offset = queue.min_offset if start is None else start
    bodies: list[bytes] = []
    while offset < queue.max_offset:
        result = store.reader.read(topic, queue_id, offset)
        assert result.next_offset > offset
        bodies += [decode_record(view).body for view in result.slices]
        offset = result.next_offset
    return bodies


def view_log(log: CommitLog, position: int, length: int) -> bytes:
    """Bytes of the log that must be readable."""
    view = log.view(position, length)
    assert view is not None
    return bytes(view)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is true; the test's own time limit bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in threads that know no event of ours
        await asyncio.sleep(0.001)


def read_aside(store: MessageStore, file: str) -> list[bytes]:
    """The bodies of the messages in a file that a store set aside."""
    rows = dump_diverged(store.paths.root, file, body_bytes=1 << 20, disk=store.disk)
    return [row.body.encode() if row.body_is_text else bytes.fromhex(row.body) for row in rows]
