"""Delivery of delayed messages: from SCHEDULE_TOPIC_XXXX to their real topic, when they are due.

A delayed message is stored twice: at once in the delay topic, whose consume queue holds the due time, and when it is
due in its real topic. The copy keeps all properties (including DELAY, REAL_TOPIC and REAL_QID), as in Java.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.delaying.timing import Timing
from eruca._broker.options import LiveOptions
from eruca._broker.sending.stored import copy_message, read_message
from eruca._broker.standing import Standing
from eruca._core.schedule import Correct, DelaySchedule, Deliver, Delivered, DeliveryFailed, QueueRead, Skip, WaitUntil
from eruca._ground.config import parse_delay_levels
from eruca._ground.digits import read_digits
from eruca._ground.repeating import Repeating
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._store.tables.saving import TableSaver
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import DelayOffsets, TimerProgress
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from eruca._wire.properties import REAL_QID, REAL_TOPIC
from eruca.errors import InvalidName, MessageIllegal, StoreError, TableUnsaved

log = logging.getLogger(__name__)

_TABLE = "delays"
# What one level delivers before other work gets its turn: about a millisecond of event loop time.
_TURN_MESSAGES_MAX = 64
_TURN_BYTES_MAX = 1024 * 1024
# How long start and stop wait for the last delivered messages to be synced.
_SYNC_SECONDS_MAX = 5.0


@dataclass(eq=False)
class Schedule:
    """Delivers due messages while the broker is a master."""

    _options: LiveOptions
    _standing: Standing
    _store: MessageStore
    # Syncs the store to disk.
    _sync: Callable[[], asyncio.Future[bool]]
    _stats: Stats
    _saver: TableSaver
    _steady: SteadyTime
    _file: TableFile[DelayOffsets]
    # The progress of the timer: slaves copy both from one table.
    _timing: Timing

    def __post_init__(self) -> None:
        self._delays_ms = parse_delay_levels(self._store.options.delay_levels)
        self._machine = DelaySchedule(len(self._delays_ms), {})
        given = self._options.now
        self._delivering = Repeating(
            "delivering delayed messages",
            self._run_turn,
            lambda: given.schedule_interval_ms / 1000,
            at_once=True,
        )
        self._saving = Repeating(
            "saving the progress of delayed delivery",
            self._save,
            lambda: given.delay_offsets_interval_ms / 1000,
        )
        # The progress at the last request to save, and the newest progress whose copies are on disk.
        self._saved: dict[int, int] = {}
        self._synced: dict[int, int] = {}
        self._flushing: asyncio.Future[bool] | None = None

    async def start(self) -> None:
        """Load the progress and continue; a slave delivers nothing."""
        loop = asyncio.get_running_loop()
        await self._wait_until_synced()
        with suppress(TableUnsaved):  # already logged; with an older table, later messages are delivered again
            await self._saver.wait_until_saved(_TABLE)
        table = await loop.run_in_executor(None, self._file.load)
        self._machine = DelaySchedule(len(self._delays_ms), table.offset_table)
        self._saved = self._synced = self._machine.offsets
        self._timing.inherit(table.eruca_timer or TimerProgress())
        self._saver.add(_TABLE, self._file, lambda: self._describe(self._synced))
        if self._standing.is_slave:
            return  # the master's progress may be ahead of this log
        if not self._delivering.is_running:
            self._steady.begin()
        # Before the first message can arrive: a cursor beyond the end (a crash cost the queue its last entries) would
        # otherwise skip it.
        for level in self._machine.levels:
            self._correct(level)
        self._delivering.start()
        self._saving.start()

    async def stop(self) -> None:
        """Stop delivering; the offsets are saved with the other tables."""
        if self._delivering.is_running:
            await self._delivering.stop()
            await self._saving.stop()
            self.save_if_changed()
            await self._wait_until_synced()

    def adopt(self, offsets: dict[int, int]) -> None:
        """Adopt the master's progress, in case this broker becomes the master."""
        self._machine = DelaySchedule(len(self._delays_ms), offsets)
        # Even if the offsets did not change: the timer is in the same table.
        self._save_when_synced()

    def _correct(self, level: int) -> None:
        """Move a level's cursor into the range of its queue."""
        queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        for action in self._machine.handle(QueueRead(level, low, high, ()), self._steady.now_ms()):
            if isinstance(action, Correct):
                _log_correction(action)

    def snapshot(self) -> DelayOffsets:
        """Return the current table, as slaves copy it."""
        return self._describe(self._machine.offsets)

    def _describe(self, offsets: dict[int, int]) -> DelayOffsets:
        timer = self._timing.progress
        is_used = timer.read_offset or self._timing.is_used
        return DelayOffsets(eruca_timer=timer if is_used else None, offset_table=offsets)

    # -- the timer ---------------------------------------------------------------------------------------------------

    async def _run_turn(self) -> float:
        """Deliver due messages of every level; return the seconds until the next turn."""
        wait_ms = self._options.now.schedule_interval_ms
        for level in self._machine.levels:
            try:
                wait_ms = min(wait_ms, self.deliver_due(level))
            except Exception:
                # One level must not hold up the others.
                log.exception("delay level %d is paused for a while", level)
                self._machine.handle(DeliveryFailed(level, self._machine.cursor(level)), self._steady.now_ms())
            # A level with much to deliver yields to other tasks in between.
            if wait_ms == 0:
                await asyncio.sleep(0)
        return wait_ms / 1000

    async def _save(self) -> None:
        self.save_if_changed()

    def save_if_changed(self) -> asyncio.Future[bool] | None:
        """Save the offsets if a message was delivered since the last save, once the copies are on disk.

        Otherwise a power loss could leave a table that counts a message as delivered whose copy is lost. Returns the
        future that waits for the disk, if anything changed.
        """
        return None if self._machine.offsets == self._saved else self._save_when_synced()

    def _save_when_synced(self) -> asyncio.Future[bool]:
        self._saved = offsets = self._machine.offsets

        def save(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and done.result():
                self._synced = offsets
                self._saver.mark(_TABLE)

        self._flushing = self._sync()
        self._flushing.add_done_callback(save)
        return self._flushing

    async def _wait_until_synced(self) -> None:
        if self._flushing is not None:
            # A broken disk must not block the broker; in that case messages are delivered twice.
            await asyncio.wait([self._flushing], timeout=_SYNC_SECONDS_MAX)
            await asyncio.sleep(0)  # lets the callback mark the table

    def deliver_due(self, level: int) -> int:
        """Deliver a bounded number of due messages of a level; return the milliseconds until the next turn."""
        machine, steady = self._machine, self._steady
        now_ms = steady.now_ms()
        interval_ms = self._options.now.schedule_interval_ms
        queue = self._store.queues.get(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return interval_ms
        delay_ms = self._delays_ms[level - 1]
        entries = tuple(
            (position, 0 if size == FILLER_SIZE else size, steady.find_due(position, due_ms, delay_ms))
            for position, size, due_ms in queue.entries(machine.cursor(level), _TURN_MESSAGES_MAX)
        )
        delivered_bytes = 0
        for action in machine.handle(QueueRead(level, queue.min_offset, queue.max_offset, entries), now_ms):
            match action:
                case Deliver(_, offset, position, size):
                    if not self._deliver(level, offset, position):
                        return interval_ms
                    delivered_bytes += size
                    if delivered_bytes >= _TURN_BYTES_MAX:
                        return 0
                case Skip(_, offset):
                    machine.handle(Delivered(level, offset), now_ms)
                case Correct():
                    _log_correction(action)
                    return 0
                case WaitUntil(_, due_ms):
                    return max(1, min(interval_ms, due_ms - now_ms))
        return 0 if machine.cursor(level) < queue.max_offset else interval_ms

    # -- one message -------------------------------------------------------------------------------------------------

    def _deliver(self, level: int, offset: int, position: int) -> bool:
        """Deliver one message to its destination; return False if the store does not accept it now."""
        try:
            self._append_copy(position)
        except (MessageIllegal, InvalidName) as error:
            # Retrying would not help, and one message must not block the level. It stays in the delay topic.
            log.error("the delayed message at %d cannot be delivered and is skipped: %s", position, error)
        except StoreError as error:
            log.error("delay level %d is paused for a while: %s", level, error)
            self._machine.handle(DeliveryFailed(level, offset), self._steady.now_ms())
            return False
        # `handle` ignores the time for this event.
        self._machine.handle(Delivered(level, offset), 0)
        return True

    def _append_copy(self, position: int) -> None:
        message = read_message(self._store, position)
        if message is None or message.topic != SCHEDULE_TOPIC:
            log.warning("the delayed message at %d cannot be read and is skipped", position)
            return
        topic = message.get_property(REAL_TOPIC)
        queue_id = read_digits(message.get_property(REAL_QID))
        if topic is None or queue_id is None or topic == HALF_TOPIC:
            log.error("the delayed message at %d has no destination and is skipped", position)
            return
        stored = self._store.append(copy_message(message, topic, queue_id))
        self._stats.on_put(topic, 1, stored.size, stored.queue_id)


def _log_correction(action: Correct) -> None:
    log.warning(
        "delay level %d was at %d, outside its queue, and continues at %d", action.level, action.before, action.after
    )
