"""Frames of messages with the columns of an archive, and the parts that are archived or not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, StructField, StructType

from eruca._spark.columns import MESSAGE_COLUMNS, make_schema
from eruca._spark.offsets import Offsets
from eruca._spark.pipelines.summary import JobSummary, count_rows
from eruca._spark.store.datasource import DAMAGE

log = logging.getLogger(__name__)

# By topic and by the day a message was stored, in UTC.
PARTITIONS: Final = ("topic", "date")
ARCHIVE_SCHEMA: Final = StructType([*make_schema(MESSAGE_COLUMNS).fields, StructField("date", DateType())])
# Why a message is set aside.
REASON: Final = "reason"


def arrange_for_archive(messages: Any) -> Any:
    """Return the columns of an archive: those of a message, the date it was stored, and why it is set aside."""
    names = [column.name for column in MESSAGE_COLUMNS]
    reason = sf.when(sf.col("body").isNull(), "body")
    if "crcOk" in messages.columns:
        damaged = sf.col("topic").isNull() | sf.map_contains_key(sf.col("properties"), sf.lit(DAMAGE))
        reason = sf.when(damaged, "damage").when(~sf.col("crcOk"), "crc").otherwise(reason)
    return messages.withColumn(REASON, reason).select(
        *names, sf.to_date("storeTimestamp").alias("date"), sf.col(REASON)
    )


def leave_out_archived(messages: Any, offsets: Offsets) -> Any:
    """Select messages that are not archived: at or after the offset of their queue, or in a queue without one."""
    return _compare_offsets(messages, offsets, lambda offset, bound: bound.isNull() | (offset >= bound))


def keep_archived(messages: Any, offsets: Offsets) -> Any:
    """Select messages before the offset of their queue; none of a queue without one."""
    return _compare_offsets(messages, offsets, lambda offset, bound: bound.isNotNull() & (offset < bound))


def count_good(messages: Any, is_good: Any) -> tuple[Any, Callable[[JobSummary], int]]:
    """Return the frame with good messages counted as it is written, and a function that adds the counts to a summary.

    The function returns how many messages were not good.
    """
    observed = Observation()
    counted = messages.observe(
        observed,
        sf.count_if(is_good).alias("rows"),
        sf.coalesce(sf.sum(sf.when(is_good, sf.octet_length("body"))), sf.lit(0)).alias("bytes"),
        sf.unix_millis(sf.min(sf.when(is_good, sf.col("storeTimestamp")))).alias("first"),
        sf.unix_millis(sf.max(sf.when(is_good, sf.col("storeTimestamp")))).alias("last"),
        sf.count_if(~is_good).alias("bad"),
    )

    def tell(summary: JobSummary) -> int:
        try:
            found = observed.get
        except Exception as error:
            # Spark skips what it knows to be empty in advance, and the counting with it.
            log.debug("nothing was counted: %s", error)
            return 0
        count_rows(summary, found["rows"], found["bytes"], found["first"], found["last"])
        return int(found["bad"])

    return counted, tell


def _compare_offsets(messages: Any, offsets: Offsets, holds: Any) -> Any:
    rows = [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()]
    bounds = messages.sparkSession.createDataFrame(rows, "topic string, broker string, queueId int, _bound bigint")
    keys = ["topic", "broker", "queueId"]
    joined = messages.join(sf.broadcast(bounds), keys, "left")
    return joined.where(holds(sf.col("queueOffset"), sf.col("_bound"))).select(*messages.columns)
