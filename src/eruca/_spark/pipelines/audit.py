"""`audit`: compares what was sent, stored and consumed: lost, duplicated, late; and lists undecided transactions.

Trace messages show what producers and consumers did; the topics show what brokers have. Messages without a trace are
not judged: a message is lost only if it was acknowledged to a producer and no broker has it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from eruca._admin.transactions import Transactions
from eruca._ground.durations import Duration, to_seconds
from eruca._spark.cluster import Access, Cluster
from eruca._spark.pipelines.archive.plan import make_store_reader
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.stats import collect, write_table
from eruca._spark.pipelines.summary import JobSummary, count_rows
from eruca._spark.pipelines.traces import END, PUB, TRACE_SCHEMA, find_consumed, open_traces
from eruca._spark.pipelines.tracking import keep, track_job
from eruca._wire.names import HALF_TOPIC, MAX_CHECK_TOPIC, OP_HALF_TOPIC, TRACE_TOPIC
from eruca._wire.properties import PGROUP, REAL_TOPIC, TRANSACTION_CHECK_TIMES
from eruca._wire.trace import TracedKind
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE_S: Final = 60.0
# A message may still be on its way to a consumer, or a trace to the broker.
SETTLE_S: Final = 60.0
_SHOWN: Final = 10_000

FINDINGS: Final = ("lost", "stored twice", "not consumed", "consumed twice", "late")
_FINDING_COLUMNS: Final = ("finding", "topic", "group", "messageId", "sentAt", "storedAt", "consumedAt", "times")
_STORED: Final = ("topic", "messageId", "tags", "bornTimestamp", "storeTimestamp")
_TRANSACTION_SCHEMA: Final = (
    "broker string, messageId string, producerGroup string, topic string, state string, checks int, beganAt timestamp"
)


# -- messages ----------------------------------------------------------------------------------------------------------


def find_deliveries(traces: Any) -> Any:
    """Return what groups consumed, one row per group and message: how often, and when first and last."""
    consumed = find_consumed(traces).where("success")
    return consumed.groupBy("group", "messageId").agg(
        sf.count(sf.lit(1)).alias("times"),
        sf.min("consumedMs").alias("_first"),
        sf.max("consumedMs").alias("_last"),
    )


def compare_messages(stored: Any, traces: Any, deliveries: Any, *, late_ms: int, settled_ms: int | None = None) -> Any:
    """Return all findings: one row for each message, and group, and what is wrong with it.

    Messages younger than `settled_ms` are not reported as missing: they may still be on their way.
    """
    kept = stored.select(*_STORED)
    settled = sf.lit(2**62 if settled_ms is None else settled_ms)
    parts = [
        _find_lost(_find_sent(traces), kept, settled),
        _find_stored_twice(kept),
        _find_not_consumed(kept, deliveries.select("messageId", "group"), settled),
        _find_twice_and_late(deliveries, kept, late_ms),
    ]
    found = parts[0]
    for part in parts[1:]:
        found = found.unionByName(part)
    return found


def _find_sent(traces: Any) -> Any:
    """Return what was acknowledged to producers: messages, and committed transactions."""
    pubs = traces.where((sf.col("kind") == PUB) & sf.col("success"))
    plain = pubs.where(sf.col("messageKind") == int(TracedKind.NORMAL)).select("topic", "messageId", "timeMs")
    commits = traces.where((sf.col("kind") == END) & (sf.col("state") == "COMMIT_MESSAGE"))
    return plain.unionByName(commits.select("topic", "messageId", "timeMs")).dropDuplicates(["topic", "messageId"])


def _find_lost(sent: Any, kept: Any, settled: Any) -> Any:
    # What is older than the oldest message of its topic has expired.
    begins = kept.groupBy("topic").agg(sf.unix_millis(sf.min("storeTimestamp")).alias("_begin"))
    missing = sent.join(kept.select("topic", "messageId").distinct(), ["topic", "messageId"], "left_anti")
    return _shape(
        missing.join(sf.broadcast(begins), "topic").where(
            (sf.col("timeMs") >= sf.col("_begin")) & (sf.col("timeMs") < settled)
        ),
        sf.lit("lost"),
        sentAt=sf.timestamp_millis("timeMs"),
    )


def _find_stored_twice(kept: Any) -> Any:
    times = kept.groupBy("topic", "messageId").agg(
        sf.count(sf.lit(1)).alias("times"), sf.min("storeTimestamp").alias("storedAt")
    )
    return _shape(times.where("times > 1"), sf.lit("stored twice"), storedAt=sf.col("storedAt"), times=sf.col("times"))


def _find_not_consumed(kept: Any, consumed: Any, settled: Any) -> Any:
    """Return messages that a group did not receive, of topics and tags of which it received earlier ones."""
    once = kept.dropDuplicates(["topic", "messageId"])
    had = once.join(consumed, "messageId")
    wants = had.groupBy("group", "topic", sf.coalesce("tags", sf.lit("")).alias("_tag")).agg(
        sf.min("storeTimestamp").alias("_since")
    )
    due = (
        once.withColumn("_tag", sf.coalesce("tags", sf.lit("")))
        .join(sf.broadcast(wants), ["topic", "_tag"])
        .where((sf.col("storeTimestamp") >= sf.col("_since")) & (sf.unix_millis("storeTimestamp") < settled))
    )
    missing = due.join(consumed, ["messageId", "group"], "left_anti")
    return _shape(missing, sf.lit("not consumed"), storedAt=sf.col("storeTimestamp"))


def _find_twice_and_late(deliveries: Any, kept: Any, late_ms: int) -> Any:
    """Return what groups received more than once or late; a message may be both."""
    got = deliveries.join(kept.dropDuplicates(["messageId"]), "messageId")
    late = sf.col("_first") - sf.unix_millis("bornTimestamp") > late_ms
    findings = sf.array(sf.when(sf.col("times") > 1, "consumed twice"), sf.when(late, "late"))
    found = got.withColumn("_finding", sf.explode(sf.array_compact(findings)))
    is_late = sf.col("_finding") == "late"
    return _shape(
        found,
        sf.col("_finding"),
        sentAt=sf.when(is_late, sf.col("bornTimestamp")),
        storedAt=sf.when(is_late, sf.col("storeTimestamp")),
        consumedAt=sf.timestamp_millis(sf.when(is_late, sf.col("_first")).otherwise(sf.col("_last"))),
        times=sf.when(~is_late, sf.col("times")),
    )


def _shape(frame: Any, finding: Any, **known: Any) -> Any:
    """Return the columns of findings; those that do not apply to a finding are null."""
    kinds = dict.fromkeys(("sentAt", "storedAt", "consumedAt"), "timestamp") | {"times": "bigint"}
    values = {
        "finding": finding,
        "topic": sf.col("topic"),
        "group": sf.col("group") if "group" in frame.columns else sf.lit(None).cast("string"),
        "messageId": sf.col("messageId"),
        **{name: known.get(name, sf.lit(None)).cast(kind) for name, kind in kinds.items()},
    }
    return frame.select(*[values[name].alias(name) for name in _FINDING_COLUMNS])


# -- transactions ------------------------------------------------------------------------------------------------------


def find_transactions(records: Any) -> Any:
    """Return one row per transaction, derived from the half, op and max-check records of a store's files."""
    halves = (
        records.where(sf.col("topic") == HALF_TOPIC)
        .groupBy("broker", "messageId")
        .agg(
            sf.max_by(sf.element_at("properties", PGROUP), "physicalOffset").alias("producerGroup"),
            sf.max_by(sf.element_at("properties", REAL_TOPIC), "physicalOffset").alias("topic"),
            sf.max(sf.coalesce(sf.element_at("properties", TRANSACTION_CHECK_TIMES).try_cast("int"), sf.lit(0))).alias(
                "checks"
            ),
            sf.min("storeTimestamp").alias("beganAt"),
            sf.max("physicalOffset").alias("_last"),
        )
    )
    places = records.where(sf.col("topic") == HALF_TOPIC).select("broker", "messageId", "queueOffset", "physicalOffset")
    ops = records.where((sf.col("topic") == OP_HALF_TOPIC) & (sf.col("tags") == "d")).select(
        "broker",
        sf.col("body").cast("string").try_cast("bigint").alias("queueOffset"),
        sf.col("physicalOffset").alias("_op"),
    )
    # An op before the half belongs to an earlier half, lost in a crash, whose offset this half now has.
    decided = (
        places.join(ops, ["broker", "queueOffset"])
        .where(sf.col("_op") > sf.col("physicalOffset"))
        .select("broker", "messageId", sf.lit(True).alias("_decided"))
        .distinct()
    )
    given_up = (
        records.where(sf.col("topic") == MAX_CHECK_TOPIC)
        .groupBy("broker", "messageId")
        .agg(sf.max("physicalOffset").alias("_up"))
    )
    state = (
        sf.when(sf.col("_up") > sf.col("_last"), "given up").when(sf.col("_decided"), "decided").otherwise("prepared")
    )
    return (
        halves.join(decided, ["broker", "messageId"], "left")
        .join(given_up, ["broker", "messageId"], "left")
        .select("broker", "messageId", "producerGroup", "topic", state.alias("state"), "checks", "beganAt")
    )


