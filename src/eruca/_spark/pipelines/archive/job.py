"""`archive`: topics, or the commit-log files of brokers, to Parquet or Delta by topic and date, incrementally.

A run adds what is new since the last one. The ledger of the archive records how far each queue is archived, so a run
that dies leaves no duplicates, and `query` knows where the live topic continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from eruca._spark.cluster import Access, Cluster
from eruca._spark.offsets import Offsets, name_queue
from eruca._spark.pipelines.archive import delta
from eruca._spark.pipelines.archive.compaction import compact_archive
from eruca._spark.pipelines.archive.frames import (
    ARCHIVE_SCHEMA,
    PARTITIONS,
    REASON,
    arrange_for_archive,
    count_good,
    keep_archived,
)
from eruca._spark.pipelines.archive.ledger import BAD, MESSAGES, NO_REASON, STAGING, Contents, Entry, Ledger
from eruca._spark.pipelines.archive.plan import ArchivePlan, plan_stores, plan_topics, read_stores, read_topics
from eruca._spark.pipelines.directories import Directory
from eruca._spark.pipelines.summary import JobSummary, count_bad
from eruca._spark.pipelines.tracking import track_job
from eruca._spark.store.logfiles import StoreLog
from eruca._store.filesystem import LocalFileSystem
from eruca._store.log.archived import ArchiveMark
from eruca._wire.bodies import MessageQueue
from eruca._wire.catalog import build_request
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET: Final = "parquet"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA)
_STAGING_KEPT: Final = timedelta(days=1)
_RUN_TIME: Final = "%Y%m%dT%H%M%S"


# -- the job -----------------------------------------------------------------------------------------------------------


def run_archive(
    session: SparkSession,
    archive: str,
    *,
    access: Access | None = None,
    topics: Sequence[str] = (),
    pattern: str = "",
    stores: Mapping[str, str] | None = None,
    everything: bool = False,
    form: str = PARQUET,
    mark: bool = False,
    compact: bool = True,
) -> JobSummary:
    """Add new messages to an archive: of topics (with `access`), or of the closed files in `stores` (paths by broker).

    `everything` includes the last file of each store; its broker must be stopped. `mark` reports to brokers how far
    they are archived, for those that delete only archived files.
    """
    if (access is None) == (not stores):
        raise ConfigError("no input is given", hint="give either a name server or store directories")
    if form not in FORMATS:
        raise ConfigError(f"format {form} is unknown", hint=f"there are {', '.join(FORMATS)}")
    place = Directory(archive)
    with track_job(session, "archive") as summary:
        ledger, last = open_ledger(session, place, form)
        contents = last.contents if last else Contents(format=form)
        if access is not None:
            with Cluster(access) as cluster:
                plan = plan_topics(cluster, topics, pattern, contents, with_marks=mark)
            frame = read_topics(session, access, plan) if plan.count else None
        else:
            plan = plan_stores(stores or {}, contents, everything=everything)
            frame = read_stores(session, stores or {}, plan, contents, topics, pattern) if plan.log_bytes else None
        entry = Entry(
            generation=(last.generation if last else 0) + 1,
            kind="archive",
            run=f"{datetime.now(UTC).strftime(_RUN_TIME)}-{uuid4().hex[:8]}",
            contents=contents.advance(plan.ends, plan.marks if access is None else None),
        )
        if frame is not None:
            _add(session, place, ledger, frame, entry, summary)
        elif last is None:
            ledger.commit(entry)
        if plan.count:
            count_bad(summary, "missing", plan.count - summary.rows - summary.bad_records)
        _tell_losses(summary, plan)
        if mark:
            mark_archived(access, stores or {}, plan, summary)
        if compact:
            summary.facts["files merged"] = compact_archive(session, archive)
        summary.outputs["archive"] = place.locate(MESSAGES)
        if place.exists(BAD):
            summary.outputs["set aside"] = place.locate(BAD)
    return summary


def open_ledger(session: SparkSession, place: Directory, form: str) -> tuple[Ledger, Entry | None]:
    """Return the ledger of an archive and its last entry, after completing what earlier runs left."""
    ledger = Ledger(place)
    last = ledger.recover()
    if last is not None and last.contents.format != form:
        raise ConfigError(f"{place} is in {last.contents.format}", hint=f"add --format {last.contents.format}")
    if form == DELTA:
        last = delta.catch_up(session, place, ledger, last)
    _remove_old_staging(place)
    return ledger, last


def _tell_losses(summary: JobSummary, plan: ArchivePlan) -> None:
    summary.warnings += plan.warnings
    if plan.lost:
        queues = "; ".join(name_queue(queue) for queue in list(plan.lost)[:3])
        summary.warnings.append(
            f"{sum(plan.lost.values())} messages were deleted before they were archived: {queues}"
            " (archive more often, keep longer, or set deleteOnlyArchived=true)"
        )


def _add(
    session: SparkSession, place: Directory, ledger: Ledger, frame: Any, entry: Entry, summary: JobSummary
) -> None:
    """Write a frame to the staging directory, and move it into the archive in one step."""
    counted, tell = count_good(arrange_for_archive(frame), sf.col(REASON).isNull())
    staging = f"{STAGING}/{entry.run}"
    keys = [REASON, *PARTITIONS]
    (
        counted.sortWithinPartitions(*keys, "broker", "queueId", "queueOffset")
        .write.partitionBy(*keys)
        .option("compression", "zstd")
        .parquet(place.locate(staging))
    )
    tell(summary)
    files = [facts.path for facts in place.list_files(staging) if facts.path.endswith(".parquet")]
    bad = [path for path in files if f"/{NO_REASON}/" not in path]
    if bad:
        table = session.read.option("basePath", place.locate(staging)).parquet(
            *[place.locate_to_read(path) for path in bad]
        )
        for row in table.groupBy(REASON).count().collect():
            count_bad(summary, row[REASON], row["count"])
    contents = entry.contents
    if files:
        contents = contents.advance(_find_reached(session, place, staging))
    moves = [(path, _choose_target(path, staging)) for path in files]
    entry = msgspec.structs.replace(entry, contents=contents, moves=moves, summary=summary.as_dict())
    if contents.format == DELTA:
        entry = msgspec.structs.replace(entry, moves=[move for move in moves if move[1].startswith(f"{BAD}/")])
        if len(entry.moves) < len(moves):
            delta.append(session, place, staging, entry)
    ledger.commit(entry)


def _find_reached(session: SparkSession, place: Directory, staging: str) -> Offsets:
    """Return the offset after the last written message of each queue."""
    schema = StructType([*ARCHIVE_SCHEMA.fields, StructField(REASON, StringType())])
    table = session.read.schema(schema).parquet(place.locate_to_read(staging)).where("topic is not null")
    reached = table.groupBy("topic", "broker", "queueId").agg((sf.max("queueOffset") + 1).alias("end"))
    return {MessageQueue(row.broker, row.queueId, row.topic): row.end for row in reached.collect()}


def _choose_target(path: str, staging: str) -> str:
    below = path.removeprefix(f"{staging}/")
    if below.startswith(f"{NO_REASON}/"):
        return f"{MESSAGES}/{below.removeprefix(NO_REASON + '/')}"
    return f"{BAD}/{below}"


def _remove_old_staging(place: Directory) -> None:
    """Delete what runs left that died at least a day ago."""
    for name in place.list_names(STAGING):
        try:
            begun = datetime.strptime(name.partition("-")[0], _RUN_TIME).replace(tzinfo=UTC)
        except ValueError:
            continue
        if datetime.now(UTC) - begun > _STAGING_KEPT:
            place.remove_directory(f"{STAGING}/{name}")


# -- reporting to brokers ----------------------------------------------------------------------------------------------


def mark_archived(access: Access | None, stores: Mapping[str, str], plan: ArchivePlan, summary: JobSummary) -> None:
    """Report to brokers how far their logs are archived: by a request, or by a file in a store."""
    if access is None:
        for broker, path in stores.items():
            with StoreLog(Path(path)) as store:
                mark = ArchiveMark(LocalFileSystem(), store.paths.archived)
            plan.marks[broker] = mark.raise_to(plan.marks[broker])
    else:
        with Cluster(access) as cluster:
            for broker, problem in _send_marks(cluster, plan.marks).items():
                summary.warnings.append(f"broker {broker} was not informed how far it is archived: {problem}")
                plan.marks.pop(broker)
    summary.facts["archived position"] = dict(plan.marks)


def _send_marks(cluster: Cluster, marks: Mapping[str, int]) -> dict[str, str]:
    """Report to each master; returns the reasons for those that failed."""

    async def tell() -> dict[str, str]:
        problems: dict[str, str] = {}
        for broker, address in (await cluster.connection.list_masters()).items():
            if broker not in marks:
                continue
            _, known = await cluster.connection.ask(address, RequestCode.GET_BROKER_CONFIG, EmptyHeader())
            if not isinstance(known, dict) or "archivedPosition" not in known:
                problems[broker] = "it is not an Eruca broker, and deletes by age alone"
            elif int(known["archivedPosition"]) < marks[broker]:
                wanted = {"archivedPosition": str(marks[broker])}
                await cluster.calls.ask(address, build_request(RequestCode.UPDATE_BROKER_CONFIG, EmptyHeader(), wanted))
        return problems

    return cluster.run(cluster.insist(tell))


# -- reading -----------------------------------------------------------------------------------------------------------


def read_contents(archive: str) -> Contents:
    """Return the contents of an archive. Raises ConfigError if there is no archive."""
    place = Directory(archive)
    ledger = Ledger(place)
    unfinished = ledger.find_unfinished()
    if unfinished is not None and unfinished.kind == "compact":
        raise ConfigError(
            f"the files of {place} are being merged", hint="try again, or run `eruca pipeline archive` once"
        )
    last = ledger.read()
    if last is None:
        raise ConfigError(f"{place} is not an archive", hint="eruca pipeline archive creates one")
    return last.contents


def read_archive(session: SparkSession, archive: str) -> DataFrame:
    """Return the messages of an archive, up to the offsets in its ledger."""
    return open_archive(session, archive, read_contents(archive))


def open_archive(session: SparkSession, archive: str, contents: Contents) -> DataFrame:
    """Return the messages of an archive whose ledger was read already."""
    place = Directory(archive)
    if contents.format == DELTA:
        frame = session.read.format(DELTA).load(place.locate(MESSAGES)).select(*ARCHIVE_SCHEMA.names)
    elif place.exists(MESSAGES):
        # Without a schema, Spark would read a topic that looks like a number as one.
        frame = session.read.schema(ARCHIVE_SCHEMA).parquet(place.locate_to_read(MESSAGES))
    else:
        return session.createDataFrame([], ARCHIVE_SCHEMA)
    kept: DataFrame = keep_archived(frame, contents.read_offsets())
    return kept
