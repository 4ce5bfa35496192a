"""Reading a queue: from an offset to slices of the mapped log, following the rules of a 4.9 broker."""

from __future__ import annotations

import enum
from collections.abc import Callable
from time import thread_time
from typing import Final

import msgspec

from eruca._ground.limits import PULL_FILTER_SECONDS
from eruca._store.kernel import entries as kernel
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.scan import Damage
from eruca._store.queues.consumequeue import ENTRY, ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca._wire.record import RecordView, inspect_record

# Called with the tags code of an entry and its record; False filters the message out.
Filter = Callable[[int, memoryview], bool]

# Called with a queue and an offset whose entry does not point at its record; returns the record if it is found anyway.
Mend = Callable[[ConsumeQueue, int], memoryview | None]

# How many entries one read examines when a filter lets none through.
_SCAN_ENTRIES_MIN = 800
# The clock is read at every eighth message; after a message that took longer than this, at the next one.
_LOOKS_BETWEEN = 8
_QUICK_SECONDS = PULL_FILTER_SECONDS / _LOOKS_BETWEEN
_NOTHING = memoryview(b"")


class ReadStatus(enum.StrEnum):
    """The status of a read; the names are what clients see in a pull answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


# Looking up an enum member, or calling `min`, takes as long as reading an entry. Every pull reads.
_FOUND: Final = ReadStatus.FOUND
_NO_MATCH: Final = ReadStatus.NO_MATCHED_MESSAGE
_AT_END: Final = ReadStatus.OFFSET_OVERFLOW_ONE


class ReadResult(msgspec.Struct):
    """Slices of the log, one for each message, and where to read next; with `joined`, a single slice or copy."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview | bytearray] = []
    size: int = 0
    count: int = 0


class ReadBounds(msgspec.Struct, frozen=True):
    """When a read stops: Java's maxTransfer options."""

    count_max: int = 32
    bytes_max: int = 262_144
    # For callers that want bytes rather than messages: those in one segment, as one slice or copy where possible.
    joined: bool = False


def read_queue(
    queue: ConsumeQueue | None,
    commitlog: CommitLog,
    offset: int,
    bounds: ReadBounds,
    accept: Filter | None = None,
    damage: list[Damage] | None = None,
    limit: int | None = None,
    mend: Mend | None = None,
) -> ReadResult:
    """Read messages of a queue from an offset on; the first one is always included, however large.

    An entry that does not point at its own record is passed to `mend`; a message that it cannot find is skipped.
    Records that end beyond the position `limit` count as not stored yet: a reader asking for one of them waits, and is
    not sent back to an earlier offset, because a previous answer may have mentioned the later one.
    """
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if limit is not None and queue.end_position > limit:
        stored, high = high, queue.find_end(limit)
        if high <= offset <= stored:
            return ReadResult(_AT_END, offset, low, high)
    if not low <= offset < high:
        return _send_elsewhere(offset, low, high)
    result = ReadResult(_NO_MATCH, offset, low, high)
    count_max, bytes_max = bounds.count_max, bounds.bytes_max
    look_max = count_max if count_max > _SCAN_ENTRIES_MIN else _SCAN_ENTRIES_MIN
    looked = 0.0 if accept is None else thread_time()
    filter_end, look_at = looked + PULL_FILTER_SECONDS, 2
    if high < queue.max_offset:
        look_max = min(look_max, high - offset)
    entries = queue.view_entries(offset, look_max)
    scanned = taken_bytes = 0
    if accept is None and not damage:
        scanned, taken_bytes = _take_run(queue, commitlog, bounds, result, entries)
        if scanned and bounds.joined:
            return result
    removed = False
    slices = result.slices
    # Most messages of a read are in one segment, so its bounds are kept for the next message.
    start, end, whole = 0, 0, _NOTHING
    for position, size, tags_code in ENTRY.iter_unpack(entries[scanned * ENTRY_BYTES :]):
        if slices and (len(slices) >= count_max or taken_bytes + size > bytes_max):
            break
        scanned += 1
        if size == FILLER_SIZE or (damage and is_damaged(position, damage)):
            continue
        if not start <= position < end:
            start, end, whole = commitlog.view_segment(position)
        is_there = start <= position <= position + size <= end
        view = whole[position - start : position - start + size] if is_there else _NOTHING
        if is_there and accept is not None:
            # A long expression takes up to a millisecond for each message; time spent elsewhere does not count.
            if scanned >= look_at:
                before, looked = looked, thread_time()
                if looked >= filter_end:
                    scanned -= 1
                    break
                look_at = scanned + (_LOOKS_BETWEEN if looked - before < _QUICK_SECONDS else 1)
            if not accept(tags_code, view):
                continue
        if not kernel.is_message(view, position, queue.queue_id, offset + scanned - 1, queue.encoded_topic):
            mended = None if mend is None else mend(queue, offset + scanned - 1)
            removed |= mended is None
            if mended is None or (accept is not None and not accept(tags_code, mended)):
                continue
            view = mended
        slices.append(view)
        taken_bytes += len(view)
    result.size, result.count, result.next_offset = taken_bytes, len(slices), offset + scanned
    if slices:
        result.status = _FOUND
    elif removed:
        result.status = ReadStatus.MESSAGE_WAS_REMOVING
    elif not scanned:
        _step_over_hole(queue, result)
    return result


