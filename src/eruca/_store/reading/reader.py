"""Looking things up in a store: messages of a queue, records by position or key, offsets by time."""

from __future__ import annotations

from collections.abc import Iterator

from eruca._store.log.commitlog import CommitLog
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import RecordFacts, iter_facts
from eruca._store.queues.index import Index
from eruca._store.queues.mending import Mender
from eruca._store.queues.queues import Queues
from eruca._store.reading.slices import (
    Filter,
    ReadBounds,
    ReadResult,
    find_offset_by_time,
    is_damaged,
    read_queue,
    read_store_time,
)
from eruca._wire.properties import RAW_KEYS, RAW_UNIQ_KEY, get_property
from eruca._wire.record import RecordView, inspect_record

_DEFAULT_BOUNDS = ReadBounds()


class Reader:
    """Looks up messages and records in a store."""

    def __init__(self, log: CommitLog, queues: Queues, index: Index | None, damage: DamageList, mender: Mender) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._damage = damage
        self._mender = mender

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        bounds: ReadBounds = _DEFAULT_BOUNDS,
        accept: Filter | None = None,
        limit: int | None = None,
    ) -> ReadResult:
        """Messages of a queue from an offset on, as slices of the mapped log; none that ends beyond `limit`."""
        queue = self._queues.get(topic, queue_id)
        return read_queue(queue, self._log, offset, bounds, accept, self._damage.items, limit, self._mender.mend)

    def view_record(self, position: int) -> memoryview | None:
        """The record that starts at a commit-log position, or None when none does."""
        if position >= self._log.readable_end or is_damaged(position, self._damage.items):
            return None
        return self._log.view_record(position)

    def view_message(self, position: int) -> memoryview | None:
        """The message at a position that a peer named, or None when no queue has one there.

        A peer chooses what is in bodies: bytes that look like a record of another topic, or like one that
        continues into the messages behind it.
        """
        record = self.view_record(position) if position >= 0 else None
        found = None if record is None else inspect_record(record, 0, len(record), False)
        if type(found) is not RecordView:
            return None
        queue = self._queues.get(found.topic.decode("utf-8", "replace"), found.queue_id)
        entry = None if queue is None else queue.entry(found.queue_offset)
        return record if entry is not None and (entry.position, entry.size) == (position, found.size) else None

    def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int = 64
    ) -> list[tuple[int, memoryview]]:
        """Records of a topic with a key or unique id, and a store time in the range."""
        if self._index is None:
            return []
        found: list[tuple[int, memoryview]] = []
        # A record that has the same key twice has two entries.
        for position in sorted(set(self._index.find(topic, key, begin_ms, end_ms, count_max))):
            view = self.view_record(position)
            if view is not None and _has_key(view, topic, key, begin_ms, end_ms):
                found.append((position, view))
        return found

    def find_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset of the message stored at a time, or the nearest one."""
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else find_offset_by_time(queue, self._log, timestamp_ms)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 without one."""
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue.min_offset)
        return -1 if entry is None else self.read_time(entry.position, entry.size)

    def read_time(self, position: int, size: int) -> int:
        """When the record at a position was stored; -1 when it cannot be read."""
        return read_store_time(self._log, position, size)

    def iter_facts(self, start: int, end: int) -> Iterator[list[RecordFacts]]:
        """The header fields of the records between two positions, in large lists; damage is skipped."""
        return iter_facts(self._log.chain, start, end, list(self._damage.items))


def _has_key(record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Does the record have the key, and was it stored in the range? The index has only hashes and seconds."""
    view = inspect_record(record, 0, len(record), False)
    if type(view) is not RecordView or view.topic != topic.encode():
        return False
    if not begin_ms <= view.store_timestamp <= end_ms:
        return False
    properties = bytes(record[view.properties_at : view.properties_end])
    wanted = key.encode()
    if get_property(properties, RAW_UNIQ_KEY) == wanted:
        return True
    keys = get_property(properties, RAW_KEYS)
    return keys is not None and wanted in keys.split(b" ")
