"""The log of popping: written with every change of what is in flight, and read when a broker becomes a master.

It is a queue of a topic of its own, so it is synced, replicated, recovered and cut like everything else, and a slave
that becomes the master continues. What is in records that are far behind is written again (`keep_short`), so that a
start reads few records however long messages are in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eruca._broker.delaying.steadytime import SteadyTime
from eruca._broker.sending.stored import read_message
from eruca._broker.standing import Standing
from eruca._core.popping.pages import PAGE_RECORDS, Kept
from eruca._core.popping.state import Delivery, LineState, PopState, describe_line
from eruca._net.turns import Slices
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.names import POP_TOPIC
from eruca._wire.poplog import Item, Mark, Moved, decode_items, encode_items
from eruca._wire.record import Record
from eruca.errors import WireError

log = logging.getLogger(__name__)

#: A start reads at most this many records, or twice as many as there are deliveries in flight.
RECORDS_MAX: Final = 65_536
# A record is written again at this age, or at half of the log's retention time if that is less.
_OLD_MS_MAX: Final = 24 * 3_600_000
_HOUR_MS: Final = 3_600_000
# Items in one record that is written again.
_ITEMS_MAX: Final = 256


@dataclass(eq=False)
class PopLog:
    """Writes and reads the log of one broker."""

    _standing: Standing
    _store: MessageStore
    _steady: SteadyTime

    def __post_init__(self) -> None:
        #: What is in flight.
        self.state = PopState()
        #: The end of the log of popping: the offset of the next record.
        self.end = 0
        #: Whether the state is known and the broker may change it.
        self.is_open = False

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, body: list[Item]) -> int:
        """Store items and apply them; return the position in the commit log where the record ends.

        Raises StoreError, and nothing has changed then.
        """
        if self.end % PAGE_RECORDS == 0:
            body.append(Mark(self.state.pages.find_low(self.end)))
        host = self._standing.store_host
        now_ms = self._steady.now_ms()
        record = Record(POP_TOPIC, 0, 0, encode_items(body), born_timestamp=now_ms, born_host=host, store_host=host)
        self._store.append(record)
        self.end = record.queue_offset + 1
        self.state.apply(body, record.queue_offset, now_ms)
        return record.position + record.size

    def keep_short(self, now_ms: int) -> bool:
        """Write again what is in the oldest records, if they are far behind; return whether there may be more."""
        state = self.state
        records_max = max(RECORDS_MAX, 2 * state.deliveries)
        old_ms = min(_OLD_MS_MAX, self._store.options.retention_hours * _HOUR_MS // 2)
        body: list[Item] = []
        for thing in state.list_old(self.end, records_max, now_ms - old_ms):
            body.append(_describe(thing))
            if len(body) >= _ITEMS_MAX:
                break
        if body:
            self.write(body)
        return bool(body)

    # -- reading -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything; `load` reads it again."""
        self.state = PopState()

    async def load(self, drop_stored: Callable[[list[Moved], int], None]) -> None:
        """Read what is in flight from the log.

        `drop_stored` is called with the copies that a record announces and the position where the record ends, and
        removes those that are stored from the state.
        """
        queue = self._store.queues.get(POP_TOPIC, 0)
        self.end = 0 if queue is None else queue.max_offset
        low = 0 if queue is None else self._find_low(queue)
        self.state = state = PopState(low)
        if queue is None:
            return
        slices = Slices()
        for offset in range(low, self.end):
            found = self._read(queue, offset)
            if found is not None:
                record, body = found
                state.apply(body, offset, record.store_timestamp)
                if moved := [item for item in body if isinstance(item, Moved)]:
                    drop_stored(moved, record.position + record.size)
            if slices.is_over:
                await slices.rest()
        log.info(
            "%d popped messages are in flight, according to records %d to %d of %s",
            state.in_flight,
            low,
            self.end,
            POP_TOPIC,
        )

    def _find_low(self, queue: ConsumeQueue) -> int:
        """Return the first record that is needed, according to the last mark."""
        for offset in range(self.end - 1, queue.min_offset - 1, -1):
            if offset % PAGE_RECORDS and offset != queue.min_offset:
                continue
            found = self._read(queue, offset)
            marks = [] if found is None else [item.low for item in found[1] if isinstance(item, Mark)]
            if marks:
                return max(queue.min_offset, marks[-1])
        return queue.min_offset

    def _read(self, queue: ConsumeQueue, offset: int) -> tuple[Record, list[Item]] | None:
        entry = queue.entry(offset)
        record = None if entry is None else read_message(self._store, entry.position)
        if record is None or record.topic != POP_TOPIC:
            log.error("record %d of %s cannot be read: messages may be delivered again", offset, POP_TOPIC)
            return None
        try:
            return record, decode_items(record.body)
        except WireError as error:
            log.error("record %d of %s: %s", offset, POP_TOPIC, error)
            return None


def _describe(thing: Kept) -> Item:
    """Return the item that writes something again."""
    if isinstance(thing, Delivery):
        return thing.describe(max(0, thing.due_ms - thing.pop_ms), -1)
    assert isinstance(thing, LineState)
    return describe_line(thing)
