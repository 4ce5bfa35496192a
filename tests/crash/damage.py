"""Any file of a store damaged in any way, after a clean stop or after a kill, and then a start.

What must hold afterwards: no wrong body is delivered, no offset is used twice, what is missing is reported, and no
reader is stuck. A start may refuse, if it names the file.
"""

from __future__ import annotations

import contextlib
import logging
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from eruca._ground.config import StoreOptions
from eruca._store.layout import StorePaths
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.reading.slices import ReadBounds, is_damaged
from eruca._store.retention import Retention
from eruca._store.tables.tables import Tables
from eruca._store.tables.timerlog import TimerCheckpoint, TimerLog
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._testing.faults.image import SECTOR, FileImage
from eruca._wire.bodies import ConsumerOffsets
from eruca._wire.record import Record, decode_readable
from eruca.errors import StoreError
from tests.crash.ledger import expect
from tests.crash.world import ROOT, draw_message
from tests.retaining import retain

OPTIONS = StoreOptions(
    commitlog_segment_bytes=8192,
    consumequeue_segment_bytes=20 * 16,
    index_slots=16,
    index_entries=80,
    retention_hours=1,
    delete_hours="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
)
BASES = 6
PARTS = ("old log", "new log", "queue", "index", "checkpoint", "markers", "lists", "tables", "timer")
HOW = ("flip", "zeros", "garbage", "cut", "remove", "copy", "swap", "remove directory")
_QUEUES = [(topic, queue_id) for topic in ("orders", "payments", "audit") for queue_id in range(2)]
_TIMER_BYTES = 24 * 64
_PATHS = StorePaths(ROOT)
_CASES = 2000

QueueKey = tuple[str, int]


@dataclass
class Base:
    """A store that is closed or killed, and all it ever promised."""

    # Messages by queue and offset, with all that readers may get from the log.
    messages: dict[QueueKey, dict[int, Record]] = field(default_factory=dict)
    # Where the log began at the end: everything before it was deleted.
    start: int = 0
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    offsets: int = 0
    timer: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """What is done to a store."""

    seed: int
    base: int
    clean: bool
    part: str

    def __str__(self) -> str:
        return f"{self.part}, after a {'clean stop' if self.clean else 'kill'}, store {self.base}"


