"""The checks of `fsck`, from frames to frames of findings: store, level, kind, path, position, length, reason.

All frames have a column `store`. Every row contains what the driver knows about its store: `logStart`, `logEnd`,
`segmentBytes`, and `isOpen` if a broker has it open or did not close it.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from eruca._spark.store.datasource import DAMAGE
from eruca._store.queues.consumequeue import FILLER_SIZE
from eruca._storetools.readonly import Kind, Level
from eruca._wire.names import SCHEDULE_TOPIC

ERROR: Final = Level.ERROR.value
WARNING: Final = Level.WARNING.value
# A tags code at or below this is an address in consumequeue_ext, which only Java brokers write.
_EXT_ADDRESS_MAX: Final = -(2**31) - 1
_SECONDS_OFF_MAX: Final = 1
# The rule of `wire.names`, as a Java regular expression.
TOPIC_PATTERN: Final = r"\A[%|a-zA-Z0-9_-]+\z"


def _find(level: Any, kind: Kind, path: Any, reason: Any, position: Any = None, length: Any = None) -> list[Any]:
    """Return the columns of findings."""
    return [
        F.col("store"),
        (F.lit(level) if isinstance(level, str) else level).alias("level"),
        F.lit(kind.value).alias("kind"),
        path.alias("path"),
        (F.lit(None) if position is None else position).cast("bigint").alias("position"),
        (F.lit(None) if length is None else length).cast("bigint").alias("length"),
        reason.alias("reason"),
    ]


def check_log(records: Any) -> Any:
    """Find ranges that are not records, records with a wrong CRC, and records of invalid topics."""
    bad = records.where(F.col("topic").isNull() | ~F.col("crcOk"))
    start = F.expr("physicalOffset div segmentBytes") * F.col("segmentBytes")
    path = F.concat("store", F.lit("/commitlog/"), F.lpad(start.cast("string"), 20, "0"))
    reason = F.coalesce(F.col("properties")[DAMAGE], F.lit("CRC mismatch"))
    damage = bad.select(_find(ERROR, Kind.DAMAGE, path, reason, F.col("physicalOffset"), F.col("size")))
    nameless = records.where(~F.col("topic").rlike(TOPIC_PATTERN))
    text = F.concat(F.lit("no consumer can ask for this record: its topic is "), "topic")
    return damage.unionByName(nameless.select(_find(ERROR, Kind.RECORD, path, text, F.col("physicalOffset"))))


def check_offsets(entries: Any) -> Any:
    """Find offsets of queues that are missing in the log, repeated, or out of order."""
    queue = Window.partitionBy("store", "topic", "queueId").orderBy("physicalOffset")
    steps = entries.withColumn("before", F.lag("queueOffset").over(queue)).where(
        F.col("before").isNotNull() & (F.col("queueOffset") != F.col("before") + 1)
    )
    missing = F.format_string(
        "%s queue %d: offsets %d to %d have no record",
        "topic",
        "queueId",
        F.col("before") + 1,
        F.col("queueOffset") - 1,
    )
    back = F.format_string("%s queue %d: offset %d follows %d", "topic", "queueId", "queueOffset", "before")
    reason = F.when(F.col("queueOffset") > F.col("before"), missing).otherwise(back)
    return steps.select(_find(ERROR, Kind.LOST, _name_queue(), reason, F.col("physicalOffset")))


def _name_queue() -> Any:
    return F.concat("store", F.lit("/consumequeue/"), "topic", F.lit("/"), F.col("queueId").cast("string"))


def check_queues(entries: Any, rows: Any) -> Any:
    """Compare entries of consume queues with the records they should point at.

    `entries` is what the log requires, `rows` what the files contain. Fillers, entries of expired records and entries
    of records that arrived after the job started are ignored.
    """
    there = rows.where(
        (F.col("size") != FILLER_SIZE)
        & ~((F.col("size") > 0) & F.col("position").between(0, F.col("logStart") - 1))
        & ~(F.col("isOpen") & (F.col("position") >= F.col("logEnd")))
    ).select(
        "store",
        "topic",
        "queueId",
        "queueOffset",
        F.col("path"),
        F.col("position"),
        F.col("size").alias("entrySize"),
        F.col("tagsCode").alias("entryCode"),
        "logEnd",
    )
    both = entries.join(there, ["store", "topic", "queueId", "queueOffset"], "full_outer")
    at = F.format_string("offset %d: ", "queueOffset")
    says = F.format_string("position %d, size %d", "position", "entrySize")
    other = F.concat(at, says, F.format_string("; its record of %d bytes is at %d", "size", "physicalOffset"))
    code = F.concat(at, F.format_string("tags code %d instead of %d", "entryCode", "tagsCode"))
    stray = F.concat(
        at,
        F.when((F.col("entrySize") <= 0) | (F.col("position") < 0), F.concat(F.lit("an empty entry, "), says))
        .when(F.col("position") >= F.col("logEnd"), F.concat(says, F.lit(" is after the end of the log")))
        .otherwise(F.concat(says, F.lit(" is not a record of this queue"))),
    )
    is_other = (F.col("position") != F.col("physicalOffset")) | (F.col("entrySize") != F.col("size"))
    # With other delay levels, or an address in consumequeue_ext, another code is valid too.
    may_differ = ((F.col("topic") == SCHEDULE_TOPIC) & (F.col("entryCode") >= F.unix_millis("storeTimestamp"))) | (
        F.col("entryCode") <= _EXT_ADDRESS_MAX
    )
    reason = (
        F.when(F.col("physicalOffset").isNull(), stray)
        .when(F.col("path").isNull(), F.lit(None))
        .when(is_other, other)
        .when((F.col("entryCode") != F.col("tagsCode")) & ~may_differ, code)
    )
    wrong = both.withColumn("why", reason).where(F.col("why").isNotNull())
    wrong = wrong.select(
        _find(ERROR, Kind.QUEUE, _name_queue(), F.col("why"), F.coalesce("physicalOffset", "position"))
    )
    missing = (
        both.where(F.col("path").isNull())
        .groupBy("store", "topic", "queueId", "isOpen")
        .agg(
            F.count("*").alias("count"),
            F.min("queueOffset").alias("first"),
            F.max("queueOffset").alias("last"),
            F.min("physicalOffset").alias("physicalOffset"),
        )
    )
    text = F.format_string(
        "%d records have no entry: offsets %d to %d, the first at position %d",
        "count",
        "first",
        "last",
        "physicalOffset",
    )
    # If the store was not closed, its next start creates them.
    level = F.when(F.col("isOpen"), F.lit(WARNING)).otherwise(F.lit(ERROR))
    return wrong.unionByName(missing.select(_find(level, Kind.QUEUE, _name_queue(), text, F.col("physicalOffset"))))


def check_index(keys: Any, rows: Any) -> Any:
    """Compare entries of index files with the keys of the records they point at.

    Inconsistencies within a file are in the column `reason` of `rows`.
    """
    entry = F.when(F.col("number") > 0, F.format_string("entry %d: ", "number")).otherwise(F.lit(""))
    broken = rows.where(F.col("reason").isNotNull()).select(
        _find(ERROR, Kind.INDEX, F.col("path"), F.concat(entry, F.col("reason")), F.col("position"))
    )
    live = rows.where(
        (F.col("number") > 0)
        & (F.col("position") >= F.col("logStart"))
        & ~(F.col("isOpen") & (F.col("position") >= F.col("logEnd")))
    ).select("store", "path", "number", "keyHash", "position", "seconds", "beginTime")
    wanted = keys.select(
        "store",
        F.col("physicalOffset").alias("position"),
        F.unix_millis("storeTimestamp").alias("storeTime"),
        F.explode(F.array_distinct("keyHashes")).alias("keyHash"),
    )
    both = wanted.join(live, ["store", "position", "keyHash"], "full_outer")
    seconds = F.least(F.lit(2**31 - 1), F.greatest(F.lit(0), F.expr("(storeTime - beginTime) div 1000")))
    stray = F.format_string("entry %d: no record with such a key starts at position %d", "number", "position")
    late = F.concat(
        F.format_string("entry %d: %d seconds after the first entry, but its record has  ", "number", "seconds"),
        seconds.cast("string"),
    )
    reason = F.when(F.col("storeTime").isNull(), stray).when(
        # The first entry of a file may count from the time of the previous file.
        (F.col("number") > 1) & (F.abs(F.col("seconds") - seconds) > _SECONDS_OFF_MAX),
        late,
    )
    wrong = both.withColumn("why", reason).where(F.col("why").isNotNull())
    wrong = wrong.select(_find(ERROR, Kind.INDEX, F.col("path"), F.col("why"), F.col("position")))
    # A Java broker drops part of its index after a crash, so this is not damage.
    left_out = (
        both.where(F.col("number").isNull())
        .groupBy("store")
        .agg(F.countDistinct("position").alias("count"), F.min("position").alias("position"))
    )
    text = F.format_string("%d records cannot be found by key, the first at %d", "count", "position")
    path = F.concat("store", F.lit("/index"))
    return broken.unionByName(wrong).unionByName(
        left_out.select(_find(WARNING, Kind.INDEX, path, text, F.col("position")))
    )
