"""Damage in the middle of the log, with good records after it.

Whatever is hit, the records after it stay readable, each once and at its own offset; the damage is reported, logged,
and listed by `verify_store`.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from functools import cache

from eruca._ground.config import StoreOptions
from eruca._store.messagestore import MessageStore, open_store
from eruca._storetools.readonly import Kind
from eruca._storetools.verify import verify_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from tests.crash.ledger import Ledger, Stored, expect, read_whole_queue
from tests.crash.world import ROOT

SEGMENT_BYTES = 16_384
OPTIONS = StoreOptions(
    commitlog_segment_bytes=SEGMENT_BYTES, consumequeue_segment_bytes=20 * 16, index_slots=16, index_entries=400
)
TARGETS = ("first record of the log", "first of a segment", "last of a segment", "middle", "end-of-segment record")
REGIONS = ("size", "magic", "crc", "body", "topic length", "properties length", "whole record", "page", "head")
_PAGE = 4096


@dataclass(frozen=True)
class Base:
    """A store of three segments, killed or closed."""

    ledger: Ledger
    killed: SimulatedDisk
    closed: SimulatedDisk


@cache
def make_base(*, step_ms: int = 0, with_checkpoint: bool = True) -> Base:
    """Write the store once; every seed begins with a copy."""
    clock = VirtualClock()
    disk = SimulatedDisk(seed=2, clock=clock)
    store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    ledger = Ledger()
    rng = random.Random("middle")
    number = 0
    while store.log.tail < 2 * SEGMENT_BYTES + SEGMENT_BYTES // 2:
        number += 1
        clock.advance(step_ms)
        properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number % 5}", "TAGS": rng.choice(("red", "blue"))}
        message = Record(
            rng.choice(("orders", "payments")),
            rng.randrange(2),
            body=rng.randbytes(rng.choice((20, 200, 900))),
            properties=encode_properties(properties),
            born_timestamp=number,
        )
        ledger.add(store.append(message))
    ledger.acknowledge(store.flusher.sync_log())
    if with_checkpoint:
        store.flusher.sync_derived()
    killed = disk.kill()
    store.close()
    return Base(ledger, killed, disk)


class _ErrorCounter(logging.Handler):
    """Counts what the store logs at level ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.messages.append(record.getMessage())


