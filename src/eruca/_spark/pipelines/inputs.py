"""The input of a job: an archive, live topics, both as one table, or the files of brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from eruca._ground.times import to_epoch_ms
from eruca._spark.cluster import Access, Cluster
from eruca._spark.offsets import name_queue
from eruca._spark.pipelines.archive.frames import ARCHIVE_SCHEMA
from eruca._spark.pipelines.archive.job import open_archive, read_contents
from eruca._spark.pipelines.archive.ledger import Contents
from eruca._spark.pipelines.archive.plan import (
    ArchivePlan,
    make_store_reader,
    plan_topics,
    read_topics,
)
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGE_NAMES: Final = tuple(name for name in ARCHIVE_SCHEMA.names if name != "date")


@dataclass(frozen=True, slots=True)
class MessageInput:
    """Which messages a job reads; topics and times apply to all of its inputs."""

    archive: str = ""
    access: Access | None = None
    # Paths by broker.
    stores: Mapping[str, str] = field(default_factory=dict)
    topics: Sequence[str] = ()
    pattern: str = ""
    # Stored at or after the first and before the second.
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        find_bounds(self)  # raises now instead of in a task


def describe_input(wanted: MessageInput) -> dict[str, Any]:
    """Return what identifies an input; equal descriptions read the same messages."""
    since_ms, until_ms = find_bounds(wanted)
    return {
        "archive": wanted.archive,
        "nameServer": wanted.access.nameserver if wanted.access else "",
        "stores": dict(sorted(wanted.stores.items())),
        "topics": sorted(wanted.topics),
        "pattern": wanted.pattern,
        "since": since_ms,
        "until": until_ms,
    }


def find_bounds(wanted: MessageInput) -> tuple[int | None, int | None]:
    """Return the times of an input in milliseconds since 1970. Raises ConfigError for a time without a zone."""
    since, until = wanted.since, wanted.until
    return (
        None if since is None else to_epoch_ms("MessageInput.since", since),
        None if until is None else to_epoch_ms("MessageInput.until", until),
    )


def open_messages(session: SparkSession, wanted: MessageInput, warnings: list[str] | None = None) -> DataFrame:
    """Return all messages of an input as one frame with the columns of an archive, each message once.

    Archived messages are read from the archive, and the live topics from where it ends. Warnings about messages that
    are in neither are added to `warnings`.
    """
    if not wanted.archive and wanted.access is None and not wanted.stores:
        raise ConfigError("no input is given", hint="give --name-server, --archive or --store")
    if wanted.stores and (wanted.archive or wanted.access is not None):
        raise ConfigError(
            "--store cannot be combined with --archive or --name-server",
            hint="it already contains all messages of its broker",
        )
    if wanted.stores:
        frame = _add_date(_open_stores(session, wanted))
    else:
        contents = read_contents(wanted.archive) if wanted.archive else Contents()
        parts = []
        if wanted.archive:
            parts.append(_choose_topics(open_archive(session, wanted.archive, contents), wanted))
        if wanted.access is not None:
            parts.append(_add_date(_open_live(session, wanted, contents, warnings if warnings is not None else [])))
        frame = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    chosen: DataFrame = choose_times(frame, *find_bounds(wanted))
    return chosen


def choose_times(messages: Any, since_ms: int | None, until_ms: int | None) -> Any:
    """Select messages stored at or after a time and before another; also by date, which skips files."""
    if since_ms is not None:
        since = sf.timestamp_millis(sf.lit(since_ms))
        messages = messages.where((sf.col("date") >= sf.to_date(since)) & (sf.col("storeTimestamp") >= since))
    if until_ms is not None:
        until = sf.timestamp_millis(sf.lit(until_ms))
        messages = messages.where((sf.col("date") <= sf.to_date(until)) & (sf.col("storeTimestamp") < until))
    return messages


def _choose_topics(messages: Any, wanted: MessageInput) -> Any:
    if wanted.topics:
        return messages.where(sf.col("topic").isin(list(wanted.topics)))
    return messages.where(sf.col("topic").rlike(f"^(?:{wanted.pattern})$")) if wanted.pattern else messages


def _add_date(messages: Any) -> Any:
    return messages.select(*_MESSAGE_NAMES, sf.to_date("storeTimestamp").alias("date"))


def _open_live(session: SparkSession, wanted: MessageInput, contents: Contents, warnings: list[str]) -> Any:
    """Return the topics of a cluster from where an archive ends."""
    assert wanted.access is not None
    with Cluster(wanted.access) as cluster:
        plan = plan_topics(cluster, wanted.topics, wanted.pattern, contents)
        since_ms, _ = find_bounds(wanted)
        if since_ms is not None and plan.ends:
            _skip_older(cluster, plan, since_ms)
    warnings += plan.warnings
    if plan.lost:
        queues = "; ".join(name_queue(queue) for queue in list(plan.lost)[:3])
        warnings.append(f"{sum(plan.lost.values())} messages were deleted before they were archived: {queues}")
    if not plan.count:
        return session.createDataFrame([], ARCHIVE_SCHEMA)
    return read_topics(session, wanted.access, plan)


def _skip_older(cluster: Cluster, plan: ArchivePlan, since_ms: int) -> None:
    for queue, offset in cluster.find_since(list(plan.ends), since_ms).items():
        plan.begins[queue] = min(max(plan.begins[queue], offset), plan.ends[queue])


def _open_stores(session: SparkSession, wanted: MessageInput) -> Any:
    reader = make_store_reader(session, wanted.stores).options(
        onDamage="skip", isolation="committed", includeInternal="true" if wanted.topics else "false"
    )
    if wanted.topics:
        reader = reader.option("subscribe", ",".join(wanted.topics))
    elif wanted.pattern:
        reader = reader.option("subscribePattern", wanted.pattern)
    since_ms, until_ms = find_bounds(wanted)
    if since_ms is not None:
        reader = reader.option("startingTimestamp", str(since_ms))
    if until_ms is not None:
        reader = reader.option("endingTimestamp", str(until_ms))
    return reader.load()
