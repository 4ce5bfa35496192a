"""What keeps popping going: what ran out is delivered again, offsets are written down, and the log stays short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.groups.offsets import Offsets
from eruca._broker.popping.copies import Copies, name_stored_topic
from eruca._broker.popping.poplog import PopLog
from eruca._core.popping.due import BUCKET_MS
from eruca._core.popping.state import Delivery, LineState
from eruca._ground.limits import SLICE_SECONDS
from eruca._ground.repeating import Repeating
from eruca._net.guards import Reporter
from eruca._net.meters import show
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._wire.poplog import Cursor, Forgotten, Item, Settled
from eruca.errors import ErucaError, StoreError

log = logging.getLogger(__name__)

_TIDY_S: Final = 1.0
_RETRY_MS: Final = 1000
# Cursors in one record.
_ITEMS_MAX: Final = 256
# How many records are written again before other work gets its turn.
_TURN_RECORDS: Final = 4


@dataclass(eq=False)
class Redelivery:
    """Runs while the broker is a master."""

    _store: MessageStore
    _offsets: Offsets
    _steady: SteadyTime
    _log: PopLog
    _copies: Copies
    # Syncs the store to disk.
    _sync: Callable[[], asyncio.Future[bool]]
    # Answers waiting pops, and tries those again that got nothing because too much was in flight.
    _release: Callable[[], None]
    _wake_capped: Callable[[], None]

    def __post_init__(self) -> None:
        self._reporter = Reporter(log)
        #: Messages that were delivered again since the start.
        self.revived = 0
        self._running = Repeating("popping", self._run_turn, lambda: BUCKET_MS / 1000, at_once=True, retry_s=_TIDY_S)
        self._tidying = Repeating("tidying the log of popping", self._tidy, lambda: _TIDY_S)
        show("pop_in_flight", "Messages that are popped and not acknowledged.", self, lambda it: it.in_flight)
        show("pop_deliveries", "Deliveries that these messages are part of.", self, lambda it: it.deliveries)

    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
        return self._log.state.in_flight

    @property
    def deliveries(self) -> int:
        """The number of deliveries in flight."""
        return self._log.state.deliveries

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read what is in flight, and continue; must run before the first message arrives."""
        if self._running.is_running:
            return
        await self._log.load(self._copies.drop_stored)
        for line in self._log.state.lines.values():
            following = line.next if line.order is None else line.order.next
            if following >= 0:
                topic = name_stored_topic(line)
                end = self._store.queues.find_end(topic, line.queue_id)
                self._offsets.put(line.group, topic, line.queue_id, min(following, end))
        with suppress(StoreError):  # it is tried again every second
            self._copies.store_missing(self._steady.now_ms())
        self._log.is_open = True
        self._running.start()
        self._tidying.start()

    async def stop(self) -> None:
        """Stop storing, and answer those that wait."""
        self._log.is_open = False
        self._release()
        if not self._running.is_running:
            return
        await self._running.stop()
        await self._tidying.stop()
        with suppress(StoreError):  # it is not the master any more, or its disk is full
            await self._write_cursors()
        # Nothing refers to the log of another master.
        self._log.clear()

    # -- what ran out ------------------------------------------------------------------------------------------------

    async def _run_turn(self) -> float | None:
        return 0.0 if self.run_turn() else None

    def run_turn(self) -> bool:
        """Deliver again what ran out, for at most one time slice; return whether there is more."""
        end = perf_counter() + SLICE_SECONDS
        now_ms = self._steady.now_ms()
        while True:
            due = self._log.state.take_due(now_ms, 1)
            if not due:
                return False
            if not self._revive(due[0], now_ms):
                return False
            if perf_counter() >= end:
                return True

    def _revive(self, delivery: Delivery, now_ms: int) -> bool:
        """Copy what is in flight of a delivery to the retry topic; return False if the store accepts nothing now."""
        line = delivery.line
        originals = []
        for _, offset in delivery.list_open():
            original = self._copies.find_original(line, offset)
            if original is None:
                log.error(
                    "message %d of queue %d of %s, popped by group %s, cannot be read and is not delivered again",
                    offset,
                    line.queue_id,
                    name_stored_topic(line),
                    line.group,
                )
            else:
                originals.append((original, delivery.suspended))
        try:
            self._copies.store_owed(now_ms)
            copies = self._copies.announce(line, originals)
            self._log.write([*copies, _settle(delivery)])
        except ErucaError as error:
            self._log.state.defer(delivery, now_ms + _RETRY_MS)
            self._reporter.report(line.group, f"messages of group {line.group} are delivered again later: {error}")
            return not isinstance(error, StoreError)
        self.revived += len(copies)
        try:
            self._copies.store_announced(copies, now_ms)
        except StoreError as error:
            self._reporter.report(line.group, f"messages of group {line.group} are delivered again later: {error}")
            return False
        return True

    # -- tidying -----------------------------------------------------------------------------------------------------

    async def _tidy(self) -> None:
        self._copies.store_owed(self._steady.now_ms())
        if any(line.unsafe_end > self._store.flusher.flushed for line in self._log.state.lines.values()):
            await self._sync()
        await self._write_cursors()
        slices = Slices()
        for _ in range(_TURN_RECORDS):
            if not self.keep_short():
                break
            await slices.rest()
        self._wake_capped()

    def keep_short(self) -> bool:
        """Write again what is far behind in the log; return whether there may be more."""
        return self._log.keep_short(self._steady.now_ms())

    @property
    def low(self) -> int:
        """The first record of the log that a start needs."""
        return self._log.state.pages.find_low(self._log.end)

    async def _write_cursors(self) -> None:
        """Write down offsets that were changed by others, or moved past messages that nobody wanted."""
        body: list[Item] = []
        slices = Slices()
        for line in list(self._log.state.lines.values()):
            item = self._find_moved(line)
            if item is not None:
                body.append(item)
            # Written before other work gets its turn: it may move the same offsets on.
            if body and (len(body) >= _ITEMS_MAX or slices.is_over):
                self._log.write(body)
                body = []
            if slices.is_over:
                await slices.rest()
        if body:
            self._log.write(body)

    def _find_moved(self, line: LineState) -> Cursor | None:
        topic = name_stored_topic(line)
        offset = self._offsets.get(line.group, topic, line.queue_id)
        if line.unsafe_end and offset == line.unsafe_from:
            if self._store.flusher.flushed >= line.unsafe_end:
                line.unsafe_end = 0
                self._offsets.put(line.group, topic, line.queue_id, line.next)
            return None
        line.unsafe_end = 0
        known = line.next if line.order is None else line.order.next
        if offset < 0 or offset == known:
            return None
        return Cursor(line.group, line.topic, line.kind, line.queue_id, offset)

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """A group or a topic is deleted: forget what is in flight."""
        state = self._log.state
        if any(line.group == group or line.topic == topic for line in state.lines.values()):
            try:
                self._log.write([Forgotten(group, topic)])
            except StoreError as error:
                log.error("what group %s or topic %s has in flight is not forgotten: %s", group, topic, error)


def _settle(delivery: Delivery) -> Settled:
    line = delivery.line
    return Settled(line.group, line.topic, line.kind, line.queue_id, delivery.start, delivery.pop_ms, delivery.open)
