"""`rebuild`: consume queues and index from the commit log, in parallel, as the broker's dispatch writes them.

    1  survey: read every record once and check its CRC; count the index entries of each stretch of the log
    2  each segment of each queue is written by one task, from entries that a shuffle brings together
    3  queues with missing or repeated offsets are built again entry by entry, as the broker does
    4  each index file is written by one task: entries are in log order, so the counts determine the file of each entry
    5  the new directories replace the old ones, as with `eruca store rebuild`, or stay in `out`

`eruca store rebuild` does the same in one process. The path of the store must be the same on all nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from eruca._ground.clock import SystemClock
from eruca._ground.config import StoreOptions
from eruca._spark.pipelines.summary import JobSummary, count_bad, count_rows
from eruca._spark.pipelines.tracking import track_job
from eruca._spark.store.datasource import DAMAGE, NAME, encode_paths
from eruca._spark.store.logfiles import StoreLog
from eruca._spark.store.rebuildtasks import (
    INDEXED,
    REPLAYED,
    STAGING_PREFIX,
    WRITTEN,
    IndexWriter,
    QueueReplayer,
    SegmentWriter,
    as_function,
    name_draft,
)
from eruca._store.filesystem import LocalFileSystem
from eruca._store.layout import StorePaths
from eruca._store.log.scan import Damage
from eruca._store.queues.consumequeue import ENTRY_BYTES
from eruca._store.queues.index import name_file
from eruca._store.queues.queues import Queues
from eruca._storetools.readonly import check_is_store, resolve_options
from eruca._storetools.rebuild import Staging, carry_empty_queues, check_index_size, remove_tree
from eruca.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# Index entries are counted for stretches of the log of this size.
_STRETCH_BYTES = 16 * 1024 * 1024
_SURVEY_COLUMNS = (
    "topic string, physicalOffset bigint, size int, storeTimestamp timestamp, crcOk boolean, "
    "properties map<string,string>, keyHashes array<int>"
)
_ENTRY_COLUMNS = (
    "topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, tagsCode bigint, hasEntry boolean"
)
_KEY_COLUMNS = "topic string, physicalOffset bigint, storeTimestamp timestamp, keyHashes array<int>"


@dataclass(slots=True)
class Survey:
    """The result of the first pass over a log."""

    records: int = 0
    bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    # Positions of records whose bodies are damaged.
    bad_positions: list[int] = field(default_factory=list)
    # All ranges that are not good records; adjacent ones are merged.
    damage: list[Damage] = field(default_factory=list)
    # Index entries of each stretch.
    keys: dict[int, int] = field(default_factory=dict)


# -- from frame to frame -----------------------------------------------------------------------------------------------


def derive_entries(records: Any, more: Sequence[str] = ()) -> Any:
    """Return the entries of the consume queues, one row each, from records of `rocketmq-store` with `tagsCode` and
    `hasEntry`. `more` are further columns to keep.
    """
    columns = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode")
    return records.where("hasEntry").select(*columns, *more)


def derive_keys(records: Any) -> Any:
    """Return the keys of the index: one row for each record that has keys, with the hashes of all of them."""
    return records.where(F.col("topic").isNotNull() & (F.size("keyHashes") > 0)).select(
        "physicalOffset", F.unix_millis("storeTimestamp").alias("storeTime"), "keyHashes"
    )


def _divide(column: str, by: int) -> Any:
    """Return a column divided by a number, rounded down; `/` would convert both to floats."""
    return F.expr(f"{column} div {by}")


def survey_records(records: Any, stretch_bytes: int = _STRETCH_BYTES) -> Any:
    """Return one row for each stretch of the log: its size, its number of index entries, and what is damaged."""
    is_bad = F.col("topic").isNull() | ~F.col("crcOk")
    good = F.when(~is_bad, F.lit(1))
    damage = F.struct(
        "physicalOffset",
        "size",
        F.col("topic").isNotNull().alias("isRecord"),
        F.coalesce(F.col("properties")[DAMAGE], F.lit("CRC mismatch")).alias("reason"),
    )
    return records.groupBy(_divide("physicalOffset", stretch_bytes).alias("stretch")).agg(
        F.count(good).alias("records"),
        F.sum(F.when(~is_bad, F.col("size"))).alias("bytes"),
        F.min(F.when(~is_bad, F.unix_millis("storeTimestamp"))).alias("first"),
        F.max(F.when(~is_bad, F.unix_millis("storeTimestamp"))).alias("last"),
        F.sum(F.when(~is_bad, F.size("keyHashes"))).alias("keys"),
        F.collect_list(F.when(is_bad, damage)).alias("damage"),
    )


def read_survey(rows: Iterable[Any]) -> Survey:
    """Combine the rows of `survey_records`."""
    survey = Survey()
    damage: list[Damage] = []
    for row in rows:
        survey.records += row["records"]
        survey.bytes += row["bytes"] or 0
        if row["records"]:
            survey.first_ms = row["first"] if survey.first_ms is None else min(survey.first_ms, row["first"])
            survey.last_ms = row["last"] if survey.last_ms is None else max(survey.last_ms, row["last"])
        if row["keys"]:
            survey.keys[row["stretch"]] = row["keys"]
        for each in row["damage"]:
            damage.append(Damage(each["physicalOffset"], each["size"], each["reason"]))
            if each["isRecord"]:
                survey.bad_positions.append(each["physicalOffset"])
    for each in sorted(damage, key=lambda each: each.position):
        if survey.damage and survey.damage[-1].end == each.position:
            earlier = survey.damage.pop()
            survey.damage.append(Damage(earlier.position, earlier.length + each.length, earlier.reason))
        else:
            survey.damage.append(each)
    return survey


# -- the job -----------------------------------------------------------------------------------------------------------


def run_rebuild(
    session: SparkSession,
    directories: Sequence[str],
    *,
    out: str | None = None,
    properties: Mapping[str, str] | None = None,
    drop_old: bool = False,
) -> JobSummary:
    """Rebuild consume queues and index of stores; file sizes come from `properties` (Java keys) or the old files.

    Without `out`, the stores must not be open, and the old directories are kept next to the new ones unless `drop_old`.
    With `out`, the stores are not changed and may be open: complete records are read. Each of several stores gets a
    directory named after it in `out`.
    """
    # Workers may have another working directory.
    places = [Path(directory).absolute() for directory in directories]
    targets = _name_targets(places, out)
    with track_job(session, "rebuild") as summary:
        for place, target in zip(places, targets, strict=True):
            _Rebuild(session, place, properties or {}, summary).run(target, drop_old=drop_old)
    return summary


def _name_targets(places: Sequence[Path], out: str | None) -> list[Path | None]:
    if not places:
        raise ConfigError("no store is given")
    if out is None:
        return [None] * len(places)
    if len(places) == 1:
        return [Path(out).absolute()]
    names = [place.name for place in places]
    if len(set(names)) < len(names):
        raise ConfigError("two of the stores have the same name", hint="rebuild them one by one, each with its own out")
    return [Path(out).absolute() / name for name in names]


class _Rebuild:
    """The rebuild of one store."""

    def __init__(self, session: SparkSession, root: Path, properties: Mapping[str, str], summary: JobSummary) -> None:
        self._session = session
        self._disk = LocalFileSystem()
        self._summary = summary
        self._paths = StorePaths(root)
        check_is_store(self._disk, self._paths)
        self._options: StoreOptions = resolve_options(self._disk, self._paths, properties)
        check_index_size(self._disk, self._paths, self._options, properties)
        with StoreLog(root) as records:
            # The log is read several times, and a broker may be writing to it.
            _, self._log_end = records.find_bounds()

    def run(self, out: Path | None, *, drop_old: bool) -> None:
        """Write the new files, then put them in place."""
        if out is not None:
            paths = StorePaths(out)
            for path in (paths.consumequeue, paths.index):
                if self._disk.list(path):
                    raise ConfigError(f"{path} is not empty", hint="name another directory for out, or empty it")
            self._write(paths)
            self._summary.outputs[str(self._paths.root)] = str(out)
            return
        lock = self._disk.lock(self._paths.lock)
        try:
            staging = Staging(self._paths, self._disk, SystemClock(), with_index=self._options.index_enabled)
            staging.remove()
            try:
                staging.make()
                self._write(staging.paths)
                staging.sync()
            except BaseException:
                staging.remove()
                raise
            kept = staging.swap()
            for path in kept:
                if drop_old:
                    remove_tree(self._disk, path)
                else:
                    self._summary.outputs[f"old {path.name.partition('.')[0]} of {self._paths.root}"] = str(path)
            self._summary.outputs[str(self._paths.root)] = str(self._paths.root)
        finally:
            lock.release()

    def _write(self, target: StorePaths) -> None:
        survey = read_survey(survey_records(self._read(_SURVEY_COLUMNS, on_damage="report")).collect())
        if not survey.records:
            raise StoreError(f"{self._paths.commitlog} has no record, there is nothing to rebuild from")
        self._note(survey)
        entries = self._write_queues(target, survey)
        queues = Queues(self._disk, target.consumequeue, self._options.consumequeue_segment_bytes)
        try:
            _remove_rests(target.consumequeue)
            queues.load(writable=False)
            empty, dropped = carry_empty_queues(self._disk, self._paths, queues)
            queues.sync()
            facts = self._summary.facts
            facts["queues"] = facts.get("queues", 0) + len(queues)
            for name in empty:
                self._summary.warnings.append(f"{name} has no records left and keeps its offset")
            for name in dropped:
                self._summary.warnings.append(f"{name} has no records and was removed")
        finally:
            queues.close()
        _sync_names(self._disk, target.consumequeue)
        facts["queue entries"] = facts.get("queue entries", 0) + entries
        if self._options.index_enabled:
            self._write_index(target, survey)

    def _note(self, survey: Survey) -> None:
        count_rows(self._summary, survey.records, survey.bytes, survey.first_ms, survey.last_ms)
        for each in survey.damage:
            count_bad(self._summary, each.reason, 1)
            self._summary.warnings.append(
                f"{self._paths.commitlog}: {each.length} bytes at position {each.position} are not a good record: "
                f"{each.reason}"
            )

    def _read(self, columns: str, *, on_damage: str = "skip") -> Any:
        reader = self._session.read.format(NAME).schema(columns).option("onDamage", on_damage)
        reader = reader.option("messageDelayLevel", self._options.delay_levels)
        records = reader.option("path", encode_paths([str(self._paths.root)])).load()
        return records.where(F.col("physicalOffset") < self._log_end)

    def _read_good(self, columns: str, survey: Survey) -> Any:
        records = self._read(columns)
        if not survey.bad_positions:
            return records
        bad = self._session.createDataFrame([(each,) for each in survey.bad_positions], "physicalOffset bigint")
        return records.join(F.broadcast(bad), "physicalOffset", "left_anti")

    # -- consume queues ----------------------------------------------------------------------------------------------

    def _write_queues(self, target: StorePaths, survey: Survey) -> int:
        """Write all queues; returns the number of their entries."""
        segment_bytes = self._options.consumequeue_segment_bytes
        entries = derive_entries(self._read_good(_ENTRY_COLUMNS, survey))
        in_segments = entries.withColumn("segment", F.floor(F.col("queueOffset") / (segment_bytes // ENTRY_BYTES)))
        writer = SegmentWriter(str(target.consumequeue), segment_bytes)
        written = (
            in_segments.groupBy("topic", "queueId", "segment").applyInArrow(as_function(writer), WRITTEN).collect()
        )
        odd = find_odd_queues(written)
        total: int = sum(row["last"] - row["first"] + 1 for row in written if (row["topic"], row["queueId"]) not in odd)
        if odd:
            for topic, queue_id in sorted(odd):
                remove_tree(self._disk, target.consumequeue / topic / str(queue_id))
                self._summary.warnings.append(f"{topic}/{queue_id}: offsets are missing or repeated")
            which = self._session.createDataFrame(sorted(odd), "topic string, queueId int")
            replayer = QueueReplayer(str(target.consumequeue), segment_bytes, survey.damage)
            again = entries.join(F.broadcast(which), ["topic", "queueId"], "left_semi")
            replayed = again.groupBy("topic", "queueId").applyInArrow(as_function(replayer), REPLAYED).collect()
            total += sum(row["entries"] for row in replayed)
        return total

    # -- index -------------------------------------------------------------------------------------------------------

    def _write_index(self, target: StorePaths, survey: Survey) -> None:
        options = self._options
        capacity = options.index_entries - 1
        self._disk.make_directory(target.index)
        shares, bases = share_out(survey.keys, capacity)
        if shares:
            keys = derive_keys(self._read_good(_KEY_COLUMNS, survey)).withColumn(
                "stretch", _divide("physicalOffset", _STRETCH_BYTES)
            )
            files = self._session.createDataFrame(shares, "stretch bigint, file int")
            writer = IndexWriter(str(target.index), options.index_slots, options.index_entries, bases)
            shared = keys.join(F.broadcast(files), "stretch").select("file", "physicalOffset", "storeTime", "keyHashes")
            written = shared.groupBy("file").applyInArrow(as_function(writer), INDEXED).collect()
            self._name_files(target.index, sorted((row["file"], row["beginTime"]) for row in written))
            facts = self._summary.facts
            entries = sum(row["entries"] for row in written)
            if entries != sum(survey.keys.values()):
                raise StoreError(
                    f"{entries} index entries were written for {sum(survey.keys.values())} keys of the log",
                    hint="the store is unchanged; is something else writing to it?",
                )
            facts["index files"] = facts.get("index files", 0) + len(written)
            facts["index entries"] = facts.get("index entries", 0) + entries
        _remove_rests(target.index)
        self._disk.sync_directory(target.index)

    def _name_files(self, directory: Path, files: Sequence[tuple[int, int]]) -> None:
        """Name each file after the time of its first record, so that another rebuild chooses the same names."""
        last = ""
        for number, begin_time in files:
            last = name_file(begin_time, last)
            self._disk.rename(directory / name_draft(number), directory / last)


def find_odd_queues(written: Iterable[Any]) -> set[tuple[str, int]]:
    """Return queues whose segments do not fit together: an offset is missing or repeated, or positions decrease."""
    odd: set[tuple[str, int]] = set()
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for row in sorted(written, key=lambda row: (row["topic"], row["queueId"], row["segment"])):
        queue = (row["topic"], row["queueId"])
        before = ends.get(queue)
        if not row["dense"] or (
            before is not None and (before[0] + 1 != row["first"] or before[1] >= row["firstPosition"])
        ):
            odd.add(queue)
        ends[queue] = (row["last"], row["lastPosition"])
    return odd


def share_out(keys: Mapping[int, int], capacity: int) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Return the log stretches that each index file needs, and the number of entries before the first of them."""
    shares: list[tuple[int, int]] = []
    bases: dict[int, int] = {}
    before = 0
    for stretch in sorted(keys):
        for file in range(before // capacity, (before + keys[stretch] - 1) // capacity + 1):
            shares.append((stretch, file))
            bases.setdefault(file, before)
        before += keys[stretch]
    return shares, bases


# -- names on the disk -------------------------------------------------------------------------------------------------


def _remove_rests(directory: Path) -> None:
    """Delete files left by tasks that died."""
    for rest in list(directory.rglob(f"{STAGING_PREFIX}*")):
        rest.unlink(missing_ok=True)


def _sync_names(disk: LocalFileSystem, directory: Path) -> None:
    disk.make_directory(directory)
    for topic in disk.list(directory):
        for queue in disk.list(directory / topic):
            disk.sync_directory(directory / topic / queue)
        disk.sync_directory(directory / topic)
    disk.sync_directory(directory)
