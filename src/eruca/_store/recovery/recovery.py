"""Recovery: look at what the last run left, decide, then act.

`plan_recovery` reads and decides without changing a byte; `apply_recovery` carries out the plan. After a clean stop the
tail of the log is checked, and ends and gaps of queues and index (`startcheck`). After a crash the derived files are
trusted only up to the checkpoint: the segment that holds it is found, queues and index are cut back to its start, every
record from there on is dispatched again, and then the derived files are checked as well.

A place in the log that is not a record is cut off only when nothing valid follows it (a torn tail) and the checkpoint
does not record that it was on disk. Otherwise it is damage: it stays where it is and is reported, and what follows is
kept.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from eruca._store.log.chain import Chain
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.scan import Damage, LogScan, Progress, scan_log
from eruca._store.log.segment import Segment
from eruca._store.queues.dispatch import Dispatch, QueueGap
from eruca._store.queues.index import Index
from eruca._store.queues.queueends import Ends
from eruca._store.queues.queueproof import find_queue_end
from eruca._store.queues.queues import Queues
from eruca._store.recovery.checkpoint import Checkpoint
from eruca._store.recovery.startcheck import (
    Expected,
    Repair,
    apply_repairs,
    believe_entries,
    find_expected,
    find_index_fault,
    find_repairs,
    list_wanted,
)
from eruca._wire.record import RECORD_MAGIC, RecordView
from eruca.errors import StoreError

log = logging.getLogger(__name__)

# Java checks this many of the last segments after a clean stop.
_CLEAN_SEGMENTS = 3
# Segments missing from the end of the log are created again, empty, so that no position is used twice; a checkpoint
# that claims more than this belongs to another log.
_MISSING_SEGMENTS_MAX = 8
_SIZE_MAGIC = struct.Struct(">iI")


@dataclass(slots=True)
class RecoveryPlan:
    """What opening the store will do."""

    clean: bool
    scanned_from: int
    # Where the next record goes.
    log_end: int
    last_store_time: int
    # Why the bytes at log_end are cut off; empty when there is nothing to cut off.
    torn: str = ""
    # There may be data after log_end, so it is zeroed.
    zero_tail: bool = False
    damage: list[Damage] = field(default_factory=list)
    # Records from here on are dispatched again; None when queues and index are complete.
    dispatch_from: int | None = None
    # Index files are missing although records were indexed.
    index_from: int | None = None
    # How many index files are kept, because the next one is damaged; None when all are good.
    index_keep: int | None = None
    # What is wrong apart from damage in the log, as text.
    faults: list[str] = field(default_factory=list)
    # What the queues must have at least, and the queues that do not.
    expected: Expected = field(default_factory=lambda: Expected({}, is_exact=False))
    repairs: list[Repair] = field(default_factory=list)


def plan_recovery(
    commitlog: CommitLog,
    dispatch: Dispatch,
    checkpoint: Checkpoint,
    listed: Ends | None,
    *,
    clean: bool,
    check_crc: bool,
    progress: Progress | None = None,
    known_damage: Sequence[Damage] = (),
) -> RecoveryPlan:
    """Decide what to do from a scan of the log's tail and the ends of queues and index."""
    chain, queues, index = commitlog.chain, dispatch.queues, dispatch.index
    if not chain.segments:
        return _plan_without_log(commitlog, dispatch, checkpoint, listed, clean=clean)
    if clean and listed is not None and checkpoint.position not in (None, listed.position):
        log.warning("the last run did not record how it ended: recovering as after a crash")
        clean = False
    if clean:
        start = chain.segments[max(0, len(chain.segments) - _CLEAN_SEGMENTS)].start
    else:
        # If there are no files, our own position also shows that nothing before it had to be indexed.
        is_indexed = index is not None and bool(index.files or checkpoint.index_time or checkpoint.position is None)
        start = find_crash_start(chain, checkpoint, with_index=is_indexed)
    start = min(start, _find_derived_start(commitlog, queues, index, checkpoint, start))
    # Also after a clean stop: a place lost in an earlier crash may be empty, with records after it.
    scan = scan_log(chain, start, check_crc=check_crc, progress=progress)
    faults = _find_missing(chain, listed, scan, checkpoint)
    keep_promise(chain, scan, checkpoint)
    plan = RecoveryPlan(
        clean=clean,
        scanned_from=start,
        log_end=scan.end,
        last_store_time=scan.last_store_time,
        torn=scan.torn,
        zero_tail=bool(scan.torn) or not clean,
        damage=scan.damage,
        faults=faults,
    )
    damage = [*(item for item in known_damage if item.position < start), *scan.damage]
    if not clean:
        plan.dispatch_from = start
    elif queues.end_position() != scan.end:
        plan.dispatch_from = min(max(queues.end_position(), chain.start), scan.end)
    if clean or listed is None:
        plan.expected = find_expected(listed, commitlog, dispatch, scan.end, start, damage)
    else:  # records after the list are dispatched again
        plan.expected = Expected(list_wanted(listed, dispatch), is_exact=False)
    if not clean:
        plan.expected = believe_entries(plan.expected, dispatch, checkpoint.position or 0)
    else:
        plan.repairs = find_repairs(plan.expected, commitlog, queues, scan.end, damage)
    if (
        index is not None
        and (fault := find_index_fault(index, listed, chain.start, None if clean else start)) is not None
    ):
        plan.index_keep, reason = fault
        plan.faults.append(f"the index is rebuilt from its file {plan.index_keep + 1} on: {reason}")
    if clean and index is not None and not index.files and checkpoint.index_time > 0:
        plan.index_from = chain.start
    return plan


