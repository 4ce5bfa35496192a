"""The commit log of a store as Spark reads it: a planner cuts it into pieces, and tasks walk the pieces.

Positions are never guessed, because a body may contain a copy of a record: a piece starts at the start of a segment or
at a record that a walk has reached. The end of the log is determined once, when the query is planned, and is part of
the pieces: a task that runs again reads the same records, even if a broker has written more since.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from eruca._spark.kernel.columns import SPAN
from eruca._spark.parsing import BATCH_ROWS, Ints, Records, find_records
from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from eruca._store.log.chain import Chain, is_segment_name
from eruca._store.log.cursor import RecordCursor
from eruca._store.log.scan import Damage, find_following_record, scan_log
from eruca._store.log.segment import Segment
from eruca._store.queues.removed import RemovedTopics
from eruca._storetools.readonly import check_is_store, holds_segments, load_log, make_log_chain
from eruca._wire.record import BlankView, InvalidView, RecordView
from eruca.errors import StoreError

log = logging.getLogger(__name__)

# A task reads about this much by default: enough to make the overhead of a task negligible.
PIECE_BYTES = 128 * 1024 * 1024
# With at least this many segments, the log is not walked to cut it finer.
WHOLE_SEGMENTS_MIN = 16
# CRCs are checked at the end of a log that a broker is writing to: the last body may be incomplete.
_TAIL_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one segment, from one record to another, in log positions."""

    path: str
    # Where the segment starts.
    base: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.end - self.begin


class StoreLog:
    """The segments of one commit log, mapped for reading; if some are missing, there are several runs of segments."""

    def __init__(self, place: Path, disk: FileSystem | None = None) -> None:
        self._disk = disk or LocalFileSystem()
        self.paths = find_store_paths(place, self._disk)
        self.segment_bytes = detect_options(self._disk, self.paths).commitlog_segment_bytes
        self.runs = load_log(self._disk, self.paths.commitlog, self.segment_bytes, _refuse)
        # Missing segments: where they would start, and how many bytes they would have.
        self.gaps = [
            Damage(before.end, after.start - before.end, "segments are missing")
            for before, after in pairwise(self.runs)
        ]

    def __enter__(self) -> StoreLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for run in self.runs:
            run.close()
        self.runs.clear()

    def load_removed(self) -> RemovedTopics:
        """Return the deleted topics of which the log still has records."""
        removed = RemovedTopics(self._disk, self.paths.removed)
        removed.load(self.runs[0].start if self.runs else 0)
        return removed

    def list_pieces(self) -> list[Piece]:
        """Return every segment that has records as one piece; the last piece ends where the log ends."""
        pieces: list[Piece] = []
        for number, run in enumerate(self.runs):
            end = run.end if number + 1 < len(self.runs) else find_log_end(run)
            pieces += [
                Piece(str(segment.path), segment.start, segment.start, min(end, segment.end))
                for segment in run.segments
                if segment.start < end
            ]
        return pieces

    def find_bounds(self) -> tuple[int, int]:
        """Return where the log starts and where it ends now; both are 0 if it has no record."""
        pieces = self.list_pieces()
        return (pieces[0].begin, pieces[-1].end) if pieces else (0, 0)

    def split(self, piece: Piece, count: int) -> list[Piece]:
        """Cut a piece into about `count` pieces of similar size, at records that a walk reaches."""
        run = next(run for run in self.runs if run.start <= piece.base < run.end)
        places = [piece.begin]
        for number in range(1, count):
            goal = piece.begin + piece.size * number // count
            if goal > places[-1]:
                places.append(min(piece.end, scan_log(run, places[-1], check_crc=False, stop=goal).end))
        ends = [*places[1:], piece.end]
        return [
            Piece(piece.path, piece.base, begin, end) for begin, end in zip(places, ends, strict=True) if begin < end
        ]


def _refuse(path: Path, error: StoreError) -> None:
    if is_segment_name(path.name):
        raise error
    log.warning("%s is not a segment and is not read", path)


