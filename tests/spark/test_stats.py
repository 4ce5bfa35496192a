"""Statistics: counts, bytes, rates and latencies by hour and day, what groups consumed, charts and the page."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eruca import Outgoing
from eruca._spark.cluster import Access
from eruca._spark.pipelines.charts import draw_charts, make_page
from eruca._spark.pipelines.inputs import MessageInput
from eruca._spark.pipelines.stats import collect, count_consumption, count_traffic, make_histogram, run_stats
from eruca._spark.pipelines.traces import find_consumed, parse_traces
from eruca._wire.trace import PubTrace, SubAfterTrace, SubBeforeTrace
from tests.interop.brokers import Cluster
from tests.spark.jobframes import HOUR, TEN, make_messages, make_traces
from tests.spark.producing import commit_group, create_topic, name_topic, send

PNG = b"\x89PNG\r\n"


def test_traffic_is_counted_by_hour_topic_tag_and_host(spark: Any) -> None:
    rows: list[dict[str, Any]] = [
        {"stored_ms": TEN + n, "born_ms": TEN + n - latency, "body": b"x" * 100, "tags": "a"}
        for n, latency in enumerate(range(1, 101))
    ]
    rows += [
        {"stored_ms": TEN + HOUR, "body": b"", "bornHost": "[2001:db8::1]:99"},
        {"stored_ms": TEN + HOUR, "topic": "payments", "born_ms": TEN + HOUR + 7},  # a clock that is ahead
        {"stored_ms": TEN + 14 * HOUR, "born_ms": TEN},  # the next day, and very late
    ]
    histogram = make_histogram(make_messages(spark, *rows))
    hours = collect(count_traffic(histogram, "hour"))
    assert [(row["hour"][:16], row["topic"], row["tag"], row["host"], row["messages"]) for row in hours] == [
        ("2026-11-15T10:00", "orders", "a", "10.0.0.1", 100),
        ("2026-11-15T11:00", "orders", "", "[2001:db8::1]", 1),
        ("2026-11-15T11:00", "payments", "", "10.0.0.1", 1),
        ("2026-11-16T00:00", "orders", "", "10.0.0.1", 1),
    ]
    first, _, ahead, late = hours
    assert (first["bytes"], first["messagesPerSecond"], first["bytesPerSecond"]) == (10_000, 100 / 3600, 10_000 / 3600)
    assert (first["storedP50Ms"], first["storedP95Ms"], first["storedP99Ms"], first["storedMaxMs"]) == (
        50.5,
        95.05,
        99.01,
        100,
    )
    assert (ahead["storedMaxMs"], late["storedP50Ms"]) == (0, 14 * HOUR)
    days = collect(count_traffic(histogram, "day", ("topic",)))
    assert [(row["day"][:10], row["topic"], row["messages"]) for row in days] == [
        ("2026-11-15", "orders", 101),
        ("2026-11-15", "payments", 1),
        ("2026-11-16", "orders", 1),
    ]


def _before(request: str, message: str, at: int, group: str = "billing") -> SubBeforeTrace:
    return SubBeforeTrace(time_ms=at, region="r", group=group, request_id=request, message_id=message, retries=0)


def _after(request: str, message: str, at: int | None, *, success: bool = True, group: str | None = "billing") -> Any:
    return SubAfterTrace(request_id=request, message_id=message, cost_ms=10, success=success, time_ms=at, group=group)


def _pub(message: str, at: int = TEN) -> PubTrace:
    return PubTrace(
        time_ms=at,
        region="r",
        group="shop",
        topic="orders",
        message_id=message,
        store_host="h",
        body_bytes=5,
        cost_ms=3,
        offset_message_id="o",
    )


def test_traces_are_rows_also_those_of_older_clients_and_of_batches(spark: Any) -> None:
    frame = make_traces(
        spark,
        _pub("id-0,id-1"),
        _before("r1", "id-0", TEN + 100),
        _after("r1", "id-0", None, group=None),
        _before("r2", "id-1", TEN + 200),
        _after("r2", "id-1", TEN + 230, success=False),
    )
    noise = make_messages(spark, {"body": b"\xff\x01nothing\x02"}, {"body": None}, {"body": b""})
    traces = parse_traces(frame.unionByName(noise))
    rows = sorted(traces.collect(), key=lambda row: (row.kind, row.messageId))
    assert [(row.kind, row.messageId, row.group) for row in rows] == [
        ("after", "id-0", None),
        ("after", "id-1", "billing"),
        ("before", "id-0", "billing"),
        ("before", "id-1", "billing"),
        ("pub", "id-0", "shop"),
        ("pub", "id-1", "shop"),
    ]
    consumed = sorted(find_consumed(traces).collect())
    assert [(row.messageId, row.group, row.consumedMs - TEN, row.success) for row in consumed] == [
        ("id-0", "billing", 110, True),
        ("id-1", "billing", 230, False),
    ]


def test_consumption_is_counted_by_group_and_topic(spark: Any) -> None:
    messages = make_messages(spark, *[{"born_ms": TEN, "stored_ms": TEN + 1} for _ in range(4)])
    traces = parse_traces(
        make_traces(
            spark,
            *[_after(f"r{n}", f"id-{n}", TEN + 100 * (n + 1)) for n in range(3)],
            _after("r9", "id-3", TEN + 900, success=False),
            _after("s0", "id-0", TEN + HOUR, group="search"),
            _after("x", "of another topic", TEN),
        )
    )
    rows = collect(count_consumption(traces, messages, "hour"))
    found = [(row["hour"][11:16], row["group"], row["topic"], row["consumed"], row["failed"]) for row in rows]
    assert found == [("10:00", "billing", "orders", 3, 1), ("11:00", "search", "orders", 1, 0)]
    assert (rows[0]["consumedP50Ms"], rows[0]["consumedMaxMs"], rows[0]["handlerMs"]) == (200.0, 300, 10.0)
    assert rows[1]["consumedP99Ms"] == HOUR


def test_charts_and_page_need_nothing_from_elsewhere() -> None:
    topics = [
        {"hour": f"2026-11-15T{hour:02}:00", "topic": f"t{n}<&>", "messages": n + hour, "bytes": 5, "storedP99Ms": n}
        for hour in range(3)
        for n in range(12)
    ]
    lag = [{"group": "g", "topic": "t", "queues": 4, "behind": 7, "behindMs": 1000}]
    consumed = [{"hour": "x", "group": "g", "topic": "t", "consumed": 1, "consumedP99Ms": None}]
    tables = {"topics-by-hour": topics, "consumed-by-hour": consumed, "lag": lag, "empty": []}
    charts = draw_charts(tables)
    assert set(charts) == {"messages", "bytes", "stored-latency", "consumed", "consumed-latency", "lag"}
    assert all(image.startswith(PNG) and len(image) > 2000 for image in charts.values())
    page = make_page(tables, charts, {"rows": 1, "bytes": 2, "first": "a", "last": "b", "warnings": ["<script>"]})
    assert page.count("data:image/png;base64,") == 6
    assert "http" not in page and "<script" not in page and "t0&lt;&amp;&gt;" in page
    assert draw_charts({}) == {}


def test_the_job_writes_tables_charts_and_a_page(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, group = name_topic("counted"), name_topic("counters")
    queues = create_topic(cluster, topic, 2)
    send(cluster, topic, [Outgoing(b"x" * 10, tags="a") for _ in range(30)], queue=0)
    commit_group(cluster, group, {queues[0]: 10})
    wanted = MessageInput(access=Access(cluster.name_server), topics=(topic,), since=datetime.fromtimestamp(0, UTC))
    summary = run_stats(spark, wanted, str(tmp_path / "report"), trace_topic=name_topic("no-traces"))
    assert (summary.rows, summary.bytes, summary.bad) == (30, 300, {})
    with (tmp_path / "report" / "traffic-by-day.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["messages"]) for row in rows) == 30
    assert {(row["topic"], row["tag"], row["host"]) for row in rows} == {(topic, "a", "127.0.0.1")}
    with (tmp_path / "report" / "lag.csv").open(encoding="utf-8") as file:
        behind = {row["group"]: int(row["behind"]) for row in csv.DictReader(file) if row["topic"] == topic}
    assert behind == {group: 20}
    assert (tmp_path / "report" / "messages.png").read_bytes().startswith(PNG)
    assert topic in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert summary.outputs["report"].endswith("report.html")