def _plan_without_log(
    commitlog: CommitLog, dispatch: Dispatch, checkpoint: Checkpoint, listed: Ends | None, *, clean: bool
) -> RecoveryPlan:
    plan = RecoveryPlan(clean=clean, scanned_from=0, log_end=0, last_store_time=0, dispatch_from=0)
    wanted = {} if listed is None else list_wanted(listed, dispatch)
    plan.expected = believe_entries(Expected(wanted, is_exact=False), dispatch, checkpoint.position or 0)
    if checkpoint.position or (listed is not None and listed.position):
        plan.faults.append(
            f"the commit log is missing: {commitlog.chain.directory} is empty, and every message that was in it is lost"
        )
    return plan


def _find_missing(chain: Chain, listed: Ends | None, scan: LogScan, checkpoint: Checkpoint) -> list[str]:
    """Name the segments that existed when the last run ended and are missing now."""
    faults: list[str] = []
    # A list from before the last messages may also be from before the last deletion.
    if listed is not None and listed.position == scan.end and listed.log_start < chain.start:
        faults.append(
            f"a part of the commit log is missing: it began at {listed.log_start} when the last run ended, "
            f"and now it begins at {chain.start}"
        )
    promised = checkpoint.position or 0
    if promised > chain.end:
        faults.append(f"a part of the commit log is missing: it ended at {promised}, and its files end at {chain.end}")
    return faults


def keep_promise(chain: Chain, scan: LogScan, checkpoint: Checkpoint | None) -> bool:
    """Count bytes that are not a record as damage as far as they were on disk once: a torn record comes after that.

    Returns True when that changed the end of the scan.
    """
    promised = 0 if checkpoint is None else checkpoint.position or 0
    if promised < _find_claimed_end(chain, scan.end):
        return False  # only a part of that record was on the disk
    if not scan.end < promised <= chain.end + _MISSING_SEGMENTS_MAX * chain.segment_bytes:
        return False
    scan.damage.append(Damage(scan.end, promised - scan.end, scan.torn or "the record is gone"))
    scan.end, scan.torn = promised, ""
    return True


def _find_claimed_end(chain: Chain, position: int) -> int:
    """Where the record at a position ends according to its size field; -1 when nothing there looks like a record."""
    segment = chain.find(position)
    if segment is None or position + 8 > segment.end:
        return -1
    size, magic = _SIZE_MAGIC.unpack_from(segment.buffer, position - segment.start)
    return position + size if magic == RECORD_MAGIC else -1


def find_crash_start(chain: Chain, checkpoint: Checkpoint, *, with_index: bool) -> int:
    """Start of the newest segment whose first record is in queues and index according to the checkpoint.

    The checkpoint has a time, as in Java, and a position; the earlier one counts. After the clock was set back the time
    points too far, and after a run of Java the position is old.
    """
    limit = chain.end
    if checkpoint.position is not None and checkpoint.position <= chain.end:
        # The record that ends at the position may not have reached its queue.
        limit = max(0, checkpoint.position - 1)
    safe_time = checkpoint.safe_time(with_index=with_index)
    for segment in reversed(chain.segments):
        if segment.start > limit:
            continue
        view = segment.inspect(segment.start)
        if type(view) is RecordView and 0 < view.store_timestamp <= safe_time:
            return segment.start
    return chain.start


