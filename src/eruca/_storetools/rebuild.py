"""Rebuild: consume queues and index are written again from the commit log alone. The log itself is only read.

    1  consumequeue.rebuilding/ and index.rebuilding/ are written beside the old ones, and synced
    2  they are verified against the log, every entry
    3  the abort marker is set, so that a crash from here on is followed by a recovery
    4  each old directory is renamed to <name>.old-<time>, and the new one takes its name
    5  the abort marker is removed, unless it was there before; the old directories too, if requested

A crash before step 4 leaves the old directories as they were, and leftovers that the next rebuild removes. A crash
during step 4 leaves a directory missing, and a store without consume queues or index rebuilds them when it opens.
Nothing unknown is ever lost: the old directories are kept until someone asks to delete them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from eruca._ground.clock import Clock, SystemClock
from eruca._ground.config import StoreOptions, parse_delay_levels
from eruca._store.filesystem import FileSystem, LocalFileSystem
from eruca._store.layout import StorePaths
from eruca._store.log.scan import LogScan, Progress, scan_log
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.index import Index
from eruca._store.queues.indexfile import file_bytes
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._store.recovery.checkpoint import AbortMarker
from eruca._storetools.readonly import (
    Finding,
    Kind,
    Level,
    ReadOnlyStore,
    check_is_store,
    make_log_chain,
    resolve_options,
)
from eruca._storetools.verify import verify_opened
from eruca.errors import StoreError, StoreLayoutError

STAGING_SUFFIX = ".rebuilding"
OLD_SUFFIX = ".old-"


class RebuildReport(msgspec.Struct, frozen=True):
    """The result of a rebuild."""

    root: str
    records: int
    log_start: int
    log_end: int
    queues: int
    queue_entries: int
    index_files: int
    index_entries: int
    # Queues that are in the old directory but have no record in the log, now empty at their old offset.
    empty_queues: list[str]
    # Queues that are lost: the log has no record for them, and the old files do not show their offset.
    dropped_queues: list[str]
    # Where the old directories are; empty when there were none or they were deleted.
    kept: list[str]
    # Damage of the log, which a rebuild cannot repair.
    findings: list[Finding]


def rebuild_store(
    root: Path,
    properties: Mapping[str, str] | None = None,
    *,
    drop_old: bool = False,
    progress: Progress | None = None,
    commitlog: Path | None = None,
    disk: FileSystem | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Rebuild consume queues and index; sizes come from `properties` (Java keys), otherwise from the old files.

    The store must not be open. `progress` counts every byte of the log three times: read, written from, verified.
    """
    disk = disk or LocalFileSystem()
    paths = StorePaths(root, commitlog)
    check_is_store(disk, paths)
    options = resolve_options(disk, paths, properties or {})
    check_index_size(disk, paths, options, properties or {})
    lock = disk.lock(paths.lock)
    try:
        return _Rebuild(paths, options, disk, clock or SystemClock(), progress).run(drop_old=drop_old)
    finally:
        lock.release()


def check_index_size(disk: FileSystem, paths: StorePaths, options: StoreOptions, properties: Mapping[str, str]) -> None:
    """Refuse to guess: the size of an index file does not always determine slots and entries."""
    if not options.index_enabled or {"maxHashSlotNum", "maxIndexNum"} & set(properties):
        return
    sizes = {disk.size(paths.index / name) for name in disk.list(paths.index) if name.isdigit()}
    if sizes and file_bytes(options.index_slots, options.index_entries) not in sizes:
        raise StoreLayoutError(
            f"{paths.index}: files of {sorted(sizes)[-1]} bytes do not show how many slots and entries they have",
            hint="pass --option maxHashSlotNum=... and --option maxIndexNum=... with the broker's values",
        )


class _Rebuild:
    """One rebuild, with the lock held."""

    def __init__(
        self, paths: StorePaths, options: StoreOptions, disk: FileSystem, clock: Clock, progress: Progress | None
    ) -> None:
        self._paths = paths
        self._options = options
        self._disk = disk
        self._clock = clock
        self._progress = progress
        self._staging = Staging(paths, disk, clock, with_index=options.index_enabled)
        self._staged = self._staging.paths

    def run(self, *, drop_old: bool) -> RebuildReport:
        """Write, verify, swap."""
        self._staging.remove()
        try:
            scan, empty, dropped = self._write()
            report = self._verify(scan, empty, dropped)
        except BaseException:
            self._staging.remove()
            raise
        kept = self._staging.swap()
        if drop_old:
            for path in kept:
                remove_tree(self._disk, path)
            kept = []
        return msgspec.structs.replace(report, kept=[str(path) for path in kept])

    def _write(self) -> tuple[LogScan, list[str], list[str]]:
        options, disk = self._options, self._disk
        chain = make_log_chain(disk, self._paths.commitlog, options.commitlog_segment_bytes)
        queues = Queues(disk, self._staged.consumequeue, options.consumequeue_segment_bytes)
        index = None
        if options.index_enabled:
            index = Index(disk, self._staged.index, options.index_slots, options.index_entries, self._clock)
        removed = RemovedTopics(disk, self._paths.removed)
        dispatch = Dispatch(queues, index, parse_delay_levels(options.delay_levels), removed)
        try:
            chain.load(writable=False)
            removed.load(chain.start)
            if not chain.segments:
                raise StoreError(f"{self._paths.commitlog} is empty, there is nothing to rebuild from")
            self._staging.make()
            scan = scan_log(chain, chain.start, progress=self._progress)
            dispatch.run(chain, chain.start, scan.end, scan.damage, self._progress)
            empty, dropped = carry_empty_queues(disk, self._paths, queues)
            queues.sync()
            if index is not None:
                index.sync()
            self._staging.sync()
            return scan, empty, dropped
        finally:
            chain.close()
            queues.close()
            if index is not None:
                index.close()

    def _verify(self, scan: LogScan, empty: list[str], dropped: list[str]) -> RebuildReport:
        options = self._options
        sizes = {
            "mappedFileSizeCommitLog": str(options.commitlog_segment_bytes),
            "mappedFileSizeConsumeQueue": str(options.consumequeue_segment_bytes),
            "maxHashSlotNum": str(options.index_slots),
            "maxIndexNum": str(options.index_entries),
            "messageDelayLevel": options.delay_levels,
        }
        with ReadOnlyStore(self._paths.root, sizes, paths=self._staged, disk=self._disk) as store:
            report = verify_opened(store, self._progress, known=scan)
        for finding in report.findings:
            if finding.kind in (Kind.QUEUE, Kind.INDEX) and finding.level is Level.ERROR:
                raise StoreError(
                    f"the rebuilt files do not agree with the log ({finding.path}: {finding.reason})",
                    hint="the store is unchanged; is something else writing to it?",
                )
        about_log = (Kind.DAMAGE, Kind.TORN_TAIL, Kind.LOST, Kind.RECORD)
        return RebuildReport(
            root=report.root,
            records=scan.records,
            log_start=scan.start,
            log_end=scan.end,
            queues=report.queues,
            queue_entries=report.queue_entries,
            index_files=report.index_files,
            index_entries=report.index_entries,
            empty_queues=empty,
            dropped_queues=dropped,
            kept=[],
            findings=[finding for finding in report.findings if finding.kind in about_log],
        )


