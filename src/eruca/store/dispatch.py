"""Dispatch: from one record of the commit log to its consume-queue entry and its index entries.

The append path and recovery use the same calls, so a rebuilt queue cannot differ from a written one.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from eruca.digits import read_digits
from eruca.errors import InvalidName, StoreError
from eruca.store.consumequeue import ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca.store.damage import DamageList
from eruca.store.filesystem import Buffer
from eruca.store.index import Index
from eruca.store.queues import Queues
from eruca.store.removed import RemovedTopics
from eruca.store.scan import Damage, RecordFacts
from eruca.wire import hot, hotreplay
from eruca.wire.digest import digest_properties, index_prefix
from eruca.wire.names import SCHEDULE_TOPIC
from eruca.wire.properties import RAW_DELAY, get_property
from eruca.wire.record import FIXED_BYTES_V4, Message
from eruca.wire.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

log = logging.getLogger(__name__)

# The hashes of topics are kept; a bound, because topics come and go.
_TOPICS_KEPT_MAX = 65536

# Told of every message that readers can see now: the message, the offset behind it, its tags code.
Arrival = Callable[[Message, int, int], None]


def has_queue_entry(sys_flag: int) -> bool:
    """Does a record with this sysFlag show up in its consume queue? Prepared and rolled-back ones do not."""
    kind = sys_flag & TRANSACTION_MASK
    return kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def find_due_time(properties: bytes, store_timestamp: int, tags_code: int, delay_levels_ms: Sequence[int]) -> int:
    """When a record of the delay topic is due, which is its tags code; without a level that of any other record."""
    level = read_digits(get_property(properties, RAW_DELAY)) or 0
    if level <= 0:
        return tags_code
    return store_timestamp + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]


class QueueGap(StoreError):
    """A record comes whose predecessor in its queue is missing, and neither damage nor deletion explains it."""


class Dispatch:
    """Writes consume queues and index from records."""

    def __init__(
        self,
        queues: Queues,
        index: Index | None,
        delay_levels_ms: list[int],
        removed: RemovedTopics | None = None,
    ) -> None:
        self.queues = queues
        self._removed = removed
        self.index = index
        self._delay_levels_ms = delay_levels_ms
        self._topics: dict[bytes, tuple[str, int]] = {}
        # Held while files of queues are taken away: the flusher may be at work on them.
        self.guard: AbstractContextManager[object] = nullcontext()
        # All ranges of the log that are unreadable, and the last one; offsets that were in it point there.
        self.damage: DamageList | None = None
        self.last_damage: tuple[int, int] | None = None
        self._explained: tuple[int, list[int]] | None = None
        self.replayed: RecordFacts | None = None
        self._replayer = hotreplay.Replayer(self._learn_lane, queues.find)
        # A slave's way to empty a queue that begins again: told the queue, and the position of its new first record.
        self.begin_anew: Callable[[ConsumeQueue, int], None] | None = None

    def digest(
        self, topic: str, prefix: int, properties: bytes, store_timestamp: int, sys_flag: int
    ) -> tuple[int, list[int]]:
        """What the derived files keep of a record: its tags code, and the hashes its index entries have.

        The tags code is the hash of the tag; in the delay topic it is when the message is due. `prefix` is the
        topic's `index_prefix`.
        """
        with_keys = self.index is not None and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        digest = digest_properties(properties, prefix, with_keys)
        if topic == SCHEDULE_TOPIC:
            return find_due_time(properties, store_timestamp, digest[0], self._delay_levels_ms), digest[1]
        return digest

    def replay(self, facts: RecordFacts, *, into_index: bool) -> ConsumeQueue | None:
        """Dispatch a record found in the log; gives the queue that got an entry. One that had it does not change."""
        position, size, encoded, queue_id, queue_offset, sys_flag, store_time, properties = facts
        topic, prefix = self._topics.get(encoded) or self._learn_topic(encoded)
        index = self.index
        # Nearly all records are of this kind, and a log of millions is replayed: no call more than needed.
        if not sys_flag & TRANSACTION_MASK and topic != SCHEDULE_TOPIC:
            tags_code, hashes = digest_properties(properties, prefix, into_index and index is not None)
        else:
            tags_code, hashes = self.digest(topic, prefix, properties, store_time, sys_flag)
        if into_index and hashes and index is not None:
            index.add(hashes, position, store_time)
        if not self.wants_entry(topic, queue_id, sys_flag, position):
            return None
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            try:
                queue = self.queues.get_or_make(topic, queue_id)
            except InvalidName as error:
                log.error("the record at %d stays out of the consume queues: %s", position, error)
                return None
        if queue_offset != queue.max_offset and not self.settle_offset(queue, queue_offset, position):
            return None
        queue.add(position, size, tags_code)
        return queue

    def replay_run(self, run: Sequence[RecordFacts], indexed_end: int) -> dict[ConsumeQueue, int]:
        """Dispatch many records; those up to `indexed_end` are indexed. Gives the queues that grew, and from where.

        As `replay` for each, in a fraction of the time: what is the same for all records of a queue is looked up once.
        `replayed` is the last record that is done, also when this raises.
        """
        grown: dict[ConsumeQueue, int] = {}
        known: dict[tuple[bytes, int], tuple[ConsumeQueue, int]] = {}
        index, may_keep = self.index, self._removed is None or self._removed.is_empty
        with_keys = index is not None
        count, number = len(run), 0
        while number < count:
            facts = run[number]
            position, size, encoded, queue_id, queue_offset, sys_flag, store_time, properties = facts
            number += 1
            found = known.get((encoded, queue_id))
            if found is None or queue_offset != found[0].max_offset or sys_flag & TRANSACTION_MASK:
                queue = self.replay(facts, into_index=position > indexed_end)
                if queue is not None:
                    grown.setdefault(queue, queue.max_offset - 1)
                    if may_keep and queue.topic != SCHEDULE_TOPIC:
                        known[encoded, queue_id] = queue, self._topics[encoded][1]
            else:
                queue, prefix = found
                # Several of a queue in a row are a batch, most likely.
                if number < count and run[number][3] == queue_id and run[number][2] == encoded:
                    done = self._replay_together(run, number - 1, queue, prefix) if position > indexed_end else 0
                    if done:
                        number += done - 1
                        self.replayed = run[number - 1]
                        continue
                tags_code, hashes = digest_properties(properties, prefix, with_keys and position > indexed_end)
                if hashes and index is not None:
                    index.add(hashes, position, store_time)
                queue.add(position, size, tags_code)
            self.replayed = facts
        return grown

    def replay_log(
        self, log: Buffer, at: int, end: int, base: int
    ) -> tuple[int, int, list[tuple[ConsumeQueue, int]], Exception | None]:
        """Dispatch good records of a segment, those from one place to another, as long as they are ordinary ones.

        As `replay` for each, in one compiled call. Gives where the first one lies that is not done, the store time of
        the last one that is, the queues that grew, each with its first new offset, and the error that ended it, if one
        did.
        """
        index, removed, file, slots, room = self.index, self._removed, None, 0, 0
        if index is not None and index.files:
            last = index.files[-1]
            file, slots, room = last.buffer, last.slots, last.room
        covers = None if removed is None or removed.is_empty else removed.covers
        stop, store_time, written, grown, trouble = self._replayer.run(
            log, at, end, base, covers, index is not None, file, slots, room
        )
        if written:
            last.add_run(written)
        return stop, store_time, grown, trouble

    def _learn_lane(self, encoded: bytes, queue_id: int) -> hotreplay.Lane | None:
        topic, prefix = self._topics.get(encoded) or self._learn_topic(encoded)
        return None if topic == SCHEDULE_TOPIC else hotreplay.Lane(topic, queue_id, prefix)

    def _replay_together(self, run: Sequence[RecordFacts], first: int, queue: ConsumeQueue, prefix: int) -> int:
        """Dispatch records that follow each other in a queue, as far as the files have room; gives how many."""
        if not hot.compiled or (self.index is not None and not self.index.files):
            return 0
        file = None if self.index is None else self.index.files[-1]
        entries, at, room = queue.find_room()
        index, slots, index_room = (None, 0, 0) if file is None else (file.buffer, file.slots, file.room)
        done, written = hot.dispatch_run(
            run, first, entries, at, room, queue.max_offset, prefix, index, slots, index_room
        )
        if done:
            position, size = run[first + done - 1][:2]
            queue.add_run(done, position + size)
            queue.next_offset = queue.max_offset
        if file is not None and written:
            file.add_run(written)
        return done

    def settle_offset(self, queue: ConsumeQueue, queue_offset: int, position: int) -> bool:
        """Bring a queue to the offset of a record that is not its next one; False when the record stays out of it."""
        missing = queue_offset - queue.max_offset
        if missing < 0:
            if self._are_lost(queue, queue_offset):
                # Nothing follows those entries, so how many messages were lost there was a guess.
                return self._step_back(queue, queue_offset, position)
            if queue_offset == 0 and self.begin_anew is not None:
                self.begin_anew(queue, position)
                return True
            if missing < -1 or not self._is_last_unproven(queue):
                return False
            queue.truncate(queue_offset)
            return True
        if missing > (position - max(0, queue.end_position)) // FIXED_BYTES_V4 and queue.chain.segments:
            log.error(
                "the record at %d claims to be message %d of %s queue %d, which ends at %d; it stays out of it",
                position,
                queue_offset,
                queue.topic,
                queue.queue_id,
                queue.max_offset,
            )
            return False
        self._bridge(queue, queue_offset, position)
        return True

    def _are_lost(self, queue: ConsumeQueue, offset: int) -> bool:
        """Do all entries from an offset on stand for messages that are lost?"""
        damage = () if self.damage is None else self.damage.items
        first = max(offset, queue.chain.start // ENTRY_BYTES)
        for number in range(queue.max_offset - 1, first - 1, -1):
            entry = queue.entry(number)
            if entry is None:
                return False
            if entry.size != FILLER_SIZE and not any(item.position <= entry.position < item.end for item in damage):
                return False
        return True

    def _step_back(self, queue: ConsumeQueue, offset: int, position: int) -> bool:
        """Bring a queue back to an offset."""
        with self.guard:
            if offset >= queue.chain.start // ENTRY_BYTES:
                queue.truncate(offset)
            else:
                queue.destroy()
        return offset == queue.max_offset or self.settle_offset(queue, offset, position)

    def wants_entry(self, topic: str, queue_id: int, sys_flag: int, position: int) -> bool:
        """Does a record belong into its consume queue? Not one of a topic that was deleted after it."""
        if sys_flag & TRANSACTION_MASK and not has_queue_entry(sys_flag):
            return False
        return self._removed is None or not self._removed.covers(topic, queue_id, position)

    def _learn_topic(self, encoded: bytes) -> tuple[str, int]:
        topic = encoded.decode("utf-8", "replace")
        if len(self._topics) >= _TOPICS_KEPT_MAX:
            self._topics.clear()
        facts = self._topics[encoded] = (topic, index_prefix(topic))
        return facts

    def expect_no_gaps(self, log_start: int, damage: Sequence[Damage]) -> None:
        """Raise QueueGap from now on when a message is missing in a queue and these do not explain it."""
        self._explained = (log_start, sorted(item.end for item in damage))

    def allow_gaps(self) -> None:
        """Bridge every gap from now on."""
        self._explained = None

    def _is_last_unproven(self, queue: ConsumeQueue) -> bool:
        """Does the last entry point before the start of the log? Where a record claims its offset, it was torn."""
        last = queue.entry(queue.max_offset - 1)
        return (
            self._explained is not None
            and last is not None
            and last.size != FILLER_SIZE
            and last.position < self._explained[0]
        )

    def _bridge(self, queue: ConsumeQueue, offset: int, position: int) -> None:
        """Bring a queue to an offset when the records before it are gone."""
        is_empty = queue.max_offset == 0 or not queue.chain.segments
        if self._explained is not None:
            log_start, ends = self._explained
            earlier = bisect.bisect_right(ends, position)
            damaged = earlier > 0 and ends[earlier - 1] > queue.end_position
            if not damaged and not (is_empty and log_start > 0):
                raise QueueGap(
                    f"{queue.topic} queue {queue.queue_id} ends at {queue.max_offset} and message {offset} comes next"
                )
        if is_empty:
            queue.start_at(offset)
            return
        start, size = self.last_damage or (0, FILLER_SIZE)
        if start < queue.end_position:
            # Positions must not go back, or a search among them goes wrong.
            start, size = queue.end_position, FILLER_SIZE
        log.error("%s queue %d: messages %d to %d are lost", queue.topic, queue.queue_id, queue.max_offset, offset - 1)
        queue.reserve(offset - queue.max_offset)
        queue.fill_to(offset, start, min(size, FILLER_SIZE))
