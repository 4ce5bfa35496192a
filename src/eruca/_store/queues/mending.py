"""Repairing entries of consume queues that turn out to be wrong when they are read.

A start checks the order of entries, not every record, so an entry may point at bytes that are not its message.
Then the log is searched between the neighbours of the entry. A record found there gets its entry back. One that is
not found is logged once, and readers skip it.
"""

from __future__ import annotations

import logging

from eruca._store.log.commitlog import CommitLog
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import RecordFacts, iter_facts
from eruca._store.queues.consumequeue import FILLER_SIZE, ConsumeQueue
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.queueproof import points_at_record
from eruca._wire.digest import index_prefix

log = logging.getLogger(__name__)

# How much of the log is searched for one message: a few milliseconds, during which no other request is served.
_SEARCH_BYTES_MAX = 4 * 1024 * 1024
# Messages already logged; bounded, because a dying disk has many.
_NAMED_MAX = 10_000


class Mender:
    """Finds records whose entries are damaged."""

    def __init__(self, commitlog: CommitLog, dispatch: Dispatch, damage: DamageList) -> None:
        self._commitlog = commitlog
        self._dispatch = dispatch
        self._damage = damage
        self._named: set[tuple[str, int, int]] = set()

    def mend(self, queue: ConsumeQueue, offset: int) -> memoryview | None:
        """The record of an offset whose entry looked wrong; None when the log does not have it."""
        entry = queue.entry(offset)
        name = (queue.topic, queue.queue_id, offset)
        if entry is None or name in self._named:
            return None
        if points_at_record(queue, self._commitlog, offset, entry.position, entry.size):
            return self._commitlog.view(entry.position, entry.size)  # a record of another queue, shown here as well
        found = self._search(queue, offset)
        if found is None:
            if len(self._named) >= _NAMED_MAX:
                self._named.clear()
            self._named.add(name)
            log.error(
                "%s queue %d: message %d is damaged and skipped (its entry has position %d, size %d)",
                *name,
                entry.position,
                entry.size,
            )
            return None
        position, size, _, _, _, sys_flag, store_time, properties = found
        prefix = index_prefix(queue.topic)
        tags_code, _ = self._dispatch.digest(queue.topic, prefix, properties, store_time, sys_flag)
        queue.correct(offset, position, size, tags_code)
        log.warning(
            "%s queue %d: the entry of message %d was damaged and is repaired: its record is at %d", *name, position
        )
        return self._commitlog.view(position, size)

    def _search(self, queue: ConsumeQueue, offset: int) -> RecordFacts | None:
        """Look for the record of an offset between those of its neighbours."""
        log_start, end = self._commitlog.start, self._commitlog.readable_end
        begin = log_start
        before, behind = queue.entry(offset - 1), queue.entry(offset + 1)
        if before is not None and before.size != FILLER_SIZE and log_start <= before.position + before.size <= end:
            begin = before.position + before.size
        if behind is not None and behind.size != FILLER_SIZE and begin < behind.position < end:
            end = behind.position
        end = min(end, begin + _SEARCH_BYTES_MAX)
        for run in iter_facts(self._commitlog.chain, begin, end, self._damage.items):
            for facts in run:
                if facts[4] == offset and facts[3] == queue.queue_id and facts[2] == queue.encoded_topic:
                    return facts
        return None