def find_store_paths(place: Path, disk: FileSystem | None = None) -> StorePaths:
    """Return the paths of a store; `place` is its directory, or only its commit log, which may be a copy."""
    disk = disk or LocalFileSystem()
    if not disk.is_directory(place / "commitlog") and holds_segments(disk, place):
        return StorePaths(place.parent, place)
    paths = StorePaths(place)
    check_is_store(disk, paths)
    return paths


def find_log_end(run: Chain) -> int:
    """Return where the log ends: after its last complete record. A broker may be writing to it."""
    for segment in reversed(run.segments):
        view = segment.inspect(segment.start)
        if isinstance(view, InvalidView) and find_following_record(_alone(segment), segment, 1) is None:
            continue  # created in advance, or its first record is being written
        end = scan_log(run, segment.start, check_crc=False).end
        if end <= segment.start:
            continue
        checked = segment.start
        if end - checked > _TAIL_BYTES:
            checked = scan_log(run, checked, check_crc=False, stop=end - _TAIL_BYTES).end
        return scan_log(run, checked, stop=end).end
    return run.start


def plan_pieces(
    logs: Sequence[StoreLog], *, piece_bytes: int | None, count_min: int, count_max: int | None
) -> list[list[list[Piece]]]:
    """Return the pieces of each task, for each log.

    If there are many segments, each is a piece; otherwise they are cut at records.
    """
    whole = [each.list_pieces() for each in logs]
    total = sum(piece.size for pieces in whole for piece in pieces)
    if not total:
        return [[] for _ in logs]
    goal = piece_bytes or PIECE_BYTES
    if piece_bytes is None and sum(len(pieces) for pieces in whole) >= WHOLE_SEGMENTS_MIN:
        goal = max(goal, *(each.segment_bytes for each in logs))
    goal = min(goal, -(-total // count_min))
    if count_max is not None:
        goal = max(goal, -(-total // count_max))
    tasks: list[list[list[Piece]]] = []
    for each, pieces in zip(logs, whole, strict=True):
        cut: list[Piece] = []
        for piece in pieces:
            # A segment not much larger than a task stays whole, unless that many tasks were requested.
            parts = -(-piece.size // goal) if count_min > 1 else round(piece.size / goal)
            cut += each.split(piece, parts) if parts > 1 else [piece]
        tasks.append(_pack(cut, goal))
    return tasks if count_max is None else _merge(tasks, count_max)


def _pack(pieces: list[Piece], goal: int) -> list[list[Piece]]:
    """Combine adjacent pieces until each task has its share."""
    packed: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not packed or piece.size > room:
            packed.append([])
            room = goal
        packed[-1].append(piece)
        room -= piece.size
    return packed


def _merge(tasks: list[list[list[Piece]]], count_max: int) -> list[list[list[Piece]]]:
    """Combine adjacent tasks until there are at most `count_max`; tasks of different logs are not combined."""
    while sum(map(len, tasks)) > max(count_max, len([each for each in tasks if each])):
        crowded = max(tasks, key=len)
        sizes = [sum(piece.size for piece in task) for task in crowded]
        at = min(range(len(crowded) - 1), key=lambda number: sizes[number] + sizes[number + 1])
        crowded[at : at + 2] = [crowded[at] + crowded[at + 1]]
    return tasks


# -- in a task ---------------------------------------------------------------------------------------------------------


class TopicChoice(Collection[bytes]):
    """The selected topics, as a set without a list of members: a topic is judged when it is first seen."""

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._judged: dict[bytes, bool] = {}

    def __contains__(self, topic: object) -> bool:
        assert isinstance(topic, bytes)
        known = self._judged.get(topic)
        if known is None:
            known = self._judged[topic] = self._is_wanted(topic.decode("utf-8", "replace"))
        return known

    def __iter__(self) -> Iterator[bytes]:
        return iter([topic for topic, wanted in self._judged.items() if wanted])

    def __len__(self) -> int:
        return sum(self._judged.values())


class _Waiting:
    """Collects records until there are enough for a batch."""

    def __init__(self) -> None:
        self._spans: list[Ints] = []
        self.count = 0

    def add(self, records: Records) -> None:
        if records.count:
            self._spans.append(records.spans[: records.count * SPAN])
            self.count += records.count

    def take(self, buffer: mmap.mmap | bytearray, end: int) -> Records:
        spans = self._spans[0] if len(self._spans) == 1 else np.concatenate(self._spans)
        found = Records(buffer, spans, self.count, end)
        self._spans, self.count = [], 0
        return found


def walk_piece(piece: Piece, topics: Collection[bytes] | None = None) -> Iterator[Records | Damage]:
    """Return the records of a piece, many at a time, and the ranges between them that are not records."""
    disk = LocalFileSystem()
    segment = Segment(Path(piece.path), piece.base, disk.map(Path(piece.path), writable=False), allocated=False)
    if isinstance(segment.buffer, mmap.mmap):
        segment.buffer.madvise(mmap.MADV_SEQUENTIAL)
    try:
        yield from _walk(segment, piece, topics)
    finally:
        segment.mapping.close()


def _walk(segment: Segment, piece: Piece, topics: Collection[bytes] | None) -> Iterator[Records | Damage]:
    buffer, base = segment.buffer, piece.base
    at, end = piece.begin - base, piece.end - base
    waiting = _Waiting()
    while at < end:
        found = find_records(buffer, at, end, base=base, count_max=BATCH_ROWS - waiting.count, topics=topics)
        waiting.add(found)
        if found.end == at:
            one = _look_closely(segment, at)
            if isinstance(one, BlankView):
                break
            if isinstance(one, InvalidView):
                if waiting.count:
                    yield waiting.take(buffer, at)
                damage = _find_damage(segment, at, end, one.reason)
                if damage is None:
                    continue  # complete by now: a broker was writing it
                yield damage
                at = damage.end - base
                continue
            if topics is None or bytes(buffer[one.body_end + 1 : one.properties_at - 2]) in topics:
                spans = np.array([at, one.body_at, one.body_end, one.properties_at, one.properties_end], np.int64)
                waiting.add(Records(buffer, spans, 1, one.properties_end))
            found.end = one.properties_end
        at = found.end
        if waiting.count >= BATCH_ROWS:
            yield waiting.take(buffer, at)
    if waiting.count:
        yield waiting.take(buffer, at)


def _look_closely(segment: Segment, at: int) -> RecordView | BlankView | InvalidView:
    """Return what is at a position where the fast walk stopped."""
    return RecordCursor(segment.buffer, segment.size, segment.start).look(at)


def _find_damage(segment: Segment, at: int, end: int, reason: str) -> Damage | None:
    """Return the range from a position that is not a record to the next record; None if a record is there by now."""
    following = find_following_record(_alone(segment), segment, at + 1)
    if isinstance(_look_closely(segment, at), RecordView):
        return None
    stop = segment.start + end if following is None else min(following, segment.start + end)
    return Damage(segment.start + at, stop - segment.start - at, reason)


def _alone(segment: Segment) -> Chain:
    """Return a chain of one segment."""
    chain = make_log_chain(LocalFileSystem(), segment.path.parent, segment.size)
    chain.segments.append(segment)
    return chain


def describe_place(piece: Piece, position: int) -> str:
    """Describe a position by file and byte, for messages."""
    return f"{piece.path}: position {position} (byte {position - piece.base} of the file)"


def fail_on(piece: Piece, damage: Damage) -> StoreError:
    """Return the error for a range that is not a record."""
    return StoreError(
        f"{describe_place(piece, damage.position)}: {damage.length} bytes are not a record: {damage.reason}",
        hint="onDamage=skip continues after it, onDamage=report returns it as a row",
    )