def run_middle(seed: int) -> None:
    """One seed: one place and one kind of damage, opened after a crash or after a clean stop."""
    rng = random.Random(f"middle:{seed}")
    base = make_base()
    target, region = TARGETS[seed % len(TARGETS)], REGIONS[seed // len(TARGETS) % len(REGIONS)]
    crashed = rng.random() < 0.7
    disk = (base.killed if crashed else base.closed).kill()
    if region == "head" and target != "end-of-segment record":
        _run_head(disk, base.ledger, rng)
        return
    start, end = _damage(disk, base.ledger, target, region, rng)
    hit = [s for s in base.ledger.records.values() if s.position < end and s.end > start]
    report = verify_store(ROOT, disk=disk)
    named = [(f.position, f.length or 0) for f in report.findings if f.kind is Kind.DAMAGE and f.position is not None]
    expect(
        any(position <= start < position + length for position, length in named),
        f"verify names {named}, the damage is at {start}",
    )
    counter = _ErrorCounter()
    logger = logging.getLogger("eruca._store.recovery.recovery")
    logger.addHandler(counter)
    try:
        store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    finally:
        logger.removeHandler(counter)
    expect(
        any(item.position <= start < item.end for item in store.damage.items),
        f"damage at {start} is not in {store.damage.items}",
    )
    expect(bool(counter.messages), "nothing was logged at level ERROR")
    check_rest(store, base.ledger, hit)
    store.close()
    again = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    expect(again.damage.items == store.damage.items, "the damage is forgotten after a restart")
    check_rest(again, base.ledger, hit)
    again.close()


def _run_head(disk: SimulatedDisk, ledger: Ledger, rng: random.Random) -> None:
    """Flip a bit of a head where the format has no checksum, so it cannot be detected; other topics must not suffer."""
    stored = rng.choice(sorted(ledger.records.values(), key=lambda record: record.position))
    write_log(disk, stored.position + 12, _flip(stored.data[12:84], rng))
    store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    others = [record for record in ledger.records.values() if record.message.topic != stored.message.topic]
    for key in sorted({record.queue for record in others if record.queue is not None}):
        good = {record.message.queue_offset: record.data for record in others if record.queue == key}
        expect(read_whole_queue(store, key) == good, f"{key} suffered from a bit of another topic")
    store.close()
    open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock).close()


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _damage(disk: SimulatedDisk, ledger: Ledger, target: str, region: str, rng: random.Random) -> tuple[int, int]:
    """Change bytes of the log; returns the range of positions that is damaged for certain."""
    records = sorted(ledger.records.values(), key=lambda stored: stored.position)
    firsts = [stored for stored in records[1:] if stored.position % SEGMENT_BYTES == 0]
    lasts = [records[records.index(first) - 1] for first in firsts]
    if target == "end-of-segment record":
        start = rng.choice(lasts).end
        write_log(disk, start, rng.randbytes(8))
        return start, start + 8
    stored = {
        "first record of the log": records[0],
        "first of a segment": rng.choice(firsts),
        "last of a segment": rng.choice(lasts),
        "middle": rng.choice([s for s in records[1:-1] if s not in firsts and s not in lasts]),
    }[target]
    if region == "page":
        page = stored.position // _PAGE * _PAGE
        if page + _PAGE > records[-1].position:
            page -= _PAGE
        write_log(disk, page, bytes(_PAGE))
        hit = next(s for s in records if s.end > page)
        return min(max(page, hit.position), page + _PAGE), page + _PAGE
    at, length = _find_region(stored, region)
    if region == "whole record":
        new = bytes(length) if rng.random() < 0.5 else rng.randbytes(length)
    else:
        new = _flip(stored.data[at : at + length], rng)
    write_log(disk, stored.position + at, new)
    return stored.position, stored.end


def _find_region(stored: Stored, region: str) -> tuple[int, int]:
    body = len(stored.message.body)
    topic = len(stored.message.topic)
    return {
        "size": (0, 4),
        "magic": (4, 4),
        "crc": (8, 4),
        "body": (88, body),
        "topic length": (88 + body, 1),
        "properties length": (88 + body + 1 + topic, 2),
        "whole record": (0, len(stored.data)),
    }[region]


def write_log(disk: SimulatedDisk, position: int, data: bytes) -> None:
    """Put bytes into the log behind everyone's back."""
    path = ROOT / "commitlog" / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    disk.journal.tree[str(path)].damage(position % SEGMENT_BYTES, data)  # type: ignore[union-attr]


def check_rest(store: MessageStore, ledger: Ledger, hit: list[Stored]) -> None:
    """Everything that was not hit is there, once, at its offset and by its keys; what was hit is not shown."""
    lost = {stored.position for stored in hit}
    queues = {stored.queue for stored in ledger.records.values() if stored.queue is not None}
    for key in sorted(queues):
        good = {
            stored.message.queue_offset: stored.data
            for stored in ledger.records.values()
            if stored.queue == key and stored.position not in lost
        }
        expect(read_whole_queue(store, key) == good, f"{key} does not show exactly the messages that were not hit")
    for stored in ledger.records.values():
        unique = stored.message.get_property("UNIQ_KEY") or ""
        found = [position for position, _ in store.reader.find_by_key(stored.message.topic, unique, 0, 2**53)]
        wanted = [] if stored.position in lost else [stored.position]
        expect(found == wanted, f"key {unique}: found at {found} instead of {wanted}")


def describe_middle(seed: int) -> str:
    """What a seed does."""
    return f"{TARGETS[seed % len(TARGETS)]}, {REGIONS[seed // len(TARGETS) % len(REGIONS)]}"