def _find_derived_start(
    commitlog: CommitLog, queues: Queues, index: Index | None, checkpoint: Checkpoint, start: int
) -> int:
    """Start of the segment from which queues or index are incomplete, when that is before `start`."""
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
    """Carry out the plan; afterwards log, queues and index agree.

    `known_damage` is all damage of the log, including damage before the scanned part.
    """
    queues, index = dispatch.queues, dispatch.index
    for fault in plan.faults:
        log.error("%s", fault)
    if not commitlog.chain.segments:
        _begin_anew(plan, commitlog, dispatch, checkpoint)
        return
    for damage in plan.damage:
        log.error(
            "commit log damaged at %d: %d bytes are not a record (%s); %s",
            damage.position,
            damage.length,
            damage.reason,
            "the records after it are kept",
        )
    if plan.torn:
        log.warning("commit log ends at %d with a torn record: %s", plan.log_end, plan.torn)
    while commitlog.chain.end < plan.log_end:
        commitlog.chain.segment_for(commitlog.chain.end)
    _trim_log(plan, commitlog)

    apply_repairs(plan.repairs, plan.expected, commitlog, dispatch, plan.log_end, known_damage)
    _make_derived_agree(plan, commitlog, dispatch, known_damage, progress)
    if not plan.clean:
        repairs = find_repairs(plan.expected, commitlog, queues, plan.log_end, known_damage)
        apply_repairs(repairs, plan.expected, commitlog, dispatch, plan.log_end, known_damage)
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


def _begin_anew(plan: RecoveryPlan, commitlog: CommitLog, dispatch: Dispatch, checkpoint: Checkpoint) -> None:
    """Continue without a log: the queues are empty, but their offsets continue."""
    dispatch.queues.clear()
    if dispatch.index is not None:
        dispatch.index.clear()
    commitlog.open_at(0)
    for (topic, queue_id), wanted in plan.expected.ends.items():
        dispatch.queues.get_or_make(topic, queue_id).give_up_to(wanted.end)
    if checkpoint.position or checkpoint.log_time:  # it describes a log that is gone; the next log may grow beyond it
        checkpoint.log_time = checkpoint.queue_time = checkpoint.index_time = checkpoint.position = 0
        checkpoint.save()


def _make_derived_agree(
    plan: RecoveryPlan,
    commitlog: CommitLog,
    dispatch: Dispatch,
    known_damage: Sequence[Damage],
    progress: Progress | None,
) -> None:
    """Bring queues and index to the end of the log, from the place in the plan or, if that fails, from the start."""
    queues, index = dispatch.queues, dispatch.index
    starts = [start for start in (plan.dispatch_from, plan.index_from) if start is not None]
    if plan.index_keep is not None and index is not None:
        index.keep_first(plan.index_keep, commitlog.read_time)
        starts.append(max(commitlog.start, index.end_position))
    if plan.dispatch_from is not None:
        _cut_derived(plan, commitlog, queues, index, known_damage)
    else:
        _cut_past_end(plan.log_end, queues, index)
    if not starts:
        return
    dispatch.expect_no_gaps(commitlog.start, known_damage)
    try:
        dispatch.run(commitlog.chain, min(starts), plan.log_end, known_damage, progress)
        return
    except QueueGap as gap:
        log.warning("%s; the consume queues and the index are rebuilt from the whole commit log", gap)
    finally:
        dispatch.allow_gaps()
    start = commitlog.start
    for queue in queues:
        queue.truncate(find_queue_end(queue, commitlog, start))
    if index is not None:
        index.clear()
    damage = scan_log(commitlog.chain, start, stop=plan.log_end).damage
    dispatch.run(commitlog.chain, start, plan.log_end, damage, progress)


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
    """Sync a segment; after a failure it is marked dirty again, or the next sync would find nothing to write."""
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
    """Cut queues and index back to what is proven by the log before the dispatch start."""
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