def count_transactions(transactions: Any) -> Any:
    """Count transactions by producer group: all, undecided, given up, and the number of checks."""
    undecided = sf.col("state") == "prepared"
    return (
        transactions.groupBy("producerGroup")
        .agg(
            sf.count(sf.lit(1)).alias("transactions"),
            sf.count_if(undecided).alias("undecided"),
            sf.count_if(sf.col("state") == "given up").alias("givenUp"),
            sf.sum("checks").alias("checks"),
            sf.max("checks").alias("checksMax"),
            sf.min(sf.when(undecided, sf.col("beganAt"))).alias("undecidedSince"),
        )
        .orderBy("producerGroup")
    )


def ask_transactions(session: SparkSession, access: Access) -> Any:
    """Ask the brokers for undecided transactions."""
    with Cluster(access) as cluster:
        found = cluster.run(Transactions(cluster.connection).list(limit=sys.maxsize)).items
    rows = [
        (
            row.broker,
            row.message_id,
            row.producer_group,
            row.topic,
            row.state.value,
            row.checks,
            row.stored_at,
        )
        for row in found
    ]
    return session.createDataFrame(rows, _TRANSACTION_SCHEMA)


def read_transactions(session: SparkSession, wanted: MessageInput) -> Any:
    """Return all transactions of store directories."""
    topics = ",".join((HALF_TOPIC, OP_HALF_TOPIC, MAX_CHECK_TOPIC))
    reader = make_store_reader(session, wanted.stores).options(subscribe=topics, onDamage="skip")
    return find_transactions(reader.load())