def find_case(number: int) -> Case:
    """The meaning of a case number: every part and both ends get the same share."""
    return Case(number, number % BASES, number % 2 == 0, PARTS[number // 2 % len(PARTS)])


def describe_damage(number: int) -> str:
    """What a case does."""
    return str(find_case(number))


def count_damage() -> int:
    """How many cases there are."""
    return _CASES


# -- the store ---------------------------------------------------------------------------------------------------------


@cache
def make_base(number: int, clean: bool) -> Base:
    """Write one of a few stores; every case begins with a copy."""
    rng = random.Random(f"damage-base:{number}")
    clock = VirtualClock()
    base = Base(disk=SimulatedDisk(seed=number, clock=clock))
    store = open_store(ROOT, OPTIONS, disk=base.disk, clock=clock)
    store.lineage.begin_epoch(1000)
    store.detach_topic("gone")()
    for written in range(rng.randint(120, 180)):
        clock.advance(rng.choice((0, 1000, 5000)))
        # Some queues are idle at the end: nothing in the last segments mentions them.
        choices = _QUEUES if written < 60 else _QUEUES[:3]
        topic, queue_id = rng.choice(choices)
        message = store.append(draw_message(rng, written, topic=topic, queue_id=queue_id))
        base.messages.setdefault((topic, queue_id), {})[message.queue_offset] = message
        if rng.random() < 0.1:
            store.flusher.sync_log()
            store.flusher.sync_derived()
    if number % 3 == 2:
        _delete_oldest(store, clock)
    store.flusher.sync_log()
    store.flusher.sync_derived()
    base.start = store.log.start
    _write_tables(base, rng)
    if clean:
        store.close()
    else:
        base.disk = base.disk.kill()
    return base


def _delete_oldest(store: MessageStore, clock: VirtualClock) -> None:
    for segment in store.log.chain.segments[:2]:
        path, disk = segment.path, store.disk
        assert isinstance(disk, SimulatedDisk)
        disk.touch(path, clock.now_ms() - 5 * 3_600_000)
    plan = retain(Retention(store))
    expect(plan.delete_count == 2, f"{plan.delete_count} segments were deleted")


def _write_tables(base: Base, rng: random.Random) -> None:
    tables = Tables(base.disk, ROOT / "config")
    for offset in (41, 42):
        base.offsets = offset
        tables.consumer_offsets.save(ConsumerOffsets(offset_table={"orders@g": {0: offset}}))
    timer = TimerLog(base.disk, _PATHS.timer, segment_bytes=_TIMER_BYTES)
    timer.open()
    for _ in range(30):
        slot, entries = rng.randrange(5), [rng.getrandbits(40) for _ in range(3 * rng.randint(1, 4))]
        timer.append(slot, array("q", entries))
        base.timer.setdefault(slot, []).extend(entries)
    timer.save(TimerCheckpoint(read_offset=30, log_end=timer.end, through_ms=7))


# -- damage ------------------------------------------------------------------------------------------------------------


def list_targets(disk: SimulatedDisk, part: str) -> list[Path]:
    """The files of a part."""
    files = disk.files()
    log = [path for path in files if path.parent == _PATHS.commitlog]
    match part:
        case "old log":
            return log[: len(log) // 2]
        case "new log":
            return log[len(log) // 2 :]
        case "queue":
            return [path for path in files if path.is_relative_to(_PATHS.consumequeue)]
        case "index":
            return [path for path in files if path.parent == _PATHS.index]
        case "checkpoint":
            return [_PATHS.checkpoint]
        case "markers":
            return [path for path in files if path in (_PATHS.abort, _PATHS.lock)]
        case "timer":
            return [path for path in files if path.is_relative_to(_PATHS.timer)]
    config = [path for path in files if path.parent == _PATHS.config]
    tables = [path for path in config if path.name.startswith("consumerOffset")]
    return tables if part == "tables" else [path for path in config if path not in tables]


def do_damage(disk: SimulatedDisk, targets: list[Path], rng: random.Random) -> tuple[str, Path]:
    """Damage one of these files; returns how, and which."""
    path, how = rng.choice(targets), rng.choice(HOW)
    image = disk.journal.tree[str(path)]
    assert isinstance(image, FileImage)
    size = len(image.current)
    used = max(1, len(bytes(image.current).rstrip(b"\0")))
    others = [other for other in targets if other != path and other.parent == path.parent]
    sector = rng.randrange(used) // SECTOR * SECTOR
    length = min(SECTOR, size - sector)
    if how == "flip" and size:
        disk.flip_bit(path, rng.randrange(used), rng.randrange(8))
    elif how == "zeros":
        image.damage(sector, bytes(length))
    elif how == "garbage":
        image.damage(sector, rng.randbytes(length))
    elif how == "cut":
        disk.write_file(path, bytes(image.current[: rng.randrange(size + 1)]))
    elif how == "copy" and others:
        disk.write_file(path, disk.read_file(rng.choice(others)))
    elif how == "swap" and others:
        other = rng.choice(others)
        one, two = disk.read_file(path), disk.read_file(other)
        disk.write_file(path, two)
        disk.write_file(other, one)
    elif how == "remove directory" and path.parent not in (ROOT, _PATHS.config):
        folder = path.parent if rng.random() < 0.7 or path.parent.parent == ROOT else path.parent.parent
        _remove_tree(disk, folder)
        path = folder
    else:
        how = "remove"
        disk.remove(path)
    disk.journal.commit()
    return how, path


def _remove_tree(disk: SimulatedDisk, folder: Path) -> None:
    tree = disk.journal.tree
    for name in [name for name in tree if name == str(folder) or name.startswith(f"{folder}/")]:
        del tree[name]


# -- judging -----------------------------------------------------------------------------------------------------------


class _Heard(logging.Handler):
    """Everything that was logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def names(self, *words: str) -> bool:
        """Is there a line that has all these words?"""
        return any(all(word in line for word in words) for line in self.lines)


@contextlib.contextmanager
def _listen() -> Iterator[_Heard]:
    heard = _Heard()
    logger = logging.getLogger("eruca")
    logger.addHandler(heard)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)


def run_damage(number: int) -> str:
    """Damage a store, open it, and compare it with what it promised; returns the result as a word."""
    case = find_case(number)
    rng = random.Random(f"damage:{number}")
    base = make_base(case.base, case.clean)
    disk = base.disk.kill()
    how, path = do_damage(disk, list_targets(disk, case.part), rng)
    with _listen() as heard:
        try:
            store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
        except StoreError as error:
            named = path.name in str(error) or path.parent.name in str(error)
            expect(named, f"{how} of {path}: the start refuses without a name: {error}")
            return "refused, and named"
        word = _judge(base, store, heard, f"{how} of {path.relative_to(ROOT)}")
        store.close()
        again = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
        _judge(base, again, heard, f"{how} of {path.relative_to(ROOT)}, opened again", appended=1)
        again.close()
        _judge_tables(base, disk, heard)
    return word


def _judge(base: Base, store: MessageStore, heard: _Heard, doing: str, appended: int = 0) -> str:
    missing_count = 0
    for key, messages in base.messages.items():
        name = f"{doing}: {key[0]} queue {key[1]}"
        seen, damaged = _read_queue(store, key, name)
        last = max(messages)
        for offset, message in seen.items():
            if offset <= last:
                expect(offset in messages, f"{name}: message {offset} was never there")
                expect(message.body == messages[offset].body, f"{name}: message {offset} has a wrong body")
                expect(message.topic == key[0], f"{name}: message {offset} is one of {message.topic}")
        for offset, message in messages.items():
            if offset in seen or message.position < base.start:
                continue
            missing_count += 1
            named = (
                offset in damaged
                or is_damaged(message.position, store.damage.items)
                or heard.names(f"{key[0]} queue {key[1]}")
                or heard.names("commit log is missing")
            )
            expect(named, f"{name}: message {offset} at {message.position} is missing, and nothing says so")
        queue_offset = store.append(draw_message(random.Random(1), 900, topic=key[0], queue_id=key[1])).queue_offset
        expect(queue_offset > last + appended - (appended > 0), f"{name}: offset {queue_offset} is given again")
    if missing_count:
        return "something lost, and named"
    return "mended, and named" if heard.lines else "nothing to mend"


def _read_queue(store: MessageStore, key: QueueKey, name: str) -> tuple[dict[int, Record], set[int]]:
    """Read a queue as a consumer does; returns what it delivers, and what it reports as damaged."""
    queue = store.queues.get(*key)
    seen: dict[int, Record] = {}
    damaged: set[int] = set()
    if queue is None:
        return seen, damaged
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = store.reader.read(*key, offset, ReadBounds(7, 4000))
        expect(result.next_offset > offset, f"{name}: a reader stands still at {offset} ({result.status})")
        for piece in result.slices:
            messages, bad = decode_readable(bytes(piece))
            damaged.update(item.queue_offset for item in bad)
            for message in messages:
                expect(message.queue_offset not in seen, f"{name}: message {message.queue_offset} comes twice")
                seen[message.queue_offset] = message
        offset = result.next_offset
    return seen, damaged


def _judge_tables(base: Base, disk: SimulatedDisk, heard: _Heard) -> None:
    try:
        offset = Tables(disk, ROOT / "config").consumer_offsets.load().offset_table.get("orders@g", {}).get(0)
        expect(offset in (base.offsets, base.offsets - 1, None), f"the committed offset is {offset}")
    except StoreError as error:
        expect("consumerOffset" in str(error), f"a table is refused without a name: {error}")
    timer = TimerLog(disk, _PATHS.timer, segment_bytes=_TIMER_BYTES)
    checkpoint = timer.open()
    if checkpoint is None:
        expect(heard.names("timer") or not disk.exists(_PATHS.timer / "checkpoint"), "the timer forgets without a word")
        return
    for slot, entries in base.timer.items():
        found = list(timer.read(slot))
        expect(found == entries, f"the timer has {len(found)} numbers of slot {slot} instead of {len(entries)}")
