"""Merges small files of an archive: every run adds some for each topic and day."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.types import StructType

from eruca._spark.pipelines.archive import delta
from eruca._spark.pipelines.archive.frames import ARCHIVE_SCHEMA, PARTITIONS
from eruca._spark.pipelines.archive.ledger import MESSAGES, STAGING, Entry, Ledger
from eruca._spark.pipelines.directories import Directory, FileFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES: Final = 128 * 1024 * 1024
# Directories with fewer small files are left alone.
FILES_MIN: Final = 8
_FILE_SCHEMA: Final = StructType([each for each in ARCHIVE_SCHEMA.fields if each.name not in PARTITIONS])


def plan_compaction(
    files: Iterable[FileFacts], file_bytes: int = FILE_BYTES, files_min: int = FILES_MIN
) -> dict[str, list[FileFacts]]:
    """Return the small files of each directory that has enough of them."""
    small: dict[str, list[FileFacts]] = {}
    for facts in files:
        if facts.path.endswith(".parquet") and facts.size < file_bytes // 2:
            small.setdefault(facts.path.rpartition("/")[0], []).append(facts)
    return {directory: each for directory, each in sorted(small.items()) if len(each) >= files_min}


def compact_archive(
    session: SparkSession, archive: str, *, file_bytes: int = FILE_BYTES, files_min: int = FILES_MIN
) -> int:
    """Merge small files; returns how many were removed."""
    place = Directory(archive)
    ledger = Ledger(place)
    last = ledger.recover()
    if last is None:
        return 0
    if last.contents.format == "delta":
        return delta.optimize(session, place) if place.exists(f"{MESSAGES}/_delta_log") else 0
    plan = plan_compaction(place.list_files(MESSAGES), file_bytes, files_min)
    if not plan:
        return 0
    run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    staging = f"{STAGING}/{run}"
    for directory, files in plan.items():
        count = -(-sum(facts.size for facts in files) // file_bytes)
        (
            session.read.schema(_FILE_SCHEMA)
            .parquet(*[place.locate_to_read(facts.path) for facts in files])
            .coalesce(count)
            .sortWithinPartitions("broker", "queueId", "queueOffset")
            .write.option("compression", "zstd")
            .parquet(place.locate(f"{staging}/{directory}"))
        )
    written = [facts.path for facts in place.list_files(staging) if facts.path.endswith(".parquet")]
    removes = [facts.path for files in plan.values() for facts in files]
    ledger.commit(
        Entry(
            generation=last.generation + 1,
            kind="compact",
            run=run,
            contents=last.contents,
            moves=[(path, path.removeprefix(f"{staging}/")) for path in written],
            removes=removes,
        )
    )
    return len(removes)
