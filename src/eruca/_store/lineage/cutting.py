"""Cutting every file of a store back to a position of its log: log, consume queues, index, and files about them."""

from __future__ import annotations

from eruca._ground.clock import Clock
from eruca._store.filesystem import FileSystem
from eruca._store.flush import Flusher
from eruca._store.log.chain import Chain
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import scan_log
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.index import Index
from eruca._store.queues.queueends import EndsFile
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._store.recovery.checkpoint import Checkpoint


class Cutter:
    """Cuts the files of one store. The bytes are set aside elsewhere (`setaside`)."""

    def __init__(
        self,
        disk: FileSystem,
        clock: Clock,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        dispatch: Dispatch,
        flusher: Flusher,
        checkpoint: Checkpoint,
        ends: EndsFile,
        removed: RemovedTopics,
        damage: DamageList,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._flusher = flusher
        self._checkpoint = checkpoint
        self._ends = ends
        self._removed = removed
        self._damage = damage

    def cut_log(self, position: int) -> None:
        """Cut the log and the list of deleted topics, durably; queues and index are not touched."""
        chain = self._log.chain
        chain.settle()
        segment = chain.find(position)
        if position < chain.start or position == 0:
            chain.remove_from(0)
        elif segment is None or (position == segment.start and segment is not chain.segments[0]):
            chain.remove_from(position)
        else:  # the first segment stays even without a record: its name records where the log continues
            chain.remove_from(segment.end)
            chain.zero_from(position)
            segment.mapping.sync()
        self._disk.sync_directory(chain.directory)
        # A topic deleted after the cut counts as deleted at it: records that arrive now are not those that were
        # deleted.
        if self._removed.lower_to(position):
            self._removed.save()

    def prepare_recovery(self, position: int) -> None:
        """Cut the log of a store that is being opened; recovery then brings the rest in line with it."""
        self.cut_log(position)
        self._checkpoint.lower_to(position)
        self._ends.remove()

    def cut_open(self, position: int) -> None:
        """Cut all files of an open store, durably; the caller holds the guard of the flusher."""
        log, flusher, checkpoint = self._log, self._flusher, self._checkpoint
        # First: from here on, a read that fails half-way finds nothing instead of half a record.
        log.show_copied(min(log.readable_end, position))
        self._ends.remove()
        last_time = find_last_time(log.chain, position)
        self._cut_derived(position)
        self.cut_log(position)
        log.open_at(position)
        self._damage.replace_from(position, [], found_ms=self._clock.now_ms())
        self._dispatch.last_damage = None
        flusher.flushed = min(flusher.flushed, position)
        flusher.last_store_time = last_time
        checkpoint.log_time = min(checkpoint.log_time, last_time)
        checkpoint.queue_time = min(checkpoint.queue_time, last_time)
        has_index = self._index is not None and bool(self._index.files)
        checkpoint.index_time = min(checkpoint.index_time, last_time) if has_index else 0
        checkpoint.lower_to(position)
        checkpoint.save()

    def _cut_derived(self, position: int) -> None:
        if position < self._log.start or position == 0:
            self._queues.clear()
            if self._index is not None:
                self._index.clear()
            return
        for queue in self._queues:
            offset = queue.find_position(position)
            if offset < queue.max_offset:
                count = len(queue.chain.segments)
                queue.truncate(offset)
                queue.min_offset = min(queue.min_offset, queue.max_offset)
                if queue.end_position < 0 and self._log.start == 0:
                    queue.destroy()  # only entries for lost messages are left, and their number was a guess
                    continue
                queue.sync()
                if len(queue.chain.segments) != count:
                    self._disk.sync_directory(queue.chain.directory)
        if self._index is not None and self._index.end_position >= position:
            self._index.drop_from(position, self._log.read_time)
            self._index.sync()


def find_last_time(chain: Chain, position: int) -> int:
    """When the last record before a position (a record boundary) was stored; 0 when there is none."""
    for segment in reversed(chain.segments):
        if segment.start < position:
            scan = scan_log(chain, segment.start, check_crc=False, stop=min(position, segment.end))
            if scan.records:
                return scan.last_store_time
    return 0
