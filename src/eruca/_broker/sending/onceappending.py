"""Appending messages with a mark unless they are already stored (see `once`)."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.refusals import refuse, refuse_unstored
from eruca._broker.sending.appending import Appending
from eruca._broker.sending.once import Once
from eruca._store.encodedbatch import BatchFacts, StoredBatch
from eruca._store.messagestore import MessageStore
from eruca._wire.batch import BatchItem, decode_batch, find_ends
from eruca._wire.codes import ResponseCode
from eruca._wire.once import ONCE_GROUP, OnceMark, read_mark
from eruca._wire.record import Record
from eruca.errors import MessageIllegal, StoreError


@dataclass(frozen=True, slots=True, eq=False)
class OnceAppending:
    """Stores messages with marks, each one once."""

    _appending: Appending
    _once: Once
    _store: MessageStore
    _stats: Stats

    def append(self, message: Record, topic: str, queue_id: int) -> bool:
        """Store a message that was sent to a queue of a topic; return False if it is already stored."""
        mark = _read_mark(message.properties)
        if queue_id < 0:
            refuse(ResponseCode.MESSAGE_ILLEGAL, "a message with a mark needs a queue")
        is_new = not self._once.has(topic, queue_id, mark)
        if is_new:
            self._check_room(topic, queue_id, mark)
            self._appending.append(message)
        else:
            self._once.dropped += 1
        self._once.note(topic, queue_id, mark)
        return is_new

    def append_batch(self, topic: str, queue_id: int, body: bytes, facts: BatchFacts) -> StoredBatch | None:
        """Store the messages of a batch that are not stored yet; return None if all are."""
        last, new = self._choose_new(topic, queue_id, body)
        batch = None
        if new is None:
            batch = self._appending.append_batch(topic, queue_id, body, facts)
        elif new:
            batch = self._appending.append_items(topic, queue_id, new, facts)
        self._once.note(topic, queue_id, last)
        return batch

    def _choose_new(self, topic: str, queue_id: int, data: bytes) -> tuple[OnceMark, list[BatchItem] | None]:
        """Return the last mark of a batch, and its messages that are not stored yet; None means all of them."""
        once = self._once
        ends = find_ends(data)
        if ends is None:
            items = decode_batch(data)
            if not items:
                refuse(ResponseCode.MESSAGE_ILLEGAL, "a batch needs at least one message")
            ends = items[0], items[-1], len(items)
        first, last, count = _read_mark(ends[0].properties), _read_mark(ends[1].properties), ends[2]
        if first[:-1] != last[:-1] or last.sequence - first.sequence < count - 1:
            refuse(ResponseCode.MESSAGE_ILLEGAL, "the marks of a batch are not in order")
        if once.find_stored(topic, queue_id, last) < first.sequence and not once.find_islands(topic, queue_id, last):
            self._check_room(topic, queue_id, last)
            return last, None
        # The response was lost; and if some are missing, the broker crashed before the log had them.
        new = [item for item in decode_batch(data) if not once.has(topic, queue_id, _read_mark(item.properties))]
        once.dropped += count - len(new)
        return last, new

    def _check_room(self, topic: str, queue_id: int, mark: OnceMark) -> None:
        try:
            self._once.check_room(topic, queue_id, mark)
        except StoreError as error:
            raise refuse_unstored(error, self._store, self._stats) from error


def _read_mark(properties: bytes) -> OnceMark:
    try:
        mark = read_mark(properties)
    except MessageIllegal as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, str(error))
    if mark is None:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"messages of the group {ONCE_GROUP} need a mark")
    return mark
