"""The message store: one directory, one writer.

`open_store` takes the lock, recovers, and gives a `MessageStore`. All its methods run in the one thread (or event
loop) that owns it; only `flusher` may be used from another.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from eruca.clock import Clock, SystemClock
from eruca.config import StoreOptions, check_bounds, info_of, parse_delay_levels
from eruca.errors import ConfigError, MessageIllegal, StoreClosed, StoreError, StoreFull, StoreReadOnly
from eruca.store.archived import ArchiveMark
from eruca.store.checkpoint import AbortMarker, Checkpoint
from eruca.store.commitlog import CommitLog
from eruca.store.consumequeue import ConsumeQueue
from eruca.store.damage import DamageList
from eruca.store.dispatch import Arrival, Dispatch, has_queue_entry
from eruca.store.encodedbatch import COMPILED, BatchFacts, StoredBatch, check_batch, measure_encoded, write_encoded
from eruca.store.filesystem import FileSystem, LocalFileSystem, Lock
from eruca.store.flush import Flusher
from eruca.store.index import Index
from eruca.store.layout import StorePaths
from eruca.store.mending import Mender
from eruca.store.queueends import EndsFile
from eruca.store.queues import Queues
from eruca.store.recovery import RecoveryPlan, apply_recovery, plan_recovery
from eruca.store.removed import RemovedTopics
from eruca.store.replicated import Replicated
from eruca.store.scan import Progress
from eruca.store.truncation import cut_log, finish_cut
from eruca.wire.digest import digest_properties, index_prefix
from eruca.wire.names import SCHEDULE_TOPIC, check_topic
from eruca.wire.record import FIXED_BYTES_V4, Message, record_size
from eruca.wire.sysflag import HOSTS_V6_MASK, TRANSACTION_MASK

log = logging.getLogger(__name__)

# Put behind properties that end in a zero byte, where it changes nothing for a reader: a record that ends in zeros was
# cut short by a power loss (`scan.is_cut_short`), and this is how we know that it was not written so.
_SEPARATOR = b"\x02"

# Topics whose facts are kept; a bound, because topics come and go.
_TOPICS_KEPT_MAX = 65536


@dataclass(slots=True)
class _TopicFacts:
    """What every append to a topic needs."""

    encoded: bytes
    # Size of a record of this topic without body and properties, for two IPv4 hosts.
    fixed_bytes: int
    prefix: int
    # Its tags codes are hashes of tags; those of the delay topic are times.
    is_plain: bool
    queues: dict[int, ConsumeQueue]


class MessageStore(Replicated):
    """Appends records and finds them again."""

    def __init__(
        self,
        paths: StorePaths,
        options: StoreOptions,
        disk: FileSystem,
        clock: Clock,
        executor: Executor | None,
    ) -> None:
        super().__init__(disk, paths)
        self.options = options
        self.clock = clock
        self.commitlog = CommitLog(disk, paths.commitlog, options, clock, executor)
        self.queues = Queues(disk, paths.consumequeue, options.consumequeue_segment_bytes)
        self.index: Index | None = None
        if options.index_enabled:
            self.index = Index(disk, paths.index, options.index_slots, options.index_entries, clock, executor)
        self.checkpoint = Checkpoint(disk, paths.checkpoint)
        self.removed = RemovedTopics(disk, paths.removed)
        self.dispatch = Dispatch(self.queues, self.index, parse_delay_levels(options.delay_levels), self.removed)
        self.ends = EndsFile(disk, paths.queue_ends)
        self.flusher = Flusher(self.commitlog, self.queues, self.index, self.checkpoint, self.ends)
        self.damage = DamageList(disk, paths.damage)
        self.mender = Mender(self.commitlog, self.dispatch, self.damage)
        self.dispatch.guard, self.dispatch.damage = self.flusher.guard, self.damage
        self.archived = ArchiveMark(disk, paths.archived)
        self.abort = AbortMarker(disk, paths.abort)
        self.on_arrival: Arrival | None = None
        # Told of a whole batch at once: topic, queue id, the offset of its first message and the one behind its last.
        self.on_batch_arrival: Callable[[str, int, int, int], None] | None = None
        # Told after every append that readers see; set only while there is a slave to be fed.
        self.on_append: Callable[[], None] | None = None
        # Retention refuses appends when the disk is too full.
        self._refusal = ""
        # A broker that is no master refuses them too.
        self._fence = ""
        self._blocked = True
        self._topics: dict[str, _TopicFacts] = {}
        # A record up to this size cannot have a body that is too large.
        self._size_checked_max = options.message_bytes_max
        self._properties_max = options.properties_bytes_max
        self.recovered: RecoveryPlan | None = None
        self._lock: Lock | None = None
        self._open = False
        # Records in the transient buffer: they get their entries when the file has them.
        self._uncommitted: deque[tuple[Message, ConsumeQueue | None, int, list[int]]] = deque()
        # Index entries they will need; every append reserves room for these too.
        self._hashes_waiting = 0

    # -- opening and closing -----------------------------------------------------------------------------------------

    def open(self, progress: Progress | None = None) -> RecoveryPlan:
        """Take the lock, load every part, recover."""
        self.disk.make_directory(self.paths.root)
        self._lock = self.disk.lock(self.paths.lock)
        try:
            cut_at = self.load_replication().truncating
            crashed = self.abort.is_set() or cut_at >= 0
            self.commitlog.chain.load()
            self.queues.load()
            if self.index is not None:
                self.index.load()
            self.checkpoint.load()
            self.damage.load()
            self.removed.load(self.commitlog.start)
            if cut_at >= 0:
                self.abort.set()
                cut_log(self, cut_at)
                self.checkpoint.lower_to(cut_at)
                self.ends.remove()
            plan = plan_recovery(
                self.commitlog,
                self.dispatch,
                self.checkpoint,
                self.ends.load(),
                clean=not crashed,
                check_crc=self.options.check_crc_on_recover,
                progress=progress,
                known_damage=self.damage.items,
            )
            # Marked before the first change, so that a crash during recovery is followed by another recovery.
            self.abort.set()
            if crashed:
                self.note_crash(plan)
            # Before the checkpoint moves on: the next walk may begin behind the damage.
            self.damage.replace_from(plan.scanned_from, plan.damage, found_ms=self.clock.now_ms())
            apply_recovery(
                plan, self.commitlog, self.dispatch, self.checkpoint, progress, known_damage=self.damage.items
            )
            if not plan.clean or plan.repairs:
                self.ends.expire()
            self.load_mark()
            if cut_at >= 0:
                finish_cut(self, cut_at)
        except BaseException:
            self._release()
            raise
        self.flusher.begin_at(self.commitlog.tail)
        self.flusher.last_store_time = max(plan.last_store_time, self.checkpoint.log_time)
        self.recovered = plan
        self._open = True
        self.refuse("")
        return plan

    def load_mark(self) -> None:
        """Find how far the log is archived: not beyond its end, which a crash may have moved back."""
        mark = self.archived.read()
        if mark > self.commitlog.tail:
            mark = self.commitlog.tail
            self.archived.write(mark)
        asked = min(self.options.archived_position, self.commitlog.tail)
        self.options = replace(self.options, archived_position=max(mark, asked))

    def close(self) -> None:
        """Write and sync everything and mark the stop as clean; what cannot be synced leaves the abort marker."""
        if not self._open:
            return
        self._open = False
        self._blocked = True
        try:
            self.commit()
            self.commitlog.drop_copied()  # a replica has the part of a record sent again
            self.flusher.flushed = min(self.flusher.flushed, self.commitlog.tail)
            self.flusher.sync_log()
            self.flusher.sync_derived()
            self.flusher.write_ends()
            self.abort.clear()
        finally:
            self._release()

    def _release(self) -> None:
        self.commitlog.chain.close()
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.checkpoint.close()
        # They hold closed queues, and a store may be opened again.
        self._topics.clear()
        self._uncommitted.clear()
        self._hashes_waiting = 0
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> Message:
        """Store one message; its offset, position, size and store time are filled in.

        Room in log, queue and index is reserved first, which may fail; from then on nothing can. This is the hot
        path: what is nearly always true (the topic is known, there is room) is tested here and not in a call.
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
        transient = self.commitlog.transient
        if transient is not None:
            transient.check_room(size)
        message.store_timestamp = now = self.clock.now_ms()
        index = self.index
        if facts.is_plain and not sys_flag & TRANSACTION_MASK:
            tags_code, hashes = digest_properties(properties, facts.prefix, index is not None)
        else:
            tags_code, hashes = self.dispatch.digest(topic, facts.prefix, properties, now, sys_flag)
        if hashes and index is not None:
            index.reserve(len(hashes) + self._hashes_waiting)
        queue = None
        if not sys_flag & TRANSACTION_MASK or has_queue_entry(sys_flag):
            queue = facts.queues.get(message.queue_id) or self._learn_queue(facts, topic, message.queue_id)
            message.queue_offset = queue.next_offset
            queue.reserve(queue.next_offset - queue.max_offset + 1)
        else:
            message.queue_offset = 0
        self.commitlog.append(message, facts.encoded, size)
        self.flusher.last_store_time = now
        if queue is not None:
            queue.next_offset += 1
        if transient is None:
            self._dispatch(message, queue, tags_code, hashes)
            if self.on_append is not None:
                self.on_append()
        else:
            self._uncommitted.append((message, queue, tags_code, hashes))
            self._hashes_waiting += len(hashes)
        return message

    def append_batch(self, messages: list[Message]) -> list[Message]:
        """Store messages of one queue, one behind the other in one segment."""
        if self._blocked:
            self._raise_blocked()
        if not messages:
            raise MessageIllegal("a batch needs at least one message")
        first = messages[0]
        if any(message.topic != first.topic or message.queue_id != first.queue_id for message in messages):
            raise MessageIllegal("all messages of a batch go to one queue")
        if sum(len(message.body) for message in messages) > self.options.message_bytes_max:
            raise MessageIllegal(f"the batch is larger than {self.options.message_bytes_max} bytes")
        for message in messages:
            if message.properties[-1:] == b"\0":
                message.properties += _SEPARATOR
        facts = self._topics.get(first.topic) or self._learn_topic(first.topic)
        sizes = [self._check_sizes(message) for message in messages]
        check_batch(len(messages), sum(sizes))
        transient = self.commitlog.transient
        if transient is not None:
            transient.check_room(sum(sizes))
        if not all([has_queue_entry(message.sys_flag) for message in messages]):
            raise MessageIllegal("a batch cannot be transactional")
        queue = facts.queues.get(first.queue_id) or self._learn_queue(facts, first.topic, first.queue_id)
        now = self.clock.now_ms()
        digest = self.dispatch.digest
        digests = [digest(first.topic, facts.prefix, item.properties, now, item.sys_flag) for item in messages]
        if self.index is not None:
            self.index.reserve(sum([len(hashes) for _, hashes in digests]) + self._hashes_waiting)
        queue.reserve(queue.next_offset - queue.max_offset + len(messages))
        for offset, message in enumerate(messages, queue.next_offset):
            message.store_timestamp = now
            message.queue_offset = offset
        self.commitlog.append_batch(messages, facts.encoded, sizes)
        self.flusher.last_store_time = now
        queue.next_offset += len(messages)
        for message, (tags_code, hashes) in zip(messages, digests, strict=True):
            if transient is None:
                self._dispatch(message, queue, tags_code, hashes)
            else:
                self._uncommitted.append((message, queue, tags_code, hashes))
                self._hashes_waiting += len(hashes)
        if self.on_append is not None:
            self.on_append()
        return messages

    def append_encoded(self, topic: str, queue_id: int, data: bytes, facts: BatchFacts) -> StoredBatch | None:
        """Store a batch as it came; None when it is not a usual one and must be decoded for `append_batch`."""
        if not COMPILED or self._blocked or self.commitlog.transient is not None or not facts.is_usual:
            return None
        known = self._topics.get(topic) or self._learn_topic(topic)
        size = measure_encoded(data, len(facts.shared), known.fixed_bytes, self._properties_max)
        if size.messages <= 0 or size.bodies_bytes > self.options.message_bytes_max or not known.is_plain:
            return None
        check_batch(size.messages, size.records_bytes)
        queue = known.queues.get(queue_id) or self._learn_queue(known, topic, queue_id)
        now = self.clock.now_ms()
        log, index = self.commitlog, self.index
        stored = write_encoded(data, facts, size, known.encoded, known.prefix, log, queue, index, now)
        if stored is not None:
            self.flusher.last_store_time = now
            queue.next_offset += stored.messages
            if self.on_batch_arrival is not None:
                self.on_batch_arrival(topic, queue_id, stored.offset, stored.offset + stored.messages)
            if self.on_append is not None:
                self.on_append()
        return stored

    def commit(self) -> None:
        """Move the transient buffer to the file and show what it held to readers."""
        if self.commitlog.transient is None:
            return
        try:
            self.commitlog.commit()
        finally:
            end = self.commitlog.readable_end
            while self._uncommitted and self._uncommitted[0][0].position < end:
                self._dispatch(*self._uncommitted[0])
                self._hashes_waiting -= len(self._uncommitted.popleft()[3])
            if self.on_append is not None:
                self.on_append()

    def _dispatch(self, message: Message, queue: ConsumeQueue | None, tags_code: int, hashes: list[int]) -> None:
        if hashes and self.index is not None:
            self.index.put(hashes, message.position, message.store_timestamp)
        if queue is None:
            return
        queue.put(message.position, message.size, tags_code)
        if self.on_arrival is not None:
            self.on_arrival(message, queue.max_offset, tags_code)

    def _learn_topic(self, topic: str) -> _TopicFacts:
        """Check a topic's name and keep what every append to it needs."""
        check_topic(topic, self.options.topic_bytes_max)
        if len(self._topics) >= _TOPICS_KEPT_MAX:
            self._topics.clear()
        encoded = topic.encode()
        facts = self._topics[topic] = _TopicFacts(
            encoded, FIXED_BYTES_V4 + len(encoded), index_prefix(topic), topic != SCHEDULE_TOPIC, {}
        )
        return facts

    def _learn_queue(self, facts: _TopicFacts, topic: str, queue_id: int) -> ConsumeQueue:
        queue = facts.queues[queue_id] = self.queues.get_or_make(topic, queue_id)
        return queue

    def forget_topics(self) -> None:
        """Look every topic and queue up again at its next append; they may not be what they were."""
        self._topics.clear()

    def remove_topic(self, topic: str) -> None:
        """Delete the consume queues of a topic; its records stay in the log until they expire."""
        self.detach_topic(topic)()

    def detach_topic(self, topic: str) -> Callable[[], None]:
        """Take the consume queues of a topic out; the result deletes their files and may run in a thread."""
        self.commit()  # records in the transient buffer may still be on their way to these queues
        self._topics.pop(topic, None)
        remove_queues = self.queues.detach_topic(topic)
        self.removed.add(topic, self.commitlog.readable_end)
        self.ends.expire()

        def remove() -> None:
            self.removed.save()  # first: a crash in between must not bring half of the topic back
            remove_queues()

        return remove

    def change_options(self, options: StoreOptions) -> None:
        """Take new values of mutable options. Raises ConfigError as `check_options` does."""
        self.check_options(options)
        self.options = options
        self._size_checked_max = options.message_bytes_max

    def check_options(self, options: StoreOptions) -> None:
        """Raise ConfigError when an option that is not mutable differs, or one is out of bounds."""
        for name, info in info_of(StoreOptions).items():
            if not info.mutable and getattr(options, name) != getattr(self.options, name):
                raise ConfigError(f"{info.java} cannot change while the store is open")
        check_bounds(options)
        low, asked, high = self.options.archived_position, options.archived_position, self.commitlog.tail
        if asked != low and not low <= asked <= high:
            raise ConfigError(f"archivedPosition={asked}: it only grows, and now it can be from {low} to {high}")

    @property
    def refusal(self) -> str:
        """Why appends are refused; empty while they are taken."""
        return self._fence or self._refusal

    @property
    def full_reason(self) -> str:
        """Why there is no room for appends, whether this broker takes any or not; empty while there is."""
        return self._refusal

    def refuse(self, reason: str) -> None:
        """Refuse appends for want of room, or take them again (no reason)."""
        self._refusal = reason
        self._blocked = bool(self._fence or reason) or not self._open

    def fence(self, reason: str) -> None:
        """Refuse appends because this is no master's log, or take them again (no reason); a replica's are taken."""
        self._fence = reason
        self.refuse(self._refusal)

    def _raise_blocked(self) -> None:
        if not self._open:
            raise StoreClosed("the store is closed")
        if self._fence:
            raise StoreReadOnly(self._fence)
        raise StoreFull(self._refusal)

    def _check_sizes(self, message: Message) -> int:
        """The size of the message's record, or an error that says which part is too large."""
        body, topic, properties = len(message.body), len(message.topic.encode()), len(message.properties)
        if body > self.options.message_bytes_max:
            raise MessageIllegal(f"the body has {body} bytes, the most is {self.options.message_bytes_max}")
        if properties > self._properties_max:
            raise MessageIllegal(f"the properties have {properties} bytes, the most is {self._properties_max}")
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
    """Open (or make) the store in a directory and recover what the last run left."""
    options = options or StoreOptions()
    paths = StorePaths(root, commitlog)
    store = MessageStore(paths, options, disk or LocalFileSystem(), clock or SystemClock(), executor)
    store.open(progress)
    return store


__all__ = ["MessageStore", "StoreError", "open_store"]
