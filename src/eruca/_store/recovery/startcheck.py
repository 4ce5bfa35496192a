"""What a start checks in the derived files, even after a clean stop: ends and gaps, not every record.

Every queue is compared with its end in the list (`queueends`), or without a list with the log itself; its
entries must go up without a gap. A queue that fails is cut back to its last good entry, and its entries from there on
are rebuilt from the log. Messages missing from the log are reported, and their offsets are not used again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eruca._ground.limits import START_WALK_BYTES_MAX
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.scan import Damage, RecordFacts, iter_facts
from eruca._store.queues.consumequeue import ENTRY_BYTES, ConsumeQueue
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.index import Index
from eruca._store.queues.queueends import Ends, QueueEnd, QueueKey
from eruca._store.queues.queueproof import find_disorder, step_back_to_proof
from eruca._store.queues.queues import Queues, check_key
from eruca._wire.record import FIXED_BYTES_V4
from eruca.errors import InvalidName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """What queues must have at least. `is_exact`: they have exactly this, so queues that agree need no proof."""

    ends: Mapping[QueueKey, QueueEnd]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Repair:
    """A queue that needs repair: entries from an offset on are rebuilt."""

    key: QueueKey
    offset: int
    # Where in the log the first of them may be.
    position: int
    reason: str


# -- what must be there ------------------------------------------------------------------------------------------------


def find_expected(
    listed: Ends | None,
    commitlog: CommitLog,
    dispatch: Dispatch,
    log_end: int,
    scanned_from: int,
    damage: list[Damage],
) -> Expected:
    """What the list requires, and what the log requires after the end of the list, or without one.

    Without a list the whole log is read if it is not too long, otherwise only the part that is scanned anyway.
    """
    known: dict[QueueKey, QueueEnd] = {}
    if listed is not None:
        known = list_wanted(listed, dispatch)
        if listed.position >= log_end:
            return Expected(known, is_exact=listed.position == log_end)
        start = max(listed.position, commitlog.start)
    else:
        start = commitlog.start
        if log_end - start > START_WALK_BYTES_MAX:
            log.warning(
                "there is no list of the ends of the consume queues, and the log is long: only its end is compared "
                "with them; `eruca store verify` compares all of it"
            )
            start = max(start, scanned_from)
    walk = _EndsWalk(dispatch, known, commitlog.start)
    for run in iter_facts(commitlog.chain, start, log_end, damage):
        for facts in run:
            walk.see(facts)
    return Expected(known, is_exact=False)


def list_wanted(listed: Ends, dispatch: Dispatch) -> dict[QueueKey, QueueEnd]:
    """The queues of the list, without those of topics deleted since."""
    return {
        key: end for key, end in listed.by_key().items() if dispatch.wants_entry(key[0], key[1], 0, listed.position - 1)
    }


def believe_entries(expected: Expected, dispatch: Dispatch, promised: int) -> Expected:
    """After a crash: trust the queues about records before the position up to which they were on the disk.

    Their entries from the checkpoint's segment on are rebuilt from the log. If the log has lost records there, the
    old entries are the only trace of them.
    """
    ends = dict(expected.ends)
    for queue in dispatch.queues:
        key = (queue.topic, queue.queue_id)
        end = find_disorder(queue, promised)
        known = ends.get(key)
        if end > (0 if known is None else known.end) and dispatch.wants_entry(*key, 0, promised - 1):
            first = queue.chain.start // ENTRY_BYTES
            ends[key] = QueueEnd(first if known is None else min(first, known.first), end, -1)
    return Expected(ends, expected.is_exact)


class _EndsWalk:
    """Collects the ends of queues from records."""

    def __init__(self, dispatch: Dispatch, known: dict[QueueKey, QueueEnd], log_start: int) -> None:
        self._dispatch = dispatch
        self._log_start = log_start
        self._known = known
        self._names: dict[bytes, str] = {}

    def see(self, facts: RecordFacts) -> None:
        """Take one record into account."""
        position, size, encoded, queue_id, offset, sys_flag = facts[:6]
        name = self._names.get(encoded)
        if name is None:
            name = self._names[encoded] = encoded.decode("utf-8", "replace")
        if offset < 0 or not self._dispatch.wants_entry(name, queue_id, sys_flag, position):
            return
        known = self._known.get((name, queue_id))
        if known is None:
            # A queue cannot have more messages than fit before them; a larger number is a damaged header.
            if (offset <= position // FIXED_BYTES_V4 or self._log_start > 0) and _is_key(name, queue_id):
                self._known[name, queue_id] = QueueEnd(offset, offset + 1, position + size)
        elif known.end <= offset <= known.end + (position - max(0, known.position)) // FIXED_BYTES_V4:
            self._known[name, queue_id] = QueueEnd(min(known.first, offset), offset + 1, position + size)
        elif offset < known.first:
            self._known[name, queue_id] = QueueEnd(offset, known.end, known.position)


def _is_key(topic: str, queue_id: int) -> bool:
    try:
        check_key(topic, queue_id)
    except InvalidName:
        return False
    return True


# -- what is wrong -----------------------------------------------------------------------------------------------------


def find_repairs(
    expected: Expected, commitlog: CommitLog, queues: Queues, log_end: int, known_damage: Sequence[Damage]
) -> list[Repair]:
    """Every queue whose entries are wrong, and every missing queue; changes nothing."""
    found: list[Repair] = []
    for queue in queues:
        wanted = expected.ends.get((queue.topic, queue.queue_id))
        repair = _check_queue(queue, wanted, expected.is_exact, commitlog, log_end, known_damage)
        if repair is not None:
            found.append(repair)
    for key, wanted in expected.ends.items():
        if queues.find(key) is None:
            found.append(Repair(key, 0, commitlog.start, f"it should have {wanted.end} messages but has no files"))
    return found


def _check_queue(
    queue: ConsumeQueue,
    wanted: QueueEnd | None,
    is_exact: bool,
    commitlog: CommitLog,
    log_end: int,
    known_damage: Sequence[Damage],
) -> Repair | None:
    key, first = (queue.topic, queue.queue_id), queue.chain.start // ENTRY_BYTES
    if wanted is not None and first > wanted.first and queue.chain.segments:
        return Repair(key, 0, commitlog.start, f"its files begin at offset {first} instead of {wanted.first}")
    good = find_disorder(queue, log_end)
    if (
        is_exact
        and wanted is not None
        and good == queue.max_offset == wanted.end
        and queue.end_position == wanted.position
        and not queue.chain.misfits
    ):
        return None
    reason = "" if good == queue.max_offset else f"the entry of offset {good} is damaged"
    proven = step_back_to_proof(queue, commitlog, good, log_end, known_damage)
    if proven < good:
        reason = reason or f"the entry of offset {good - 1} does not point at its record"
        good = proven
    if queue.chain.misfits:
        reason = f"{queue.chain.misfits[0].name}: {queue.chain.misfit_reason}"
    elif wanted is not None and good == queue.max_offset < wanted.end:
        reason = f"it ends at offset {good} instead of {wanted.end}"
    if not reason:
        return None
    return Repair(key, good, find_position_behind(queue, commitlog, good), reason)


def find_position_behind(queue: ConsumeQueue, commitlog: CommitLog, offset: int) -> int:
    """Where in the log the message of an offset may be, for a queue whose entries before it are good."""
    last = queue.entry(offset - 1)
    if last is None or not commitlog.start <= last.position:
        return commitlog.start
    return last.position


def find_index_fault(
    index: Index, listed: Ends | None, log_start: int, rebuilt_from: int | None
) -> tuple[int, str] | None:
    """How many index files can be kept, and what is wrong with the first that cannot; None when all are good.

    After a crash the index is rebuilt from a position on, and only the files in the list that begin before it are
    checked. The others may be gone: an earlier recovery that was interrupted made them again under another name.
    """
    files = index.files
    if rebuilt_from is None:
        for number, file in enumerate(files):
            if not file.is_consistent() or (number and file.begin_position < files[number - 1].end_position):
                return number, f"{file.path.name}: its header and its entries contradict each other"
    by_name = {file.path.name: number for number, file in enumerate(files)}
    for row in [] if listed is None else listed.index:
        if row.end_position < log_start:
            continue  # it may have been deleted since
        if rebuilt_from is not None and row.begin_position >= rebuilt_from:
            continue
        number = by_name.get(row.name, -1)
        if number < 0:
            keep = sum(1 for file in files if file.end_position <= row.begin_position)
            return keep, f"{row.name} is missing"
        file = files[number]
        if (
            file.begin_position != row.begin_position
            or file.next_entry < row.next_entry
            or file.entry(row.next_entry - 1)[1] != row.end_position
        ):
            return number, f"{row.name} does not match the list of ends"
    if index.misfits:
        # Which records it had is unknown.
        return 0, f"{index.misfits[0].name} is damaged"
    return None


# -- repairing ---------------------------------------------------------------------------------------------------------


def apply_repairs(
    repairs: Sequence[Repair],
    expected: Expected,
    commitlog: CommitLog,
    dispatch: Dispatch,
    log_end: int,
    known_damage: Sequence[Damage],
) -> None:
    """Rebuild the entries of these queues from the log."""
    if not repairs:
        return
    queues = dispatch.queues
    before: dict[QueueKey, int] = {}
    for repair in repairs:
        queue = queues.find(repair.key)
        if queue is not None:
            queue.chain.remove_misfits()
            if repair.offset > queue.chain.start // ENTRY_BYTES:
                queue.truncate(repair.offset)
            else:
                queue.destroy()
        before[repair.key] = repair.offset
    keys = {(topic.encode(), queue_id) for topic, queue_id in before}
    dispatch.run_queues(commitlog.chain, min(repair.position for repair in repairs), log_end, known_damage, keys)
    for repair in repairs:
        topic, queue_id = repair.key
        wanted = expected.ends.get(repair.key)
        queue = queues.find(repair.key)
        end = 0 if queue is None else queue.max_offset
        log.warning(
            "%s queue %d: %s; its entries from offset %d on were rebuilt from the commit log; it ends at %d",
            topic,
            queue_id,
            repair.reason,
            repair.offset,
            end,
        )
        if wanted is not None and end < wanted.end:
            log.error("%s queue %d: messages %d to %d are lost", topic, queue_id, end, wanted.end - 1)
            queues.get_or_make(topic, queue_id).give_up_to(wanted.end)
