"""Audits: what was sent, stored and consumed is compared, and transactions that nobody decided are found."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eruca import Decision, Message, Outgoing, Producer
from eruca._spark.cluster import Access
from eruca._spark.pipelines.audit import (
    compare_messages,
    count_transactions,
    find_deliveries,
    find_transactions,
    run_audit,
)
from eruca._spark.pipelines.inputs import MessageInput
from eruca._spark.pipelines.stats import collect
from eruca._spark.pipelines.traces import parse_traces
from eruca._wire.trace import EndTransactionTrace, PubTrace, SubAfterTrace, TracedKind
from tests.clients.stage import make_consumer, poll
from tests.interop.brokers import SETTINGS, Cluster, ErucaCluster
from tests.spark.jobframes import MINUTE, TEN, make_messages, make_traces
from tests.spark.producing import create_topic, name_topic, run, send_transactions


def _pub(message: str, at: int = TEN, **others: Any) -> PubTrace:
    known: dict[str, Any] = {"topic": "orders", "success": True, "kind": TracedKind.NORMAL} | others
    return PubTrace(
        time_ms=at,
        region=None,
        group="shop",
        message_id=message,
        store_host="h",
        body_bytes=1,
        cost_ms=1,
        offset_message_id=None,
        **known,
    )


def _after(message: str, at: int, group: str = "billing", *, success: bool = True) -> SubAfterTrace:
    return SubAfterTrace(request_id="r", message_id=message, cost_ms=1, success=success, time_ms=at, group=group)


def _list(frame: Any) -> list[tuple[str, str, str | None, str]]:
    return sorted(((row.finding, row.topic, row.group, row.messageId) for row in frame.collect()), key=str)


def test_what_is_lost_doubled_and_late_is_found(spark: Any) -> None:
    stored = make_messages(
        spark,
        {"messageId": "good"},
        {"messageId": "twice"},
        {"messageId": "twice"},
        {"messageId": "late", "born_ms": TEN - 1},
        {"messageId": "left", "stored_ms": TEN + 10},
        {"messageId": "fresh", "stored_ms": TEN + 2 * MINUTE},
        {"messageId": "tagged", "tags": "nobody wants this"},
    )
    traces = parse_traces(
        make_traces(
            spark,
            _pub("good"),
            _pub("twice"),
            _pub("gone", TEN + 5),
            _pub("failed", TEN + 5, success=False),
            _pub("expired", TEN - MINUTE),
            _pub("young", TEN + 2 * MINUTE),
            _pub("delayed", TEN + 5, kind=TracedKind.DELAY),
            _pub("half", TEN + 5, kind=TracedKind.HALF),
            _pub("other", TEN + 5, topic="not audited"),
            EndTransactionTrace(
                time_ms=TEN + 6,
                region=None,
                group="shop",
                topic="orders",
                message_id="committed",
                store_host="h",
                transaction_id="t",
                state="COMMIT_MESSAGE",
                from_check=False,
            ),
            _after("good", TEN + 50),
            _after("twice", TEN + 50),
            _after("late", TEN + MINUTE),
            _after("left", TEN + 60, success=False),
            _after("good", TEN + 70, "search"),
            _after("good", TEN + 90, "search"),
            *[_after(name, TEN + 90, "search") for name in ("twice", "late", "left")],
        )
    )
    found = compare_messages(stored, traces, find_deliveries(traces), late_ms=MINUTE, settled_ms=TEN + MINUTE)
    assert _list(found) == [
        ("consumed twice", "orders", "search", "good"),
        ("late", "orders", "billing", "late"),
        ("lost", "orders", None, "committed"),
        ("lost", "orders", None, "gone"),
        ("not consumed", "orders", "billing", "left"),
        ("stored twice", "orders", None, "twice"),
    ]
    times = {row.finding: row.times for row in found.collect() if row.times}
    assert times == {"consumed twice": 2, "stored twice": 2}


def test_nothing_is_claimed_without_traces(spark: Any) -> None:
    stored = make_messages(spark, {}, {})
    none = parse_traces(make_traces(spark))
    assert compare_messages(stored, none, find_deliveries(none), late_ms=MINUTE, settled_ms=2**60).count() == 0


def test_transactions_are_told_by_half_and_op_records(spark: Any) -> None:
    half, op, up = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
    facts = {"PGROUP": "shop", "REAL_TOPIC": "orders"}

    def row(topic: str, message: str, offset: int, position: int, **others: Any) -> tuple[dict[str, Any], int]:
        return {"topic": topic, "messageId": message, "queueOffset": offset, "properties": facts} | others, position

    rows = [
        row(op, "stale", 9, 50, tags="d", body=b"0"),  # of a half that a crash took
        row(half, "open", 0, 100),
        row(half, "done", 1, 200),
        row(half, "checked", 2, 300, properties=facts | {"TRANSACTION_CHECK_TIMES": "1"}),
        row(half, "checked", 3, 400, properties=facts | {"TRANSACTION_CHECK_TIMES": "2"}),
        row(half, "over", 4, 500, properties={"PGROUP": "other", "TRANSACTION_CHECK_TIMES": "15"}),
        row(op, "", 0, 600, tags="d", body=b"1"),
        row(op, "", 1, 700, tags="d", body=b"2"),
        row(op, "", 2, 750, tags="d", body=b"4"),
        row(up, "over", 0, 800),
        row(op, "", 3, 900, tags="d", body=b"no number"),
    ]
    positions = spark.createDataFrame(
        [(each["topic"], each["queueOffset"], at) for each, at in rows],
        "topic string, queueOffset long, physicalOffset long",
    )
    frame = make_messages(spark, *[each for each, _ in rows]).join(positions, ["topic", "queueOffset"])
    found = find_transactions(frame)
    states = {each.messageId: (each.state, each.checks, each.producerGroup) for each in found.collect()}
    assert states == {
        "open": ("prepared", 0, "shop"),
        "done": ("decided", 0, "shop"),
        "checked": ("decided", 2, "shop"),
        "over": ("given up", 15, "other"),
    }
    groups = {each["producerGroup"]: each for each in collect(count_transactions(found))}
    assert (groups["shop"]["transactions"], groups["shop"]["undecided"], groups["shop"]["checks"]) == (3, 1, 2)
    assert (groups["other"]["givenUp"], groups["other"]["checksMax"], groups["other"]["undecidedSince"]) == (
        1,
        15,
        None,
    )


def test_the_job_compares_what_clients_traced(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    topic, group, traces = name_topic("audited"), name_topic("auditors"), name_topic("traces")
    create_topic(cluster, topic, 2)
    create_topic(cluster, traces, 1)

    async def work() -> int:
        got: list[bytes] = []
        consumer = make_consumer(cluster.name_server, group, trace=traces)

        @consumer.handler(topic)
        async def handle(message: Message) -> None:
            got.append(message.body)

        async with Producer(cluster.name_server, group=name_topic("senders"), trace=traces) as producer:
            for number in range(12):
                await producer.send(topic, b"message-%d" % number)
            await producer.send_batch(topic, [Outgoing(b"in a batch"), Outgoing(b"and this")])
            async with consumer:
                await poll(_as_awaitable(lambda: len(got)), lambda count: count >= 14)
        return len(got)

    assert run(work()) == 14
    # Traces are all in their topic when producer and consumer are closed.
    wanted = MessageInput(access=Access(cluster.name_server), topics=(topic,))
    summary = run_audit(spark, wanted, str(tmp_path / "a"), trace_topic=traces, settle=0, late=timedelta(days=10))
    assert summary.rows == 14
    assert summary.facts["trace records"] == 14 + 2 * 14
    assert {name: summary.facts[name] for name in ("lost", "stored twice", "not consumed", "consumed twice")} == {
        "lost": 0,
        "stored twice": 0,
        "not consumed": 0,
        "consumed twice": 0,
    }
    # All of them are late for one who has no patience at all.
    summary = run_audit(spark, wanted, str(tmp_path / "b"), trace_topic=traces, settle=0, late=0)
    assert summary.facts["late"] == 14
    with (tmp_path / "b" / "findings.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["finding"], row["topic"], row["group"]) for row in rows} == {("late", topic, group)}


@pytest.mark.whole
def test_open_transactions_are_listed(spark: Any, tmp_path: Path) -> None:
    # Nobody is asked while the test looks, however long that takes.
    settings = {**SETTINGS, "transactionCheckInterval": 3_600_000}
    with ErucaCluster(tmp_path / "home", settings) as cluster:
        topic = name_topic("audited")
        create_topic(cluster, topic, 1)
        send_transactions(cluster, topic, [Decision.COMMIT, Decision.UNKNOWN, Decision.ROLLBACK])
        wanted = MessageInput(access=Access(cluster.name_server), topics=(topic,))
        summary = run_audit(spark, wanted, str(tmp_path), trace_topic="no-traces")
        assert (summary.rows, summary.facts["undecided transactions"]) == (1, 1)
        assert "there is no topic no-traces" in summary.warnings[0]
    with (tmp_path / "transactions.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["state"], row["producerGroup"]) for row in rows] == [("prepared", "spark-transactions")]
    # The files alone tell the same, and of the others that they are decided.
    wanted = MessageInput(stores={"broker-a": str(tmp_path / "home" / "data" / "store")}, topics=(topic,))
    summary = run_audit(spark, wanted, str(tmp_path / "of-store"))
    assert (summary.rows, summary.facts["undecided transactions"], summary.facts["trace records"]) == (1, 1, 0)
    with (tmp_path / "of-store" / "transaction-groups.csv").open(encoding="utf-8") as file:
        (group,) = csv.DictReader(file)
    assert (group["producerGroup"], group["transactions"], group["undecided"]) == ("spark-transactions", "3", "1")


def _as_awaitable(look: Any) -> Any:
    async def ask() -> Any:
        return look()

    return ask
