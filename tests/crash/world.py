"""One store on one fault disk with its ledger, and the things that happen to it.

Everything is drawn from a `random.Random`, so a seed determines the whole run. An operation either works or
raises one of the store's own errors; anything else is a finding.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, TypeVar

from eruca._ground.config import FlushMode, StoreOptions
from eruca._store.messagestore import MessageStore, open_store
from eruca._store.retention import Retention
from eruca._store.tables.tables import Tables
from eruca._testing.clock import VirtualClock
from eruca._testing.faults import CrashMode, SimulatedDisk
from eruca._wire.bodies import ConsumerOffsets
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import encode_properties
from eruca._wire.record import Record
from eruca._wire.sysflag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED
from eruca.errors import StoreError
from tests.crash.ledger import Ledger, expect
from tests.retaining import retain

ROOT = Path("/store")
HOUR_MS = 3_600_000
TOPICS = ("orders", "payments", "%RETRY%audit")

Result = TypeVar("Result")


class PowerCut(BaseException):
    """The power goes in the middle of a call. Not an Exception, so that no handler takes it for an error."""


class InlineExecutor(Executor):
    """Runs what it is given at once, so that background work has one order."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now; the future is done when it is returned."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def draw_options(rng: random.Random, *, transient: bool | None = None) -> StoreOptions:
    """Options that make small files, so that a short story meets every border."""
    transient = rng.random() < 0.2 if transient is None else transient
    slots = rng.choice((4, 16, 50))
    return StoreOptions(
        commitlog_segment_bytes=rng.choice((4096, 5000, 8192, 16_384)),
        consumequeue_segment_bytes=20 * rng.choice((4, 10, 60, 300)),
        index_enabled=rng.random() < 0.85,
        index_slots=slots,
        index_entries=rng.choice((20, 40, 200)),  # at least as many as one batch can have keys
        flush_mode=FlushMode.ASYNC if transient or rng.random() < 0.4 else FlushMode.SYNC,
        transient_enabled=transient,
        transient_pool_size=2,
        retention_hours=1,
        delete_segments_per_pass=2,
    )


