"""A last record that was cut off at every byte, with every kind of rest after the cut.

The earlier records stay, the cut one goes, and the store writes on over it without anything coming back.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eruca._ground.config import StoreOptions
from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.messagestore import MessageStore, open_store
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import SimulatedDisk
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record, RecordView, inspect_record
from eruca._wire.sysflag import BORN_HOST_V6, STORE_HOST_V6
from tests.crash.ledger import Ledger, Stored, expect
from tests.crash.world import ROOT

SHAPES = ("ipv4 with tags and keys", "ipv6 with a large body", "empty body, last of a batch")
RESTS = ("zeros", "garbage", "stale records")
OPTIONS = StoreOptions(
    commitlog_segment_bytes=16_384, consumequeue_segment_bytes=20 * 8, index_slots=16, index_entries=64
)
_LOG = Path("commitlog") / f"{0:020d}"


@dataclass(frozen=True)
class Base:
    """A store whose last record is about to be cut, as files, killed or closed."""

    last: Stored
    ledger: Ledger
    killed: SimulatedDisk
    closed: SimulatedDisk


@dataclass(frozen=True)
class Case:
    """Where the record is cut, what follows, whether the abort marker is there, and on which disk."""

    shape: str
    cut: int
    rest: str
    abort: bool
    real: bool

    def __str__(self) -> str:
        place = "real files" if self.real else "simulated disk"
        return f"{self.shape}, cut at byte {self.cut}, then {self.rest}, abort={self.abort}, {place}"


def _make_message(number: int, body: bytes, properties: dict[str, str], **fields: object) -> Record:
    fields = {"born_timestamp": 1_690_000_000_000 + number, "born_host": bytes(range(1, 9)), **fields}
    fields.setdefault("store_host", bytes(range(11, 19)))
    return Record("orders", number % 2, number, body, encode_properties(properties), **fields)  # type: ignore[arg-type]


def _append_last(store: MessageStore, shape: str) -> list[Record]:
    rng = random.Random(shape)
    if shape == SHAPES[0]:
        properties = {"TAGS": "red", "KEYS": "k1 k2", "UNIQ_KEY": "LAST"}
        return [store.append(_make_message(9, rng.randbytes(40), properties))]
    if shape == SHAPES[1]:
        properties = {f"name{number}": "value" * number for number in range(8)} | {"UNIQ_KEY": "LAST"}
        hosts = {"born_host": bytes(range(1, 21)), "store_host": bytes(range(21, 41))}
        flags = BORN_HOST_V6 | STORE_HOST_V6
        return [store.append(_make_message(9, rng.randbytes(700), properties, sys_flag=flags, **hosts))]
    members = [_make_message(9, b"x" * 30, {"KEYS": f"b{number}"}) for number in range(2)]
    last = _make_message(9, b"", {})
    last.properties = b""
    return store.append_batch([*members, last])


@cache
def make_base(shape: str) -> Base:
    """Write the store once; every case begins with a copy."""
    disk = SimulatedDisk(seed=1, clock=VirtualClock())
    store = open_store(ROOT, OPTIONS, disk=disk, clock=disk.clock)
    ledger = Ledger()
    rng = random.Random(f"base:{shape}")
    for number in range(4):
        properties = {"UNIQ_KEY": f"E{number}", "KEYS": f"k{number}", "TAGS": "blue"}
        ledger.add(store.append(_make_message(number, rng.randbytes(100 * number), properties)))
    for message in _append_last(store, shape):
        ledger.add(message)
    last = ledger.records[max(ledger.records)]
    killed = disk.kill()
    store.close()
    # There is no record that the last record was on the disk: otherwise the cut would count as damage.
    disk.journal.tree[str(ROOT / "checkpoint")].damage(24, bytes(16))  # type: ignore[union-attr]
    disk.remove(ROOT / "config" / "erucaQueueEnds")
    ledger.acknowledge(last.position)
    return Base(last, ledger, killed, disk)


@cache
def list_cut_cases() -> tuple[Case, ...]:
    """Every byte of every shape with every rest, with and without abort, on both kinds of disk."""
    return tuple(
        Case(shape, cut, rest, abort, real)
        for shape in SHAPES
        for cut in range(len(make_base(shape).last.data))
        for rest in RESTS
        for abort in (True, False)
        for real in (False, True)
    )


def count_cut() -> int:
    """How many cases there are."""
    return len(list_cut_cases())


def describe_cut(case: int) -> str:
    """What a case does."""
    return str(list_cut_cases()[case])


def run_cut(case: int) -> None:
    """Cut the record as a case specifies, open, check, continue writing, and open again, twice."""
    chosen = list_cut_cases()[case]
    base = make_base(chosen.shape)
    torn = _make_torn(base, chosen, random.Random(f"cut:{case}"))
    disk = (base.killed if chosen.abort else base.closed).kill()
    image = disk.snapshot()[ROOT / _LOG]
    image = image[: base.last.position] + torn + image[base.last.position + len(torn) :]
    disk.journal.tree[str(ROOT / _LOG)].damage(0, image)  # type: ignore[union-attr]
    if not chosen.real:
        _check_cut(base, chosen, image, disk, ROOT)
        return
    folder = Path(tempfile.mkdtemp(prefix="eruca-cut-", dir=_find_fast_folder()))
    try:
        disk.dump(folder, at=ROOT)
        _check_cut(base, chosen, image, LocalFileSystem(), folder)
    finally:
        shutil.rmtree(folder)


def _find_fast_folder() -> str | None:
    """A folder in memory if the system has one: thousands of cases sync a dozen times each."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _make_torn(base: Base, case: Case, rng: random.Random) -> bytes:
    length = len(base.last.data) - case.cut
    rest = bytes(length)
    if case.rest == "garbage":
        rest = rng.randbytes(length + 64)
    elif case.rest == "stale records":
        stale = b"".join(stored.data for stored in base.ledger.records.values())
        rest = stale[rng.randrange(200) :][: length + 700]
    return base.last.data[: case.cut] + rest


