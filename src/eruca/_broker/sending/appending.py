"""Appending messages and batches to the store, with counters, and with the error codes that clients know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.refusals import refuse, refuse_unstored
from eruca._broker.sending.mapping import TIMER_MARK
from eruca._store.encodedbatch import BatchFacts, StoredBatch
from eruca._store.messagestore import MessageStore
from eruca._wire.batch import BatchItem, decode_batch
from eruca._wire.codes import ResponseCode
from eruca._wire.ids import encode_offset_id
from eruca._wire.record import Record
from eruca.errors import StoreError


@dataclass(frozen=True, slots=True, eq=False)
class Appending:
    """Stores what was sent."""

    _store: MessageStore
    _stats: Stats
    # Whether properties with TIMER_MARK delay a message.
    _wants_timer: Callable[[bytes], bool]

    def append(self, message: Record) -> None:
        """Store a message."""
        try:
            self._store.append(message)
        except StoreError as error:
            raise refuse_unstored(error, self._store, self._stats) from error
        self._stats.on_put(message.topic, 1, message.size, message.queue_id)

    def cut_batch(self, topic: str, body: bytes, facts: BatchFacts) -> list[bytes]:
        """Cut a batch into the pieces in which it is best stored."""
        try:
            return self._store.cut_encoded(topic, body, facts)
        except StoreError as error:
            raise refuse_unstored(error, self._store, self._stats) from error

    def append_batch(self, topic: str, queue_id: int, body: bytes, facts: BatchFacts) -> StoredBatch:
        """Store a batch as it arrived, or message by message if that is impossible."""
        batch = None
        if TIMER_MARK not in facts.shared:
            try:
                batch = self._store.append_encoded(topic, queue_id, body, facts)
            except StoreError as error:
                raise refuse_unstored(error, self._store, self._stats) from error
        if batch is None:
            return self.append_items(topic, queue_id, decode_batch(body), facts)
        self._stats.on_put(topic, batch.messages, batch.size, queue_id)
        return batch

    def append_items(self, topic: str, queue_id: int, items: list[BatchItem], facts: BatchFacts) -> StoredBatch:
        """Store the messages of a batch one by one: the slow path, for everything unusual."""
        timed = [each for each in (facts.shared, *[item.properties for item in items]) if TIMER_MARK in each]
        if any(self._wants_timer(each) for each in timed):
            refuse(ResponseCode.MESSAGE_ILLEGAL, "timer message illegal, messages of a batch cannot be delayed")
        messages = _make_messages(topic, queue_id, items, facts)
        try:
            self._store.append_batch(messages)
        except StoreError as error:
            raise refuse_unstored(error, self._store, self._stats) from error
        last = messages[-1]
        ids = ",".join([encode_offset_id(message.store_host, message.position) for message in messages])
        size = sum([message.size for message in messages])
        self._stats.on_put(topic, len(messages), size, queue_id)
        return StoredBatch(len(messages), messages[0].queue_offset, size, last.position + last.size, ids)


def _make_messages(topic: str, queue_id: int, items: list[BatchItem], facts: BatchFacts) -> list[Record]:
    """Build the messages of a batch, each with the common fields."""
    return [
        Record(
            topic=topic,
            queue_id=queue_id,
            flag=item.flag,
            body=item.body,
            properties=_join_properties(item.properties, facts.shared),
            sys_flag=facts.sys_flag,
            born_timestamp=facts.born_timestamp,
            born_host=facts.born_host,
            store_host=facts.store_host,
            reconsume_times=facts.reconsume_times,
        )
        for item in items
    ]


def _join_properties(own: bytes, shared: bytes) -> bytes:
    if not own:
        return shared
    return own + shared if own.endswith(b"\x02") else own + b"\x02" + shared
