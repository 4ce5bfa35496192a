"""Dispatch: from one record of the commit log to its consume-queue entry and its index entries.

The append path and recovery use the same calls, so a rebuilt queue cannot differ from a written one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from eruca.errors import InvalidName
from eruca.store.consumequeue import FILLER_SIZE, ConsumeQueue
from eruca.store.filesystem import Buffer
from eruca.store.index import Index
from eruca.store.queues import Queues
from eruca.wire.javahash import java_hash_bytes
from eruca.wire.names import SCHEDULE_TOPIC
from eruca.wire.properties import RAW_DELAY, RAW_KEYS, RAW_TAGS, RAW_UNIQ_KEY, get_property
from eruca.wire.record import RecordView
from eruca.wire.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

log = logging.getLogger(__name__)

# Applications have few tags, so their hashes are kept; a bound, because a peer chooses them.
_TAGS_KEPT_MAX = 4096

# Told of every queue that grew: topic, queue, offset behind the new entry, tags code, store time, properties.
Arrival = Callable[[str, int, int, int, int, bytes], None]


def has_queue_entry(sys_flag: int) -> bool:
    """Does a record with this sysFlag show up in its consume queue? Prepared and rolled-back ones do not."""
    kind = sys_flag & TRANSACTION_MASK
    return kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


class Dispatch:
    """Writes consume queues and index from records."""

    def __init__(self, queues: Queues, index: Index | None, delay_levels_ms: list[int]) -> None:
        self.queues = queues
        self.index = index
        self._delay_levels_ms = delay_levels_ms
        self._tags_kept: dict[bytes, int] = {}
        # Ranges recovery found unreadable; offsets that were in them point there.
        self.last_damage: tuple[int, int] | None = None

    def tags_code(self, topic: str, properties: bytes, store_timestamp: int) -> int:
        """What the consume queue keeps of a record: the hash of its tag, or when a delayed one is due."""
        if topic == SCHEDULE_TOPIC:
            level_text = get_property(properties, RAW_DELAY)
            level = int(level_text) if level_text is not None and level_text.isdigit() else 0
            if level > 0:
                levels = self._delay_levels_ms
                return store_timestamp + levels[min(level, len(levels)) - 1]
        tag = get_property(properties, RAW_TAGS)
        if tag is None:
            return 0
        code = self._tags_kept.get(tag)
        if code is None:
            code = java_hash_bytes(tag)
            if len(self._tags_kept) < _TAGS_KEPT_MAX:
                self._tags_kept[tag] = code
        return code

    def keys(self, properties: bytes, sys_flag: int) -> list[str]:
        """What the index keeps of a record: its unique id, then its keys."""
        if self.index is None or sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return []
        unique = get_property(properties, RAW_UNIQ_KEY)
        found = [] if unique is None else [unique.decode("utf-8", "replace")]
        keys = get_property(properties, RAW_KEYS)
        if keys is not None:
            found.extend([key for key in keys.decode("utf-8", "replace").split(" ") if key])
        return found

    def replay(self, view: RecordView, buffer: Buffer, position: int) -> None:
        """Dispatch a record found in the log; one that is there already changes nothing."""
        topic = view.topic.decode("utf-8", "replace")
        properties = bytes(buffer[view.properties_at : view.properties_end])
        keys = self.keys(properties, view.sys_flag)
        if keys and self.index is not None and position > self.index.end_position:
            self.index.reserve(len(keys))
            self.index.put(topic, keys, position, view.store_timestamp)
        if not has_queue_entry(view.sys_flag):
            return
        try:
            queue = self.queues.get_or_make(topic, view.queue_id)
        except InvalidName as error:
            log.error("the record at %d stays out of the consume queues: %s", position, error)
            return
        missing = view.queue_offset - queue.max_offset
        if missing < 0:
            return
        if missing:
            self._bridge(queue, view.queue_offset)
        queue.reserve(1)
        queue.put(position, view.size, self.tags_code(topic, properties, view.store_timestamp))
        queue.next_offset = queue.max_offset

    def _bridge(self, queue: ConsumeQueue, offset: int) -> None:
        """Bring a queue to an offset when the records before it are gone."""
        if queue.max_offset == 0 or not queue.chain.segments:
            queue.start_at(offset)
            return
        start, size = self.last_damage or (0, FILLER_SIZE)
        log.error("%s queue %d: messages %d to %d are lost", queue.topic, queue.queue_id, queue.max_offset, offset - 1)
        queue.reserve(offset - queue.max_offset)
        queue.fill_to(offset, start, min(size, FILLER_SIZE))