def _check_cut(base: Base, case: Case, image: bytes, disk: FileSystem, root: Path) -> None:
    at = base.last.position
    is_whole = image[at : at + len(base.last.data)] == base.last.data
    # Bytes of topic and properties that became other bytes cannot be detected: they have no checksum.
    looks_whole = case.rest != "zeros" and type(inspect_record(image, at, len(image), True, at)) is RecordView
    ledger = base.ledger.copy()
    clock = VirtualClock()
    store = open_store(root, OPTIONS, disk=disk, clock=clock)
    if looks_whole and not is_whole and store.log.tail > at:
        store.close()
        return
    ledger.check(store)
    expect((at in ledger.records) == is_whole, f"the cut record is {'gone' if is_whole else 'still there'}")
    expect(not store.damage.items, f"a torn tail was taken for damage: {store.damage.items}")
    expect(store.log.tail == (base.last.end if is_whole else at), f"the log ends at {store.log.tail}")
    ledger.add(store.append(_make_message(9, b"short", {"UNIQ_KEY": "AFTER"})))
    ledger.acknowledge(store.flusher.sync_log())
    store = _crash_and_open(store, disk, root, clock)
    ledger.check(store)
    expect(len(ledger.records) == len(base.ledger.records) + is_whole, f"{len(ledger.records)} records after a crash")
    ledger.add(store.append(_make_message(8, b"more", {"UNIQ_KEY": "MORE"})))
    store.close()
    ledger.acknowledge(store.flusher.flushed)
    store = open_store(root, OPTIONS, disk=disk, clock=clock)
    ledger.check(store)
    expect(store.recovered is not None and store.recovered.clean, "a clean stop was taken for a crash")
    store.close()


def _crash_and_open(store: MessageStore, disk: FileSystem, root: Path, clock: VirtualClock) -> MessageStore:
    """Open again as after a kill: the files as they are, with the abort marker."""
    store.close()
    disk.write_file(root / "abort", b"")
    return open_store(root, OPTIONS, disk=disk, clock=clock)
