"""Trace messages as rows: what producers and consumers did with each message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as sf

from eruca._spark.cluster import Cluster
from eruca._spark.pipelines.inputs import MessageInput, open_messages
from eruca._wire.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceRecord,
    decode_traces,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUB: Final = "pub"
BEFORE: Final = "before"
AFTER: Final = "after"
END: Final = "end"
_KINDS: Final[dict[type[TraceRecord], str]] = {
    PubTrace: PUB,
    SubBeforeTrace: BEFORE,
    SubAfterTrace: AFTER,
    EndTransactionTrace: END,
}
_FIELDS: Final[tuple[tuple[str, str, str], ...]] = (
    # column, attribute of a record, type
    ("timeMs", "time_ms", "bigint"),
    ("group", "group", "string"),
    ("topic", "topic", "string"),
    ("requestId", "request_id", "string"),
    ("bodyBytes", "body_bytes", "int"),
    ("costMs", "cost_ms", "int"),
    ("success", "success", "boolean"),
    ("retries", "retries", "int"),
    # What was sent: 0 a plain message, 1 a half, 2 a decision, 3 a delayed one.
    ("messageKind", "kind", "int"),
    ("state", "state", "string"),
    ("fromCheck", "from_check", "boolean"),
)
_ARROW: Final = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "boolean": pa.bool_()}
TRACE_SCHEMA: Final = "kind string, messageId string, " + ", ".join(f"`{name}` {kind}" for name, _, kind in _FIELDS)
_ARROW_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("messageId", pa.string()), *[(name, _ARROW[kind]) for name, _, kind in _FIELDS]]
)


def open_traces(session: SparkSession, wanted: MessageInput, topic: str, warnings: list[str]) -> Any:
    """Return the trace records of an input; None if it has no trace topic."""
    place = replace(wanted, topics=(topic,), pattern="", until=None)
    if wanted.access is not None:
        with Cluster(wanted.access) as cluster:
            if not cluster.list_queues([topic]):
                place = replace(place, access=None)
    if not (place.archive or place.access or place.stores):
        return None
    return parse_traces(open_messages(session, place, warnings))


def parse_traces(messages: Any) -> Any:
    """Return a row for each record in the bodies of trace messages, and for each message of a sent batch."""
    return messages.select("body").mapInArrow(_parse, TRACE_SCHEMA)


def _parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for body in batch.column(0).to_pylist():
            for record in decode_traces(body) if body is not None else ():
                values = [getattr(record, attribute, None) for _, attribute, _ in _FIELDS]
                # The ids of a batch are one text, separated by commas.
                rows += [(_KINDS[type(record)], each, *values) for each in record.message_id.split(",")]
        columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * len(_ARROW_SCHEMA)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, _ARROW_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def find_consumed(traces: Any) -> Any:
    """Return what groups consumed: messageId, group, consumedMs, costMs and success of each delivery.

    Older clients do not record group and time at the end of a delivery; they are taken from its beginning.
    """
    before = traces.where(sf.col("kind") == BEFORE).select(
        "requestId", "messageId", sf.col("group").alias("_group"), sf.col("timeMs").alias("_begun")
    )
    return (
        traces.where(sf.col("kind") == AFTER)
        .join(before.dropDuplicates(["requestId", "messageId"]), ["requestId", "messageId"], "left")
        .select(
            "messageId",
            sf.coalesce("group", "_group").alias("group"),
            sf.coalesce("timeMs", sf.col("_begun") + sf.col("costMs")).alias("consumedMs"),
            "costMs",
            "success",
        )
        .where(sf.col("group").isNotNull())
    )
