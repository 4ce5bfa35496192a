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
from collections.abc import Sequence
from dataclasses import dataclass, field

from eruca.errors import StoreError
from eruca.store.chain import Chain, Segment
from eruca.store.checkpoint import Checkpoint
from eruca.store.commitlog import CommitLog
from eruca.store.consumequeue import ENTRY, ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca.store.dispatch import Dispatch, QueueGap
from eruca.store.index import Index
from eruca.store.queues import Queues
from eruca.store.scan import Damage, Progress, iter_facts, scan_log
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
        # Our own position also says that nothing before it was to be indexed, when there are no files.
        is_indexed = index is not None and bool(index.files or checkpoint.index_time or checkpoint.position is None)
        start = find_crash_start(chain, checkpoint, with_index=is_indexed)
    start = min(start, _find_derived_start(commitlog, queues, index, checkpoint, start))
    # Also after a clean stop: a place that was lost in an earlier crash may be empty, with records behind it.
    scan = scan_log(chain, start, check_crc=check_crc, progress=progress)
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


def find_crash_start(chain: Chain, checkpoint: Checkpoint, *, with_index: bool) -> int:
    """Start of the newest segment whose first record the checkpoint says is in queues and index.

    It says so by time, as Java does, and by position; the earlier one counts. A clock that was set back makes the time
    point too far, and a store that Java used in between has an old position.
    """
    limit = chain.end
    if checkpoint.position is not None and checkpoint.position <= chain.end:
        # The record that ends at the position may have been on its way to its queue.
        limit = max(0, checkpoint.position - 1)
    safe_time = checkpoint.safe_time(with_index=with_index)
    for segment in reversed(chain.segments):
        if segment.start > limit:
            continue
        view = inspect_record(segment.buffer, 0, segment.size, False, segment.start)
        if type(view) is RecordView and 0 < view.store_timestamp <= safe_time:
            return segment.start
    return chain.start


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
    known_damage: Sequence[Damage] = (),
) -> None:
    """Carry the plan out; afterwards log, queues and index agree.

    `known_damage` is all damage of the log, also what lies before the part that was scanned.
    """
    queues, index = dispatch.queues, dispatch.index
    if not commitlog.chain.segments:
        queues.clear()
        if index is not None:
            index.clear()
        commitlog.open_at(0)
        if checkpoint.position or checkpoint.log_time:  # it tells of a log that is gone; the next one may go beyond it
            checkpoint.log_time = checkpoint.queue_time = checkpoint.index_time = checkpoint.position = 0
            checkpoint.save()
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
    _make_derived_agree(plan, commitlog, dispatch, known_damage, progress)
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
            checkpoint.index_time = checkpoint.queue_time if index.files else 0
        checkpoint.position = plan.log_end
        checkpoint.save()


def _make_derived_agree(
    plan: RecoveryPlan,
    commitlog: CommitLog,
    dispatch: Dispatch,
    known_damage: Sequence[Damage],
    progress: Progress | None,
) -> None:
    """Bring queues and index to the end of the log, from the place the plan says or, if that fails, from the start."""
    queues, index = dispatch.queues, dispatch.index
    if plan.dispatch_from is not None:
        _cut_derived(plan, commitlog, queues, index, known_damage)
    else:
        _cut_past_end(plan.log_end, queues, index)
    start = plan.dispatch_from if plan.index_from is None else plan.index_from
    if start is None:
        return
    dispatch.expect_no_gaps(commitlog.start, known_damage)
    try:
        _dispatch_again(plan, plan.damage, commitlog, dispatch, start, progress)
        return
    except QueueGap as gap:
        log.warning("%s; the consume queues and the index are built again from the whole commit log", gap)
    finally:
        dispatch.allow_gaps()
    start = commitlog.start
    for queue in queues:
        queue.truncate(find_queue_end(queue, commitlog, start))
    if index is not None:
        index.clear()
    damage = scan_log(commitlog.chain, start, stop=plan.log_end).damage
    _dispatch_again(plan, damage, commitlog, dispatch, start, progress)


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
    if not plan.clean:
        for segment in chain.from_position(plan.scanned_from):
            if segment.start < keep_to:
                _sync_whole(segment)


