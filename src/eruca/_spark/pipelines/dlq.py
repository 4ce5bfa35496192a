"""`dlq`: the dead letters of groups as a table, and their number by group, topic and day."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from eruca._spark.pipelines.directories import Directory
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._spark.pipelines.stats import collect
from eruca._spark.pipelines.summary import JobSummary, count_rows
from eruca._spark.pipelines.tracking import keep, track_job
from eruca._wire.names import DLQ_PREFIX
from eruca._wire.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def list_dead_letters(messages: DataFrame) -> DataFrame:
    """Return a row for each dead letter: its group, original topic, and number of retries."""
    letters = messages.where(sf.col("topic").startswith(DLQ_PREFIX))
    return letters.select(
        sf.substring_index("topic", DLQ_PREFIX, -1).alias("group"),
        sf.coalesce(sf.element_at("properties", RETRY_TOPIC), sf.lit("")).alias("topic"),
        "messageId",
        sf.element_at("properties", ORIGIN_MESSAGE_ID).alias("originId"),
        "keys",
        "tags",
        "body",
        sf.col("reconsumeTimes").alias("retries"),
        sf.col("bornTimestamp").alias("sentAt"),
        sf.col("storeTimestamp").alias("deadAt"),
        "broker",
        "queueId",
        "queueOffset",
        "properties",
    )


def count_dead_letters(letters: DataFrame) -> DataFrame:
    """Count dead letters by group, topic and day, with the time of the first and the last."""
    return (
        letters.groupBy("group", "topic", sf.to_date("deadAt").alias("day"))
        .agg(
            sf.count(sf.lit(1)).alias("letters"),
            sf.min("deadAt").alias("first"),
            sf.max("deadAt").alias("last"),
        )
        .orderBy("group", "topic", "day")
    )


def run_dlq(
    session: SparkSession, wanted: MessageInput, group: str = "", out: str = ""
) -> tuple[JobSummary, list[dict[str, Any]]]:
    """Count dead letters, of one group or of all, and write them as Parquet to `out`."""
    topics = (f"{DLQ_PREFIX}{group}",) if group else ()
    wanted = replace(wanted, topics=topics, pattern="" if topics else f"{DLQ_PREFIX}.*")
    with (
        track_job(session, "dlq") as summary,
        keep(list_dead_letters(open_messages(session, wanted, summary.warnings))) as letters,
    ):
        row = letters.agg(
            sf.count(sf.lit(1)),
            sf.coalesce(sf.sum(sf.octet_length("body")), sf.lit(0)),
            sf.unix_millis(sf.min("deadAt")),
            sf.unix_millis(sf.max("deadAt")),
        ).first()
        count_rows(summary, *row)
        table = collect(count_dead_letters(letters))
        if out:
            letters.write.mode("errorifexists").parquet(Directory(out).address)
            summary.outputs["dead letters"] = out
    return summary, table