# -- the job -----------------------------------------------------------------------------------------------------------


def run_audit(
    session: SparkSession,
    wanted: MessageInput,
    out: str = "",
    *,
    trace_topic: str = TRACE_TOPIC,
    late: Duration = LATE_S,
    settle: Duration = SETTLE_S,
) -> JobSummary:
    """Compare what was sent, stored and consumed, and list undecided transactions; details go to `out`.

    A message is late if it was first consumed longer than `late` after it was sent. Messages younger than `settle` are
    not reported as missing.
    """
    late_ms, settle_ms = round(to_seconds("late", late) * 1000), round(to_seconds("settle", settle) * 1000)
    if not wanted.access and not wanted.stores:
        raise ConfigError("an audit needs brokers or store directories", hint="give --name-server or --store")
    with track_job(session, "audit") as summary:
        stored = open_messages(session, wanted, summary.warnings).where(sf.col("topic") != trace_topic)
        traces = open_traces(session, wanted, trace_topic, summary.warnings)
        if traces is None:
            summary.warnings.append(
                f"there is no topic {trace_topic}, so only messages stored twice are found"
                " (traceTopicEnable=true creates it, and clients with trace=True write to it)"
            )
            traces = session.createDataFrame([], TRACE_SCHEMA)
        settled_ms = int(time.time() * 1000) - settle_ms
        with keep(stored.select(*_STORED, sf.octet_length("body").alias("size"))) as kept, keep(traces) as noted:
            _count(kept, summary)
            summary.facts["trace records"] = noted.count()
            # Spark computes a frame again for each use, unless it is persisted.
            with (
                keep(find_deliveries(noted)) as deliveries,
                keep(compare_messages(kept, noted, deliveries, late_ms=late_ms, settled_ms=settled_ms)) as findings,
            ):
                counts = {row.finding: row["count"] for row in findings.groupBy("finding").count().collect()}
                summary.facts |= {finding: counts.get(finding, 0) for finding in FINDINGS}
                if out and counts:
                    _write(Path(out), "findings", findings.orderBy(*_FINDING_COLUMNS[:4]).limit(_SHOWN), summary)
        _audit_transactions(session, wanted, out, summary)
    return summary


def _count(kept: Any, summary: JobSummary) -> None:
    row = kept.agg(
        sf.count(sf.lit(1)),
        sf.coalesce(sf.sum("size"), sf.lit(0)),
        sf.unix_millis(sf.min("storeTimestamp")),
        sf.unix_millis(sf.max("storeTimestamp")),
    ).first()
    count_rows(summary, *row)


def _audit_transactions(session: SparkSession, wanted: MessageInput, out: str, summary: JobSummary) -> None:
    frame = ask_transactions(session, wanted.access) if wanted.access else read_transactions(session, wanted)
    groups = collect(count_transactions(frame))
    summary.facts["undecided transactions"] = sum(row["undecided"] for row in groups)
    summary.facts["given-up transactions"] = sum(row["givenUp"] for row in groups)
    checks = {row["producerGroup"]: row["checks"] for row in groups if row["checks"]}
    if checks:
        summary.facts["checks by producer group"] = checks
    if out and groups:
        _write(Path(out), "transactions", frame.where("state != 'decided'").orderBy("beganAt").limit(_SHOWN), summary)
        write_table(Path(out) / "transaction-groups.csv", groups)


def _write(directory: Path, name: str, frame: Any, summary: JobSummary) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    rows = collect(frame)
    if rows:
        write_table(directory / f"{name}.csv", rows)
        summary.outputs[name] = str(directory / f"{name}.csv")
