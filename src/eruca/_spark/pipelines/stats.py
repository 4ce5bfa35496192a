"""`stats`: counts, sizes, rates and latencies of messages by hour and day, topic, tag, host and group.

Messages are read once, into a small table of counts (`make_histogram`); the other tables are computed from it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from eruca._admin.lag import sum_lag
from eruca._admin.offsets import Offsets
from eruca._schemas.bodies import require
from eruca._spark.cluster import Access, Cluster
from eruca._spark.pipelines.charts import write_report
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.query import show_value
from eruca._spark.pipelines.summary import JobSummary, count_rows
from eruca._spark.pipelines.traces import find_consumed, open_traces
from eruca._spark.pipelines.tracking import keep, track_job
from eruca._wire.names import TRACE_TOPIC
from eruca.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Table = list[dict[str, Any]]

PERIODS: Final[Mapping[str, int]] = {"hour": 3600, "day": 86_400}
SHARES: Final = (0.5, 0.95, 0.99)
# Latencies above this are counted in steps, so that the table of counts stays small.
_EXACT_MS: Final = 10_000
_STEP_MS: Final = 100


# -- frames ------------------------------------------------------------------------------------------------------------


def make_histogram(messages: DataFrame) -> DataFrame:
    """Count messages and bytes by hour, topic, tag, producer host, and milliseconds from sent to stored."""
    latency = sf.greatest(sf.unix_millis("storeTimestamp") - sf.unix_millis("bornTimestamp"), sf.lit(0))
    return (
        messages.select(
            sf.date_trunc("hour", "storeTimestamp").alias("hour"),
            "topic",
            sf.coalesce("tags", sf.lit("")).alias("tag"),
            sf.regexp_replace("bornHost", r":\d+$", "").alias("host"),
            _round_latency(latency).alias("latencyMs"),
            sf.coalesce(sf.octet_length("body"), sf.lit(0)).alias("size"),
            "storeTimestamp",
        )
        .groupBy("hour", "topic", "tag", "host", "latencyMs")
        .agg(
            sf.count(sf.lit(1)).alias("messages"),
            sf.sum("size").alias("bytes"),
            sf.min("storeTimestamp").alias("first"),
            sf.max("storeTimestamp").alias("last"),
        )
    )


def count_traffic(histogram: DataFrame, period: str, by: Sequence[str] = ("topic", "tag", "host")) -> DataFrame:
    """Return messages, bytes, rates and latencies of each hour or day, by topic, tag and host or some of them."""
    seconds = PERIODS[period]
    grouped = histogram.groupBy(sf.date_trunc(period, "hour").alias(period), *by).agg(
        sf.sum("messages").alias("messages"),
        sf.sum("bytes").alias("bytes"),
        *_measure_latency("latencyMs", sf.col("messages")),
    )
    return grouped.select(
        period,
        *by,
        "messages",
        "bytes",
        (sf.col("messages") / seconds).alias("messagesPerSecond"),
        (sf.col("bytes") / seconds).alias("bytesPerSecond"),
        *_name_latencies("stored"),
    ).orderBy(period, *by)


def count_consumption(traces: Any, messages: Any, period: str) -> Any:
    """Return what each group consumed of each topic: deliveries, failures, and latencies."""
    sent = messages.select("messageId", "topic", sf.unix_millis("bornTimestamp").alias("bornMs"))
    latency = sf.greatest(sf.col("consumedMs") - sf.col("bornMs"), sf.lit(0))
    grouped = (
        find_consumed(traces)
        .join(sent.dropDuplicates(["messageId", "topic"]), "messageId")
        .withColumn("latencyMs", sf.when(sf.col("success"), latency))
        .groupBy(sf.date_trunc(period, sf.timestamp_millis("consumedMs")).alias(period), "group", "topic")
        .agg(
            sf.count_if("success").alias("consumed"),
            sf.count_if(~sf.col("success")).alias("failed"),
            sf.avg("costMs").alias("handlerMs"),
            *_measure_latency("latencyMs", sf.lit(1)),
        )
    )
    rate = (sf.col("consumed") / PERIODS[period]).alias("consumedPerSecond")
    return grouped.select(
        period, "group", "topic", "consumed", "failed", rate, "handlerMs", *_name_latencies("consumed")
    ).orderBy(period, "group", "topic")


def _round_latency(latency: Any) -> Any:
    return sf.when(latency < _EXACT_MS, latency).otherwise((latency / _STEP_MS).cast("bigint") * _STEP_MS)


def _measure_latency(column: str, frequency: Any) -> list[Any]:
    # Exact, so that it does not depend on how Spark partitions the work.
    shares = sf.array(*[sf.lit(share) for share in SHARES])
    return [sf.percentile(column, shares, frequency).alias("_shares"), sf.max(column).alias("_max")]


def _name_latencies(what: str) -> list[Any]:
    named = [sf.col("_shares")[at].alias(f"{what}P{share * 100:.0f}Ms") for at, share in enumerate(SHARES)]
    return [*named, sf.col("_max").alias(f"{what}MaxMs")]


# -- the job -----------------------------------------------------------------------------------------------------------


def run_stats(
    session: SparkSession,
    wanted: MessageInput,
    out: str,
    *,
    with_traces: bool = True,
    with_lag: bool = True,
    with_charts: bool = True,
    trace_topic: str = TRACE_TOPIC,
) -> JobSummary:
    """Write tables, charts and one HTML page about the messages of an input to a directory.

    Traces are read from the same input; without traces there are no tables about consumption. Lag is the current lag,
    and needs a name server. Charts need matplotlib, from the extra `charts`. Raises ConfigError.
    """
    if with_charts:
        require("matplotlib", "a report with charts", "charts")
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}", hint="name another directory") from None
    with track_job(session, "stats") as summary:
        messages = open_messages(session, wanted, summary.warnings).where(sf.col("topic") != trace_topic)
        with keep(make_histogram(messages)) as histogram:
            tables = _collect_traffic(histogram, summary)
        if with_traces:
            traces = open_traces(session, wanted, trace_topic, summary.warnings)
            if traces is not None:
                with keep(traces) as noted:
                    for period in PERIODS:
                        tables[f"consumed-by-{period}"] = collect(count_consumption(noted, messages, period))
        if with_lag and wanted.access is not None:
            tables["lag"] = collect_lag(wanted.access, wanted.topics)
        for name, rows in tables.items():
            if rows:
                write_table(directory / f"{name}.csv", rows)
                summary.facts[f"{name} rows"] = len(rows)
        report = write_report(directory, tables, summary.as_dict(), with_charts=with_charts)
        summary.outputs |= {"tables": str(directory), **report}
    return summary


def _collect_traffic(histogram: Any, summary: JobSummary) -> dict[str, Table]:
    row = histogram.agg(
        sf.coalesce(sf.sum("messages"), sf.lit(0)),
        sf.coalesce(sf.sum("bytes"), sf.lit(0)),
        sf.unix_millis(sf.min("first")),
        sf.unix_millis(sf.max("last")),
    ).first()
    count_rows(summary, *row)
    tables: dict[str, Table] = {}
    for period in PERIODS:
        tables[f"traffic-by-{period}"] = collect(count_traffic(histogram, period))
        tables[f"topics-by-{period}"] = collect(count_traffic(histogram, period, ("topic",)))
    return tables


def collect_lag(access: Access, topics: Sequence[str] = ()) -> Table:
    """Return the current lag, one row for each group and topic."""
    with Cluster(access) as cluster:
        rows = sum_lag(cluster.run(Offsets(cluster.connection).lag(topics=topics, limit=sys.maxsize)).items)
    return [
        {
            "group": row.group,
            "topic": row.topic,
            "queues": row.queues,
            "behind": row.lag,
            "behindMs": round((row.lag_time or timedelta()) / timedelta(milliseconds=1)),
        }
        for row in rows
    ]


def collect(frame: Any) -> Table:
    """Return all rows of a small table as plain values."""
    names = frame.columns
    return [{name: show_value(row[name]) for name in names} for row in frame.collect()]


def write_table(path: Path, rows: Table) -> None:
    """Write a table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
