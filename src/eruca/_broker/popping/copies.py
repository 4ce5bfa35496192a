"""Copies of messages that were popped: for the retry topic of group and topic, or for the dead letters of the group.

The log of popping announces each copy, with its place, in the record before it. So a crash in between neither loses the
message nor delivers it twice: who finds no copy at the place stores it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eruca._broker.administering.stats import Stats
from eruca._broker.groups.groups import Groups
from eruca._broker.popping.poplog import PopLog
from eruca._broker.sending.stored import copy_message, read_message
from eruca._broker.topics import Topics
from eruca._core.popping.state import LineState
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._wire.handle import NORMAL
from eruca._wire.ids import encode_offset_id
from eruca._wire.names import DLQ_PREFIX, name_pop_retry
from eruca._wire.poplog import Item, Moved
from eruca._wire.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ERUCA_POPPED_FROM,
    FIRST_POP_TIME,
    ORIGIN_GROUP,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    encode_properties,
    parse_properties,
)
from eruca._wire.record import Record
from eruca.errors import MessageIllegal, StoreError

log = logging.getLogger(__name__)

_DEFAULT_TRIES: Final = 16


def name_stored_topic(line: LineState) -> str:
    """Return the topic whose queue a line reads."""
    return line.topic if line.kind == NORMAL else name_pop_retry(line.group, line.topic)


@dataclass(eq=False)
class Copies:
    """Announces copies and stores them."""

    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _stats: Stats
    _log: PopLog

    def find_original(self, line: LineState, offset: int) -> Record | None:
        """Return the message at an offset of a line; None if it was deleted or is damaged."""
        queue = self._store.queues.get(name_stored_topic(line), line.queue_id)
        entry = None if queue is None else queue.entry(offset)
        if entry is None or entry.size == FILLER_SIZE:
            return None
        return read_message(self._store, entry.position)

    def find_tries(self, group: str) -> int:
        """Return how often a message is delivered again before it is dead."""
        config = self._groups.find(group)
        return _DEFAULT_TRIES if config is None else max(0, config.retry_max_times)

    def announce(self, line: LineState, originals: list[tuple[Record, bool]], *, dead: bool = False) -> list[Item]:
        """Return the items that announce copies; of each message also whether the last delivery did not count.

        Raises InvalidName or TableFull if the topic of the copies cannot be created.
        """
        tries = self.find_tries(line.group)
        ends: dict[str, int] = {}
        found: list[Item] = []
        for original, suspended in originals:
            is_dead = dead or (original.reconsume_times >= tries and not suspended)
            topic = self._open_topic(line, is_dead)
            at = ends.get(topic, -1)
            if at < 0:
                queue = self._store.queues.get(topic, 0)
                at = 0 if queue is None else queue.next_offset
            ends[topic] = at + 1
            times = original.reconsume_times + (not suspended)
            found.append(Moved(line.group, line.topic, original.position, topic, 0, at, times))
        return found

    def _open_topic(self, line: LineState, dead: bool) -> str:
        if dead:
            self._topics.dead_letter_topic(line.group)
            return DLQ_PREFIX + line.group
        name = name_pop_retry(line.group, line.topic)
        self._topics.create_internal(name, 1)
        return name

    def store_announced(self, body: Sequence[Item], now_ms: int) -> int:
        """Store the copies that items announce, in their order; return where the last one ends.

        Raises StoreError; the rest is owed then.
        """
        end = 0
        moved = self._log.state.moved
        for item in body:
            if not isinstance(item, Moved):
                continue
            original = read_message(self._store, item.position)
            if original is None:
                log.error("the message at %d, popped by group %s, is lost: unreadable", item.position, item.group)
            else:
                try:
                    copy = self._store.append(_copy(original, item, now_ms))
                except MessageIllegal as error:
                    log.error("the message at %d, popped by group %s, is lost: %s", item.position, item.group, error)
                else:
                    self._stats.on_put(copy.topic, 1, copy.size, copy.queue_id)
                    end = copy.position + copy.size
            del moved[item.position, item.to_topic]
        return end

    def store_owed(self, now_ms: int) -> None:
        """Store copies that could not be stored when they were announced. Raises StoreError."""
        if self._log.state.moved:
            self._store_again(now_ms)

    # -- what may be missing -----------------------------------------------------------------------------------------

    def drop_stored(self, announced: list[Moved], end: int) -> None:
        """Remove copies that are where the log says they are from those that are owed.

        Usually they follow the record that announced them, which ends at position `end`, so none has to be read.
        """
        moved = self._log.state.moved
        for item in announced:
            queue = self._store.queues.get(item.to_topic, item.to_queue)
            entry = None if queue is None else queue.entry(item.to_offset)
            if entry is not None and entry.position == end:
                end += entry.size
            elif not self._is_stored(item):
                continue
            moved.pop((item.position, item.to_topic), None)

    def store_missing(self, now_ms: int) -> None:
        """Store copies that a crash has cut off. Raises StoreError."""
        if count := len(self._log.state.moved):
            log.warning("%d copies of popped messages were lost in a crash and are stored again", count)
            self._store_again(now_ms)

    def _store_again(self, now_ms: int) -> None:
        """Announce copies again, at the places where they are stored now, and store them."""
        state = self._log.state
        owed, state.moved = state.moved, {}
        body: list[Item] = []
        ends: dict[str, int] = {}
        for item in owed.values():
            queue = self._store.queues.get(item.to_topic, item.to_queue)
            at = ends.get(item.to_topic, 0 if queue is None else queue.next_offset)
            ends[item.to_topic] = at + 1
            body.append(Moved(item.group, item.topic, item.position, item.to_topic, item.to_queue, at, item.times))
        try:
            self._log.write(body)
        except StoreError:
            state.moved = owed
            raise
        self.store_announced(body, now_ms)

    def _is_stored(self, item: Moved) -> bool:
        queue = self._store.queues.get(item.to_topic, item.to_queue)
        if queue is None or item.to_offset >= queue.max_offset:
            return False
        entry = queue.entry(item.to_offset)
        if entry is None or entry.size == FILLER_SIZE or item.to_offset < queue.min_offset:
            return True  # it was deleted since, as every message is
        record = read_message(self._store, entry.position)
        return record is None or record.get_property(ERUCA_POPPED_FROM) == str(item.position)


def _copy(original: Record, item: Moved, now_ms: int) -> Record:
    """Return the copy of a message."""
    properties = parse_properties(original.properties)
    properties.setdefault(RETRY_TOPIC, item.topic)
    properties.setdefault(FIRST_POP_TIME, str(now_ms))
    message_id = properties.setdefault(ORIGIN_MESSAGE_ID, encode_offset_id(original.store_host, original.position))
    properties[ERUCA_POPPED_FROM] = str(item.position)
    if item.to_topic.startswith(DLQ_PREFIX):
        properties[DLQ_ORIGIN_TOPIC] = item.topic
        properties[DLQ_ORIGIN_MESSAGE_ID] = message_id
        properties.pop(ORIGIN_GROUP, None)
    else:
        properties[ORIGIN_GROUP] = item.group
    copy = copy_message(original, item.to_topic, item.to_queue, encode_properties(properties))
    copy.reconsume_times = item.times
    return copy
