"""Dispatch: from records of the commit log to their consume-queue entries and their index entries.

Everything that brings records into the log (a send, a batch, the transient buffer, a master) has them dispatched here,
and so do recovery and rebuild: entries are created in no other way. Ordinary records go through one
compiled loop (`kernel.dispatch`). The first one that is not ordinary ends it, is dispatched here individually, and the
loop continues. Not ordinary are records of transactions, of the delay topic, of deleted topics, of queues that are new
or have a gap, records with very many keys, and those at the end of a file.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from eruca._ground.digits import read_digits
from eruca._store.filesystem import Buffer
from eruca._store.kernel.dispatch import Lane, Replayer, dispatch_one
from eruca._store.log.chain import Chain
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import Damage, Progress, RecordFacts, iter_facts, iter_stretches
from eruca._store.queues.consumequeue import ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca._store.queues.index import Index
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._wire.digest import digest_properties, index_prefix
from eruca._wire.kernel.reading import read_records
from eruca._wire.names import SCHEDULE_TOPIC
from eruca._wire.properties import RAW_DELAY, get_property
from eruca._wire.record import FIXED_BYTES_V4, Record
from eruca._wire.sysflag import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from eruca.errors import InvalidName, StoreError

log = logging.getLogger(__name__)

# The hashes of topics are cached; bounded, because topics come and go.
_TOPICS_KEPT_MAX = 65536

# Queues that grew, each with its first new offset.
Grown = list[tuple[ConsumeQueue, int]]


def has_queue_entry(sys_flag: int) -> bool:
    """Does a record with this sysFlag appear in its consume queue? Prepared and rolled-back ones do not."""
    kind = sys_flag & TRANSACTION_MASK
    return kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def find_due_time(properties: bytes, store_timestamp: int, tags_code: int, delay_levels_ms: Sequence[int]) -> int:
    """When a record of the delay topic is due, which is its tags code; without a level, the usual tags code."""
    level = read_digits(get_property(properties, RAW_DELAY)) or 0
    if level <= 0:
        return tags_code
    return store_timestamp + delay_levels_ms[min(level, len(delay_levels_ms)) - 1]


def digest_record(
    topic: str,
    prefix: int,
    properties: bytes,
    store_timestamp: int,
    sys_flag: int,
    delay_levels_ms: Sequence[int],
    *,
    with_keys: bool,
) -> tuple[int, list[int]]:
    """What the derived files keep of a record: its tags code, and the hashes of its index entries.

    The tags code is the hash of the tag; in the delay topic it is when the message is due. `prefix` is the topic's
    `index_prefix`.
    """
    digest = digest_properties(properties, prefix, with_keys and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK)
    if topic == SCHEDULE_TOPIC:
        return find_due_time(properties, store_timestamp, digest[0], delay_levels_ms), digest[1]
    return digest


def wants_entry(removed: RemovedTopics | None, topic: str, queue_id: int, sys_flag: int, position: int) -> bool:
    """Does a record belong in its consume queue? Not if its topic was deleted after it."""
    if sys_flag & TRANSACTION_MASK and not has_queue_entry(sys_flag):
        return False
    return removed is None or not removed.covers(topic, queue_id, position)


class QueueGap(StoreError):
    """A record arrived whose predecessor in its queue is missing, and neither damage nor deletion explains it."""


def merge_grown(grown: Grown, more: Grown) -> Grown:
    """Merge two lists of queues that grew, each queue once."""
    first = dict(grown)
    for queue, begin in more:
        first[queue] = min(begin, first.get(queue, begin))
    return list(first.items())


class Dispatched(NamedTuple):
    """How far records were dispatched."""

    # The place of the first record not dispatched.
    end: int
    # Store time of the last record dispatched; 0 when there is none.
    store_time: int
    grown: Grown
    # The disk error that ended it early, if any.
    error: Exception | None


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
        # Held while queue files are removed: the flusher may be using them.
        self.guard: AbstractContextManager[object] = nullcontext()
        # All unreadable ranges of the log, and the last one passed; entries of lost offsets point there.
        self.damage: DamageList | None = None
        self.last_damage: tuple[int, int] | None = None
        self._explained: tuple[int, list[int]] | None = None
        self._replayer = Replayer(self._learn_lane, queues.find)
        # Set by a slave to empty a queue that starts over: called with the queue and its new first record's position.
        self.begin_anew: Callable[[ConsumeQueue, int], None] | None = None

    def digest(
        self, topic: str, prefix: int, properties: bytes, store_timestamp: int, sys_flag: int
    ) -> tuple[int, list[int]]:
        """As `digest_record`, with the delay levels and the index of this store."""
        levels, with_keys = self._delay_levels_ms, self.index is not None
        return digest_record(topic, prefix, properties, store_timestamp, sys_flag, levels, with_keys=with_keys)

    def run(
        self, chain: Chain, start: int, end: int, damage: Sequence[Damage] = (), progress: Progress | None = None
    ) -> Grown:
        """Dispatch the records of the log between two positions, skipping damage. Raises disk errors."""
        done = self.run_until(chain, start, end, damage, progress)
        if done.error is not None:
            raise done.error
        return done.grown

    def run_until(
        self, chain: Chain, start: int, end: int, damage: Sequence[Damage] = (), progress: Progress | None = None
    ) -> Dispatched:
        """As `run`, for a caller that continues later after the last dispatched record."""
        grown: Grown = []
        store_time, passed, reported = 0, 0, start
        for segment, at, stop in iter_stretches(chain, start, end, damage):
            passed = self.pass_damage(damage, passed, segment.start + at)
            done = self.run_records(segment.buffer, at, stop, segment.start)
            grown = merge_grown(grown, done.grown)
            store_time = done.store_time or store_time
            if done.error is not None:
                return Dispatched(segment.start + done.end, store_time, grown, done.error)
            if progress is not None:
                progress(segment.start + stop - reported)
                reported = segment.start + stop
        return Dispatched(end, store_time, grown, None)

    def run_queues(
        self, chain: Chain, start: int, end: int, damage: Sequence[Damage], keys: Collection[tuple[bytes, int]]
    ) -> None:
        """Dispatch the records of some queues (encoded topic and queue id) to these only; the index is not written."""
        passed = 0
        for run in iter_facts(chain, start, end, list(damage)):
            passed = self.pass_damage(damage, passed, run[0][0])
            for facts in run:
                if (facts[2], facts[3]) in keys:
                    self.run_record(facts, into_index=False)

    def pass_damage(self, damage: Sequence[Damage], passed: int, position: int) -> int:
        """Remember the last damage before a position; returns how many ranges lie before it."""
        while passed < len(damage) and damage[passed].position <= position:
            self.last_damage = (damage[passed].position, damage[passed].length)
            passed += 1
        return passed

    def run_records(self, buffer: Buffer, at: int, end: int, base: int) -> Dispatched:
        """Dispatch consecutive good records of a segment that starts at `base` in the log."""
        index, removed = self.index, self._removed
        covers = None if removed is None or removed.is_empty else removed.covers
        grown: Grown = []
        store_time = 0
        while True:
            file = None if index is None or not index.files else index.files[-1]
            keys, slots, room = (None, 0, 0) if file is None else (file.buffer, file.slots, file.room)
            at, time, keyed, found, error = self._replayer.run(
                buffer, at, end, base, covers, index is not None, keys, slots, room
            )
            if file is not None and keyed:
                file.add_run(keyed)
            store_time = time or store_time
            grown = merge_grown(grown, found) if grown else found
            if at >= end or error is not None:
                return Dispatched(at, store_time, grown, error)
            facts = read_records(buffer, at, end, base, 1, True)
            if not facts:
                return Dispatched(at, store_time, grown, StoreError(f"there is no record at {base + at} of the log"))
            try:
                queue = self.run_record(facts[0], into_index=index is not None and base + at > index.end_position)
            except StoreError as failure:
                return Dispatched(at, store_time, grown, failure)
            if queue is not None:
                grown = merge_grown(grown, [(queue, queue.max_offset - 1)])
            at += facts[0][1]
            store_time = facts[0][6]
            if at >= end:
                return Dispatched(at, store_time, grown, None)

    def run_written(self, message: Record, queue: ConsumeQueue, prefix: int, entries: Buffer, entries_at: int) -> bool:
        """Dispatch a message that was just written, the next one of a queue, with the buffer and place of `find_room`.

        As `run_records`, for the hottest path. The writer already knows what `run_records` has to find out (the queue,
        whether the message is its next one, what was deleted), and finding it out takes as long as the rest of an
        append. Returns False when the record is not ordinary; then nothing was done.
        """
        position, size, index = message.position, message.size, self.index
        file = None if index is None or not index.files else index.files[-1]
        keys, slots, room = (None, 0, 0) if file is None else (file.buffer, file.slots, file.room)
        written = dispatch_one(
            message.properties,
            prefix,
            position,
            size,
            message.store_timestamp,
            entries,
            entries_at,
            index is not None,
            keys,
            slots,
            room,
        )
        if written < 0:
            return False
        if file is not None and written:
            file.add_run(written)
        queue.add_run(1, position + size)
        return True

    def run_record(self, facts: RecordFacts, *, into_index: bool) -> ConsumeQueue | None:
        """Dispatch any record; returns the queue that got an entry. A queue that already has it is not changed."""
        position, size, encoded, queue_id, queue_offset, sys_flag, store_time, properties = facts
        topic, prefix = self._topics.get(encoded) or self._learn_topic(encoded)
        tags_code, hashes = self.digest(topic, prefix, properties, store_time, sys_flag)
        if into_index and hashes and self.index is not None:
            self.index.add(hashes, position, store_time)
        if not self.wants_entry(topic, queue_id, sys_flag, position):
            return None
        return self.put_entry(topic, queue_id, queue_offset, position, size, tags_code)

    def put_entry(
        self, topic: str, queue_id: int, queue_offset: int, position: int, size: int, tags_code: int
    ) -> ConsumeQueue | None:
        """Write the entry of a record; returns its queue, or None when the queue already has it or does not exist."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            try:
                queue = self.queues.get_or_make(topic, queue_id)
            except InvalidName as error:
                log.error("the record at %d is left out of the consume queues: %s", position, error)
                return None
        if queue_offset != queue.max_offset and not self.settle_offset(queue, queue_offset, position):
            return None
        queue.add(position, size, tags_code)
        return queue

    def _learn_lane(self, encoded: bytes, queue_id: int) -> Lane | None:
        topic, prefix = self._topics.get(encoded) or self._learn_topic(encoded)
        return None if topic == SCHEDULE_TOPIC else Lane(topic, queue_id, prefix)

    def settle_offset(self, queue: ConsumeQueue, queue_offset: int, position: int) -> bool:
        """Bring a queue to the offset of a record that is not its next one; False when the record is left out."""
        missing = queue_offset - queue.max_offset
        if missing < 0:
            if self._are_lost(queue, queue_offset):
                # Nothing follows those entries, so the number of messages lost there was a guess.
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
                "the record at %d claims to be message %d of %s queue %d, which ends at %d; it is left out",
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
        """As the function `wants_entry`, with the deleted topics of this store."""
        return wants_entry(self._removed, topic, queue_id, sys_flag, position)

    def _learn_topic(self, encoded: bytes) -> tuple[str, int]:
        topic = encoded.decode("utf-8", "replace")
        if len(self._topics) >= _TOPICS_KEPT_MAX:
            self._topics.clear()
        facts = self._topics[encoded] = (topic, index_prefix(topic))
        return facts

    def expect_no_gaps(self, log_start: int, damage: Sequence[Damage]) -> None:
        """Raise QueueGap from now on when a message is missing in a queue and neither explains it."""
        self._explained = (log_start, sorted(item.end for item in damage))

    def allow_gaps(self) -> None:
        """Bridge every gap from now on."""
        self._explained = None

    def _is_last_unproven(self, queue: ConsumeQueue) -> bool:
        """Does the last entry point before the start of the log? If a record claims its offset, the entry was torn."""
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
                    f"{queue.topic} queue {queue.queue_id} ends at {queue.max_offset}, but message {offset} comes next"
                )
        if is_empty:
            with self.guard:
                queue.start_at(offset)
            return
        start, size = self.last_damage or (0, FILLER_SIZE)
        if start < queue.end_position:
            # Positions must not go back, or binary search fails.
            start, size = queue.end_position, FILLER_SIZE
        log.error("%s queue %d: messages %d to %d are lost", queue.topic, queue.queue_id, queue.max_offset, offset - 1)
        queue.reserve(offset - queue.max_offset)
        queue.fill_to(offset, start, min(size, FILLER_SIZE))
