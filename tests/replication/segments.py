"""The log of a store on disk: segments compared byte by byte, and the records in them.

Nothing is locked, so both sides of a pair may be running: what a broker has written to its mapped files is what a
reader of these files sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eruca._store.log.chain import NAME_DIGITS
from eruca._wire.record import BlankView, RecordView, inspect_record
from eruca._wire.sysflag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """One record of a log."""

    position: int
    size: int
    topic: str
    queue_id: int
    offset: int
    body: bytes
    # Undecided or rolled back: it has no place in its queue.
    is_half: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two logs have in common."""

    begin: int
    end: int
    segments: int
    # The first position where they differ; None when they do not.
    difference: int | None
    # Segments inside the common range that only one of them has.
    missing: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Are all segments there on both sides, and equal?"""
        return self.difference is None and not self.missing

    def describe(self) -> str:
        """One line."""
        found = f"{self.segments} segments, {self.end - self.begin:,} bytes from {self.begin} to {self.end}"
        if self.is_same:
            return f"{found}: equal"
        return f"{found}: DIFFERENT at {self.difference}, missing {list(self.missing)}"


def list_segments(store: Path) -> dict[int, Path]:
    """The files of a log by the position they begin with."""
    folder = store / "commitlog"
    if not folder.is_dir():
        return {}
    names = sorted(path for path in folder.iterdir() if len(path.name) == NAME_DIGITS and path.name.isdigit())
    return {int(path.name): path for path in names}


def read_log(store: Path) -> Iterator[Stored]:
    """Every record of a log in order, with bodies checked, up to the first place that is none."""
    end = None
    for start, path in list_segments(store).items():
        data = path.read_bytes()
        if (end is not None and start != end) or not data:
            return
        at = 0
        while at < len(data):
            view = inspect_record(data, at, len(data), True, start + at)
            if isinstance(view, BlankView):
                at = len(data)
                break
            if not isinstance(view, RecordView):
                return
            yield _describe(view, data, start + at)
            at += view.size
        end = start + at


def _describe(view: RecordView, data: bytes, position: int) -> Stored:
    kind = view.sys_flag & TRANSACTION_ROLLBACK
    return Stored(
        position,
        view.size,
        bytes(view.topic).decode(),
        view.queue_id,
        view.queue_offset,
        data[view.body_at : view.body_end],
        kind in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK),
    )


def list_diverged(store: Path) -> list[Path]:
    """The files of tails that were set aside."""
    folder = store / "eruca-diverged"
    return sorted(folder.glob("*.log")) if folder.is_dir() else []


def read_diverged(path: Path) -> Iterator[Stored]:
    """The records of a tail that was set aside; its name has the positions it begins and ends with."""
    _, begin, end = (int(part) for part in path.stem.split("-"))
    data = path.read_bytes()
    assert len(data) == end - begin, f"{path.name} has {len(data)} bytes"
    at = 0
    while at < len(data):
        view = inspect_record(data, at, len(data), True, begin + at)
        if not isinstance(view, RecordView):
            # The blank end of a segment is not always complete here, and only marks where the next one begins.
            assert isinstance(view, BlankView), f"{path.name} is no log at {at}: {view}"
            at += view.size
            continue
        yield _describe(view, data, begin + at)
        at += view.size


def find_tail(store: Path) -> int:
    """Return the position after the last record of a log."""
    segments = list_segments(store)
    tail = min(segments, default=0)
    for start, path in segments.items():
        data = path.read_bytes()
        at = 0
        while at < len(data):
            view = inspect_record(data, at, len(data), False, start + at)
            if isinstance(view, RecordView):
                at += view.size
            elif isinstance(view, BlankView):
                at = len(data)
            else:
                return start + at
        tail = start + at
    return tail


def compare_logs(one: Path, other: Path, end: int | None = None) -> Comparison:
    """Compare two logs byte by byte from where both begin to where the shorter one ends, or to `end`."""
    mine, theirs = list_segments(one), list_segments(other)
    if not mine or not theirs:
        return Comparison(0, 0, 0, 0 if end else None, tuple(path.name for path in [*mine.values(), *theirs.values()]))
    begin = max(min(mine), min(theirs))
    stop = min(find_tail(one), find_tail(other)) if end is None else end
    count, missing = 0, []
    for start in sorted({*mine, *theirs}):
        if start < begin or start >= stop:
            continue
        if start not in mine or start not in theirs:
            missing.append(f"{start:020d}")
            continue
        count += 1
        difference = _find_difference(mine[start], theirs[start], stop - start)
        if difference is not None:
            return Comparison(begin, stop, count, start + difference, tuple(missing))
    return Comparison(begin, stop, count, None, tuple(missing))


def _find_difference(one: Path, other: Path, count: int) -> int | None:
    """Return the first differing byte of this many, or None."""
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while at < count:
            wanted = min(_BLOCK_BYTES, count - at)
            a, b = first.read(wanted), second.read(wanted)
            if a != b:
                both = min(len(a), len(b))
                return at + next((number for number in range(both) if a[number] != b[number]), both)
            if not a:
                return None
            at += len(a)
    return None


def list_queue_faults(records: list[Stored], topic: str) -> list[str]:
    """Return what is wrong with the offsets of a topic's queues: each must be one more than the previous."""
    following: dict[int, int] = {}
    faults = []
    is_whole = bool(records) and records[0].position == 0
    for record in records:
        if record.topic != topic or record.is_half:
            continue
        wanted = following.get(record.queue_id, 0 if is_whole else record.offset)
        if record.offset != wanted:
            faults.append(
                f"queue {record.queue_id} has offset {record.offset} at position {record.position}, not {wanted}"
            )
        following[record.queue_id] = record.offset + 1
    return faults
