"""`fsck`: checks many stores at once, as `eruca store verify` does with one.

    log       every record with its CRC, ranges that are not records, missing segments, a torn end
    offsets   every queue has each offset once, without gaps
    queues    each entry against its record, each record against its entry
    index     chains, slots and header of each file, each entry against its record, each record against its entries
    files     names, sizes, tables, the checkpoint

Each check is a function from frames to a frame of findings. The stores are not changed, and brokers may have them open:
a log is checked up to where it ended when the job started, and entries of later records are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from eruca._spark.pipelines.directories import Directory
from eruca._spark.pipelines.rebuild import derive_entries
from eruca._spark.pipelines.summary import JobSummary, count_bad, count_rows
from eruca._spark.pipelines.tracking import track_job
from eruca._spark.store.checks import ERROR, WARNING, check_index, check_log, check_offsets, check_queues
from eruca._spark.store.datasource import NAME, encode_paths
from eruca._spark.store.entryrows import (
    INDEX_ROWS,
    QUEUE_ROWS,
    IndexFileName,
    QueueFile,
    make_arrow,
    read_index_rows,
    read_queue_rows,
)
from eruca._spark.store.logfiles import StoreLog
from eruca._store.queues.consumequeue import ENTRY_BYTES
from eruca._storetools.readonly import Kind, ReadOnlyStore
from eruca._storetools.summary import check_tables
from eruca._wire.record import InvalidView, inspect_record
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDINGS = "store string, level string, kind string, path string, position bigint, length bigint, reason string"
# The number of findings of each kind and store that a summary lists; the frame and the output have all of them.
_NAMED_MAX = 20
# How much a task reads of the derived files, most of which are small.
_TASK_BYTES = 16 * 1024 * 1024
_LOG_COLUMNS = (
    "broker string, topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, "
    "storeTimestamp timestamp, transactionState string, properties map<string,string>, crcOk boolean"
)
_ENTRY_COLUMNS = (
    "broker string, topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, "
    "storeTimestamp timestamp, tagsCode bigint, hasEntry boolean"
)
_KEY_COLUMNS = "broker string, topic string, physicalOffset bigint, storeTimestamp timestamp, keyHashes array<int>"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the driver knows about a store before the job."""

    store: str
    log_start: int
    log_end: int
    segment_bytes: int
    is_open: bool
    delay_levels: str
    queue_files: tuple[QueueFile, ...]
    index_files: tuple[IndexFileName, ...]


# -- frames of stores --------------------------------------------------------------------------------------------------


