"""The log of a slave: raw bytes of its master's log, copied to the same positions, and dispatched record by record.

    readable_end             tail
         v                    v
    ...--+--------------------+
         | part of a record   |          the end of a chunk; synced, but not visible to readers
    ...--+--------------------+

Chunks ignore record boundaries. Everything before `readable_end` is whole records whose entries are in queues
and index. A reopened store continues at the end of its last whole record, and the master sends the rest again.

After a crash the end of a log may have changed: pages reach the disk in any order, and topics and properties
have no checksum. What was not certainly synced is requested again and compared; where it differs, the log is cut.

Bytes that are not a record may have been corrupted in transit, so they are cut off and fetched again. When the same
bytes come a second time, the master's log itself is damaged there: they are kept, and readers skip them.
"""

from __future__ import annotations

import logging

from eruca._store.log.cursor import RecordCursor
from eruca._store.log.scan import Damage
from eruca._store.log.segment import Segment
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._wire.kernel.reading import skip_records
from eruca._wire.record import (
    BLANK_BYTES,
    BLANK_HEAD,
    BLANK_MAGIC,
    FIXED_BYTES_V4,
    RECORD_MAGIC,
    InvalidView,
    RecordView,
)
from eruca.errors import ReplicaCorrupt, StoreError

log = logging.getLogger(__name__)

# How many bytes of a bad record are kept, to recognize them when they come again.
_KEPT_BYTES_MAX = 8 * 1024 * 1024
# Where a record holds its own position.
_POSITION_AT = 28
_POSITION_END = 36
# What a walk over the log reports for a place without a byte.
_NEVER_WRITTEN = "nothing was written here"


