"""What a run of `archive` reads: what is new in topics or in the files of brokers since the last run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from eruca._ground.durations import to_ms
from eruca._spark.cluster import Access, Cluster, describe_tls
from eruca._spark.columns import STORE_COLUMNS, make_schema
from eruca._spark.offsets import Offsets, encode_offsets, name_queue
from eruca._spark.pipelines.archive.frames import leave_out_archived
from eruca._spark.pipelines.archive.ledger import Contents
from eruca._spark.source.bounds import match_topics
from eruca._spark.store.datasource import encode_paths
from eruca._spark.store.logfiles import StoreLog, find_log_end
from eruca._wire.bodies import KVTable
from eruca._wire.codes import RequestCode
from eruca._wire.headers import EmptyHeader
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# All topics except system topics, retries and dead letters.
ALL_TOPICS: Final = ".*"
_TOPICS_SHOWN: Final = 10


@dataclass(slots=True)
class ArchivePlan:
    """What one run reads."""

    begins: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    # Messages that the brokers deleted before they were archived.
    lost: Offsets = field(default_factory=dict)
    # By the name of a broker: everything in its log before this will be archived.
    marks: dict[str, int] = field(default_factory=dict)
    # The same for logs that are read from their files: the first position to read.
    positions: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of messages to read."""
        return sum(end - self.begins[queue] for queue, end in self.ends.items())

    @property
    def log_bytes(self) -> int:
        """The number of log bytes to read from files."""
        return sum(max(0, self.marks[broker] - position) for broker, position in self.positions.items())


def plan_topics(
    cluster: Cluster, topics: Sequence[str], pattern: str, contents: Contents, *, with_marks: bool = False
) -> ArchivePlan:
    """Return what is new in topics since the archive was last written."""
    plan = ArchivePlan()
    if with_marks:
        # Read before the ends of the queues: everything before it in the log is then already in a queue.
        plan.marks = read_log_ends(cluster)
    names = list(topics) or match_topics(cluster, pattern or ALL_TOPICS)
    found = cluster.list_queues(names)
    missing = [name for name in topics if name not in found]
    if missing:
        known = ", ".join(match_topics(cluster, ALL_TOPICS)[:_TOPICS_SHOWN])
        raise ConfigError(f"there is no topic {', '.join(missing)}", hint=f"the cluster has: {known or 'no topics'}")
    queues = [queue for each in found.values() for queue in each]
    begins, ends = cluster.find_begins(queues), cluster.find_ends(queues)
    archived = contents.read_offsets()
    for queue in queues:
        begin = archived.get(queue, 0)
        if begin > ends[queue]:
            plan.warnings.append(
                f"{name_queue(queue)}, is left out: it ends at {ends[queue]}, and the archive has it up to {begin}"
                " (if the topic was deleted and created again, it needs another archive)"
            )
            continue
        if begin < begins[queue] and queue in archived:
            plan.lost[queue] = begins[queue] - begin
        plan.begins[queue] = max(begin, begins[queue])
        plan.ends[queue] = ends[queue]
    return plan


def read_log_ends(cluster: Cluster) -> dict[str, int]:
    """Return where the log of each master ends, up to the last message that is in a queue."""

    async def ask() -> dict[str, int]:
        ends: dict[str, int] = {}
        for broker, address in (await cluster.connection.list_masters()).items():
            _, body = await cluster.connection.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader())
            table = body.table if isinstance(body, KVTable) else {}
            end, behind = table.get("commitLogMaxOffset", "0"), table.get("dispatchBehindBytes", "0")
            ends[broker] = max(0, int(end) - int(behind))
        return ends

    return cluster.run(cluster.insist(ask))


def plan_stores(stores: Mapping[str, str], contents: Contents, *, everything: bool = False) -> ArchivePlan:
    """Return what is new in store directories, given as paths by broker. Without `everything`, the file that is still
    being written is left for a later run."""
    plan = ArchivePlan()
    for broker, path in stores.items():
        with StoreLog(Path(path)) as store:
            end = find_log_end(store.runs[-1]) if store.runs else 0
            starts = [segment.start for run in store.runs for segment in run.segments if segment.start < end]
            is_closed = everything or not store.runs or end == store.runs[-1].end
            plan.marks[broker] = end if is_closed or not starts else starts[-1]
            plan.positions[broker] = contents.positions.get(broker, 0)
    return plan


# -- reading -----------------------------------------------------------------------------------------------------------


def read_topics(session: SparkSession, access: Access, plan: ArchivePlan) -> Any:
    """Return a frame of what a plan reads."""
    wanted = {queue: end for queue, end in plan.ends.items() if end > plan.begins[queue]}
    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(wanted):
        assigned.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    return (
        session.read.format("rocketmq")
        .options(**make_access_options(access))
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(encode_offsets({q: plan.begins[q] for q in wanted})["topics"]))
        .option("endingOffsets", json.dumps(encode_offsets(wanted)["topics"]))
        .option("verifyCrc", "true")
        # A record that a broker can no longer return, or whose CRC is wrong, does not stop the rest.
        .option("failOnDataLoss", "warn")
        .load()
    )


def make_access_options(access: Access) -> dict[str, str]:
    """Return an Access as options of a source or sink."""
    given = {
        "nameServer": access.nameserver,
        "accessFile": access.access_file,
        "requestTimeout": f"{to_ms('timeout', access.timeout)}ms",
        "retries": str(access.retries),
    }
    given |= {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in describe_tls(access.tls).items()
    }
    return {name: value for name, value in given.items() if value}


def make_store_reader(session: SparkSession, stores: Mapping[str, str]) -> Any:
    """Return a reader of store directories, given as paths by broker."""
    return session.read.format("rocketmq-store").options(
        path=encode_paths(list(stores.values())), broker=",".join(stores)
    )


def read_stores(
    session: SparkSession,
    stores: Mapping[str, str],
    plan: ArchivePlan,
    contents: Contents,
    topics: Sequence[str],
    pattern: str,
) -> Any:
    """Return a frame of the closed files of stores that are not archived yet, including damaged ranges."""
    reader = (
        make_store_reader(session, stores)
        .schema(make_schema(STORE_COLUMNS))
        .options(verifyCrc="true", onDamage="report", isolation="committed", includeInternal="false")
    )
    if topics:
        reader = reader.option("subscribe", ",".join(topics))
    elif pattern:
        reader = reader.option("subscribePattern", pattern)
    frame = reader.load()
    is_new = sf.lit(False)
    for broker, mark in plan.marks.items():
        at = sf.col("physicalOffset")
        is_new |= (sf.col("broker") == broker) & (at >= plan.positions[broker]) & (at < mark)
    if not topics and not pattern:
        # Copies waiting for another delivery, and topics internal to a broker.
        frame = frame.where(sf.col("topic").isNull() | ~sf.col("topic").rlike("^(%RETRY%|TRANS_CHECK_MAX_TIME_TOPIC$)"))
    return leave_out_archived(frame.where(is_new), contents.read_offsets())
