"""Looking things up in a store: messages of a queue, records by position or key, offsets by time."""

from __future__ import annotations

from eruca.store.commitlog import CommitLog
from eruca.store.damage import DamageList
from eruca.store.index import Index
from eruca.store.mending import Mender
from eruca.store.queues import Queues
from eruca.store.read import (
    Filter,
    ReadBounds,
    ReadResult,
    find_offset_by_time,
    is_damaged,
    read_queue,
    read_store_time,
)
from eruca.wire.properties import RAW_KEYS, RAW_UNIQ_KEY, get_property
from eruca.wire.record import RecordView, inspect_record

_DEFAULT_BOUNDS = ReadBounds()


class Lookup:
    """What readers ask of a store."""

    commitlog: CommitLog
    queues: Queues
    index: Index | None
    damage: DamageList
    mender: Mender

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        bounds: ReadBounds = _DEFAULT_BOUNDS,
        accept: Filter | None = None,
        limit: int | None = None,
    ) -> ReadResult:
        """Messages of a queue from an offset on, as slices of the mapped log; none that ends behind a position."""
        queue = self.queues.get(topic, queue_id)
        return read_queue(queue, self.commitlog, offset, bounds, accept, self.damage.items, limit, self.mender.mend)

    def view_record(self, position: int) -> memoryview | None:
        """The record that starts at a commit-log position, or None when none does."""
        segment = self.commitlog.chain.find(position)
        if segment is None or position >= self.commitlog.readable_end or is_damaged(position, self.damage.items):
            return None
        view = inspect_record(segment.buffer, position - segment.start, segment.size, False, position)
        return segment.view(position, view.size) if type(view) is RecordView else None

    def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int = 64
    ) -> list[tuple[int, memoryview]]:
        """Records of a topic with a key or unique id, and a store time in the range."""
        if self.index is None:
            return []
        found: list[tuple[int, memoryview]] = []
        # A record that has the key twice has two entries.
        for position in sorted(set(self.index.find(topic, key, begin_ms, end_ms, count_max))):
            view = self.view_record(position)
            if view is not None and _has_key(view, topic, key, begin_ms, end_ms):
                found.append((position, view))
        return found

    def find_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset of the message stored at a time, or the nearest one."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else find_offset_by_time(queue, self.commitlog, timestamp_ms)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 without one."""
        queue = self.queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue.min_offset)
        return -1 if entry is None else read_store_time(self.commitlog, entry.position, entry.size)


def _has_key(record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Does the record have the key, and was it stored in the range? The index only knows hashes and seconds."""
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