def _sync_whole(segment: Segment) -> None:
    """Sync a segment; one that fails is made dirty again, or the next try would find nothing to write and succeed."""
    try:
        segment.mapping.sync()
    except StoreError:
        segment.mapping.rewrite(0, segment.size)
        raise


def _cut_derived(
    plan: RecoveryPlan,
    commitlog: CommitLog,
    queues: Queues,
    index: Index | None,
    known_damage: Sequence[Damage],
) -> None:
    """Cut queues and index back to what the log before the dispatch start proves."""
    assert plan.dispatch_from is not None
    for queue in queues:
        queue.truncate(find_queue_end(queue, commitlog, plan.dispatch_from, known_damage))
    if index is not None and (not plan.clean or index.end_position >= plan.log_end):
        index.truncate(plan.dispatch_from)


def _cut_past_end(log_end: int, queues: Queues, index: Index | None) -> None:
    for queue in queues:
        if queue.end_position > log_end:
            queue.truncate(queue.find_position(log_end))
    if index is not None and index.end_position >= log_end:
        index.truncate(log_end)


def find_queue_end(
    queue: ConsumeQueue, commitlog: CommitLog, position: int, known_damage: Sequence[Damage] = ()
) -> int:
    """Offset behind the last entry that points at its own record before a position.

    After a crash a page of entries may be missing, old or torn, so the entries are walked from a segment whose first
    one is proven, and the last ones are proven too. Entries that point at known damage stand for lost messages.
    """
    holes = {(item.position, item.length) for item in known_damage}

    def is_proven(offset: int, at: int, size: int) -> bool:
        if size == FILLER_SIZE:
            return True
        # An entry that was never written is all zeros; after a deletion that looks like one from before the log.
        if size <= 0 or not 0 <= at < position:
            return False
        if (at, size) in holes or _points_at_record(queue, commitlog, offset, at, size):
            return True
        # The record was deleted. An entry that lost its position to a torn write pretends the same, out of order.
        return at < commitlog.start and _read_position(queue, offset - 1) < at

    start = offset = queue.chain.start // ENTRY_BYTES
    for segment in reversed(queue.chain.segments):
        first = segment.start // ENTRY_BYTES
        if not is_proven(first, *ENTRY.unpack_from(segment.buffer, 0)[:2]):
            continue
        offset = first
        last = (-1, 0)
        for at, size, _ in ENTRY.iter_unpack(memoryview(segment.buffer)):
            if size != FILLER_SIZE:
                if size <= 0 or at >= position or (at <= last[0] and (at, size) != last):
                    break
                last = (at, size)
            offset += 1
        break
    while offset > start:
        found = queue.chain.find((offset - 1) * ENTRY_BYTES)
        assert found is not None
        at, size, _ = ENTRY.unpack_from(found.buffer, (offset - 1) * ENTRY_BYTES - found.start)
        if is_proven(offset - 1, at, size):
            break
        offset -= 1
    return offset


def _read_position(queue: ConsumeQueue, offset: int) -> int:
    """The position an entry points at; -1 where there is none."""
    segment = queue.chain.find(offset * ENTRY_BYTES) if offset >= 0 else None
    if segment is None:
        return -1
    position: int = ENTRY.unpack_from(segment.buffer, offset * ENTRY_BYTES - segment.start)[0]
    return position


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
    plan: RecoveryPlan,
    damage: list[Damage],
    commitlog: CommitLog,
    dispatch: Dispatch,
    start: int,
    progress: Progress | None,
) -> None:
    damages = iter(damage)
    upcoming = next(damages, None)
    indexed_end = dispatch.index.end_position if dispatch.index is not None else -1
    reported = start
    for run in iter_facts(commitlog.chain, start, plan.log_end, damage):
        while upcoming is not None and upcoming.position <= run[0][0]:
            dispatch.last_damage = (upcoming.position, upcoming.length)
            upcoming = next(damages, None)
        dispatch.replay_run(run, indexed_end)
        if progress is not None:
            progress(run[-1][0] - reported)
            reported = run[-1][0]
