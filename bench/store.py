"""The store: append, group commit, sequential read, crash recovery, memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from bench.parts.beside import compare_rows
from bench.parts.plain import check_plainly, copy_out_plainly, copy_plainly, sync_plainly, write_plainly
from bench.parts.workload import CHUNK, QUEUES, TOPIC, Workload, open_bench_store
from bench.runner import Aim, BenchError, Run, Sample, make_environment
from eruca._ground.config import FlushMode
from eruca._store.background import StoreBackground
from eruca._store.messagestore import MessageStore
from eruca._wire.record import encode_record
from tests.paths import REPOSITORY

KNOWS_BEFORE = True
WRITERS = 64
BATCH = 100
APPEND_AIM = Aim(250_000)
RECOVERY_AIM = Aim(300)
# Anonymous memory of a large store over that of a small one.
GROWTH_AIM = Aim(1.1, at_least=False)
_GROWTH_MIB = (256, 1024, 2048)
_GROWTH_MIB_QUICK = (4, 16)
_GROWTH_MIB_BESIDE = (64, 256)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work a run does."""

    appends: int = 250_000
    small_appends: int = 400_000
    sync_seconds: float = 1.5
    kept_records: int = 300_000


QUICK = Sizes(appends=2_000, small_appends=2_000, sync_seconds=0.05, kept_records=2_000)
# In a comparison with an earlier checkout: more rounds, each with less work.
BESIDE = Sizes(appends=100_000, small_appends=150_000, sync_seconds=1.0, kept_records=200_000)
_LIVES = 3


def run_bench(run: Run) -> None:
    """Measure everything."""
    if run.before is not None:
        compare_rows(run, "store", asdict(QUICK if run.quick else BESIDE), lives=_LIVES)
        measure_memory(run)
        return
    sizes = QUICK if run.quick else Sizes()
    measure_append(run, "append 1 KiB", Workload(1024), sizes.appends, aim=APPEND_AIM)
    measure_append(run, "append 128 B", Workload(128), sizes.small_appends)
    measure_append_batch(run, Workload(1024), sizes.appends)
    measure_group_commit(run, Workload(1024), sizes.sync_seconds)
    with run.scratch() as root:
        total = fill(run, root, Workload(1024), sizes.kept_records)
        measure_read(run, root, total, sizes.kept_records)
        measure_recovery(run, root, total, sizes.kept_records)
    measure_memory(run)


# --- append -------------------------------------------------------------------------------------------------------


class Stopwatch:
    """Adds up the time of the timed stretches: wall, the CPU of this thread, and that of all threads of the process.

    Other threads (which prepare segments and touch pages) also work between the stretches. So only this thread's own
    work there is subtracted from the CPU time of the process.
    """

    def __init__(self) -> None:
        self.wall = 0.0
        self.thread = 0.0
        self._process_start = time.process_time()
        self._thread_start = time.thread_time()

    @contextmanager
    def time(self) -> Iterator[None]:
        """Time what happens inside."""
        thread = time.thread_time()
        wall = time.perf_counter()
        yield
        self.wall += time.perf_counter() - wall
        self.thread += time.thread_time() - thread

    def sample(self, records: int) -> Sample:
        """Return records per second, and the cost of one."""
        between = time.thread_time() - self._thread_start - self.thread
        process = time.process_time() - self._process_start - between
        return Sample(
            records / self.wall,
            {
                "wall us": self.wall / records * 1e6,
                "thread cpu us": self.thread / records * 1e6,
                "process cpu us": process / records * 1e6,
            },
        )


def measure_append(run: Run, name: str, workload: Workload, records: int, aim: Aim | None = None) -> None:
    """Append one message at a time, with and without index."""
    encoded = [encode_record(message) for message in workload.make(0, CHUNK)]
    plain_file = run.directory / "plain"
    for with_index in (True, False):
        run.measure(
            name if with_index else f"{name}, no index",
            "records/s",
            lambda with_index=with_index: append(run, workload, records, with_index=with_index),  # type: ignore[misc]
            {
                "pwrite of the same bytes": lambda: write_plainly(plain_file, encoded, records),
                "memcpy of the same bytes": lambda: copy_plainly(plain_file, encoded, records),
            },
            aim=aim if with_index else None,
        )