class StoreFrames:
    """The frames that the checks read, for some stores."""

    def __init__(self, session: SparkSession, facts: Sequence[StoreFacts]) -> None:
        self._session = session
        self._facts = facts
        known = [(each.store, each.log_start, each.log_end, each.segment_bytes, each.is_open) for each in facts]
        self._stores = F.broadcast(
            session.createDataFrame(
                known, "store string, logStart bigint, logEnd bigint, segmentBytes bigint, isOpen boolean"
            )
        )

    def read_log(self, columns: str) -> Any:
        """Return the records and damaged ranges of all logs, up to where they ended."""
        reader = self._session.read.format(NAME).schema(columns).option("onDamage", "report")
        # Stores rarely differ in this; if they do, wrong codes of delayed messages are reported less severely.
        reader = reader.option("messageDelayLevel", self._facts[0].delay_levels)
        reader = reader.option("path", encode_paths([each.store for each in self._facts]))
        records = reader.load().withColumnRenamed("broker", "store")
        return records.join(self._stores, "store").where(F.col("physicalOffset") < F.col("logEnd"))

    def read_records(self) -> Any:
        """Return the columns of every record that `check_log` needs."""
        return self.read_log(_LOG_COLUMNS)

    def read_entries(self) -> Any:
        """Return the entries that the consume queues should have according to the logs."""
        return derive_entries(self.read_log(_ENTRY_COLUMNS), more=("store", "storeTimestamp", "isOpen"))

    def read_keys(self) -> Any:
        """Return the keys that the index should have according to the logs, for stores that have an index."""
        indexed = [each.store for each in self._facts if each.index_files]
        keys = self.read_log(_KEY_COLUMNS).where(F.col("topic").isNotNull() & F.col("store").isin(indexed))
        return keys.where(F.size("keyHashes") > 0)

    def read_queue_entries(self) -> Any:
        """Return every entry of every consume queue."""
        return self._read([each.queue_files for each in self._facts], read_queue_rows, QUEUE_ROWS)

    def read_index_entries(self) -> Any:
        """Return every entry of every index file."""
        return self._read([each.index_files for each in self._facts], read_index_rows, INDEX_ROWS)

    def _read(self, files: Sequence[Sequence[Any]], read: Any, columns: str) -> Any:
        every = [file for own in files for file in own]
        tasks = sum(file.size for file in every) // _TASK_BYTES + 1
        numbers = self._session.range(len(every), numPartitions=max(1, min(len(every), tasks)))

        def read_some(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                yield from read([every[number] for number in batch.column("id").to_pylist()])

        return numbers.mapInArrow(read_some, columns).join(self._stores, "store")

    def check_files(self) -> Any:
        """Check names, sizes, tables, the checkpoint and the ends of logs, with one task per store."""
        stores = [each.store for each in self._facts]
        numbers = self._session.range(len(stores), numPartitions=len(stores))

        def check(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    yield pa.RecordBatch.from_pylist(look_at_files(stores[number]), make_arrow(FINDINGS))

        return numbers.mapInArrow(check, FINDINGS)


def look_at_files(store: str) -> list[dict[str, Any]]:
    """Return findings, as rows, that do not require reading the whole log of a store."""
    with ReadOnlyStore(Path(store)) as opened:
        check_tables(opened)
        if opened.aborted:
            opened.findings.add_warning(
                Kind.OPEN, opened.paths.abort, "a broker has the store open, or the last one did not stop cleanly"
            )
        with StoreLog(Path(store)) as log:
            end = max(opened.log_start, log.find_bounds()[1])
        segment = opened.find_segment(end)
        if segment is not None:
            view = inspect_record(segment.buffer, end - segment.start, segment.size, True, end)
            if isinstance(view, InvalidView) and not view.empty:
                opened.findings.add_error(
                    Kind.TORN_TAIL,
                    segment.path,
                    f"the last record is torn: {view.reason} (byte {end - segment.start} of the file)",
                    position=end,
                )
        return [
            {
                "store": store,
                "level": finding.level.value,
                "kind": finding.kind.value,
                "path": finding.path,
                "position": finding.position,
                "length": finding.length,
                "reason": finding.reason,
            }
            for finding in opened.findings.items
        ]


def learn_facts(store: str, properties: Mapping[str, str]) -> StoreFacts:
    """Return where the log of a store starts and ends now, and which files are derived from it."""
    root = Path(store)
    with StoreLog(root) as log:
        start, end = log.find_bounds()
        segment_bytes = log.segment_bytes
    with ReadOnlyStore(root, properties) as opened:
        queue_files = tuple(
            QueueFile(
                store,
                str(segment.path),
                topic,
                queue_id,
                segment.start // ENTRY_BYTES,
                segment.size,
                segment.end > end_byte,
            )
            for (topic, queue_id), queue in sorted(opened.queues.items())
            for end_byte in [queue.max_offset * ENTRY_BYTES]
            for segment in queue.chain.segments
        )
        index_files = tuple(
            IndexFileName(store, str(file.path), file.slots, file.entries_max, opened.aborted)
            for file in opened.index_files
        )
        return StoreFacts(
            store,
            start,
            end,
            segment_bytes,
            opened.aborted,
            opened.options.delay_levels,
            queue_files,
            index_files,
        )


def find_faults(session: SparkSession, directories: Sequence[str], properties: Mapping[str, str] | None = None) -> Any:
    """Return all findings in some stores, as a frame: store, level, kind, path, position, length, reason."""
    if not directories:
        raise ConfigError("no store is given")
    facts = [learn_facts(directory, properties or {}) for directory in directories]
    frames = StoreFrames(session, facts)
    found = [frames.check_files(), check_log(frames.read_records())]
    entries = frames.read_entries()
    found += [check_offsets(entries), check_queues(entries, frames.read_queue_entries())]
    if any(each.index_files for each in facts):
        found.append(check_index(frames.read_keys(), frames.read_index_entries()))
    return reduce(lambda one, other: one.unionByName(other), found)


# -- the job -----------------------------------------------------------------------------------------------------------


def run_fsck(
    session: SparkSession,
    directories: Sequence[str],
    *,
    out: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> JobSummary:
    """Check stores; `out` is a directory for all findings as Parquet. The summary lists the first of each kind.

    `properties` (Java keys) set the sizes of files where they cannot be determined from the files themselves.
    """
    # Workers may have another working directory.
    directories = [str(Path(directory).absolute()) for directory in directories]
    with track_job(session, "fsck") as summary:
        findings = find_faults(session, directories, properties).persist()
        try:
            if out is not None:
                findings.write.mode("overwrite").parquet(Directory(out).address)
                summary.outputs["findings"] = out
            counted = {
                (row["level"], row["kind"]): row["count"] for row in findings.groupBy("level", "kind").count().collect()
            }
            first = Window.partitionBy("store", "kind").orderBy("level", "path", "position")
            named = findings.withColumn("at", F.row_number().over(first)).where(F.col("at") <= _NAMED_MAX)
            rows = named.orderBy("store", "level", "kind", "path", "position").collect()
        finally:
            findings.unpersist()
        for (level, kind), count in sorted(counted.items()):
            if level == ERROR:
                count_bad(summary, kind, count)
        summary.facts["stores"] = len(directories)
        summary.facts["errors"] = sum(count for (level, _), count in counted.items() if level == ERROR)
        summary.facts["warnings"] = sum(count for (level, _), count in counted.items() if level == WARNING)
        for row in rows:
            where = "" if row["position"] is None else f" (position {row['position']})"
            summary.warnings.append(f"{row['level']} {row['kind']} {row['path']}: {row['reason']}{where}")
        _count_records(session, directories, summary)
    return summary


def _count_records(session: SparkSession, directories: Sequence[str], summary: JobSummary) -> None:
    reader = session.read.format(NAME).schema("size int, storeTimestamp timestamp").option("onDamage", "skip")
    time = F.unix_millis("storeTimestamp")
    records = reader.option("path", encode_paths(directories)).load()
    (row,) = records.agg(F.count("*"), F.sum("size"), F.min(time), F.max(time)).collect()
    count_rows(summary, row[0], row[1] or 0, row[2], row[3])
