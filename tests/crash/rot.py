"""Corrupted consume queues and index: recovery rebuilds what it does not trust, or recognizes as wrong.

A checkpoint records which entries are certainly on the disk; those after it are rebuilt after a crash whatever they
look like. Before it, a wrong entry is found when the next message of its queue appears in the log.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import open_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._testing.faults.image import FileImage
from tests.crash.ledger import Ledger, expect
from tests.crash.world import ROOT, draw_message

OPTIONS = StoreOptions(
    commitlog_segment_bytes=8192, consumequeue_segment_bytes=20 * 12, index_slots=16, index_entries=60
)
KINDS = ("queue behind the checkpoint", "queue before the checkpoint", "index behind the checkpoint", "no queues",
         "no index", "neither")  # fmt: skip
_QUEUES = [(topic, queue_id) for topic in ("orders", "payments") for queue_id in (0, 1)]


@dataclass(frozen=True)
class Base:
    """A store with a checkpoint in the middle of its log, killed or closed."""

    ledger: Ledger
    checkpoint: int
    killed: SimulatedDisk
    closed: SimulatedDisk


@cache
def make_base(number: int) -> Base:
    """Write one of a few stores; every seed begins with a copy of one."""
    rng = random.Random(f"rot-base:{number}")
    clock = VirtualClock()
    disk = SimulatedDisk(seed=number, clock=clock)
    store = open_store(ROOT, OPTIONS, disk=disk, clock=clock)
    ledger = Ledger()
    written = 0
    for _ in range(2):
        for _ in range(rng.randint(20, 50)):
            written += 1
            clock.advance(rng.choice((0, 1000, 5000)))
            topic, queue_id = rng.choice(_QUEUES)
            ledger.add(store.append(draw_message(rng, written, topic=topic, queue_id=queue_id)))
        if not store.checkpoint.position:
            store.flusher.sync_log()
            clock.advance(5000)
            store.flusher.sync_derived()
    # Behind the checkpoint every queue gets a message, so that a gap before it shows.
    for topic, queue_id in _QUEUES:
        written += 1
        ledger.add(store.append(draw_message(rng, written, topic=topic, queue_id=queue_id)))
    position = store.checkpoint.position or 0
    ledger.acknowledge(store.flusher.sync_log())
    killed = disk.kill()
    store.close()
    return Base(ledger, position, killed, disk)


def run_rot(seed: int) -> None:
    """One seed: let something rot, open, and hold the store against everything that was appended."""
    rng = random.Random(f"rot:{seed}")
    base = make_base(seed % 5)
    kind = KINDS[seed % len(KINDS)]
    # Queues and index are checked only after a crash; missing ones are noticed in any case.
    crashed = not kind.startswith("n") or rng.random() < 0.5
    disk = (base.killed if crashed else base.closed).kill()
    if kind.startswith("queue"):
        _spoil_queues(disk, base, rng, behind="behind" in kind)
    elif kind.startswith("index"):
        _spoil_index(disk, base, rng)
    else:
        if kind in ("no queues", "neither"):
            _remove(disk, ROOT / "consumequeue")
        if kind in ("no index", "neither"):
            _remove(disk, ROOT / "index")
    ledger = base.ledger.copy()
    store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    ledger.check(store)
    expect(len(ledger.records) == len(base.ledger.records), "records are missing")
    store.close()
    again = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    ledger.check(again)
    again.close()


def describe_rot(seed: int) -> str:
    """What a seed does."""
    return KINDS[seed % len(KINDS)]


def _images(disk: SimulatedDisk, folder: Path) -> list[FileImage]:
    tree = disk.journal.tree
    return [
        node for path, node in sorted(tree.items()) if path.startswith(f"{folder}/") and isinstance(node, FileImage)
    ]


def _spoil(image: FileImage, start: int, rng: random.Random) -> None:
    """Zeros, garbage or a shifted copy from a place in a file on, or only for a stretch of it."""
    size = len(image.current)
    start = min(start, size)
    stop = size if rng.random() < 0.5 else rng.randint(start, size)
    kind = rng.randrange(3)
    if kind == 0:
        data = bytes(stop - start)
    elif kind == 1:
        data = rng.randbytes(stop - start)
    else:
        data = bytes(image.current[max(0, start - 20) : max(0, start - 20) + stop - start])
    image.damage(start, data[: stop - start])


def _spoil_queues(disk: SimulatedDisk, base: Base, rng: random.Random, *, behind: bool) -> None:
    trusted_end = base.checkpoint // OPTIONS.commitlog_segment_bytes * OPTIONS.commitlog_segment_bytes
    for image in _images(disk, ROOT / "consumequeue"):
        positions = [int.from_bytes(image.current[at : at + 8], "big") for at in range(0, len(image.current), 20)]
        sizes = [int.from_bytes(image.current[at + 8 : at + 12], "big") for at in range(0, len(image.current), 20)]
        trusted = sum(1 for at, size in zip(positions, sizes, strict=True) if size and at < trusted_end)
        if behind:
            _spoil(image, trusted * 20 + rng.choice((0, 8, 12)), rng)
        elif trusted > 1 and rng.random() < 0.5:
            at = rng.randrange(trusted) * 20
            image.damage(at, bytes(20) if rng.random() < 0.5 else rng.randbytes(20))


def _spoil_index(disk: SimulatedDisk, base: Base, rng: random.Random) -> None:
    trusted_end = base.checkpoint // OPTIONS.commitlog_segment_bytes * OPTIONS.commitlog_segment_bytes
    entries_at = 40 + 4 * OPTIONS.index_slots
    for image in _images(disk, ROOT / "index"):
        used = int.from_bytes(image.current[36:40], "big") - 1
        places = [entries_at + 20 * number for number in range(1, used + 1)]
        positions = [int.from_bytes(image.current[at + 4 : at + 12], "big") for at in places]
        trusted = sum(1 for position in positions if position < trusted_end)
        if trusted < used:
            _spoil(image, places[trusted], rng)


def _remove(disk: SimulatedDisk, folder: Path) -> None:
    tree = disk.journal.tree
    for path in [path for path in tree if path == str(folder) or path.startswith(f"{folder}/")]:
        del tree[path]
    disk.journal.commit()
