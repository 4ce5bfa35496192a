"""Walking the commit log record by record, past damage, without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from eruca.store.chain import Chain, Segment
from eruca.wire.record import BlankView, InvalidView, RecordView, find_record, inspect_record

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
    limit = size if stop is None else min(size, stop - base)
    while at < limit:
        view = inspect_record(buffer, at, size, check_crc, base + at)
        if type(view) is RecordView:
            scan.records += 1
            scan.last_store_time = view.store_timestamp
            if not scan.first_store_time:
                scan.first_store_time = view.store_timestamp
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
        progress(min(at, size) - reported)
    scan.end = base + at
    return stop is not None and scan.end >= stop


_REPORT_BYTES = 8 * 1024 * 1024


def find_following_record(chain: Chain, segment: Segment, at: int) -> int | None:
    """Position of the first valid record behind a place in a segment, in this segment or a later one."""
    for candidate in chain.from_position(segment.start):
        place = at if candidate is segment else 0
        place = candidate.mapping.next_data(place) if place < candidate.size else candidate.size
        found = find_record(candidate.buffer, place, candidate.size, candidate.start) if place < candidate.size else -1
        if found >= 0:
            return candidate.start + found
    return None


def iter_records(chain: Chain, start: int, end: int) -> Iterator[tuple[RecordView, Segment, int]]:
    """Each valid record between two positions, without CRC checks, stepping over damage."""
    position = start
    for segment in chain.from_position(start):
        at = max(position, segment.start) - segment.start
        while at < segment.size and segment.start + at < end:
            view = inspect_record(segment.buffer, at, segment.size, False, segment.start + at)
            if type(view) is RecordView:
                yield view, segment, segment.start + at
                at += view.size
                continue
            if type(view) is BlankView:
                break
            following = find_following_record(chain, segment, at + 1)
            if following is None:
                return
            if following >= segment.end:
                break
            at = following - segment.start
        position = segment.end
