"""Walking the commit log record by record, skipping damage, without changing anything."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from eruca._store.log.chain import Chain
from eruca._store.log.cursor import RecordCursor
from eruca._store.log.segment import Segment
from eruca._wire.kernel.reading import read_records, skip_records
from eruca._wire.record import BlankView, InvalidView, RecordView, inspect_record

# About how many bytes of records are passed in one call; progress is reported after each.
_STRETCH_BYTES = 8 * 1024 * 1024

# How far a search for the next record goes before it asks the disk again where there is data.
_SEARCH_BYTES = 4 * 1024 * 1024

# How many records' facts are in memory at a time.
_FACTS_MAX = 1024

# Position, size, topic, queue id, queue offset, sysFlag, store time, properties.
RecordFacts: TypeAlias = tuple[int, int, bytes, int, int, int, int, bytes]

# Called with the number of bytes walked since the last call.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the commit log that is not a record although valid records follow it."""

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

    def count(self, records: int, first_time: int, last_time: int) -> None:
        """Count records, with the store times of the first and the last of them."""
        self.records += records
        self.last_store_time = last_time
        self.first_store_time = self.first_store_time or first_time


def scan_log(
    chain: Chain,
    start: int,
    *,
    check_crc: bool = True,
    search_after_empty: bool = True,
    progress: Progress | None = None,
    stop: int | None = None,
) -> LogScan:
    """Walk the records from a position on, up to `stop` or the end.

    A place that is not a record ends the walk only if no valid record follows anywhere. `search_after_empty` is
    off after a clean stop, where an unwritten place is the end and the rest need not be read.
    """
    scan = LogScan(start=start, end=start)
    reported = start
    for _ in _walk(chain, scan, stop, check_crc=check_crc, search_after_empty=search_after_empty):
        if progress is not None:
            progress(scan.end - reported)
            reported = scan.end
    if progress is not None:
        progress(scan.end - reported)
    return scan


def _walk(
    chain: Chain,
    scan: LogScan,
    stop: int | None,
    *,
    check_crc: bool = False,
    search_after_empty: bool = True,
    doubting: bool = True,
    known_damage: Sequence[Damage] = (),
) -> Iterator[tuple[Segment, int, int]]:
    """Walk the log from the end of a scan on, past damage, adding what is found to the scan.

    Each step is a stretch of consecutive records in a segment, a few megabytes at most. Known damage is skipped
    without reading it, and is not added to `scan`.
    """
    known = {item.position: item.end for item in known_damage}
    starts = sorted(known)
    for segment in chain.from_position(scan.start):
        buffer, base, size = segment.buffer, segment.start, segment.size
        if scan.end < base or (stop is not None and scan.end >= stop):
            break
        cursor = RecordCursor(buffer, size, base, check_crc=check_crc, doubting=doubting)
        limit = size if stop is None else min(size, stop - base)
        while (at := scan.end - base) < limit:
            following = known.get(base + at)
            if following is None:
                upcoming = bisect.bisect_right(starts, base + at)
                near = limit if upcoming == len(starts) else min(limit, starts[upcoming] - base)
                good, count, first_time, last_time = skip_records(
                    buffer, at, min(near, at + _STRETCH_BYTES), base, check_crc
                )
                view = cursor.look(at) if good == at else None
                if type(view) is RecordView:
                    good, count, first_time, last_time = at + view.size, 1, view.store_timestamp, view.store_timestamp
                if good > at:
                    scan.count(count, first_time, last_time)
                    scan.end = base + good
                    yield segment, at, good
                    continue
                if type(view) is BlankView:
                    scan.end = segment.end
                    break
                assert isinstance(view, InvalidView)
                if not view.empty or search_after_empty:
                    following = find_following_record(chain, segment, at + 1)
                if following is None:
                    scan.torn = "" if view.empty else view.reason
                    return
                scan.damage.append(Damage(base + at, following - base - at, view.reason))
            scan.end = following


def find_following_record(chain: Chain, segment: Segment, at: int) -> int | None:
    """Position of the first valid record after a place in a segment, in this segment or a later one."""
    for candidate in chain.from_position(segment.start):
        cursor = RecordCursor(candidate.buffer, candidate.size, candidate.start)
        for start, stop in candidate.list_written(at if candidate is segment else 0, _SEARCH_BYTES):
            found = cursor.find(start, stop)
            if found >= 0:
                return candidate.start + found
    return None


def _begin(chain: Chain, start: int) -> LogScan:
    start = max(start, chain.start)
    return LogScan(start=start, end=start)


def iter_stretches(chain: Chain, start: int, end: int, damage: Sequence[Damage]) -> Iterator[tuple[Segment, int, int]]:
    """The stretches of consecutive records between two positions, without CRC checks.

    Each is a segment and two places in it, a few megabytes apart at most. `damage` is what a scan of the same range
    found, and is skipped; a record with a damaged body can only be recognized by it.
    """
    return _walk(chain, _begin(chain, start), end, doubting=False, known_damage=damage)


def iter_facts(chain: Chain, start: int, end: int, damage: Sequence[Damage]) -> Iterator[list[RecordFacts]]:
    """The header fields of each valid record between two positions, in large lists, skipping damage."""
    for segment, place, stop in iter_stretches(chain, start, end, damage):
        at = place
        while at < stop:
            facts = read_records(segment.buffer, at, stop, segment.start, _FACTS_MAX)
            facts = facts or read_records(segment.buffer, at, stop, segment.start, 1, True)
            yield facts
            at = facts[-1][0] + facts[-1][1] - segment.start


def iter_records(
    chain: Chain, start: int, end: int, damage: Sequence[Damage] = ()
) -> Iterator[tuple[RecordView, Segment, int]]:
    """Each valid record between two positions, without CRC checks, and its position; damage is skipped."""
    for segment, place, stop in _walk(chain, _begin(chain, start), end, known_damage=damage):
        at = place
        while at < stop:
            view = inspect_record(segment.buffer, at, stop, False, segment.start + at)
            if type(view) is not RecordView:
                break  # the broker has cut its log in the meantime
            yield view, segment, segment.start + at
            at += view.size
