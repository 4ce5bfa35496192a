"""Recovery: look at what the last run left, decide, then act.

`plan_recovery` reads and decides and changes no byte; `apply_recovery` carries the plan out. After a clean stop the
tail of the log is checked and the derived files are taken as they are. After a crash the derived files are trusted
only up to the checkpoint: the segment that holds it is found, queues and index are cut back to its start, and every
record from there on is dispatched again.

A place in the log that is no record is cut off only when nothing valid follows it (a torn tail). With valid records
behind it, it is damage: it stays where it is, is reported, and what follows is kept.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from eruca.store.checkpoint import Checkpoint
from eruca.store.commitlog import CommitLog
from eruca.store.consumequeue import ENTRY, ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca.store.dispatch import Dispatch
from eruca.store.index import Index
from eruca.store.queues import Queues
from eruca.store.scan import Damage, Progress, iter_records, scan_log
from eruca.wire.record import RecordView, inspect_record

log = logging.getLogger(__name__)

# Java checks this many of the last segments after a clean stop.
_CLEAN_SEGMENTS = 3


@dataclass(slots=True)
class RecoveryPlan:
    """What opening the store will do."""

    clean: bool
    scanned_from: int
    # Where the next record goes.
    log_end: int
    last_store_time: int
    # Why the bytes at log_end are cut off; empty when there is nothing to cut.
    torn: str = ""
    # Bytes behind log_end may hold something, so they are zeroed.
    zero_tail: bool = False
    damage: list[Damage] = field(default_factory=list)
    # Records from here on are dispatched again; None when queues and index are complete.
    dispatch_from: int | None = None
    # Index files are missing although records were indexed.
    index_from: int | None = None


def plan_recovery(
    commitlog: CommitLog,
    queues: Queues,
    index: Index | None,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    check_crc: bool,
    progress: Progress | None = None,
) -> RecoveryPlan:
    """Decide what to do from a scan of the log's tail."""
    chain = commitlog.chain
    if not chain.segments:
        return RecoveryPlan(clean=clean, scanned_from=0, log_end=0, last_store_time=0, dispatch_from=0)
    if clean:
        start = chain.segments[max(0, len(chain.segments) - _CLEAN_SEGMENTS)].start
    else:
        start = _find_crash_start(commitlog, checkpoint, with_index=index is not None)
    start = min(start, _find_derived_start(commitlog, queues, index, checkpoint, start))
    scan = scan_log(chain, start, check_crc=check_crc, search_after_empty=not clean, progress=progress)
    plan = RecoveryPlan(
        clean=clean,
        scanned_from=start,
        log_end=scan.end,
        last_store_time=scan.last_store_time,
        torn=scan.torn,
        zero_tail=bool(scan.torn) or not clean,
        damage=scan.damage,
    )
    if not clean:
        plan.dispatch_from = start
    elif queues.end_position() != scan.end:
        plan.dispatch_from = min(max(queues.end_position(), chain.start), scan.end)
    if clean and index is not None and not index.files and checkpoint.index_time > 0:
        plan.index_from = chain.start
    return plan


def _find_crash_start(commitlog: CommitLog, checkpoint: Checkpoint, *, with_index: bool) -> int:
    """Start of the newest segment whose first record the checkpoint says is in queues and index."""
    safe_time = checkpoint.safe_time(with_index=with_index)
    for segment in reversed(commitlog.chain.segments):
        view = inspect_record(segment.buffer, 0, segment.size, False, segment.start)
        if type(view) is RecordView and 0 < view.store_timestamp <= safe_time:
            return segment.start
    return commitlog.chain.start


def _find_derived_start(
    commitlog: CommitLog, queues: Queues, index: Index | None, checkpoint: Checkpoint, start: int
) -> int:
    """Start of the segment from which queues or index are missing, when that is before `start`."""
    chain = commitlog.chain
    derived_end = queues.end_position()
    if index is not None and not index.files and checkpoint.index_time > 0:
        derived_end = -1
    segment = chain.find(derived_end) if derived_end >= chain.start else None
    if derived_end < chain.start:
        return chain.start
    # The last record of a segment ends before the end-of-segment record, so compare segments, not bytes.
    return min(start, segment.start) if segment is not None else start


