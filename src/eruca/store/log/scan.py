"""Walking the commit log record by record, past damage, without changing anything."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from eruca.store.filesystem import Buffer
from eruca.store.log.chain import Chain
from eruca.store.log.segment import Segment
from eruca.wire.kernel.reading import read_records, skip_records
from eruca.wire.record import BlankView, InvalidView, RecordView, find_record, inspect_record

# A progress report, and a run of records that is passed in one call, is about this long.
_REPORT_BYTES = 8 * 1024 * 1024

# What a disk writes at once: a power loss leaves each of these old or new.
_SECTOR_BYTES = 512
_ZEROS_OF_SIZE = 3

# How far a search for the next record goes before it asks the disk again where data is.
_SEARCH_BYTES = 4 * 1024 * 1024

# Records whose facts are in memory at a time.
_FACTS_MAX = 1024

# Position, size, topic, queue id, queue offset, sysFlag, store time, properties.
RecordFacts: TypeAlias = tuple[int, int, bytes, int, int, int, int, bytes]

# Told how many bytes have been walked since the last call.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the commit log that is no record although valid records follow it."""

    position: int
    length: int
    reason: str

    @property
    def end(self) -> int:
        """Position where the next valid record starts."""
        return self.position + self.length


@dataclass(slots=True)
class LogScan:
    """What a walk over the log found."""

    start: int
    end: int
    records: int = 0
    first_store_time: int = 0
    last_store_time: int = 0
    damage: list[Damage] = field(default_factory=list)
    # Why the bytes at `end` are not a record; empty when nothing was ever written there.
    torn: str = ""


Visitor = Callable[[RecordView, Segment, int], None]


def scan_log(
    chain: Chain,
    start: int,
    *,
    check_crc: bool = True,
    search_after_empty: bool = True,
    visit: Visitor | None = None,
    progress: Progress | None = None,
    stop: int | None = None,
) -> LogScan:
    """Walk the records from a position on; `visit` sees each valid one.

    A place that is no record ends the walk only if no valid record lies anywhere behind it. `search_after_empty` is
    off after a clean stop, where an untouched place is the end and the rest need not be read.
    """
    scan = LogScan(start=start, end=start)
    for segment in chain.from_position(start):
        at = max(scan.end, segment.start) - segment.start
        if segment.start + at != scan.end:
            continue
        finished = _scan_segment(chain, segment, at, scan, check_crc, search_after_empty, visit, progress, stop)
        if finished:
            break
    return scan


def _scan_segment(
    chain: Chain,
    segment: Segment,
    at: int,
    scan: LogScan,
    check_crc: bool,
    search_after_empty: bool,
    visit: Visitor | None,
    progress: Progress | None,
    stop: int | None,
) -> bool:
    """Walk one segment; True when the walk is over. `scan.end` moves to where it goes on."""
    buffer, base, size = segment.buffer, segment.start, segment.size
    reported = at
    zeros = ZeroRun()
    limit = size if stop is None else min(size, stop - base)
    while at < limit:
        if visit is None:
            # Nobody wants to see each record, so whole runs of them are passed in one call.
            stretch = min(limit, at + _REPORT_BYTES)
            at, count, first_time, last_time = skip_records(buffer, at, stretch, base, check_crc)
            if count:
                _count_records(scan, count, first_time, last_time)
                if progress is not None:
                    progress(at - reported)
                    reported = at
                continue
        view = inspect_record(buffer, at, size, check_crc, base + at)
        if type(view) is RecordView and is_cut_short(buffer, view, size, base, zeros):
            view = InvalidView("zeros stand where its topic or properties were to be written")
        if type(view) is RecordView:
            _count_records(scan, 1, view.store_timestamp, view.store_timestamp)
            if visit is not None:
                visit(view, segment, base + at)
            at += view.size
            if progress is not None and at - reported > _REPORT_BYTES:
                progress(at - reported)
                reported = at
            continue
        if type(view) is BlankView:
            at = size
            break
        assert isinstance(view, InvalidView)
        following = None
        if not view.empty or search_after_empty:
            following = find_following_record(chain, segment, at + 1)
        if following is None:
            scan.end = base + at
            scan.torn = "" if view.empty else view.reason
            return True
        scan.damage.append(Damage(base + at, following - base - at, view.reason))
        at = following - base
    if progress is not None:
        progress(max(0, min(at, size) - reported))
    scan.end = base + at
    return stop is not None and scan.end >= stop


def _count_records(scan: LogScan, count: int, first_time: int, last_time: int) -> None:
    scan.records += count
    scan.last_store_time = last_time
    if not scan.first_store_time:
        scan.first_store_time = first_time


def find_following_record(chain: Chain, segment: Segment, at: int) -> int | None:
    """Position of the first valid record behind a place in a segment, in this segment or a later one."""
    for candidate in chain.from_position(segment.start):
        zeros = ZeroRun()
        for start, stop in candidate.list_written(at if candidate is segment else 0, _SEARCH_BYTES):
            place = start
            while (found := find_record(candidate.buffer, place, candidate.size, candidate.start, stop)) >= 0:
                view = inspect_record(candidate.buffer, found, candidate.size, False, candidate.start + found)
                if type(view) is RecordView and not is_cut_short(
                    candidate.buffer, view, candidate.size, candidate.start, zeros
                ):
                    return candidate.start + found
                place = found + 1
    return None


