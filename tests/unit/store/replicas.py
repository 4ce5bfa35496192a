"""What the tests of replication share: a master's store with a bit of everything, and slaves that copy it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import MessageStore, open_store
from eruca._storetools.verify import verify_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from tests.crash.world import TOPICS, draw_message
from tests.unit.store.samples import ROOT, make_disk, make_options

# Sizes of small files as Java keys, for tools that open a store on their own.
PROPERTIES = {"maxHashSlotNum": "16", "maxIndexNum": "64"}


def fill(store: MessageStore, clock: VirtualClock, rng: random.Random, count: int, *, first: int = 0) -> None:
    """Append messages of every kind, one by one and in batches."""
    for number in range(first, first + count):
        clock.advance(rng.choice((0, 1, 700, 3000)))
        if rng.random() < 0.15:
            topic, queue_id = rng.choice(TOPICS), rng.randrange(2)
            batch = [draw_message(rng, 10_000 + number * 10 + n, topic=topic, queue_id=queue_id) for n in range(3)]
            if sum(len(message.body) + len(message.properties) + 150 for message in batch) < 4000:
                store.append_batch(batch)
        else:
            store.append(draw_message(rng, number))


def make_master(seed: int, count: int = 60, **changes: Any) -> MessageStore:
    """A store with messages in several segments."""
    disk, clock = make_disk(), VirtualClock()
    store = open_store(ROOT, make_options(**changes), disk=disk, clock=clock)
    fill(store, clock, random.Random(f"master:{seed}"), count)
    return store


def make_slave(disk: SimulatedDisk | None = None, **changes: Any) -> MessageStore:
    """A store that takes copies only; empty unless a disk is given."""
    store = open_store(ROOT, make_options(**changes), disk=disk or make_disk(), clock=VirtualClock())
    store.fence("this broker is a slave")
    return store


def read_log(store: MessageStore, begin: int, end: int) -> bytes:
    """The bytes of a log."""
    data = store.log.read_bytes(begin, end)
    assert data is not None
    return data


def copy_log(
    master: MessageStore, replica: ReplicaLog, rng: random.Random | None = None, *, end: int | None = None
) -> None:
    """Send a slave what it lacks, in chunks of any size."""
    end = master.log.tail if end is None else end
    position = replica.tail or master.log.start
    while position < end:
        size = rng.choice((1, 7, 8, 91, 300, 4096, 5000, 20_000)) if rng is not None else 32_768
        data = read_log(master, position, min(end, position + size))
        replica.append(position, memoryview(data))
        position += len(data)


def list_files(store: MessageStore, part: str) -> dict[str, bytes]:
    """The files of a part of a store; index files, whose names are times, by their order."""
    assert isinstance(store.disk, SimulatedDisk)
    files = {str(path): data for path, data in store.disk.snapshot().items() if path.is_relative_to(ROOT / part)}
    if part == "index":
        return {str(number): files[name] for number, name in enumerate(sorted(files))}
    return files


def expect_same(slave: MessageStore, master: MessageStore) -> None:
    """Log, queues and index of two stores must be the same, byte by byte."""
    assert slave.log.tail == slave.log.readable_end == master.log.tail
    for part in ("commitlog", "consumequeue", "index"):
        mine, theirs = list_files(slave, part), list_files(master, part)
        if part == "commitlog":  # an empty file may have been made in advance
            mine = {name: data for name, data in mine.items() if any(data)}
            theirs = {name: data for name, data in theirs.items() if any(data)}
        assert sorted(mine) == sorted(theirs), part
        for name, data in mine.items():
            assert data == theirs[name], f"{part} {name}"
    for queue in master.queues:
        other = slave.queues.get(queue.topic, queue.queue_id)
        assert other is not None or queue.max_offset == 0
        if other is not None:
            assert (other.min_offset, other.max_offset, other.next_offset, other.end_position) == (
                queue.min_offset, queue.max_offset, queue.next_offset, queue.end_position,
            )  # fmt: skip


def expect_sound(disk: SimulatedDisk, root: Path = ROOT) -> None:
    """A closed store must be without any finding."""
    report = verify_store(root, PROPERTIES, disk=disk)
    assert not report.findings, report.findings
