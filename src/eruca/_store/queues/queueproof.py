"""Checking the entries of a consume queue against the log: which of them are proven by their records."""

from __future__ import annotations

from collections.abc import Sequence

from eruca._store.kernel import entries
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.scan import Damage
from eruca._store.queues.consumequeue import ENTRY, ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca._wire.properties import INNER_MULTI_DISPATCH, get_property
from eruca._wire.record import RecordView, inspect_record

_RAW_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()


def find_disorder(queue: ConsumeQueue, log_end: int) -> int:
    """The first offset whose entry is empty, points beyond the log, or goes back; the end of the queue if none does.

    Reads every entry, 20 bytes for each message, but no record.
    """
    last_position = last_size = 0
    for segment in queue.chain.segments:
        stop = min(segment.size, queue.max_offset * ENTRY_BYTES - segment.start)
        if stop <= 0:
            break
        at, last_position, last_size = entries.find_disorder(segment.buffer, stop, last_position, last_size, log_end)
        if at < stop:
            return (segment.start + at) // ENTRY_BYTES
    return queue.max_offset


def step_back_to_proof(
    queue: ConsumeQueue, commitlog: CommitLog, offset: int, position: int, known_damage: Sequence[Damage] = ()
) -> int:
    """The offset after the last entry, before an offset, that points at its own record before a position."""
    holes = {(item.position, item.length) for item in known_damage}
    start = queue.chain.start // ENTRY_BYTES
    while offset > start and not _is_proven(queue, commitlog, offset - 1, position, holes):
        offset -= 1
    return offset


def find_queue_end(
    queue: ConsumeQueue, commitlog: CommitLog, position: int, known_damage: Sequence[Damage] = ()
) -> int:
    """Offset after the last entry that points at its own record before a position.

    After a crash a page of entries may be missing, old or torn, so the entries are walked from a segment whose first
    one is proven, and the last ones are proven too. Entries that point at known damage stand for lost messages.
    """
    holes = {(item.position, item.length) for item in known_damage}
    offset = queue.chain.start // ENTRY_BYTES
    for segment in reversed(queue.chain.segments):
        first = segment.start // ENTRY_BYTES
        if not _is_proven(queue, commitlog, first, position, holes):
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
    return step_back_to_proof(queue, commitlog, offset, position, known_damage)


def _is_proven(
    queue: ConsumeQueue, commitlog: CommitLog, offset: int, position: int, holes: set[tuple[int, int]]
) -> bool:
    at, size = _read_entry(queue, offset)
    if size == FILLER_SIZE:
        return True
    # An entry that was never written is all zeros; after a deletion that looks like an entry from before the log.
    if size <= 0 or not 0 <= at < position:
        return False
    if (at, size) in holes or points_at_record(queue, commitlog, offset, at, size):
        return True
    # The record was deleted. An entry that lost its position to a torn write looks the same, but is out of order.
    return at < commitlog.start and _read_entry(queue, offset - 1)[0] < at


def _read_entry(queue: ConsumeQueue, offset: int) -> tuple[int, int]:
    """Position and size of an entry, even one beyond the end of the queue; -1 and 0 where there is no file."""
    segment = queue.chain.find(offset * ENTRY_BYTES) if offset >= 0 else None
    if segment is None:
        return -1, 0
    position, size, _ = ENTRY.unpack_from(segment.buffer, offset * ENTRY_BYTES - segment.start)
    return position, size


def points_at_record(queue: ConsumeQueue, commitlog: CommitLog, offset: int, position: int, size: int) -> bool:
    """Is the record an entry points at really the message of that queue and offset?"""
    segment = commitlog.chain.find(position)
    if segment is None:
        return False
    view = inspect_record(segment.buffer, position - segment.start, segment.size, False, position)
    if type(view) is not RecordView or view.size != size:
        return False
    if view.queue_id == queue.queue_id and view.queue_offset == offset and view.topic == queue.encoded_topic:
        return True
    # A record may name further queues (Java's enableMultiDispatch).
    properties = bytes(segment.buffer[view.properties_at : view.properties_end])
    names = get_property(properties, _RAW_MULTI_DISPATCH)
    return names is not None and queue.encoded_topic in names.split(b",")