def _step_over_hole(queue: ConsumeQueue, result: ReadResult) -> None:
    """Continue at the next segment of a queue that has no entry at an offset."""
    segment_entries = queue.chain.segment_bytes // ENTRY_BYTES
    result.status = ReadStatus.OFFSET_FOUND_NULL
    result.next_offset += segment_entries - result.next_offset % segment_entries


def _send_elsewhere(offset: int, low: int, high: int) -> ReadResult:
    """The result for an offset that the queue does not have."""
    if offset < low:
        return ReadResult(ReadStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return ReadResult(_AT_END, offset, low, high)
    return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


def _take_run(
    queue: ConsumeQueue, commitlog: CommitLog, bounds: ReadBounds, result: ReadResult, entries: memoryview
) -> tuple[int, int]:
    """Read what lies in one segment of the log, in one go; returns the number of messages and bytes.

    Stops at the first message that needs a closer look.
    """
    if not entries:
        return 0, 0
    offset = result.next_offset
    start, end, whole = commitlog.view_segment(ENTRY.unpack_from(entries)[0])
    count, size = kernel.count_messages(
        entries, whole, start, end, bounds.count_max, bounds.bytes_max, queue.queue_id, offset, queue.encoded_topic
    )
    if not count:
        return 0, 0
    if bounds.joined:
        first, (last, last_size, _) = (
            ENTRY.unpack_from(entries)[0],
            ENTRY.unpack_from(entries, (count - 1) * ENTRY_BYTES),
        )
        if last + last_size - first == size:  # contiguous, as in a batch
            result.slices = [whole[first - start : first - start + size]]
        else:
            result.slices = [kernel.gather_records(entries, whole, start, count, size)]
    else:
        run = ENTRY.iter_unpack(entries[: count * ENTRY_BYTES])
        result.slices = [whole[position - start : position - start + size] for position, size, _ in run]
    result.status, result.next_offset = _FOUND, offset + count
    result.size, result.count = size, count
    return count, size


def is_damaged(position: int, damage: list[Damage]) -> bool:
    """Is a position inside one of these ranges?"""
    return any(item.position <= position < item.end for item in damage)


def read_store_time(commitlog: CommitLog, position: int, size: int) -> int:
    """When the record at a position was stored; -1 when it cannot be read."""
    view = commitlog.view(position, size)
    if view is None:
        return -1
    record = inspect_record(view, 0, len(view), False, position)
    return record.store_timestamp if type(record) is RecordView else -1


def _find_readable(queue: ConsumeQueue, commitlog: CommitLog, offset: int, last: int) -> tuple[int, int]:
    """The first offset from `offset` up to `last` whose record can be read, and its store time; -1 if there is none."""
    for candidate in range(offset, last + 1):
        entry = queue.entry(candidate)
        if entry is not None and entry.size != FILLER_SIZE:
            time = read_store_time(commitlog, entry.position, entry.size)
            if time >= 0:
                return candidate, time
    return -1, -1


def find_offset_by_time(queue: ConsumeQueue, commitlog: CommitLog, timestamp: int) -> int:
    """The offset of the message stored at a time, or the nearest one, as a 4.9 broker answers.

    An exact match wins; between two messages the earlier one, unless the later one is nearer; before the first message
    the first, after the last the last.
    """
    low, high = queue.min_offset, queue.max_offset - 1
    if high < low:
        return 0
    first, last = low, high
    left = right = -1
    left_time = right_time = -1
    while low <= high:
        middle = (low + high) // 2
        # The next message not lost to damage shows on which side to continue.
        found, time = _find_readable(queue, commitlog, middle, high)
        if found < 0:
            high = middle - 1
        elif time == timestamp:
            return found
        elif time > timestamp:
            high = middle - 1
            right, right_time = found, time
        else:
            low = found + 1
            left, left_time = found, time
    if left < 0:
        return first if right < 0 else right
    if right < 0:
        return min(left, last)
    return left if abs(timestamp - left_time) <= abs(timestamp - right_time) else right