def draw_message(rng: random.Random, number: int, *, topic: str | None = None, queue_id: int | None = None) -> Record:
    """A message; the number makes its unique key unique."""
    properties = {"UNIQ_KEY": f"{number:08X}"}
    if rng.random() < 0.5:
        properties["KEYS"] = " ".join(f"k{number}" for number in rng.sample(range(20), rng.randint(1, 3)))
    if rng.random() < 0.5:
        properties["TAGS"] = rng.choice(("red", "green", "blue"))
    if rng.random() < 0.05:
        properties["NOTE"] = "n" * rng.randint(500, 1500)
    sys_flag = 0
    chosen = topic or rng.choice(TOPICS)
    if topic is None and rng.random() < 0.08:
        chosen = SCHEDULE_TOPIC
        properties["DELAY"] = str(rng.randint(1, 18))
    if topic is None and rng.random() < 0.05:
        sys_flag |= TRANSACTION_PREPARED
    born_host = store_host = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
    if rng.random() < 0.15:
        sys_flag |= BORN_HOST_V6 | STORE_HOST_V6
        born_host = store_host = bytes(range(1, 21))
    size = rng.choice((0, 1, 40, 300, 300, 700, 1800))
    return Record(
        chosen,
        queue_id=rng.randrange(2) if queue_id is None else queue_id,
        flag=rng.randrange(100),
        body=bytes(size) if rng.random() < 0.1 else rng.randbytes(rng.randint(size // 2, size)),
        properties=encode_properties(properties) if rng.random() < 0.95 else b"",
        sys_flag=sys_flag,
        born_timestamp=1_690_000_000_000 + number,
        born_host=born_host,
        store_host=store_host,
        reconsume_times=rng.randrange(3),
    )


class World:
    """A store, the disk below it and the ledger beside it."""

    def __init__(self, seed: int | str, rng: random.Random, options: StoreOptions, *, inline: bool = False) -> None:
        self.rng = rng
        self.options = options
        self.clock = VirtualClock()
        self.disk = SimulatedDisk(seed=random.Random(f"{seed}:disk").getrandbits(32), clock=self.clock)
        self.executor = InlineExecutor() if inline else None
        self.ledger = Ledger()
        self.number = 0
        self.errors: list[StoreError] = []
        self._store: MessageStore | None = None
        # Tables: what load may return, the last one being the newest.
        self.saved: list[int] = [0]

    @property
    def store(self) -> MessageStore:
        """The store; it must be open."""
        assert self._store is not None
        return self._store

    @property
    def is_open(self) -> bool:
        """Is there an open store?"""
        return self._store is not None

    def attempt(self, work: Callable[[], Result]) -> Result | None:
        """Do something that the disk may refuse; one of the store's own errors is noted, any other is a finding."""
        try:
            return work()
        except StoreError as error:
            self.errors.append(error)
            return None

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self, *, torn_sectors: bool = False, check: bool = True) -> MessageStore:
        """Open the store and hold it against the ledger."""
        store = open_store(ROOT, self.options, disk=self.disk, clock=self.clock, executor=self.executor)
        if check:
            self.ledger.check(store, torn_sectors=torn_sectors)
        self._store = store
        return store

    def close(self) -> None:
        """Close; whatever happens, the store is closed afterwards."""
        store, self._store = self.store, None
        try:
            store.close()
        finally:
            self.note_synced(store)

    def note_synced(self, store: MessageStore) -> None:
        """Take over what the store reports as being on the disk."""
        self.ledger.acknowledge(store.flusher.flushed)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Append one message."""
        self.number += 1
        self._make_room()
        self.ledger.add(self.store.append(draw_message(self.rng, self.number)))
        self._wait_for_disk()

    def append_batch(self) -> None:
        """Append a few messages of one queue."""
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(2)
        batch = []
        for _ in range(self.rng.randint(1, 4)):
            self.number += 1
            batch.append(draw_message(self.rng, self.number, topic=topic, queue_id=queue_id))
        if sum(len(m.body) + len(m.properties) + 200 for m in batch) > self.options.commitlog_segment_bytes:
            batch = batch[:1]
        self._make_room()
        for message in self.store.append_batch(batch):
            self.ledger.add(message)
        self._wait_for_disk()

    def _make_room(self) -> None:
        """Commit a transient buffer that has no room for the next few messages, as its timer does in time."""
        transient = self.store.log.transient
        if transient is not None and transient.waiting_bytes > self.options.commitlog_segment_bytes // 2:
            self.commit()

    def _wait_for_disk(self) -> None:
        # Several senders share one sync, so not every append is followed by its own.
        if self.options.flush_mode is FlushMode.SYNC and self.rng.random() < 0.6:
            self.sync()

    def sync(self) -> None:
        """Sync the log; what it returns is acknowledged."""
        self.ledger.acknowledge(self.store.flusher.sync_log())

    def sync_derived(self) -> None:
        """Sync queues, index and checkpoint."""
        self.store.flusher.sync_derived()

    def commit(self) -> None:
        """Commit the transient buffer."""
        self.store.commit()

    def save_table(self) -> None:
        """Save a table; it is the newest one, or the previous ones stay possible."""
        value = self.saved[-1] + 1
        self.saved.append(value)
        Tables(self.disk, ROOT / "config").consumer_offsets.save(ConsumerOffsets(offset_table={"t@g": {0: value}}))
        self.saved = [value]

    def check_table(self) -> None:
        """A table is one of those that were being saved, never broken."""
        table = Tables(self.disk, ROOT / "config").consumer_offsets.load()
        value = table.offset_table.get("t@g", {}).get(0, 0)
        expect(value in self.saved, f"the table holds {value}, saved were {self.saved}")
        self.saved = [value]

    def retain(self) -> None:
        """Delete what is expired; an hour passes first, so everything synced is."""
        self.clock.advance(2 * HOUR_MS)
        segment_bytes = self.options.commitlog_segment_bytes
        log = self.store.log
        limit = log.start + self.options.delete_segments_per_pass * segment_bytes
        self.ledger.start_max = max(self.ledger.start_max, min(limit, log.tail - log.tail % segment_bytes))
        retain(Retention(self.store), asked=True)

    def pass_time(self) -> None:
        """Let some time pass, seldom backwards."""
        drawn = self.rng.random()
        if drawn < 0.05:
            self.clock.set_ms(self.clock.now_ms() - self.rng.randint(1, 2 * HOUR_MS))
        else:
            self.clock.advance(self.rng.choice((1, 10, 500, 4000, 60_000)))

    # -- the end of a life -------------------------------------------------------------------------------------------

    def lose_power(self, mode: CrashMode) -> None:
        """The power goes between two calls."""
        self.ledger.written_end = 0
        self.leave(self.disk.crash(mode, seed=self.rng.getrandbits(32)))

    def leave(self, disk: SimulatedDisk) -> None:
        """Continue with what is left of the disk; the store was not closed."""
        expect(not self.disk.bus_errors, f"a full disk would have killed the process: {self.disk.bus_errors}")
        self.disk = disk
        self._store = None

    def kill_process(self) -> None:
        """kill -9: every byte written stays, only memory is lost, so all that was readable must be there."""
        if self._store is not None:
            self.ledger.written_end = self._store.log.readable_end
        self.leave(self.disk.kill())

    def cut_power_during(self, call: int, mode: CrashMode, work: Callable[[], None]) -> bool:
        """Do something and let the power go at the n-th file-system call of it; False when it made fewer calls."""
        left: list[SimulatedDisk] = []
        disk = self.disk
        first = disk.calls
        seed = self.rng.getrandbits(32)

        def count(number: int, operation: str, path: str) -> None:
            if number - first == call:
                left.append(disk.crash(mode, seed=seed))
                raise PowerCut

        disk.on_call = count
        try:
            work()
        except PowerCut:
            self.ledger.written_end = 0
            self.leave(left[0])
            return True
        finally:
            disk.on_call = None
        return False