def append(run: Run, workload: Workload, records: int, *, with_index: bool) -> Sample:
    """Append messages that have been decoded already; only the appending is timed."""
    with run.scratch() as root, ThreadPoolExecutor(2) as executor:
        store = open_bench_store(root, executor, with_index=with_index)
        # The first appends create files.
        for message in workload.make(0, CHUNK):
            store.append(message)
        watch = Stopwatch()
        put = store.append
        for first in range(CHUNK, records + CHUNK, CHUNK):
            messages = workload.make(first, CHUNK)
            with watch.time():
                for message in messages:
                    put(message)
        sample = watch.sample(records)
        expect_offsets(store, records + CHUNK)
        store.close()
    return sample


def measure_append_batch(run: Run, workload: Workload, records: int) -> None:
    """Append 100 messages at a time."""
    joined = b"".join([encode_record(message) for message in workload.make(0, BATCH)])
    plain_file = run.directory / "plain"
    for with_index in (True, False):
        name = f"append batch of {BATCH} x 1 KiB"
        run.measure(
            name if with_index else f"{name}, no index",
            "records/s",
            lambda with_index=with_index: append_batches(run, workload, records, with_index=with_index),  # type: ignore[misc]
            {
                "pwrite of the same bytes": lambda: write_plainly(plain_file, [joined], records // BATCH, BATCH),
                "memcpy of the same bytes": lambda: copy_plainly(plain_file, [joined], records // BATCH, BATCH),
            },
        )


def append_batches(run: Run, workload: Workload, records: int, *, with_index: bool) -> Sample:
    """Append batches, each to the next queue."""
    with run.scratch() as root, ThreadPoolExecutor(2) as executor:
        store = open_bench_store(root, executor, with_index=with_index)
        for queue_id in range(QUEUES):
            store.append_batch(workload.make(0, BATCH, queue_id=queue_id))
        watch = Stopwatch()
        for first in range(0, records, BATCH):
            messages = workload.make(first, BATCH, queue_id=first // BATCH % QUEUES)
            with watch.time():
                store.append_batch(messages)
        sample = watch.sample(records)
        expect_offsets(store, records + QUEUES * BATCH)
        store.close()
    return sample


def expect_offsets(store: MessageStore, records: int) -> None:
    """Check that the store did not lose records."""
    found = sum(queue.max_offset for queue in store.queues)
    if found != records:
        raise BenchError(f"the queues have {found} messages, {records} were appended")


# --- group commit -------------------------------------------------------------------------------------------------


def measure_group_commit(run: Run, workload: Workload, seconds: float) -> None:
    """64 writers that each wait for the disk before they write again."""
    (record,) = [encode_record(message) for message in workload.make(0, 1)]
    plain_file = run.directory / "plain"
    run.measure(
        f"group commit, {WRITERS} writers, 1 KiB",
        "acknowledged/s",
        lambda: asyncio.run(commit_in_groups(run, workload, seconds)),
        {
            "pwrite + fdatasync for each": lambda: sync_plainly(plain_file, record, 1, seconds),
            f"pwrite of {WRITERS} + one fdatasync": lambda: sync_plainly(plain_file, record, WRITERS, seconds),
        },
    )


async def commit_in_groups(run: Run, workload: Workload, seconds: float) -> Sample:
    """Append and wait for the acknowledgement repeatedly, in many tasks."""
    numbers = count()
    # Each sync that acknowledges something leaves its position here.
    syncs: set[int] = set()
    acknowledged = 0
    with run.scratch() as root, ThreadPoolExecutor(2) as executor:
        store = open_bench_store(root, executor, flush_mode=FlushMode.SYNC)
        background = StoreBackground(store)
        background.start()

        async def write_until(stop: float) -> None:
            nonlocal acknowledged
            while time.perf_counter() < stop:
                (message,) = workload.make(next(numbers), 1)
                store.append(message)
                if not await background.group_commit.when_flushed(message.position + message.size):
                    raise BenchError("a record was not acknowledged in time")
                acknowledged += 1
                syncs.add(store.flusher.flushed)

        await asyncio.gather(*(write_until(time.perf_counter()) for _ in range(WRITERS)))
        cpu = time.process_time()
        started = time.perf_counter()
        await asyncio.gather(*(write_until(started + seconds) for _ in range(WRITERS)))
        elapsed = time.perf_counter() - started
        cpu = time.process_time() - cpu
        await background.stop()
        store.close()
    return Sample(
        acknowledged / elapsed,
        {
            "records/sync": acknowledged / len(syncs),
            "ms/sync": elapsed / len(syncs) * 1000,
            "process cpu us": cpu / acknowledged * 1e6,
        },
    )


# --- read and recovery --------------------------------------------------------------------------------------------


def fill(run: Run, root: Path, workload: Workload, records: int) -> int:
    """Create the store that is read and recovered; returns the length of its log."""
    with run.show("filling a store", records // CHUNK) as step, ThreadPoolExecutor(2) as executor:
        store = open_bench_store(root, executor)
        for first in range(0, records, CHUNK):
            for message in workload.make(first, CHUNK):
                store.append(message)
            step()
        total = store.log.tail
        store.close()
    return total


def list_log(root: Path) -> list[Path]:
    """The segments of the log, oldest first."""
    return sorted((root / "commitlog").iterdir())


def measure_read(run: Run, root: Path, total: int, records: int) -> None:
    """Read every queue from its start, as pulls of 32 messages do."""
    store = open_bench_store(root, None)
    pull_bytes = total // records * 32
    run.measure(
        "sequential read, pulls of 32",
        "MB/s",
        lambda: read_everything(store, records),
        {"memcpy of the same bytes": lambda: copy_out_plainly(list_log(root), total, pull_bytes)},
    )
    store.close()


def read_everything(store: MessageStore, records: int) -> Sample:
    """Join the slices of each pull, as an answer does."""
    found = size = pulls = 0
    cpu = time.thread_time()
    started = time.perf_counter()
    for queue_id in range(QUEUES):
        offset = 0
        while (result := store.reader.read(TOPIC, queue_id, offset)).slices:
            size += len(b"".join(result.slices))
            found += len(result.slices)
            pulls += 1
            offset = result.next_offset
    elapsed = time.perf_counter() - started
    cpu = time.thread_time() - cpu
    if found != records:
        raise BenchError(f"read {found} of {records} messages")
    return Sample(
        size / elapsed / 1e6,
        {"records/s": found / elapsed, "us/pull": elapsed / pulls * 1e6, "thread cpu us": cpu / found * 1e6},
    )


def measure_recovery(run: Run, root: Path, total: int, records: int) -> None:
    """Open the store as after a crash without a checkpoint: the whole log is checked and dispatched again."""
    record_bytes = total // records
    run.measure(
        "crash recovery, 1 KiB",
        "MB/s",
        lambda: recover(root, total, records),
        {
            "crc32 of the same bytes": lambda: check_plainly(list_log(root), total, record_bytes),
            "memcpy of the same bytes": lambda: copy_out_plainly(list_log(root), total, record_bytes),
        },
        aim=RECOVERY_AIM,
    )


def recover(root: Path, total: int, records: int) -> Sample:
    """Simulate the state after a crash, and time the opening."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    with ThreadPoolExecutor(2) as executor:
        cpu = time.thread_time()
        started = time.perf_counter()
        store = open_bench_store(root, executor)
        elapsed = time.perf_counter() - started
        cpu = time.thread_time() - cpu
        if store.recovered is None or store.recovered.clean or store.recovered.scanned_from:
            raise BenchError("the store did not recover from the start of its log")
        expect_offsets(store, records)
        store.close()
    return Sample(
        total / elapsed / 1e6,
        {"records/s": records / elapsed, "wall us": elapsed / records * 1e6, "thread cpu us": cpu / records * 1e6},
    )


# --- memory -------------------------------------------------------------------------------------------------------


def measure_memory(run: Run) -> None:
    """Anonymous memory of a process while its store grows, over what it was while the store was small."""
    name, unit = "anonymous memory, largest over small store", "times"
    python, before = Path(sys.executable), run.before
    if before is not None:
        ours, theirs = lambda: grow(run, python, REPOSITORY), lambda: grow(run, before, before.parents[2])
        run.measure_beside_before(name, unit, ours, theirs)
        return
    with run.show(name, 1):
        run.add_figure(name, unit, grow(run, python, REPOSITORY), {"a small store": Sample(1.0)}, aim=GROWTH_AIM)


def grow(run: Run, python: Path, checkout: Path) -> Sample:
    """Let the store of a process grow, and measure its memory at each stage."""
    sizes = _GROWTH_MIB_QUICK if run.quick else _GROWTH_MIB_BESIDE if run.before else _GROWTH_MIB
    with run.scratch() as root:
        command = [str(python), "-m", "bench.parts.growth", str(root), *map(str, sizes)]
        environment = make_environment(python)
        finished = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise BenchError(f"the growing process failed: {finished.stderr.strip()[-500:]}")
    seen: list[tuple[str, int, int]] = json.loads(finished.stdout)
    small, *others = [kib / 1024 for _, _, kib in seen]
    details = {f"MiB {stage} ({size / 1024**3:.2f} GiB)": kib / 1024 for stage, size, kib in seen}
    return Sample(max(others) / small, details)
