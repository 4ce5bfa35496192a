"""A store opened for reading: nothing is locked, nothing is changed, and misfits are reported, not refused.

`open_store` refuses a chain with a foreign file, because writing to it would be a guess. A diagnostic tool must
continue: it reports the file as a `Finding` and reads the rest. The store may be open in a running broker.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from eruca._ground.config import StoreOptions, from_properties, info_of
from eruca._ground.limits import RECORD_TOPIC_BYTES_MAX
from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.layout import StorePaths, detect_options
from eruca._store.log.chain import Chain, is_segment_name
from eruca._store.log.mappool import MapPool
from eruca._store.log.segment import Segment
from eruca._store.queues.consumequeue import ConsumeQueue
from eruca._store.queues.indexfile import IndexFile, file_bytes
from eruca._store.queues.queues import is_queue_number
from eruca._store.recovery.checkpoint import AbortMarker, Checkpoint
from eruca._wire.names import check_topic
from eruca._wire.record import Inspection, InvalidView
from eruca.errors import InvalidName, StoreError, StoreIOError, StoreLayoutError

# A queue or index that is wrong throughout would produce a finding for each entry: all are counted, few are listed.
KEPT_OF_A_KIND_MAX = 100
_REPAIR_HINT = "`eruca store rebuild` rebuilds it from the commit log"


class Level(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    # Repaired automatically at the next start, or only worth knowing.
    WARNING = "warning"


class Kind(enum.Enum):
    """What a finding is about."""

    LAYOUT = "layout"
    DAMAGE = "damage"
    TORN_TAIL = "torn-tail"
    LOST = "lost"
    RECORD = "record"
    QUEUE = "consume-queue"
    INDEX = "index"
    TABLE = "table"
    CHECKPOINT = "checkpoint"
    OPEN = "not-closed"


# Each of these names a place that no other finding names, so none is left out.
_ALWAYS_KEPT = frozenset({Kind.LAYOUT, Kind.DAMAGE, Kind.TORN_TAIL})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    level: Level
    kind: Kind
    path: str
    reason: str
    # A position in the commit log.
    position: int | None = None
    length: int | None = None
    hint: str = ""


class Findings:
    """Collects findings, with a limit for each kind."""

    def __init__(self) -> None:
        self.items: list[Finding] = []
        self.errors = 0
        self.warnings = 0
        self.left_out = 0
        self._of_kind: Counter[tuple[Kind, Level]] = Counter()

    def add_error(
        self,
        kind: Kind,
        path: Path,
        reason: str,
        *,
        position: int | None = None,
        length: int | None = None,
        hint: str = "",
    ) -> None:
        """Report something that a start does not repair."""
        self.errors += 1
        self._keep(Level.ERROR, kind, path, reason, position, length, hint)

    def add_warning(self, kind: Kind, path: Path, reason: str, *, position: int | None = None, hint: str = "") -> None:
        """Report something that is worth knowing."""
        self.warnings += 1
        self._keep(Level.WARNING, kind, path, reason, position, None, hint)

    def add_exception(self, kind: Kind, path: Path, error: StoreError) -> None:
        """Report an error raised elsewhere, with its own text."""
        self.add_error(kind, path, str(error.args[0]), hint=error.hint)

    def _keep(
        self, level: Level, kind: Kind, path: Path, reason: str, position: int | None, length: int | None, hint: str
    ) -> None:
        self._of_kind[kind, level] += 1
        if self._of_kind[kind, level] > KEPT_OF_A_KIND_MAX and kind not in _ALWAYS_KEPT:
            self.left_out += 1
            return
        self.items.append(
            Finding(level=level, kind=kind, path=str(path), reason=reason, position=position, length=length, hint=hint)
        )


def resolve_options(disk: FileSystem, paths: StorePaths, properties: Mapping[str, str]) -> StoreOptions:
    """The options of an existing store: from `properties` (Java keys), and otherwise judging by the files."""
    given = from_properties(StoreOptions, properties)
    said = {name: getattr(given, name) for name, info in info_of(StoreOptions).items() if info.java in properties}
    return replace(detect_options(disk, paths, given), **said)


def holds_segments(disk: FileSystem, directory: Path) -> bool:
    """Is a directory itself a chain of segments?"""
    return disk.is_directory(directory) and any(is_segment_name(name) for name in disk.list(directory))


def check_is_store(disk: FileSystem, paths: StorePaths) -> None:
    """Refuse a directory that is not a store, with a hint at the likely one."""
    root = paths.root
    if not disk.is_directory(root):
        raise StoreError(f"{root} is not a directory", hint="pass the directory named by storePathRootDir")
    if disk.is_directory(paths.commitlog):
        return
    hint = "pass the directory that contains commitlog/ (storePathRootDir)"
    if holds_segments(disk, root):
        hint = f"this is a chain of segments inside a store; try {root.parent}"
    elif disk.is_directory(root / "store" / "commitlog"):
        hint = f"try {root / 'store'}"
    raise StoreError(f"{root} is not a store: it has no {paths.commitlog.name} directory", hint=hint)


def make_log_chain(disk: FileSystem, directory: Path, segment_bytes: int) -> Chain:
    """The chain of a commit log, with nothing loaded."""
    return Chain(disk, directory, segment_bytes, durable=True, size_key="mappedFileSizeCommitLog")


def load_log(
    disk: FileSystem, directory: Path, segment_bytes: int, refuse: Callable[[Path, StoreError], None]
) -> list[Chain]:
    """Map a commit log for reading: one chain, or several when segments between them are missing.

    `refuse` is called with each file that does not fit and why, and may raise. Files deleted by a running broker are
    left out.
    """
    runs: list[Chain] = []
    try:
        for name in disk.list(directory):
            run, path = make_log_chain(disk, directory, segment_bytes), directory / name
            try:
                start = run.check_file(name)
                mapping = disk.map(path, writable=False)
            except (StoreLayoutError, StoreIOError) as error:
                if isinstance(error, StoreLayoutError) or disk.exists(path):
                    refuse(path, error)
                continue
            if not runs or start != runs[-1].end:
                runs.append(run)
            runs[-1].segments.append(Segment(path, start, mapping, allocated=False))
    except BaseException:
        for run in runs:
            run.close()
        raise
    return runs


class ReadOnlyStore:
    """Every file of a store that fits, mapped for reading, and a finding for every file that does not."""

    def __init__(
        self,
        root: Path,
        properties: Mapping[str, str] | None = None,
        *,
        paths: StorePaths | None = None,
        disk: FileSystem | None = None,
    ) -> None:
        self.disk = disk or LocalFileSystem()
        self.paths = paths or StorePaths(root)
        check_is_store(self.disk, self.paths)
        self.options = resolve_options(self.disk, self.paths, properties or {})
        self.findings = Findings()
        # The commit log: one chain, or several when segments between them are missing.
        self.runs: list[Chain] = []
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._pool = MapPool()
        self.index_files: list[IndexFile] = []
        # The entries of each index file when it was opened, including entry 0; a broker may have added more since.
        self.index_counts: list[int] = []
        self.aborted = AbortMarker(self.disk, self.paths.abort).is_set()
        self.checkpoint: Checkpoint | None = None
        try:
            # A broker writes the log before its entries; opened in reverse order, every entry we see has its record.
            self._load_index()
            self._load_queues()
            self._load_log()
            self._load_checkpoint()
            for queue in self.queues.values():
                queue.raise_min(self.log_start)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for run in self.runs:
            run.close()
        for queue in self.queues.values():
            queue.close()
        for file in self.index_files:
            file.close()
        if self.checkpoint is not None:
            self.checkpoint.close()

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def log_start(self) -> int:
        """Position of the first byte the commit log has."""
        return self.runs[0].start if self.runs else 0

    def find_segment(self, position: int) -> Segment | None:
        """The commit-log segment that holds a position, or None."""
        for run in self.runs:
            found = run.find(position)
            if found is not None:
                return found
        return None

    def inspect(self, position: int) -> Inspection:
        """Return what is at a position of the commit log."""
        segment = self.find_segment(position)
        if segment is None:
            return InvalidView("the commit log does not have this position")
        return segment.inspect(position)

    def iter_segments(self) -> Iterator[Segment]:
        """Every segment of the commit log, in order."""
        for run in self.runs:
            yield from run.segments

    # -- loading -----------------------------------------------------------------------------------------------------

    def _load_log(self) -> None:
        directory, size = self.paths.commitlog, self.options.commitlog_segment_bytes
        self.runs = load_log(self.disk, directory, size, partial(self.findings.add_exception, Kind.LAYOUT))
        for before, after in pairwise(self.runs):
            missing = after.start - before.end
            self.findings.add_error(
                Kind.LAYOUT,
                before.path_of(before.end),
                f"{missing // size} segments are missing before {after.segments[0].path.name}",
                position=before.end,
                length=missing,
                hint="restore the missing files, or move the later ones away",
            )

    def _load_queues(self) -> None:
        for topic in self.disk.list(self.paths.consumequeue):
            directory = self.paths.consumequeue / topic
            if not self.disk.is_directory(directory):
                self.findings.add_error(
                    Kind.LAYOUT, directory, "a file where a topic's directory belongs", hint="move it away"
                )
                continue
            try:
                check_topic(topic, RECORD_TOPIC_BYTES_MAX)
            except InvalidName as error:
                self.findings.add_error(Kind.LAYOUT, directory, f"not a topic: {error}", hint="move it away")
                continue
            for number in self.disk.list(directory):
                if not number.startswith("."):
                    self._load_queue(topic, directory / number)

    def _load_queue(self, topic: str, directory: Path) -> None:
        number = directory.name
        if not is_queue_number(number) or not self.disk.is_directory(directory):
            self.findings.add_error(Kind.LAYOUT, directory, "not the directory of a queue", hint="move it away")
            return
        try:
            queue = self.load_queue(topic, int(number))
        except StoreLayoutError as error:
            self.findings.add_exception(Kind.LAYOUT, directory, error)
        except StoreIOError as error:
            self._note_unless_gone(Kind.LAYOUT, directory, error)
        else:
            self.queues[topic, int(number)] = queue

    def load_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Map one consume queue in its current state; the caller closes it."""
        queue = ConsumeQueue(
            self.disk,
            self.paths.consumequeue / topic / str(queue_id),
            self.options.consumequeue_segment_bytes,
            topic=topic,
            queue_id=queue_id,
            pool=self._pool,
        )
        try:
            queue.load(writable=False)
        except BaseException:
            queue.close()
            raise
        return queue

    def _load_index(self) -> None:
        slots, entries = self.options.index_slots, self.options.index_entries
        size = file_bytes(slots, entries)
        for name in self.disk.list(self.paths.index):
            path = self.paths.index / name
            if not (name.isascii() and name.isdigit()):
                self.findings.add_error(Kind.LAYOUT, path, "not an index file: its name is not a time", hint="move it")
                continue
            try:
                found = self.disk.size(path)
                if found != size:
                    self.findings.add_error(
                        Kind.LAYOUT,
                        path,
                        f"{found} bytes, but maxHashSlotNum={slots} and maxIndexNum={entries} make {size}",
                        hint=f"pass both with --option if the store was created with other values; {_REPAIR_HINT}",
                    )
                    continue
                mapping = self.disk.map(path, writable=False)
            except StoreIOError as error:
                self._note_unless_gone(Kind.LAYOUT, path, error)
                continue
            self.index_files.append(IndexFile(path, mapping, slots, entries, allocated_end=0))
            self.index_counts.append(self.index_files[-1].next_entry)

    def _load_checkpoint(self) -> None:
        if not self.disk.exists(self.paths.checkpoint):
            return
        checkpoint = Checkpoint(self.disk, self.paths.checkpoint)
        try:
            checkpoint.load(writable=False)
        except StoreLayoutError as error:
            self.findings.add_exception(Kind.CHECKPOINT, self.paths.checkpoint, error)
        else:
            self.checkpoint = checkpoint

    def _note_unless_gone(self, kind: Kind, path: Path, error: StoreError) -> None:
        """Report an error, unless the file is gone: a running broker may delete files after they were listed."""
        if self.disk.exists(path):
            self.findings.add_exception(kind, path, error)