@dataclass(slots=True)
class ZeroRun:
    """What is known of records in a row that end in a zero byte: they are judged together, and looked at once."""

    # Where in the segment the last of them ends.
    end: int = -1
    is_cut: bool = False


def is_cut_short(buffer: Buffer, view: RecordView, size: int, base: int, run: ZeroRun | None = None) -> bool:
    """Was the end of a record never written, although its lengths add up and its body has the right CRC?

    Topic and properties come last and have no checksum, so a record whose last sectors were lost in a power loss can
    look whole, with zeros for letters. The store never writes properties that end in a zero byte (`MessageStore` adds
    a separator); a record of another writer may, and then a good record follows it, unless it is the very last.
    Who walks a segment from its front to its end passes the same `run` every time.
    """
    run = ZeroRun() if run is None else run
    if view.properties_end <= run.end:
        return run.is_cut
    is_cut = False
    while not (is_cut := has_lost_sector(buffer, view)):
        if not ends_in_zero(buffer, view):
            break
        end = view.properties_end
        following = inspect_record(buffer, end, size, True, base + end)
        if type(following) is not RecordView:
            is_cut = type(following) is InvalidView
            break
        view = following
    run.end, run.is_cut = view.properties_end, is_cut
    return is_cut


def ends_in_zero(buffer: Buffer, view: RecordView) -> bool:
    """Is the last letter of a record a zero: of its properties, or of its topic if it has none?"""
    end = view.properties_end
    return not buffer[end - 1 if end > view.properties_at else view.properties_at - 3]


def has_lost_sector(buffer: Buffer, view: RecordView) -> bool:
    """Is a whole sector of a record's topic or properties zeros, perhaps with the first zeros of the next size?"""
    end = view.properties_end
    at = -(-(view.body_end + 1) // _SECTOR_BYTES) * _SECTOR_BYTES
    while at + _SECTOR_BYTES <= end + _ZEROS_OF_SIZE:
        if not any(buffer[at : min(end, at + _SECTOR_BYTES)]):
            return True
        at += _SECTOR_BYTES
    return False


def iter_stretches(chain: Chain, start: int, end: int, damage: Sequence[Damage]) -> Iterator[tuple[Segment, int, int]]:
    """The stretches of a segment between two positions in which records lie one behind the other, without CRC checks.

    Each is a segment and two places in it, some megabytes apart at most. `damage` is what a scan of the same range
    found, and is stepped over; a record whose body is damaged can only be known from it.
    """
    known = {item.position: item.end for item in damage}
    starts = sorted(known)
    position = start
    for segment in chain.from_position(start):
        base = segment.start
        at = max(position, base) - base
        limit = min(segment.size, end - base)
        while at < limit:
            following = known.get(base + at)
            if following is None:
                upcoming = bisect.bisect_right(starts, base + at)
                stop = min(limit, starts[upcoming] - base) if upcoming < len(starts) else limit
                good = skip_records(segment.buffer, at, min(stop, at + _REPORT_BYTES), base, False)[0]
                if good == at:
                    view = inspect_record(segment.buffer, at, segment.size, False, base + at)
                    if type(view) is BlankView:
                        break
                    if type(view) is RecordView:
                        good = at + view.size
                if good > at:
                    yield segment, at, good
                    at = good
                    continue
                following = find_following_record(chain, segment, at + 1)
            if following is None:
                return
            at = following - base
        position = max(segment.end, base + at)


def iter_facts(chain: Chain, start: int, end: int, damage: Sequence[Damage]) -> Iterator[list[RecordFacts]]:
    """What is in the head of each valid record between two positions, in lists of many, stepping over damage."""
    for segment, place, stop in iter_stretches(chain, start, end, damage):
        at = place
        while at < stop:
            facts = read_records(segment.buffer, at, stop, segment.start, _FACTS_MAX)
            facts = facts or read_records(segment.buffer, at, stop, segment.start, 1, True)
            yield facts
            at = facts[-1][0] + facts[-1][1] - segment.start


def iter_records(
    chain: Chain, start: int, end: int, damage: list[Damage] | None = None
) -> Iterator[tuple[RecordView, Segment, int]]:
    """Each valid record between two positions, without CRC checks, stepping over damage.

    `damage` is what a scan of the same range found; a record whose body is damaged can only be known from it.
    """
    known = {item.position: item.end for item in damage or ()}
    position = start
    for segment in chain.from_position(start):
        at = max(position, segment.start) - segment.start
        zeros = ZeroRun()
        while at < segment.size and segment.start + at < end:
            following = known.get(segment.start + at)
            if following is None:
                view = inspect_record(segment.buffer, at, segment.size, False, segment.start + at)
                if type(view) is RecordView and not is_cut_short(
                    segment.buffer, view, segment.size, segment.start, zeros
                ):
                    yield view, segment, segment.start + at
                    at += view.size
                    continue
                if type(view) is BlankView:
                    break
                following = find_following_record(chain, segment, at + 1)
            if following is None:
                return
            position = following
            at = following - segment.start
        position = max(position, segment.end)
