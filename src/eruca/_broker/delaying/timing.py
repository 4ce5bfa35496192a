"""Delivery of messages with arbitrary delays: from rmq_sys_wheel_timer to their real topic, when they are due.

The timer topic's queue is read as it grows, its messages go into the timing wheel, and due messages are stored once
more in their real topic with all properties, as for the delay levels. A message that cancels another one is in the same
queue, which is read to its end before anything is delivered.

The log deletes old segments, and a message may wait longer than they are kept. So a record that gets old is stored
again in the timer topic (it rolls), and the new record goes into the wheel.

A slave has the queue but no wheel. It copies the master's progress (`TimerProgress`); when it becomes the master, it
reads the queue from the start and skips what was already delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from eruca._broker.administering.stats import Stats
from eruca._broker.delaying.cancellations import Cancellations
from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.options import LiveOptions
from eruca._broker.sending.stored import copy_message, read_message
from eruca._broker.standing import Standing
from eruca._core.timingwheel import TimerEntry, TimingWheel, slot_of
from eruca._ground.clock import Clock
from eruca._ground.digits import read_digits
from eruca._ground.repeating import Repeating
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE, ConsumeQueue
from eruca._store.tables.cancelled import Cancelled
from eruca._store.tables.timerlog import TimerCheckpoint, TimerLog
from eruca._wire.bodies import TimerProgress
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLLED_FROM,
    UNIQ_KEY,
    encode_properties,
    get_property,
    parse_properties,
)
from eruca._wire.record import Record, RecordView, inspect_record
from eruca.errors import InvalidName, MessageIllegal, StoreError

log = logging.getLogger(__name__)

SAVE_INTERVAL_MS = 2000
RETRY_MS = 1000
# A record rolls at this age, or at two thirds of the log's retention time if that is less.
ROLL_MS_MAX = 2 * 24 * 3_600_000
_ROLL_MS_MIN = 60_000
_HOUR_MS = 3_600_000
# What one turn reads and delivers before other work gets its turn: a millisecond or two of event loop time.
_TURN_READS_MAX = 128
_TURN_MESSAGES_MAX = 32
_TURN_BYTES_MAX = 1024 * 1024
_TURN_BLOCKS_MAX = 128
_OUT_MS = TIMER_OUT_MS.encode()
_DEL_UNIQKEY = TIMER_DEL_UNIQKEY.encode()
_ROLLED_FROM = TIMER_ROLLED_FROM.encode()
_TIME_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class TimerFacts:
    """What the timer has to do."""

    # Messages that are not delivered yet, and those that were not even read.
    pending: int
    unread: int
    # How long ago the next delivery was due.
    late_ms: int


@dataclass(eq=False)
class Timing:
    """Delivers due messages while the broker is a master."""

    _options: LiveOptions
    _standing: Standing
    _clock: Clock
    _store: MessageStore
    # Syncs the store to disk.
    _sync: Callable[[], asyncio.Future[bool]]
    _stats: Stats
    _steady: SteadyTime
    _cancelled: Cancellations

    def __post_init__(self) -> None:
        self._log = self._make_log()
        self._wheel = TimingWheel(self._clock.now_ms() - 1)
        self._read_offset = 0
        # Records that were rolled shortly before a crash, while the saved wheel still has them.
        self._superseded: set[int] = set()
        self._caught_up_at = 0
        # By the loop's clock.
        self._paused_until = 0.0
        # Something was delivered since the last save.
        self._has_finished = False
        self._saved = TimerCheckpoint()
        # The progress of the previous master.
        self._inherited = TimerProgress()
        self._saving = asyncio.Lock()
        given = self._options.now
        self._delivering = Repeating(
            "the timer",
            self._run_turn,
            lambda: given.schedule_interval_ms / 1000,
            at_once=True,
            retry_s=RETRY_MS / 1000,
        )
        self._save_timer = Repeating("saving the timer", self.save, lambda: SAVE_INTERVAL_MS / 1000)

    def _make_log(self) -> TimerLog:
        return TimerLog(self._store.disk, self._store.paths.timer)

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the progress and continue; a slave delivers nothing. Must run before the first message arrives."""
        loop = asyncio.get_running_loop()
        if self._standing.is_slave or self._delivering.is_running:
            return
        self._log = self._make_log()
        checkpoint = await loop.run_in_executor(None, self._log.open)
        self._cancelled.restore(await loop.run_in_executor(None, self._log.cancelled.load))
        queue = self._find_queue()
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        self._caught_up_at = high
        self._read_offset = low
        self._superseded.clear()
        if checkpoint is None:
            self._saved = TimerCheckpoint()
            self._wheel = TimingWheel(self._clock.now_ms() - 1)
        else:
            if checkpoint.read_offset > high:
                checkpoint = await self._correct(checkpoint, low, high)
            self._saved = checkpoint
            saved = self._log.count_from(slot_of(checkpoint.through_ms + 1))
            self._wheel = TimingWheel(checkpoint.through_ms, saved)
            self._read_offset = max(low, min(checkpoint.read_offset, high))
            if self._read_offset != checkpoint.read_offset:
                log.warning(
                    "the timer had read its queue up to %d, but the queue ranges from %d to %d",
                    checkpoint.read_offset,
                    low,
                    high,
                )
        self._delivering.start()
        self._save_timer.start()

    async def _correct(self, checkpoint: TimerCheckpoint, low: int, high: int) -> TimerCheckpoint:
        """Fix a checkpoint beyond the end of the queue: read pending messages again, but not delivered ones."""
        log.warning(
            "the timer had read its queue up to %d, but the queue ends at %d: reading it again",
            checkpoint.read_offset,
            high,
        )
        await asyncio.to_thread(self._log.clear)
        if self._inherited.read_offset < high:
            self._inherited = TimerProgress(read_offset=high, through_ms=checkpoint.through_ms)
        return TimerCheckpoint(low, 0, checkpoint.through_ms)

    async def stop(self) -> None:
        """Stop delivering, and save the progress."""
        if not self._delivering.is_running:
            return
        await self._delivering.stop()
        # Not in the middle of a save: its thread would continue and collide with the last save.
        async with self._saving:
            await self._save_timer.stop()
        try:
            await self.save()
        except StoreError as error:
            log.error("the timer could not be saved, messages may be delivered twice: %s", error)
        self._log.close()

    # -- masters and slaves ------------------------------------------------------------------------------------------

    @property
    def progress(self) -> TimerProgress:
        """Return the progress of the timer that is known to be on disk."""
        if self._saved.read_offset < self._inherited.read_offset:
            return self._inherited
        return TimerProgress(read_offset=self._saved.read_offset, through_ms=self._saved.through_ms)

    def inherit(self, progress: TimerProgress) -> None:
        """Adopt the master's progress; the next start continues from there."""
        self._inherited = progress

    async def forget(self) -> None:
        """Discard the timer's state, which is useless on a slave. The timer is stopped."""
        self._inherited = self.progress
        self._saved = TimerCheckpoint()
        await asyncio.to_thread(self._make_log().discard)

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Return the number of pending messages, including cancelled ones that are not due yet."""
        return self._wheel.pending

    @property
    def is_used(self) -> bool:
        """Return whether the timer ever got a message, also one that no save knows yet."""
        queue = self._find_queue()
        return queue is not None and queue.max_offset > 0

    def describe(self) -> TimerFacts:
        """Return what there is to do."""
        queue = self._find_queue()
        due_ms = self._wheel.next_due_ms
        return TimerFacts(
            pending=self._wheel.pending,
            unread=0 if queue is None else max(0, queue.max_offset - self._read_offset),
            late_ms=0 if due_ms is None else max(0, self._clock.now_ms() - due_ms),
        )

    # -- the timer ---------------------------------------------------------------------------------------------------

    async def _run_turn(self) -> float:
        return self.run_turn() / 1000

    def run_turn(self) -> int:
        """Read new messages and deliver due ones, up to a limit; return the milliseconds until the next turn."""
        now_ms = self._clock.now_ms()
        interval_ms = self._options.now.schedule_interval_ms
        # Open the current slot first, so that messages due at once go into the heap.
        self._open_slots(now_ms)
        if self._read_queue():
            return 0
        paused_ms = round((self._paused_until - self._clock.monotonic()) * 1000)
        if paused_ms > 0:
            return min(interval_ms, paused_ms)
        if not self._deliver_due(now_ms):
            return interval_ms
        self._wheel.settle(now_ms)
        self._open_slots(now_ms)
        due_ms = self._wheel.next_due_ms
        if due_ms is None:
            return interval_ms
        return max(0, min(interval_ms, due_ms - now_ms))

    def _open_slots(self, now_ms: int) -> None:
        wheel = self._wheel
        while (slot := wheel.find_slot(now_ms)) is not None:
            wheel.load(slot, self._log.read(slot))
            wheel.settle(now_ms)

    # -- reading the queue -------------------------------------------------------------------------------------------

    def _find_queue(self) -> ConsumeQueue | None:
        return self._store.queues.get(TIMER_TOPIC, 0)

    def _read_queue(self) -> bool:
        """Read new messages from the queue, up to a limit; return True if there are more."""
        queue = self._find_queue()
        if queue is None or self._read_offset >= queue.max_offset:
            return False
        if self._read_offset < queue.min_offset:
            log.error("the timer lost messages %d to %d of its queue", self._read_offset, queue.min_offset)
            self._read_offset = queue.min_offset
        for position, size, _ in list(queue.entries(self._read_offset, _TURN_READS_MAX)):
            if size != FILLER_SIZE:
                self._take(position, size)
            self._read_offset += 1
        return self._read_offset < queue.max_offset

    def _take(self, position: int, size: int) -> None:
        """Put one message from the queue into the wheel."""
        record = self._store.reader.view_record(position)
        view = None if record is None else inspect_record(record, 0, len(record), False)
        if record is None or type(view) is not RecordView:
            log.warning("the timer message at %d cannot be read and is skipped", position)
            return
        properties = bytes(record[view.properties_at : view.properties_end])
        due_ms = read_digits(get_property(properties, _OUT_MS), _TIME_DIGITS_MAX)
        if due_ms is None:
            log.error("the timer message at %d has no due time and is skipped", position)
            return
        cancelled = get_property(properties, _DEL_UNIQKEY)
        if cancelled is not None:
            topic = parse_properties(properties).get(REAL_TOPIC, "")
            self._cancelled.add(topic, cancelled.decode("utf-8", "replace"), due_ms)
            return
        if self._read_offset < self._inherited.read_offset and due_ms <= self._inherited.through_ms:
            return  # the previous master has delivered it
        if self._read_offset < self._caught_up_at:
            rolled_from = read_digits(get_property(properties, _ROLLED_FROM))
            if rolled_from is not None and self._read_offset >= self._saved.read_offset:
                self._superseded.add(rolled_from)
        self._wheel.put(min(due_ms, view.store_timestamp + self._roll_ms), position, size)

    @property
    def _roll_ms(self) -> int:
        return max(_ROLL_MS_MIN, min(ROLL_MS_MAX, self._store.options.retention_hours * _HOUR_MS * 2 // 3))

    # -- delivering --------------------------------------------------------------------------------------------------

    def _deliver_due(self, now_ms: int) -> bool:
        """Deliver due messages, up to a limit; return False if the store does not accept them now."""
        wheel = self._wheel
        steady_ms = self._steady.now_ms()
        count = size = 0
        while count < _TURN_MESSAGES_MAX and size < _TURN_BYTES_MAX and (entry := wheel.peek(now_ms)) is not None:
            try:
                early_ms = self._finish(entry, now_ms, steady_ms)
                if early_ms > 0:
                    if wheel.is_holding_much:
                        return False
                    wheel.hold(now_ms + early_ms)
                    count += 1
                    continue
            except (MessageIllegal, InvalidName) as error:
                # Retrying would not help, and other messages wait. It stays in the timer topic.
                log.error("the timer message at %d cannot be delivered and is skipped: %s", entry.position, error)
            except StoreError as error:
                log.error("the timer is paused for a while: %s", error)
                self._paused_until = self._clock.monotonic() + RETRY_MS / 1000
                return False
            wheel.finish()
            self._has_finished = True
            count += 1
            size += entry.size
        return True

    def _read(self, entry: TimerEntry) -> Record | None:
        """Return the message of an entry; None if its record is gone or replaced by another."""
        message = read_message(self._store, entry.position)
        return message if message is not None and message.topic == TIMER_TOPIC and message.size == entry.size else None

    def _finish(self, entry: TimerEntry, now_ms: int, steady_ms: int) -> int:
        """Deliver one message to its destination, or store it again if it has to wait longer.

        Returns 0, or by how many milliseconds it is too early although it is due by the wall clock.
        """
        if entry.position in self._superseded:
            self._superseded.discard(entry.position)
            return 0
        message = self._read(entry)
        if message is None:
            log.warning("the timer message at %d cannot be read and is skipped", entry.position)
            return 0
        properties = message.read_properties()
        topic, queue_id = properties.get(REAL_TOPIC), read_digits(properties.get(REAL_QID))
        due_ms = read_digits(properties.get(TIMER_OUT_MS), _TIME_DIGITS_MAX)
        if topic in (None, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC) or queue_id is None or due_ms is None:
            log.error("the timer message at %d has no destination and is skipped", entry.position)
            return 0
        assert topic is not None
        if self._cancelled.meet(topic, properties.get(UNIQ_KEY, "")):
            return 0
        steady = self._steady
        steady_due_ms = steady.find_due(entry.position, due_ms, due_ms - message.store_timestamp)
        if due_ms > now_ms:
            properties[TIMER_ROLLED_FROM] = str(entry.position)
            # The new record is stamped by the wall clock as it is set now, and its due time follows that clock.
            properties[TIMER_OUT_MS] = str(steady_due_ms + steady.shift_ms)
            rolled = self._store.append(copy_message(message, TIMER_TOPIC, 0, encode_properties(properties)))
            self._stats.on_own(rolled.size)
        elif steady_due_ms > steady_ms:
            return steady_due_ms - steady_ms
        else:
            stored = self._store.append(copy_message(message, topic, queue_id))
            self._stats.on_put(topic, 1, stored.size, stored.queue_id)
        return 0

    # -- saving ------------------------------------------------------------------------------------------------------

    async def save(self) -> None:
        """Save the progress of the timer if it changed."""
        async with self._saving:
            await self._cancelled.sweep()
            await self._save_entries()
            self._wheel.settle(self._clock.now_ms())
            # No other task runs before the next await, so offset, log and time are consistent.
            checkpoint = TimerCheckpoint(self._read_offset, self._log.end, self._wheel.through_ms)
            # The passing of time alone is not worth a write.
            is_known = (checkpoint.read_offset, checkpoint.log_end) == (self._saved.read_offset, self._saved.log_end)
            if is_known and not self._has_finished and not self._cancelled.has_changed:
                return
            self._has_finished = False
            changed: Sequence[Cancelled] = ()
            everything = False
            if self._cancelled.has_changed:
                is_due = self._log.cancelled.should_replace(len(self._cancelled))
                changed, everything = self._cancelled.take_changes(everything=is_due)
            loop = asyncio.get_running_loop()
            try:
                # Copies must be on disk before the checkpoint counts them as delivered.
                if not await self._sync():
                    raise StoreError("the log was not synced before the store closed")
                await loop.run_in_executor(None, partial(self._log.save, checkpoint, changed, everything=everything))
            except BaseException:
                self._has_finished = True
                if changed or everything:
                    self._cancelled.keep_changes()
                raise
            self._saved = checkpoint
            detached = self._log.forget_below(slot_of(checkpoint.through_ms))
            if detached:
                await loop.run_in_executor(None, self._log.dispose, detached)

    async def _save_entries(self) -> None:
        """Write every entry that exists only in the wheel to the log."""
        count = 0
        while not self._wheel.is_saved:
            slot, entries = self._wheel.first_unsaved()
            self._log.append(slot, entries)
            self._wheel.mark_saved(slot)
            count += 1
            if count % _TURN_BLOCKS_MAX == 0:
                await asyncio.sleep(0)
