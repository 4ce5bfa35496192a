"""Verification: the whole commit log is read, and everything derived from it is compared with it.

The log is walked twice: once for damage, including bodies, and once record by record for the derived files. The second
walk checks both directions at once. Each record is looked up in its consume queue, and the entries proven this way are
counted; only a queue whose count is wrong is walked entry by entry to name the bad ones. Index entries are
in log order, so the index is read in parallel as a second sequence. Memory use is constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from eruca._ground.clock import SystemClock
from eruca._ground.config import parse_delay_levels
from eruca._ground.limits import RECORD_TOPIC_BYTES_MAX
from eruca._store.filesystem import FileSystem
from eruca._store.layout import StorePaths
from eruca._store.log.chain import Chain
from eruca._store.log.scan import Damage, LogScan, Progress, RecordFacts, iter_facts, scan_log
from eruca._store.log.segment import Segment
from eruca._store.queues.consumequeue import ENTRY, ENTRY_BYTES, FILLER_SIZE, ConsumeQueue
from eruca._store.queues.dispatch import Dispatch
from eruca._store.queues.index import Index
from eruca._store.queues.queues import Queues
from eruca._store.queues.removed import RemovedTopics
from eruca._store.recovery.recovery import find_crash_start, keep_promise
from eruca._storetools.readonly import Finding, Kind, ReadOnlyStore
from eruca._storetools.summary import check_tables
from eruca._storetools.verifyindex import IndexCheck
from eruca._wire.digest import index_prefix
from eruca._wire.names import SCHEDULE_TOPIC, check_topic
from eruca._wire.properties import INNER_MULTI_DISPATCH, get_property
from eruca._wire.record import InvalidView, RecordView
from eruca.errors import InvalidName, StoreError

_REBUILD_HINT = "`eruca store rebuild` rebuilds it from the commit log"
_OPEN_HINT = "the next start repairs it"
_RAW_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()
# A tags code at or below this is an address in consumequeue_ext (enableConsumeQueueExt), which only Java writes.
_EXT_ADDRESS_MAX = -(2**31) - 1
# A running broker may be writing the last record; it is read again before it is called torn.
_TAIL_LOOKS = 3


class VerifyReport(msgspec.Struct, frozen=True):
    """What a verification checked and found."""

    root: str
    clean: bool
    records: int
    log_start: int
    log_end: int
    first_store_time: int
    last_store_time: int
    queues: int
    queue_entries: int
    index_files: int
    index_entries: int
    errors: int
    warnings: int
    # The first errors and warnings, up to a limit for each kind; the rest are only counted.
    findings: list[Finding]
    findings_left_out: int


def verify_store(
    root: Path,
    properties: Mapping[str, str] | None = None,
    *,
    progress: Progress | None = None,
    commitlog: Path | None = None,
    disk: FileSystem | None = None,
) -> VerifyReport:
    """Check every record, entry and table of a store without changing it; it may be open in a running broker.

    `progress` counts every byte of the log twice.
    """
    with ReadOnlyStore(root, properties, paths=StorePaths(root, commitlog), disk=disk) as store:
        return verify_opened(store, progress)


def verify_opened(
    store: ReadOnlyStore, progress: Progress | None = None, *, known: LogScan | None = None
) -> VerifyReport:
    """Check a store opened for reading; `known` is a scan of its whole log, if one was made already."""
    walk = _Walk(store)
    walk.run(progress, known)
    check_tables(store)
    findings = store.findings
    if store.aborted:
        findings.add_warning(
            Kind.OPEN, store.paths.abort, "the store is open in a broker, or the last one did not stop cleanly"
        )
    return VerifyReport(
        root=str(store.paths.root),
        clean=findings.errors == 0,
        records=walk.records,
        log_start=store.log_start,
        log_end=walk.log_end,
        first_store_time=walk.first_store_time,
        last_store_time=walk.last_store_time,
        queues=len(store.queues),
        queue_entries=sum(queue.max_offset - queue.min_offset for queue in store.queues.values()),
        index_files=len(store.index_files),
        index_entries=sum(count - 1 for count in store.index_counts),
        errors=findings.errors,
        warnings=findings.warnings,
        findings=findings.items,
        findings_left_out=findings.left_out,
    )


class _Missing:
    """Records at the end of a queue that have no entry."""

    __slots__ = ("count", "first_offset", "first_position", "last_offset")

    def __init__(self, offset: int, position: int) -> None:
        self.count = 0
        self.first_offset = self.last_offset = offset
        self.first_position = position


class _Walk:
    """One pass over the commit log."""

    def __init__(self, store: ReadOnlyStore) -> None:
        options = store.options
        self._store = store
        self._findings = store.findings
        # Only used to compute what a record's entries must be; it never writes.
        self._dispatch = Dispatch(
            Queues(store.disk, store.paths.consumequeue, options.consumequeue_segment_bytes),
            Index(store.disk, store.paths.index, options.index_slots, options.index_entries, SystemClock()),
            parse_delay_levels(options.delay_levels),
            self._load_removed(store),
        )
        # For each topic, the hash prefix of its index entries, and whether a queue can have that name.
        self._topics: dict[bytes, tuple[str, int, bool]] = {}
        self._proven: dict[tuple[str, int], int] = {}
        self._missing: dict[tuple[str, int], _Missing] = {}
        self._damage: list[Damage] = []
        self._index = IndexCheck(store, self._damage) if store.index_files else None
        self.records = 0
        self.log_end = store.log_start
        self.first_store_time = 0
        self.last_store_time = 0

    @staticmethod
    def _load_removed(store: ReadOnlyStore) -> RemovedTopics:
        removed = RemovedTopics(store.disk, store.paths.removed)
        removed.load(store.log_start)
        return removed

    def run(self, progress: Progress | None, known: LogScan | None) -> None:
        """Walk the log, then check the totals of queues and index."""
        runs = self._store.runs
        for number, run in enumerate(runs):
            if number:
                end = runs[number - 1].end
                self._damage.append(Damage(end, run.start - end, "segments are missing"))  # reported when listed
            scan = known or scan_log(run, run.start, progress=progress)
            if number + 1 < len(runs):
                self._close_run(run, scan)
            else:
                scan = self._close_log(run, scan)
            self._add(scan)
            self._check_records(run, scan, progress)
        for queue in self._store.queues.values():
            self._close_queue(queue)
        self._report_missing()
        if self._index is not None:
            self._index.finish(self.log_end)

    def _check_records(self, run: Chain, scan: LogScan, progress: Progress | None) -> None:
        reported = run.start
        for records in iter_facts(run, run.start, scan.end, scan.damage):
            for facts in records:
                self._check_record(facts)
            if progress is not None:
                progress(records[-1][0] - reported)
                reported = records[-1][0]

    def _add(self, scan: LogScan) -> None:
        for damage in scan.damage:
            self._note_damage(damage)
        self.records += scan.records
        self.first_store_time = self.first_store_time or scan.first_store_time
        self.last_store_time = scan.last_store_time or self.last_store_time
        self.log_end = scan.end

    # -- the log -----------------------------------------------------------------------------------------------------

    def _note_damage(self, damage: Damage) -> None:
        self._damage.append(damage)
        segment = self._store.find_segment(damage.position)
        place = "" if segment is None else f" (byte {damage.position - segment.start} of the file)"
        self._findings.add_error(
            Kind.DAMAGE,
            self._store.paths.commitlog if segment is None else segment.path,
            f"{damage.reason}{place}; the records after it are good",
            position=damage.position,
            length=damage.length,
        )

    def _close_run(self, run: Chain, scan: LogScan) -> None:
        """The end of a run before a gap is not the end of the log, so an unfinished segment there is damage."""
        if scan.end < run.end:
            self._note_damage(Damage(scan.end, run.end - scan.end, scan.torn or "nothing was written here"))

    def _close_log(self, run: Chain, scan: LogScan) -> LogScan:
        for _ in range(_TAIL_LOOKS):
            if not scan.torn:
                keep_promise(run, scan, self._store.checkpoint)
                return scan
            again = scan_log(run, scan.end)
            if again.end == scan.end:
                break
            scan.records += again.records
            scan.last_store_time = again.last_store_time
            scan.damage.extend(again.damage)
            scan.end, scan.torn = again.end, again.torn
        if keep_promise(run, scan, self._store.checkpoint):
            return scan
        segment = run.find(scan.end)
        assert segment is not None
        self._findings.add_error(
            Kind.TORN_TAIL,
            segment.path,
            f"the last record is torn: {scan.torn} (byte {scan.end - segment.start} of the file)",
            position=scan.end,
            hint="the next start cuts it off; all records before it are good",
        )
        return scan

    # -- consume queues ----------------------------------------------------------------------------------------------

    def _check_record(self, facts: RecordFacts) -> None:
        position, size, encoded, queue_id, queue_offset, sys_flag, store_time, properties = facts
        if encoded not in self._topics:
            self._topics[encoded] = self._learn_topic(encoded, position)
        topic, prefix, may_have_queues = self._topics[encoded]
        tags_code, hashes = self._dispatch.digest(topic, prefix, properties, store_time, sys_flag)
        if self._index is not None and hashes:
            self._index.see(position, hashes, store_time)
        if not may_have_queues or not self._dispatch.wants_entry(topic, queue_id, sys_flag, position):
            return
        key = (topic, queue_id)
        queue = self._store.queues.get(key)
        if queue is None or queue_offset >= queue.max_offset:
            missing = self._missing.get(key)
            if missing is None:
                missing = self._missing[key] = _Missing(queue_offset, position)
            missing.count += 1
            missing.last_offset = queue_offset
            return
        entry = queue.entry(queue_offset)
        if entry is not None and entry.position == position and entry.size == size:
            self._proven[key] = self._proven.get(key, 0) + 1
            if entry.tags_code != tags_code and not _may_have_code(topic, entry.tags_code, store_time):
                self._note_entry(queue, queue_offset, f"tags code {entry.tags_code} instead of {tags_code}", position)
            return
        says = "no entry" if entry is None else f"position {entry.position}, size {entry.size}"
        self._note_entry(queue, queue_offset, f"{says}; its record of {size} bytes is at {position}", position)

    def _learn_topic(self, encoded: bytes, position: int) -> tuple[str, int, bool]:
        topic = encoded.decode("utf-8", "replace")
        try:
            return check_topic(topic, RECORD_TOPIC_BYTES_MAX), index_prefix(topic), True
        except InvalidName as error:
            segment = self._store.find_segment(position)
            self._findings.add_error(
                Kind.RECORD,
                self._store.paths.commitlog if segment is None else segment.path,
                f"no consumer can request this record: {error}",
                position=position,
            )
            return topic, index_prefix(topic), False

    def _note_entry(self, queue: ConsumeQueue, offset: int, reason: str, position: int | None = None) -> None:
        self._findings.add_error(
            Kind.QUEUE, queue.chain.directory, f"offset {offset}: {reason}", position=position, hint=_REBUILD_HINT
        )

    def _close_queue(self, queue: ConsumeQueue) -> None:
        """Walk the entries of a queue if fewer were proven by their records than there are."""
        start = self._store.log_start
        proven = self._proven.get((queue.topic, queue.queue_id), 0)
        if proven == sum(_count_live(segment, queue.max_offset, start) for segment in queue.chain.segments):
            return
        lost: list[int] = []
        seen = False
        for segment in queue.chain.segments:
            first = segment.start // ENTRY_BYTES
            for number, (position, size, _) in enumerate(ENTRY.iter_unpack(memoryview(segment.buffer)), first):
                if number >= queue.max_offset:
                    break
                if size == FILLER_SIZE:
                    if seen:
                        lost.append(number)  # in the middle of a queue: the message is lost
                    continue
                seen = True
                if size > 0 and 0 <= position < start:
                    continue  # its segment expired and was deleted
                if any(item.position <= position < item.end for item in self._damage):
                    lost.append(number)
                    continue
                self._check_entry(queue, number, position, size)
        if lost:
            self._findings.add_error(
                Kind.LOST,
                queue.chain.directory,
                f"{len(lost)} messages are in damaged bytes of the log: offsets {format_ranges(lost)}",
                hint="the others are readable",
            )

    def _check_entry(self, queue: ConsumeQueue, offset: int, position: int, size: int) -> None:
        if size <= 0 or position < 0:
            self._note_entry(queue, offset, f"an empty entry (position {position}, size {size})")
            return
        if position >= self.log_end:
            reason = f"offset {offset}: position {position} is beyond the end of the log ({self.log_end})"
            if self._store.aborted:
                self._findings.add_warning(
                    Kind.QUEUE, queue.chain.directory, reason, position=position, hint=_OPEN_HINT
                )
            else:
                self._note_entry(queue, offset, reason.partition(": ")[2], position)
            return
        view = self._store.inspect(position)
        if not isinstance(view, RecordView):
            what = view.reason if isinstance(view, InvalidView) else "the end of a segment"
            self._note_entry(queue, offset, f"position {position} is not a record: {what}", position)
            return
        found = (view.topic.decode("utf-8", "replace"), view.queue_id, view.queue_offset, view.size)
        if found == (queue.topic, queue.queue_id, offset, size) or self._is_multi_dispatched(queue, position, view):
            return
        self._note_entry(queue, offset, f"position {position} has {found[0]} queue {found[1]} offset {found[2]}")

    def _is_multi_dispatched(self, queue: ConsumeQueue, position: int, view: RecordView) -> bool:
        """Does the record list this queue as an additional one (enableMultiDispatch)?"""
        segment = self._store.find_segment(position)
        assert segment is not None
        names = get_property(bytes(segment.buffer[view.properties_at : view.properties_end]), _RAW_MULTI_DISPATCH)
        return names is not None and queue.topic.encode() in names.split(b",")

    def _report_missing(self) -> None:
        """Report records without an entry: an error, unless the next start dispatches them again anyway."""
        repaired_from = self._find_repair_start()
        for (topic, queue_id), missing in sorted(self._missing.items()):
            directory = self._store.paths.consumequeue / topic / str(queue_id)
            reason = (
                f"{missing.count} records have no entry: offsets {missing.first_offset} to {missing.last_offset}, "
                f"the first at position {missing.first_position}"
            )
            if not self._store.aborted or missing.first_position < repaired_from:
                self._findings.add_error(
                    Kind.QUEUE, directory, reason, position=missing.first_position, hint=_REBUILD_HINT
                )
            elif self._read_max_now(topic, queue_id) <= missing.last_offset:
                self._findings.add_warning(
                    Kind.QUEUE, directory, reason, position=missing.first_position, hint=_OPEN_HINT
                )

    def _read_max_now(self, topic: str, queue_id: int) -> int:
        """The current end of a queue: a broker may have written more during the walk."""
        try:
            queue = self._store.load_queue(topic, queue_id)
        except StoreError:
            return 0
        with_end = queue.max_offset
        queue.close()
        return with_end

    def _find_repair_start(self) -> int:
        """Where the next start of a store that was not closed begins to dispatch again (as recovery decides)."""
        store = self._store
        if not store.runs:
            return 0
        run = store.runs[-1]
        derived_end = max((queue.end_position for queue in store.queues.values()), default=-1)
        found = run.find(derived_end)
        if store.checkpoint is None or found is None:
            return run.start
        return min(found.start, find_crash_start(run, store.checkpoint, with_index=True))


def _count_live(segment: Segment, max_offset: int, log_start: int) -> int:
    """How many entries of a consume-queue segment must have a record in the log."""
    count = max(0, min(segment.size // ENTRY_BYTES, max_offset - segment.start // ENTRY_BYTES))
    entries = ENTRY.iter_unpack(memoryview(segment.buffer)[: count * ENTRY_BYTES])
    return sum(1 for position, size, _ in entries if size <= 0 or (position >= log_start and size != FILLER_SIZE))


def _may_have_code(topic: str, tags_code: int, store_time: int) -> bool:
    """Can a tags code other than ours be right? With other delay levels, and with addresses in consumequeue_ext."""
    return (topic == SCHEDULE_TOPIC and tags_code >= store_time) or tags_code <= _EXT_ADDRESS_MAX


def format_ranges(numbers: list[int], ranges_max: int = 10) -> str:
    """Sorted numbers as `3-5, 9`, truncated after `ranges_max` ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:ranges_max]]
    return ", ".join(texts) + (", ..." if len(ranges) > ranges_max else "")
