"""Small frames of messages and traces, for tests of what jobs make of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eruca._spark.pipelines.archive.frames import ARCHIVE_SCHEMA
from eruca._wire.trace import TraceRecord, encode_trace

# 2026-11-15 10:00:00 UTC
TEN = 1_794_736_800_000
MINUTE = 60_000
HOUR = 60 * MINUTE


def make_messages(spark: Any, *rows: dict[str, Any]) -> Any:
    """A frame of messages: each row says what is not as in all others."""
    made = []
    for number, row in enumerate(rows):
        stored_ms = row.get("stored_ms", TEN + number)
        plain: dict[str, Any] = {
            "topic": "orders",
            "broker": "broker-a",
            "queueId": 0,
            "queueOffset": number,
            "messageId": f"id-{number}",
            "offsetId": f"offset-{number}",
            "keys": [],
            "tags": None,
            "body": b"body-%d" % number,
            "flag": 0,
            "bornTimestamp": _to_time(row.get("born_ms", stored_ms - 5)),
            "bornHost": "10.0.0.1:4711",
            "storeTimestamp": _to_time(stored_ms),
            "storeHost": "10.0.0.9:10911",
            "reconsumeTimes": 0,
            "transactionState": "none",
            "properties": {},
            "date": _to_time(stored_ms).date(),
        }
        plain |= {name: value for name, value in row.items() if not name.endswith("_ms")}
        made.append(tuple(plain[name] for name in ARCHIVE_SCHEMA.names))
    return spark.createDataFrame(made, ARCHIVE_SCHEMA)


def make_traces(spark: Any, *records: TraceRecord) -> Any:
    """A frame of trace messages, two records in each."""
    bodies = [b"".join(map(encode_trace, records[at : at + 2])) for at in range(0, len(records), 2)]
    return make_messages(spark, *[{"topic": "RMQ_SYS_TRACE_TOPIC", "body": body} for body in bodies])


def _to_time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