def apply_recovery(
    plan: RecoveryPlan,
    commitlog: CommitLog,
    dispatch: Dispatch,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
) -> None:
    """Carry the plan out; afterwards log, queues and index agree."""
    queues, index = dispatch.queues, dispatch.index
    if not commitlog.chain.segments:
        queues.clear()
        if index is not None:
            index.clear()
        commitlog.open_at(0)
        return
    for damage in plan.damage:
        log.error(
            "commit log damaged at %d: %d bytes are not a record (%s); %s",
            damage.position,
            damage.length,
            damage.reason,
            "the records behind it are kept",
        )
    if plan.torn:
        log.warning("commit log ends at %d with a torn record: %s", plan.log_end, plan.torn)
    _trim_log(plan, commitlog)
    dispatch_from = plan.dispatch_from
    if dispatch_from is not None or not plan.clean:
        _cut_derived(plan, commitlog, queues, index)
    else:
        _cut_past_end(plan.log_end, queues, index)
    if plan.index_from is not None:
        dispatch_from = plan.index_from
    if dispatch_from is not None:
        _dispatch_again(plan, commitlog, dispatch, dispatch_from, progress)
    for queue in queues:
        queue.raise_min(commitlog.start)
        queue.check()
    commitlog.open_at(plan.log_end)
    if not plan.clean:
        queues.sync()
        if index is not None:
            index.sync()
        checkpoint.log_time = checkpoint.queue_time = plan.last_store_time or checkpoint.log_time
        if index is not None:
            checkpoint.index_time = checkpoint.queue_time
        checkpoint.save()


def _trim_log(plan: RecoveryPlan, commitlog: CommitLog) -> None:
    chain = commitlog.chain
    tail = chain.find(plan.log_end)
    keep_to = tail.end if tail is not None else plan.log_end
    for segment in list(chain.segments):
        if segment.start >= keep_to and segment.mapping.next_data(0) < segment.size:
            chain.remove_from(segment.start)
            break
    if plan.zero_tail:
        chain.zero_from(plan.log_end)
    if not plan.clean and tail is not None:
        for segment in chain.from_position(plan.scanned_from):
            if segment.start < keep_to:
                segment.mapping.sync()


def _cut_derived(plan: RecoveryPlan, commitlog: CommitLog, queues: Queues, index: Index | None) -> None:
    """Cut queues and index back to what the log before the dispatch start proves."""
    assert plan.dispatch_from is not None
    for queue in queues:
        queue.truncate(find_queue_end(queue, commitlog, plan.dispatch_from))
    if index is not None and not plan.clean:
        index.truncate(plan.dispatch_from)


def _cut_past_end(log_end: int, queues: Queues, index: Index | None) -> None:
    for queue in queues:
        if queue.end_position > log_end:
            queue.truncate(queue.find_position(log_end))
    if index is not None and index.end_position >= log_end:
        index.truncate(log_end)


def find_queue_end(queue: ConsumeQueue, commitlog: CommitLog, position: int) -> int:
    """Offset behind the last entry that points at its own record before a position.

    After a crash a page of entries may be missing, old or torn, so the entries are walked from a segment whose first
    one is proven, and the last ones are proven too.
    """
    offset = queue.chain.start // ENTRY_BYTES
    for segment in reversed(queue.chain.segments):
        first = segment.start // ENTRY_BYTES
        entry_position, size, _ = ENTRY.unpack_from(segment.buffer, 0)
        proven = size == FILLER_SIZE or (
            0 <= entry_position < position
            and (entry_position < commitlog.start or _points_at_record(queue, commitlog, first, entry_position, size))
        )
        if not proven:
            continue
        offset = first
        last = -1
        for entry_position, size, _ in ENTRY.iter_unpack(memoryview(segment.buffer)):
            if size != FILLER_SIZE and not (last < entry_position < position and size > 0):
                break
            if size != FILLER_SIZE:
                last = entry_position
            offset += 1
        break
    while offset > queue.chain.start // ENTRY_BYTES:
        segment_found = queue.chain.find((offset - 1) * ENTRY_BYTES)
        assert segment_found is not None
        entry_position, size, _ = ENTRY.unpack_from(
            segment_found.buffer, (offset - 1) * ENTRY_BYTES - segment_found.start
        )
        if size == FILLER_SIZE or entry_position < commitlog.start:
            break
        if _points_at_record(queue, commitlog, offset - 1, entry_position, size):
            break
        offset -= 1
    return offset


def _points_at_record(queue: ConsumeQueue, commitlog: CommitLog, offset: int, position: int, size: int) -> bool:
    """Is the record an entry names really the message of that queue and offset?"""
    segment = commitlog.chain.find(position)
    if segment is None:
        return False
    view = inspect_record(segment.buffer, position - segment.start, segment.size, False, position)
    return (
        type(view) is RecordView
        and view.size == size
        and view.queue_id == queue.queue_id
        and view.queue_offset == offset
        and view.topic == queue.topic.encode()
    )


def _dispatch_again(
    plan: RecoveryPlan, commitlog: CommitLog, dispatch: Dispatch, start: int, progress: Progress | None
) -> None:
    damages = iter(sorted(plan.damage, key=lambda damage: damage.position))
    upcoming = next(damages, None)
    reported = start
    for view, segment, position in iter_records(commitlog.chain, start, plan.log_end):
        while upcoming is not None and upcoming.position <= position:
            dispatch.last_damage = (upcoming.position, upcoming.length)
            upcoming = next(damages, None)
        dispatch.replay(view, segment.buffer, position)
        if progress is not None and position - reported > _REPORT_BYTES:
            progress(position - reported)
            reported = position


_REPORT_BYTES = 8 * 1024 * 1024