def carry_empty_queues(disk: FileSystem, paths: StorePaths, queues: Queues) -> tuple[list[str], list[str]]:
    """Keep the offset of queues whose records have all expired: a queue that restarted at 0 would lose messages.

    A consumer that has read up to offset 500 would wait for 500 while new messages arrive at 0, 1, 2.
    """
    empty: list[str] = []
    dropped: list[str] = []
    # Judged by the old files: the new queues may get another segment size.
    with ReadOnlyStore(paths.root, paths=paths, disk=disk) as old:
        for (topic, queue_id), before in sorted(old.queues.items()):
            if queues.get(topic, queue_id) is not None or before.max_offset == 0:
                continue
            last = before.entry(before.max_offset - 1)
            name = f"{topic}/{queue_id}"
            expired = last is not None and (last.size == FILLER_SIZE or last.position < old.log_start)
            if not expired:
                dropped.append(name)
                continue
            queue = queues.get_or_make(topic, queue_id)
            queue.start_at(before.max_offset - 1)
            queue.add(0, FILLER_SIZE, 0)
            empty.append(name)
    return empty, dropped


class Staging:
    """New consume queues and index, in directories beside the old ones until they take their places."""

    def __init__(self, paths: StorePaths, disk: FileSystem, clock: Clock, *, with_index: bool) -> None:
        self._disk = disk
        self._clock = clock
        self._abort = paths.abort
        self.paths = StorePaths(paths.root, paths.commitlog)
        self.paths.consumequeue = _stage(paths.consumequeue)
        self.paths.index = _stage(paths.index)
        # Without an index, the old index files are left alone.
        self._parts = [(self.paths.consumequeue, paths.consumequeue)]
        if with_index:
            self._parts.append((self.paths.index, paths.index))

    def make(self) -> None:
        """Create the directories."""
        for staged, _ in self._parts:
            self._disk.make_directory(staged)

    def sync(self) -> None:
        """Return when the names in the directories are on the disk."""
        for staged, _ in self._parts:
            self._disk.sync_directory(staged)

    def swap(self) -> list[Path]:
        """Put the new directories in place; returns where the old ones are now."""
        abort = AbortMarker(self._disk, self._abort)
        was_set = abort.is_set()
        if not was_set:
            abort.set()
        self._disk.remove(self.paths.queue_ends)  # it describes the old files
        kept = []
        stamp = datetime.fromtimestamp(self._clock.now_ms() / 1000).strftime("%Y%m%d%H%M%S")
        for staged, path in self._parts:
            if self._disk.exists(path):
                old = self._find_free(path, stamp)
                self._disk.rename(path, old)
                kept.append(old)
            self._disk.rename(staged, path)
        if not was_set:
            abort.clear()
        return kept

    def _find_free(self, path: Path, stamp: str) -> Path:
        for suffix in ("", *(f"-{number}" for number in range(1, 1000))):
            free = path.with_name(f"{path.name}{OLD_SUFFIX}{stamp}{suffix}")
            if not self._disk.exists(free):
                return free
        raise StoreError(f"{path}: too many old directories beside it", hint="delete the ones you no longer need")

    def remove(self) -> None:
        """Delete staged files, and leftovers of an earlier rebuild."""
        for path in (self.paths.consumequeue, self.paths.index):
            remove_tree(self._disk, path)


def _stage(path: Path) -> Path:
    return path.with_name(path.name + STAGING_SUFFIX)


def remove_tree(disk: FileSystem, path: Path) -> None:
    """Delete a directory and its content; a missing one is not an error."""
    if not disk.exists(path):
        return
    for name in disk.list(path):
        if disk.is_directory(path / name):
            remove_tree(disk, path / name)
        else:
            disk.remove(path / name)
    disk.remove_directory(path)