class ReplicaLog:
    """Takes the bytes a master sends. Create a new one after `Lineage.truncate`. Nothing else may write to the log."""

    def __init__(self, store: MessageStore) -> None:
        cut_at = store.lineage.record.truncating
        if cut_at >= 0:
            store.lineage.truncate(cut_at, epoch=0)  # the disk failed during a cut; it must be finished first
        store.commit()
        self._store = store
        self._log = store.log
        self._log.begin_copy()
        store.dispatch.begin_anew = self._begin_queue_anew
        store.dispatch.last_damage = None  # damage found by a recovery does not explain later gaps
        # Where bytes were last refused, and the bytes.
        self._refused: tuple[int, bytes] | None = None
        # Where damage of the master's log begins whose end has not arrived yet, and the reason.
        self._damage: tuple[int, str] | None = None
        self._searched = 0
        # How far the end of the log was compared with the master's; None when no comparison is needed.
        self._compared: int | None = None

    @property
    def tail(self) -> int:
        """The position of the next byte wanted, which a slave reports; 0 for an empty log."""
        return self._log.tail if self._compared is None else self._compared

    def start_from(self, master_start: int) -> int:
        """Find out where to begin, given the master's epochs and the start of its log; returns `tail`."""
        unsure = self._store.lineage.record.unsure
        self._compared = max(unsure, self._log.start, master_start) if unsure >= 0 else None
        if self._compared is not None and self._compared >= self._log.tail:
            self._end_comparison()
        return self.tail

    @property
    def dispatched(self) -> int:
        """End of the last whole record: everything before it is visible to readers."""
        return self._log.readable_end

    def append(self, position: int, data: memoryview | bytes) -> None:
        """Copy bytes to the tail and dispatch every record completed by them; raises as these two do."""
        self.copy(position, data)
        self.dispatch()

    def copy(self, position: int, data: memoryview | bytes) -> None:
        """Copy bytes to the tail; they become visible to readers when dispatched.

        Raises StoreError when `position` is not the tail (an empty log takes any position), or when the disk fails;
        what was copied before the failure is kept.
        """
        commitlog, rest = self._log, memoryview(data)
        if self._compared is not None and rest:
            taken = self._compare(position, rest)
            position, rest = position + taken, rest[taken:]
        if not rest:
            return
        if position != commitlog.tail:
            self._start_at(position)
        while (taken := commitlog.copy_in(rest)) < len(rest):
            rest = rest[taken:]

    def finish(self) -> int:
        """Cut a partial record off the tail, so that the store itself can append; returns where the log ends.

        From then on the store writes its own log; a later copy needs a new ReplicaLog.
        """
        self.dispatch()
        if self._log.readable_end != self._log.tail:
            self._cut()
        self._store.dispatch.begin_anew = None
        self._store.forget_topics()
        self._log.end_copy()
        return self._log.tail

    # -- places --------------------------------------------------------------------------------------------------------

    def _start_at(self, position: int) -> None:
        """Begin an empty log in the middle, at the position where its master starts sending."""
        store, commitlog = self._store, self._log
        commitlog.start_copy_at(position)
        store.flusher.begin_at(position)
        begin = commitlog.start
        if begin < position:
            hole = Damage(begin, position - begin, _NEVER_WRITTEN)
            store.damage.replace_from(begin, [hole], found_ms=store.clock.now_ms())

    def _compare(self, position: int, data: memoryview) -> int:
        """Compare bytes with those of the log, cutting it where they differ; returns how many of them the log has."""
        commitlog = self._log
        if position != self._compared:
            raise StoreError(f"bytes for {position} cannot be compared: expected those for {self._compared}")
        end = min(commitlog.tail, position + len(data))
        mine = commitlog.read_bytes(position, end)
        if mine is None:
            raise StoreError(f"the bytes at {position} cannot be compared: they have expired")
        if mine == bytes(data[: end - position]):
            self._compared = end
            if end == commitlog.tail:
                self._end_comparison()
            return end - position
        same = next(n for n, (one, other) in enumerate(zip(mine, data, strict=False)) if one != other)
        lineage, record = self._store.lineage, self._store.lineage.record
        log.error("the log differs from the master's at %d, after a crash: cutting it there", position + same)
        lineage.truncate(position + same, epoch=record.epochs[-1].epoch if record.epochs else 0)
        lineage.adopt_epochs(record.epochs, record.seen_epoch)  # they stay the master's
        self._end_comparison()
        self._damage = self._refused = None
        if commitlog.tail < position:
            raise ReplicaCorrupt(f"the log was cut back to {commitlog.tail}", hint="the master is asked for the rest")
        return commitlog.tail - position

    def _end_comparison(self) -> None:
        self._compared = None
        self._store.lineage.end_doubt()

    def _cut(self) -> None:
        """Cut the log back to the end of its last whole record."""
        flusher = self._store.flusher
        with flusher.guard:  # a sync in progress would count the old bytes as new ones
            self._log.drop_copied()
            flusher.flushed = min(flusher.flushed, self._log.tail)

    # -- records -------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Dispatch the whole records after the last dispatched one.

        Raises ReplicaCorrupt when the bytes are not records, after cutting the log back to the last good one. Raises
        StoreError when the disk fails; the next call continues with what is left.
        """
        store, commitlog = self._store, self._log
        while (start := commitlog.readable_end) < commitlog.tail:
            segment = commitlog.chain.find(start)
            assert segment is not None
            at, end = start - segment.start, min(commitlog.tail, segment.end) - segment.start
            if self._damage is not None:
                if not self._find_damage_end():
                    return
                continue
            good = self._find_good(segment, at, end)
            if good == at:
                if not self._step_over_blank(segment, at, end):
                    return
                continue
            done = store.dispatch.run_records(segment.buffer, at, good, segment.start)
            if done.end > at:
                store.flusher.last_store_time = done.store_time
                commitlog.show_copied(segment.start + done.end)
                store.dispatched.tell(done.grown)
            if done.error is not None:
                raise done.error

    @staticmethod
    def _find_good(segment: Segment, at: int, end: int) -> int:
        """Where the whole and good records starting at a place end."""
        buffer, base = segment.buffer, segment.start
        good: int = skip_records(buffer, at, end, base, True)[0]
        if good == at:
            # Records the walk leaves out, because they may be remains of something lost in a crash.
            view = _make_cursor(segment, end).look(at)
            if type(view) is RecordView:
                return at + view.size
        return good

    def _step_over_blank(self, segment: Segment, at: int, end: int) -> bool:
        """Move to the next segment if an end-of-segment record is complete; False when a record is still partial.

        Raises ReplicaCorrupt when the bytes are neither.
        """
        if end - at < BLANK_BYTES:
            return False
        buffer, room = segment.buffer, segment.size - at
        size, magic = BLANK_HEAD.unpack_from(buffer, at)
        if magic == BLANK_MAGIC and BLANK_BYTES <= size <= room:
            if end < segment.size:
                return False
            self._log.show_copied(segment.end)
            return True
        if magic == RECORD_MAGIC and FIXED_BYTES_V4 <= size <= room and size > end - at:
            claimed = int.from_bytes(buffer[at + _POSITION_AT : at + _POSITION_END], "big")
            if end - at < _POSITION_END or claimed == segment.start + at:
                return False
            reason = f"record claims position {claimed} but is at {segment.start + at}"
        else:
            view = _make_cursor(segment, end).look(at)
            assert isinstance(view, InvalidView)
            reason = view.reason
        self._refuse(segment, at, end, reason)
        return True

    # -- bytes that are not a record -----------------------------------------------------------------------------------

    def _refuse(self, segment: Segment, at: int, end: int, reason: str) -> None:
        """Cut off bytes that are not a record; when the same bytes come a second time, start skipping them instead."""
        position = segment.start + at
        found = bytes(segment.buffer[at : min(end, at + _KEPT_BYTES_MAX)])
        before_at, before = self._refused or (-1, b"")
        if before_at == position and (found.startswith(before) or before.startswith(found)):
            log.error("the master's log is damaged at %d (%s); searching for the next record", position, reason)
            self._damage = (position, reason)
            self._searched = position + 1
            return
        self._refused = (position, found)
        self._cut()
        raise ReplicaCorrupt(
            f"what the master sent for {position} is not a record: {reason}", hint="it is requested again"
        )

    def _find_damage_end(self) -> bool:
        """Look for a record after damage and continue there; False when none has arrived yet."""
        assert self._damage is not None
        commitlog, store = self._log, self._store
        begin, reason = self._damage
        for segment in commitlog.chain.from_position(self._searched):
            if segment.start >= commitlog.tail:
                break
            at = max(self._searched, segment.start) - segment.start
            end = min(commitlog.tail, segment.end) - segment.start
            found = _make_cursor(segment, end).find(at)
            if found >= 0:
                position = segment.start + found
                damage = Damage(begin, position - begin, reason)
                log.error("skipping %d damaged bytes at %d", damage.length, begin)
                store.damage.replace_from(begin, [damage], found_ms=store.clock.now_ms())
                store.dispatch.last_damage = (damage.position, damage.length)
                self._damage = None
                commitlog.show_copied(position)
                return True
            # The last bytes may be the start of a record that is still to come.
            overlap = 0 if end == segment.size else max(_KEPT_BYTES_MAX, 2 * store.options.message_bytes_max)
            self._searched = max(self._searched, segment.start + end - overlap)
        return False

    # -- queues that start over ----------------------------------------------------------------------------------------

    def _begin_queue_anew(self, queue: ConsumeQueue, position: int) -> None:
        """Empty a queue that gets messages it already seems to have: the master deleted and recreated its topic."""
        store = self._store
        log.warning("topic %s was deleted and created again, its queue %d starts over", queue.topic, queue.queue_id)
        store.removed.add_queue(queue.topic, queue.queue_id, position)
        store.removed.save()  # first, as with every deletion: a crash must not bring back a part of it
        with store.flusher.guard:
            queue.destroy()


def _make_cursor(segment: Segment, end: int) -> RecordCursor:
    """A cursor over the bytes of a segment received so far; more are to come."""
    return RecordCursor(segment.buffer, end, segment.start, check_crc=True, growing=True)
