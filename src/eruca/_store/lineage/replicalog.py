"""The log of a slave: raw bytes of its master's log, copied to the same positions, and dispatched record by record.

    readable_end             tail
         v                    v
    ...--+--------------------+
         | part of a record   |          what a chunk ended with; readers do not see it, the flusher syncs it
    ...--+--------------------+

Chunks ignore where records begin and end. Everything before `readable_end` is whole records whose entries are in queues
and index. A store that is opened again goes on at the end of its last whole record, and the master sends the rest anew.

After a crash the end of a log may not be what it was: pages reach the disk in any order, and topics and properties
have no checksum. What was not synced for certain is asked for again and compared; where it differs the log is cut.

Bytes that are no record may have changed on their way, so they are cut off and fetched again. When the same bytes come
a second time, it is the master's log that is damaged there: they are kept, and readers step over them.
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

# As much is kept of bytes that are no record, to tell whether the same ones come again.
_KEPT_BYTES_MAX = 8 * 1024 * 1024
# Where a record says its own position.
_POSITION_AT = 28
_POSITION_END = 36
# What a walk over the log says of a place without a byte.
_NEVER_WRITTEN = "nothing was written here"


class ReplicaLog:
    """Takes the bytes a master sends, after `Lineage.truncate` a new one. Nothing else may write to the log."""

    def __init__(self, store: MessageStore) -> None:
        cut_at = store.lineage.record.truncating
        if cut_at >= 0:
            store.lineage.truncate(cut_at, epoch=0)  # the disk failed half-way; nothing goes on before
        store.commit()
        self._store = store
        self._log = store.log
        self._log.begin_copy()
        store.dispatch.begin_anew = self._begin_queue_anew
        store.dispatch.last_damage = None  # that of a recovery explains nothing that comes now
        # Where bytes were refused last, and what they were.
        self._refused: tuple[int, bytes] | None = None
        # Where damage of the master's log begins whose end has not come yet, and why it is none.
        self._damage: tuple[int, str] | None = None
        self._searched = 0
        # How far the end of the log was compared with the master's; None when it need not be.
        self._compared: int | None = None

    @property
    def tail(self) -> int:
        """The position of the next byte that is wanted: what a slave reports, 0 for an empty log."""
        return self._log.tail if self._compared is None else self._compared

    def start_from(self, master_start: int) -> int:
        """Find out where to begin, knowing the master's epochs and where its log begins; gives `tail`."""
        unsure = self._store.lineage.record.unsure
        self._compared = max(unsure, self._log.start, master_start) if unsure >= 0 else None
        if self._compared is not None and self._compared >= self._log.tail:
            self._end_comparison()
        return self.tail

    @property
    def dispatched(self) -> int:
        """End of the last whole record: readers see everything before it."""
        return self._log.readable_end

    def append(self, position: int, data: memoryview | bytes) -> None:
        """Copy bytes to the tail and dispatch every record that is complete then; raises as these two do."""
        self.copy(position, data)
        self.dispatch()

    def copy(self, position: int, data: memoryview | bytes) -> None:
        """Copy bytes to the tail; readers see them when they are dispatched.

        Raises StoreError when `position` is not the tail (an empty log takes any), or when the disk fails; what was
        copied until then is kept.
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
        """Cut a part of a record off the tail, so that the store itself can append; gives where the log ends.

        From then on the store writes its log again; a later copy needs a new ReplicaLog.
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
        """Begin an empty log in the middle, where its master begins to send."""
        store, commitlog = self._store, self._log
        commitlog.start_copy_at(position)
        store.flusher.begin_at(position)
        begin = commitlog.start
        if begin < position:
            hole = Damage(begin, position - begin, _NEVER_WRITTEN)
            store.damage.replace_from(begin, [hole], found_ms=store.clock.now_ms())

    def _compare(self, position: int, data: memoryview) -> int:
        """Compare bytes with those of the log; gives how many of them the log has, now that it may have been cut."""
        commitlog = self._log
        if position != self._compared:
            raise StoreError(f"bytes for {position} cannot be compared: those for {self._compared} are wanted")
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
        log.error("the log differs from the master's at %d, after a crash: it is cut there", position + same)
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
        with flusher.guard:  # a sync under way would take the old bytes for new ones
            self._log.drop_copied()
            flusher.flushed = min(flusher.flushed, self._log.tail)

    # -- records -------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Dispatch the whole records behind the last one.

        Raises ReplicaCorrupt when there are none, after the log was cut back to the last good one. Raises StoreError
        when the disk fails; the next call goes on with what is left.
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
        """Where the whole and good records at a place end."""
        buffer, base = segment.buffer, segment.start
        good: int = skip_records(buffer, at, end, base, True)[0]
        if good == at:
            # Those that the walk leaves out, because they may be the rest of something that a crash took.
            view = _make_cursor(segment, end).look(at)
            if type(view) is RecordView:
                return at + view.size
        return good

    def _step_over_blank(self, segment: Segment, at: int, end: int) -> bool:
        """Go to the next segment if an end-of-segment record is whole; False when there is a part of a record.

        Raises ReplicaCorrupt when there is neither.
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
            reason = f"record claims position {claimed} but lies at {segment.start + at}"
        else:
            view = _make_cursor(segment, end).look(at)
            assert isinstance(view, InvalidView)
            reason = view.reason
        self._refuse(segment, at, end, reason)
        return True

    # -- bytes that are no record --------------------------------------------------------------------------------------

    def _refuse(self, segment: Segment, at: int, end: int, reason: str) -> None:
        """Cut bytes off that are no record; the second time the same ones come, begin to step over them instead."""
        position = segment.start + at
        found = bytes(segment.buffer[at : min(end, at + _KEPT_BYTES_MAX)])
        before_at, before = self._refused or (-1, b"")
        if before_at == position and (found.startswith(before) or before.startswith(found)):
            log.error("the master's log is damaged at %d (%s); what follows is looked for", position, reason)
            self._damage = (position, reason)
            self._searched = position + 1
            return
        self._refused = (position, found)
        self._cut()
        raise ReplicaCorrupt(
            f"what the master sent for {position} is no record: {reason}", hint="it is asked for it again"
        )

    def _find_damage_end(self) -> bool:
        """Look for a record behind damage and go on there; False when none has come yet."""
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
                log.error("%d bytes at %d are stepped over", damage.length, begin)
                store.damage.replace_from(begin, [damage], found_ms=store.clock.now_ms())
                store.dispatch.last_damage = (damage.position, damage.length)
                self._damage = None
                commitlog.show_copied(position)
                return True
            # The last bytes may be the first ones of a record that is still to come.
            overlap = 0 if end == segment.size else max(_KEPT_BYTES_MAX, 2 * store.options.message_bytes_max)
            self._searched = max(self._searched, segment.start + end - overlap)
        return False

    # -- queues that begin again ---------------------------------------------------------------------------------------

    def _begin_queue_anew(self, queue: ConsumeQueue, position: int) -> None:
        """Empty a queue that gets messages it seems to have: its topic was deleted on the master and made again."""
        store = self._store
        log.warning("topic %s was deleted and made again, its queue %d begins anew", queue.topic, queue.queue_id)
        store.removed.add_queue(queue.topic, queue.queue_id, position)
        store.removed.save()  # first, as with every deletion: a crash must not bring a part back
        with store.flusher.guard:
            queue.destroy()


def _make_cursor(segment: Segment, end: int) -> RecordCursor:
    """A look at what has come of a segment; the rest is still to come."""
    return RecordCursor(segment.buffer, end, segment.start, check_crc=True, growing=True)
