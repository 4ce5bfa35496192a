"""A store of more than 2 GiB: what Spark rebuilds from its log is, byte for byte, what the store wrote as it grew.

The store is filled by its own append path, so consume queues and index are the broker's. The log has bodies of all
sizes, keys, tags, delayed messages, transactions and a deleted topic. Index files are named after the moment they were
made, so they are compared in their order.
"""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from eruca._ground.config import StoreOptions
from eruca._spark.pipelines import rebuild as job
from eruca._spark.session import make_session
from eruca._store.messagestore import open_store
from eruca._testing.clock import VirtualClock
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

SEED = 20261115
LOG_BYTES = 2 * 1024**3 + 64 * 1024**2
# Small files, so that every queue has several segments and the index several files.
OPTIONS = StoreOptions(consumequeue_segment_bytes=100_000, index_slots=500_000, index_entries=2_000_000)
_START_MS = 1_700_000_000_000
_HOST = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
_CHUNK = 8 * 1024 * 1024
_KINDS = (TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)


@dataclass(frozen=True, slots=True)
class Compared:
    """What was compared."""

    queue_files: int
    index_files: int
    bytes: int


def fill_store(root: Path, log_bytes: int, seed: int, bar: Progress | None = None) -> int:
    """Fill a store; returns how many records it has."""
    draw = random.Random(seed)
    clock = VirtualClock(_START_MS)
    store = open_store(root, OPTIONS, clock=clock)
    noise = draw.randbytes(4096)
    task = None if bar is None else bar.add_task("fill", total=log_bytes)
    number = 0
    while store.log.tail < log_bytes:
        number += 1
        dice = draw.random()
        begin = int(dice * 2000)
        body = noise[begin : begin + number % 1400]
        topic, queue_id, flag = f"Topic{number % 5}", number % 8, 0
        properties = b"KEYS\x01order-%d all-%d\x02UNIQ_KEY\x01%032X\x02TAGS\x01Tag%d\x02region\x01eu" % (
            number,
            number % 1000,
            number,
            number % 7,
        )
        if dice < 0.02:
            topic, queue_id, properties = SCHEDULE_TOPIC, 3, b"DELAY\x01%d\x02%s" % (1 + number % 20, properties)
        elif dice < 0.04:
            topic, queue_id = HALF_TOPIC, 0
        elif dice < 0.06:
            flag = _KINDS[number % 3]
        elif dice < 0.07:
            topic, properties = "Gone", b"TAGS\x01x"
        if number % 64 == 0:
            clock.advance(5)
        if number == 1_000_000:
            store.detach_topic("Gone")()
        store.append(
            Record(
                topic,
                queue_id,
                body=body,
                properties=properties,
                sys_flag=flag,
                born_timestamp=clock.now_ms(),
                born_host=_HOST,
                store_host=_HOST,
            )
        )
        if bar is not None and task is not None and number % 20_000 == 0:
            bar.update(task, completed=store.log.tail)
    store.close()
    return number


def compare_files(ours: Path, theirs: Path) -> Compared:
    """Compare consume queues by name and index files in their order. Raises AssertionError at the first difference."""
    names = [
        sorted(str(path.relative_to(root)) for path in (root / "consumequeue").rglob("*") if path.is_file())
        for root in (ours, theirs)
    ]
    assert names[0] == names[1], sorted(set(names[0]) ^ set(names[1]))
    total = sum(compare_file(ours / name, theirs / name) for name in names[0])
    index = [sorted((root / "index").iterdir(), key=read_begin) for root in (ours, theirs)]
    assert len(index[0]) == len(index[1]), f"{len(index[0])} index files instead of {len(index[1])}"
    total += sum(compare_file(one, other) for one, other in zip(*index, strict=True))
    return Compared(len(names[0]), len(index[0]), total)


def read_begin(path: Path) -> int:
    """The first position of an index file."""
    with path.open("rb") as file:
        begin: int = struct.unpack_from(">q", file.read(40), 16)[0]
    return begin


def compare_file(one: Path, other: Path) -> int:
    """Compare two files; returns their size."""
    assert one.stat().st_size == other.stat().st_size, f"{one} and {other} differ in size"
    at = 0
    with one.open("rb") as mine, other.open("rb") as theirs:
        while chunk := mine.read(_CHUNK):
            assert chunk == theirs.read(_CHUNK), f"{one} differs from {other} between {at} and {at + len(chunk)}"
            at += len(chunk)
    return at


def run_rebuild(minutes: float | None = None, *, log_bytes: int = LOG_BYTES, seed: int = SEED) -> int:
    """Fill, rebuild, compare; 0 when every byte is the same. Its duration does not depend on `minutes`."""
    console = Console(soft_wrap=True, highlight=False)
    home = Path(tempfile.mkdtemp(prefix="eruca-rebuild-"))
    try:
        started = time.monotonic()
        with Progress(console=console) as bar:
            records = fill_store(home / "store", log_bytes, seed, bar)
        filled = time.monotonic()
        session = make_session("rebuild", "local[2]", {"spark.ui.enabled": "false", "spark.driver.memory": "2g"})
        try:
            summary = job.run_rebuild(session, [str(home / "store")], out=str(home / "rebuilt"))
        finally:
            session.stop()
        compared = compare_files(home / "rebuilt", home / "store")
        assert summary.rows == records, f"{summary.rows} rows of {records} records"
        console.print(
            f"rebuild: {records:,} records, log of {log_bytes:,} bytes, seed {seed}: {compared.queue_files} segments "
            f"of consume queues and {compared.index_files} index files, {compared.bytes:,} bytes, all equal; filled in "
            f"{filled - started:.0f} s, rebuilt in {summary.seconds:.0f} s "
            f"({summary.facts['queue entries']:,} queue entries, {summary.facts['index entries']:,} index entries)"
        )
        return 0
    except AssertionError as error:
        console.print(f"FAILED rebuild, seed {seed}: {error}", style="red")
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
