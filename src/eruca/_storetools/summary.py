"""A summary of a store: sizes, topics, offsets, index fill, tables. Of the log only the tail is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from eruca._store.filesystem import FileSystem
from eruca._store.jsonfile import FileDamaged, JsonFile
from eruca._store.layout import StorePaths
from eruca._store.log.chain import Chain
from eruca._store.log.damage import DamageList
from eruca._store.log.scan import Damage, scan_log
from eruca._store.tables.tables import decode_table
from eruca._storetools.readonly import Finding, Findings, Kind, ReadOnlyStore
from eruca._wire import fastjson
from eruca._wire.bodies import ConsumerOffsets, DelayOffsets, GroupConfigTable, JsonBody, TopicConfigTable
from eruca._wire.record import InvalidView, RecordView
from eruca.errors import StoreIOError


class LogSummary(msgspec.Struct, frozen=True):
    """The commit log."""

    segments: int
    segment_bytes: int
    start: int
    end: int
    first_store_time: int
    last_store_time: int
    # Why the bytes at `end` are not a record; empty when nothing was written there.
    torn: str


class QueueSummary(msgspec.Struct, frozen=True):
    """One queue: offsets from `min_offset` up to, but excluding, `max_offset`."""

    topic: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    segments: int
    last_position: int


class TopicSummary(msgspec.Struct, frozen=True):
    """All queues of a topic together."""

    topic: str
    queues: int
    messages: int


class IndexSummary(msgspec.Struct, frozen=True):
    """One index file."""

    name: str
    entries: int
    entries_max: int
    used_slots: int
    slots: int
    begin_time: int
    end_time: int
    begin_position: int
    end_position: int


class CheckpointSummary(msgspec.Struct, frozen=True):
    """Store times up to which each part was known to be on the disk."""

    log_time: int
    queue_time: int
    index_time: int


class TableSummary(msgspec.Struct, frozen=True):
    """One JSON table; brokers compare the version to find the newer one."""

    name: str
    bytes: int
    entries: int
    version_counter: int | None
    version_time: int | None
    has_backup: bool
    problem: str


class StoreSummary(msgspec.Struct, frozen=True):
    """Everything `eruca store stat` shows."""

    root: str
    log: LogSummary
    consumequeue_segment_bytes: int
    messages: int
    topics: list[TopicSummary]
    queues: list[QueueSummary]
    index: list[IndexSummary]
    checkpoint: CheckpointSummary | None
    # There is an abort marker: the store is open in a broker, or the last one did not stop cleanly.
    aborted: bool
    tables: list[TableSummary]
    # Ranges that earlier runs found unreadable.
    damage: list[Damage]
    findings: list[Finding]


def describe_store(
    root: Path,
    properties: Mapping[str, str] | None = None,
    *,
    commitlog: Path | None = None,
    disk: FileSystem | None = None,
) -> StoreSummary:
    """Examine a store without changing it; it may be open in a running broker."""
    with ReadOnlyStore(root, properties, paths=StorePaths(root, commitlog), disk=disk) as store:
        log = summarize_log(store)
        queues = [
            QueueSummary(
                topic=queue.topic,
                queue=queue.queue_id,
                min_offset=queue.min_offset,
                max_offset=queue.max_offset,
                messages=queue.max_offset - queue.min_offset,
                segments=len(queue.chain.segments),
                last_position=queue.end_position,
            )
            for _, queue in sorted(store.queues.items())
        ]
        tables = check_tables(store)
        checkpoint = store.checkpoint
        damage = DamageList(store.disk, store.paths.damage)
        damage.load()
        return StoreSummary(
            root=str(root),
            log=log,
            consumequeue_segment_bytes=store.options.consumequeue_segment_bytes,
            messages=sum(queue.messages for queue in queues),
            topics=_sum_topics(queues),
            queues=queues,
            index=[
                IndexSummary(
                    name=file.path.name,
                    entries=count - 1,
                    entries_max=file.entries_max - 1,
                    used_slots=file.used_slots,
                    slots=file.slots,
                    begin_time=file.begin_time,
                    end_time=file.end_time,
                    begin_position=file.begin_position,
                    end_position=file.end_position,
                )
                for file, count in zip(store.index_files, store.index_counts, strict=True)
            ],
            checkpoint=None
            if checkpoint is None
            else CheckpointSummary(checkpoint.log_time, checkpoint.queue_time, checkpoint.index_time),
            aborted=store.aborted,
            tables=tables,
            damage=damage.items,
            findings=store.findings.items,
        )


def measure_log(
    root: Path,
    properties: Mapping[str, str] | None = None,
    *,
    commitlog: Path | None = None,
    disk: FileSystem | None = None,
) -> int:
    """How many bytes of the commit log a walk will read, for a progress bar."""
    with ReadOnlyStore(root, properties, paths=StorePaths(root, commitlog), disk=disk) as store:
        log = summarize_log(store)
        return max(0, log.end - log.start)


def summarize_log(store: ReadOnlyStore) -> LogSummary:
    """Find where the log begins and ends from its first record and its tail."""
    segments = list(store.iter_segments())
    first = store.inspect(store.log_start) if segments else None
    end, last_time, torn = _find_log_end(store, store.runs[-1]) if segments else (0, 0, "")
    return LogSummary(
        segments=len(segments),
        segment_bytes=store.options.commitlog_segment_bytes,
        start=store.log_start,
        end=end,
        first_store_time=first.store_timestamp if isinstance(first, RecordView) else 0,
        last_store_time=last_time,
        torn=torn,
    )


def _find_log_end(store: ReadOnlyStore, run: Chain) -> tuple[int, int, str]:
    """The end of the log, the time of its last record, and why the bytes after it are not a record."""
    # The newest record that a queue points at is near the end; without queues, the last segment in use is walked.
    start = -1
    for queue in store.queues.values():
        entry = queue.entry(queue.max_offset - 1)
        if entry is not None and entry.position > start:
            segment = run.find(entry.position)
            if segment is not None and isinstance(store.inspect(entry.position), RecordView):
                start = entry.position
    if start < 0:
        start = run.start
        for segment in reversed(run.segments):
            view = segment.inspect(segment.start)
            if not (isinstance(view, InvalidView) and view.empty):
                start = segment.start
                break
    scan = scan_log(run, start, check_crc=False, search_after_empty=False)
    return scan.end, scan.last_store_time, scan.torn


def _sum_topics(queues: list[QueueSummary]) -> list[TopicSummary]:
    sums: dict[str, list[int]] = {}
    for queue in queues:
        counts = sums.setdefault(queue.topic, [0, 0])
        counts[0] += 1
        counts[1] += queue.messages
    return [TopicSummary(topic, *counts) for topic, counts in sorted(sums.items())]


# --- tables ---------------------------------------------------------------------------------------------------------

_TABLE_TYPES: dict[str, type[JsonBody]] = {
    "topics.json": TopicConfigTable,
    "subscriptionGroup.json": GroupConfigTable,
    "consumerOffset.json": ConsumerOffsets,
    "delayOffset.json": DelayOffsets,
}


def check_tables(store: ReadOnlyStore) -> list[TableSummary]:
    """Read every JSON file under config/; an unreadable one is an error, or a warning if its backup is good."""
    names = store.disk.list(store.paths.config)
    found = {name.removesuffix(".bak") for name in names if name.removesuffix(".bak").endswith(".json")}
    return [_check_table(store, name, names, store.findings) for name in sorted(found)]


def _check_table(store: ReadOnlyStore, name: str, names: list[str], findings: Findings) -> TableSummary:
    path = store.paths.config / name
    backup = path.with_name(f"{name}.bak")
    has_backup = backup.name in names
    table, problem = _read_table(store.disk, path) if name in names else (None, "missing, there is only its backup")
    if problem:
        rescue, backup_problem = _read_table(store.disk, backup) if has_backup else (None, "there is no backup")
        if backup_problem:
            hint = "repair one of them by hand, or move both away to start with an empty table"
            findings.add_error(Kind.TABLE, path, f"{problem}; {backup.name}: {backup_problem}", hint=hint)
        else:
            findings.add_warning(Kind.TABLE, path, problem, hint=f"{backup.name} is good and will be used instead")
            table = rescue
    version = getattr(table, "data_version", None)
    return TableSummary(
        name=name,
        bytes=store.disk.size(path) if name in names else 0,
        entries=_count_entries(table),
        version_counter=version.counter if version else None,
        version_time=version.timestamp if version else None,
        has_backup=has_backup,
        problem=problem,
    )


def _read_table(disk: FileSystem, path: Path) -> tuple[Any, str]:
    """The table and an empty problem, or None and the problem."""
    table_type = _TABLE_TYPES.get(path.name.removesuffix(".bak"))
    decode: Callable[[bytes], Any] = fastjson.parse if table_type is None else partial(decode_table, table_type)
    try:
        return JsonFile(disk, path, decode).read(), ""
    except (FileDamaged, StoreIOError) as error:
        return None, str(error)


def _count_entries(table: Any) -> int:
    for field in ("topic_config_table", "subscription_group_table", "offset_table"):
        if hasattr(table, field):
            return len(getattr(table, field))
    return len(table) if isinstance(table, dict | list) else 0
