"""The message store: one directory, one writer.

`open_store` takes the lock, recovers, and returns a `MessageStore`. All its methods run in the one thread (or event
loop) that owns it; only `flusher` may be used from another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from eruca._ground.clock import Clock, SystemClock
from eruca._ground.config import StoreOptions, check_bounds, info_of, parse_delay_levels
from eruca._ground.signals import Signal
from eruca._store.encodedbatch import (
    BatchFacts,
    BatchSize,
    StoredBatch,
    check_batch,
    cut_encoded,
    measure_encoded,
    write_encoded,
)
from eruca._store.filesystem import FileSystem, LocalFileSystem, Lock
from eruca._store.flush import Flusher
from eruca._store.layout import StorePaths
from eruca._store.lineage.cutting import Cutter
from eruca._store.lineage.lineage import Lineage
from eruca._store.log.archived import ArchiveMark
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import Progress
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._store.queues.dispatch import Dispatch, Grown, has_queue_entry
from eruca._store.queues.index import Index
from eruca._store.queues.mending import Mender
from eruca._store.queues.queueends import EndsFile
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._store.reading.reader import Reader
from eruca._store.recovery.checkpoint import AbortMarker, Checkpoint
from eruca._store.recovery.recovery import RecoveryPlan, apply_recovery, plan_recovery
from eruca._store.topicfacts import TOPICS_KEPT_MAX, TopicFacts, find_facts
from eruca._wire.record import Record, record_size
from eruca._wire.sysflag import HOSTS_V6_MASK, TRANSACTION_MASK
from eruca.errors import ConfigError, MessageIllegal, StoreClosed, StoreFull, StoreReadOnly

log = logging.getLogger(__name__)

# Appended to properties that end in a zero byte, where it changes nothing for a reader. A record that ends in zeros was
# cut short by a power loss (`cursor.is_cut_short`), and this separator shows that the zeros were really written.
_SEPARATOR = b"\x02"
# A part of the names of both properties that hold keys.
_KEY = b"KEY"


class MessageStore:
    """Appends records. Its parts do the rest:

    `log`, `queues` and `index` are the files, `reader` finds records in them, `flusher` syncs them to the disk,
    `damage` lists unreadable ranges of the log, and `lineage` knows which master wrote which part of the log, and cuts
    it.
    """

    def __init__(
        self,
        paths: StorePaths,
        options: StoreOptions,
        disk: FileSystem,
        clock: Clock,
        executor: Executor | None,
    ) -> None:
        self.disk = disk
        self.paths = paths
        self.options = options
        self.clock = clock
        self.log = CommitLog(disk, paths.commitlog, options, clock, executor)
        self.queues = Queues(disk, paths.consumequeue, options.consumequeue_segment_bytes)
        self.index: Index | None = None
        if options.index_enabled:
            self.index = Index(disk, paths.index, options.index_slots, options.index_entries, clock, executor)
        self.checkpoint = Checkpoint(disk, paths.checkpoint)
        self.removed = RemovedTopics(disk, paths.removed)
        self.dispatch = Dispatch(self.queues, self.index, parse_delay_levels(options.delay_levels), self.removed)
        self.ends = EndsFile(disk, paths.queue_ends)
        self.flusher = Flusher(self.log, self.queues, self.index, self.checkpoint, self.ends)
        self.damage = DamageList(disk, paths.damage)
        mender = Mender(self.log, self.dispatch, self.damage)
        self.reader = Reader(self.log, self.queues, self.index, self.damage, mender)
        self._cutter = Cutter(
            disk,
            clock,
            self.log,
            self.queues,
            self.index,
            self.dispatch,
            self.flusher,
            self.checkpoint,
            self.ends,
            self.removed,
            self.damage,
        )
        self.lineage = Lineage(disk, paths, clock, self.log, self.damage, commit=self.commit, cut=self._cut)
        self.dispatch.guard, self.dispatch.damage = self.flusher.guard, self.damage
        self.archived = ArchiveMark(disk, paths.archived)
        self.abort = AbortMarker(disk, paths.abort)
        #: Called when records become visible to readers: with the queues that grew, each with its first new offset.
        self.dispatched: Signal[Grown] = Signal()
        # Retention refuses appends when the disk is too full.
        self._refusal = ""
        # A broker that is not the master refuses them too.
        self._fence = ""
        self._blocked = True
        self._topics: dict[str, TopicFacts] = {}
        # A record up to this size cannot have a body that is too large.
        self._size_checked_max = options.message_bytes_max
        self._properties_max = options.properties_bytes_max
        self.recovered: RecoveryPlan | None = None
        self._lock: Lock | None = None
        self._open = False
        # Index entries of records in the transient buffer; every append reserves room for these too.
        self._hashes_waiting = 0

    # -- opening and closing -----------------------------------------------------------------------------------------

    def open(self, progress: Progress | None = None) -> RecoveryPlan:
        """Take the lock, load every part, recover."""
        self.disk.make_directory(self.paths.root)
        self._lock = self.disk.lock(self.paths.lock)
        try:
            cut_at = self.lineage.load().truncating
            crashed = self.abort.is_set() or cut_at >= 0
            self.log.chain.load()
            self.queues.load()
            if self.index is not None:
                self.index.load()
            self.checkpoint.load()
            self.damage.load()
            self.removed.load(self.log.start)
            if cut_at >= 0:
                self.abort.set()
                self._cutter.prepare_recovery(cut_at)
            plan = plan_recovery(
                self.log,
                self.dispatch,
                self.checkpoint,
                self.ends.load(),
                clean=not crashed,
                check_crc=self.options.check_crc_on_recover,
                progress=progress,
                known_damage=self.damage.items,
            )
            # Set before the first change, so that a crash during recovery is followed by another recovery.
            self.abort.set()
            if crashed:
                self._note_crash(plan)
            # Before the checkpoint advances: the next walk may begin after the damage.
            self.damage.replace_from(plan.scanned_from, plan.damage, found_ms=self.clock.now_ms())
            apply_recovery(plan, self.log, self.dispatch, self.checkpoint, progress, known_damage=self.damage.items)
            if not plan.clean or plan.repairs:
                self.ends.expire()
            self._load_mark()
            if cut_at >= 0:
                self.lineage.finish_cut(cut_at)
        except BaseException:
            self._release()
            raise
        self.flusher.begin_at(self.log.tail)
        self.flusher.last_store_time = max(plan.last_store_time, self.checkpoint.log_time)
        self.recovered = plan
        self._open = True
        self.refuse("")
        return plan

    def _note_crash(self, plan: RecoveryPlan) -> None:
        synced = self.checkpoint.position
        sure = plan.scanned_from if synced is None else max(synced, self.log.start)
        self.lineage.note_crash(sure, plan.log_end)

    def _cut(self, position: int) -> None:
        """Cut every file of the open store back to a position of the log, durably."""
        self.forget_topics()
        with self.flusher.guard:
            self._cutter.cut_open(position)
        self._load_mark()

    def _load_mark(self) -> None:
        """Find how far the log is archived: not beyond its end, which a crash may have moved back."""
        mark = self.archived.read()
        if mark > self.log.tail:
            mark = self.log.tail
            self.archived.write(mark)
        asked = min(self.options.archived_position, self.log.tail)
        self.options = replace(self.options, archived_position=max(mark, asked))

    def close(self) -> None:
        """Write and sync everything and mark the stop as clean; if a sync fails, the abort marker stays."""
        if not self._open:
            return
        self._open = False
        self._blocked = True
        try:
            self.commit()
            self.log.drop_copied()  # a replica requests a partial record again
            self.flusher.flushed = min(self.flusher.flushed, self.log.tail)
            self.flusher.sync_log()
            self.flusher.sync_derived()
            self.flusher.write_ends()
            self.abort.clear()
        finally:
            self._release()

    def _release(self) -> None:
        self.log.chain.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.checkpoint.close()
        # They hold closed queues, and a store may be opened again.
        self._topics.clear()
        self._hashes_waiting = 0
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, message: Record) -> Record:
        """Store one message; sets its offset, position, size and store time.

        Room in log, queue and index is reserved first, which may fail; after that nothing can. This is the hot
        path: what is nearly always true (the topic is known, there is room) is tested inline and not in a call.
        """
        if self._blocked:
            self._raise_blocked()
        topic = message.topic
        properties = message.properties
        if properties and properties[-1] == 0:
            properties = message.properties = properties + _SEPARATOR
        sys_flag = message.sys_flag
        facts = self._topics.get(topic) or self._learn_topic(topic)
        size = facts.fixed_bytes + len(message.body) + len(properties)
        if size > self._size_checked_max or len(properties) > self._properties_max or sys_flag & HOSTS_V6_MASK:
            size = self._check_sizes(message)
        transient = self.log.transient
        if transient is not None:
            transient.check_room(size)
        message.store_timestamp = now = self.clock.now_ms()
        index = self.index
        # A message has fewer keys than its properties have bytes. Usually there is room, and nothing else has to be known.
        if (
            index is not None
            and (transient is not None or not index.files or index.files[-1].room < len(properties))
            and _KEY in properties
        ):
            self._reserve_keys(facts, [message])
        if transient is not None or not facts.is_plain or sys_flag & TRANSACTION_MASK:
            self._append_unusual(message, facts, size)
            return message
        queue = facts.queues.get(message.queue_id) or self._learn_queue(facts, topic, message.queue_id)
        entries, entries_at, _ = queue.find_room()
        message.queue_offset = queue.next_offset
        self.log.append(message, facts.encoded, size)
        self.flusher.last_store_time = now
        if not self.dispatch.run_written(message, queue, facts.prefix, entries, entries_at):
            self._dispatch(message.position, size)
        else:
            for listener in self.dispatched.listeners:  # as `tell` does
                listener([(queue, message.queue_offset)])
        return message

    def _append_unusual(self, message: Record, facts: TopicFacts, size: int) -> None:
        """Store a message of a transaction or with a delay, or through the transient buffer."""
        queue = None
        message.queue_offset = 0
        if has_queue_entry(message.sys_flag):
            queue = facts.queues.get(message.queue_id) or self._learn_queue(facts, message.topic, message.queue_id)
            message.queue_offset = queue.next_offset
            queue.reserve(queue.next_offset - queue.max_offset + 1)
        self.log.append(message, facts.encoded, size)
        self.flusher.last_store_time = message.store_timestamp
        if self.log.transient is None:
            self._dispatch(message.position, size)
        elif queue is not None:
            queue.next_offset += 1

    def append_batch(self, messages: list[Record]) -> list[Record]:
        """Store messages of one queue, consecutively in one segment."""
        if self._blocked:
            self._raise_blocked()
        if not messages:
            raise MessageIllegal("a batch needs at least one message")
        first = messages[0]
        if any(message.topic != first.topic or message.queue_id != first.queue_id for message in messages):
            raise MessageIllegal("all messages of a batch must go to one queue")
        if sum(len(message.body) for message in messages) > self.options.message_bytes_max:
            raise MessageIllegal(f"the batch is larger than {self.options.message_bytes_max} bytes")
        for message in messages:
            if message.properties[-1:] == b"\0":
                message.properties += _SEPARATOR
        facts = self._topics.get(first.topic) or self._learn_topic(first.topic)
        sizes = [self._check_sizes(message) for message in messages]
        check_batch(len(messages), sum(sizes))
        transient = self.log.transient
        if transient is not None:
            transient.check_room(sum(sizes))
        if not all([has_queue_entry(message.sys_flag) for message in messages]):
            raise MessageIllegal("a batch cannot be transactional")
        queue = facts.queues.get(first.queue_id) or self._learn_queue(facts, first.topic, first.queue_id)
        now = self.clock.now_ms()
        self._reserve_keys(facts, messages)
        queue.reserve(queue.next_offset - queue.max_offset + len(messages))
        for offset, message in enumerate(messages, queue.next_offset):
            message.store_timestamp = now
            message.queue_offset = offset
        self.log.append_batch(messages, facts.encoded, sizes)
        self.flusher.last_store_time = now
        if transient is None:
            self._dispatch(first.position, sum(sizes))
        else:
            queue.next_offset += len(messages)
        return messages

    def append_encoded(self, topic: str, queue_id: int, data: bytes, facts: BatchFacts) -> StoredBatch | None:
        """Store an encoded batch; None when it is not a usual one and must be decoded for `append_batch`."""
        size = self._measure_encoded(topic, data, facts)
        if size is None:
            return None
        known = self._topics[topic]
        queue = known.queues.get(queue_id) or self._learn_queue(known, topic, queue_id)
        now = self.clock.now_ms()
        if self.index is not None:
            self.index.reserve(size.index_entries_max)
        queue.reserve(size.messages)
        stored = write_encoded(data, facts, size, known.encoded, self.log, queue, now)
        self.flusher.last_store_time = now
        self._dispatch(stored.end - stored.size, stored.size)
        return stored

    def _measure_encoded(self, topic: str, data: bytes, facts: BatchFacts) -> BatchSize | None:
        """How large a batch is; None when it is not a usual one. Raises BatchTooLarge."""
        if self._blocked or self.log.transient is not None or not facts.is_usual:
            return None
        known = self._topics.get(topic) or self._learn_topic(topic)
        size = measure_encoded(data, len(facts.shared), known.fixed_bytes, self._properties_max)
        if size.messages <= 0 or size.bodies_bytes > self.options.message_bytes_max or not known.is_plain:
            return None
        check_batch(size.messages, size.records_bytes)
        return size

    def cut_encoded(self, topic: str, data: bytes, facts: BatchFacts) -> list[bytes]:
        """Split a large batch into pieces, each of which is stored in about a millisecond. Raises BatchTooLarge.

        A batch that is not a usual one is not split.
        """
        if self._measure_encoded(topic, data, facts) is None:
            return [data]
        return cut_encoded(data)

    def commit(self) -> None:
        """Write the transient buffer to the file and make its records visible to readers.

        Records that cannot be dispatched now, because the disk is full, are left for the next call.
        """
        if self.log.transient is None:
            return
        begin, end = self.log.readable_end, self.log.commit()
        if begin < end:
            done = self.dispatch.run_until(self.log.chain, begin, end)
            self.log.show_copied(done.end)
            self.dispatched.tell(done.grown)
            if done.error is not None:
                raise done.error
            self._hashes_waiting = 0

    def _reserve_keys(self, facts: TopicFacts, messages: list[Record]) -> None:
        """Make room in the index for the keys of messages."""
        if self.index is None:
            return
        digest = self.dispatch.digest
        count = sum([len(digest(it.topic, facts.prefix, it.properties, 0, it.sys_flag)[1]) for it in messages])
        self.index.reserve(count + self._hashes_waiting)
        if self.log.transient is not None:
            self._hashes_waiting += count

    def _dispatch(self, position: int, size: int) -> None:
        """Dispatch records that were just written, and call the listeners."""
        start = self.log.segment_start
        done = self.dispatch.run_records(self.log.buffer, position - start, position - start + size, start)
        if done.error is not None:
            raise done.error
        self.dispatched.tell(done.grown)

    def _learn_topic(self, topic: str) -> TopicFacts:
        """Check a topic's name and cache what every append to it needs."""
        facts = find_facts(topic, self.options.topic_bytes_max)
        if len(self._topics) >= TOPICS_KEPT_MAX:
            self._topics.clear()
        self._topics[topic] = facts
        return facts

    def _learn_queue(self, facts: TopicFacts, topic: str, queue_id: int) -> ConsumeQueue:
        queue = facts.queues[queue_id] = self.queues.get_or_make(topic, queue_id)
        return queue

    def forget_topics(self) -> None:
        """Clear the cache of topics and queues, which may have changed."""
        self._topics.clear()

    def detach_topic(self, topic: str) -> Callable[[], None]:
        """Remove the consume queues of a topic; the returned function deletes their files and may run in a thread.

        Its records stay in the log until they expire.
        """
        self.commit()  # records in the transient buffer may belong to these queues
        self._topics.pop(topic, None)
        remove_queues = self.queues.detach_topic(topic)
        self.removed.add(topic, self.log.readable_end)
        self.ends.expire()

        def remove() -> None:
            self.removed.save()  # first: a crash in between must not bring back half of the topic
            remove_queues()

        return remove

    def change_options(self, options: StoreOptions) -> None:
        """Apply new values of mutable options. Raises ConfigError as `check_options` does."""
        self.check_options(options)
        self.options = options
        self._size_checked_max = options.message_bytes_max

    def check_options(self, options: StoreOptions) -> None:
        """Raise ConfigError when an immutable option differs, or one is out of bounds."""
        for name, info in info_of(StoreOptions).items():
            if not info.mutable and getattr(options, name) != getattr(self.options, name):
                raise ConfigError(f"{info.java} cannot change while the store is open")
        check_bounds(options)
        low, asked, high = self.options.archived_position, options.archived_position, self.log.tail
        if asked != low and not low <= asked <= high:
            raise ConfigError(f"archivedPosition={asked}: it only grows; the allowed range is now {low} to {high}")

    @property
    def refusal(self) -> str:
        """Why appends are refused; empty while they are accepted."""
        return self._fence or self._refusal

    @property
    def full_reason(self) -> str:
        """Why there is no room for appends, whether or not this broker accepts any; empty while there is."""
        return self._refusal

    def refuse(self, reason: str) -> None:
        """Refuse appends for lack of room, or accept them again (empty reason)."""
        self._refusal = reason
        self._blocked = bool(self._fence or reason) or not self._open

    def fence(self, reason: str) -> None:
        """Refuse appends, but not copied bytes, because this is not the master; accept them again without a reason."""
        self._fence = reason
        self.refuse(self._refusal)

    def _raise_blocked(self) -> None:
        if not self._open:
            raise StoreClosed("the store is closed")
        if self._fence:
            raise StoreReadOnly(self._fence)
        raise StoreFull(self._refusal)

    def _check_sizes(self, message: Record) -> int:
        """The size of the message's record; raises an error that names the part that is too large."""
        body, topic, properties = len(message.body), len(message.topic.encode()), len(message.properties)
        if body > self.options.message_bytes_max:
            raise MessageIllegal(f"the body has {body} bytes, the maximum is {self.options.message_bytes_max}")
        if properties > self._properties_max:
            raise MessageIllegal(f"the properties have {properties} bytes, the maximum is {self._properties_max}")
        return record_size(body, topic, properties, message.sys_flag)


def open_store(
    root: Path,
    options: StoreOptions | None = None,
    *,
    disk: FileSystem | None = None,
    clock: Clock | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    commitlog: Path | None = None,
) -> MessageStore:
    """Open (or create) the store in a directory and recover what the last run left."""
    options = options or StoreOptions()
    paths = StorePaths(root, commitlog)
    store = MessageStore(paths, options, disk or LocalFileSystem(), clock or SystemClock(), executor)
    store.open(progress)
    return store
