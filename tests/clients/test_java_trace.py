"""Message trace against the official Java client: its bytes through our codec, ours through its."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eruca._wire.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TracedKind,
    TracedOutcome,
    TraceRecord,
    decode_traces,
    encode_trace,
    list_trace_keys,
)
from tests.interop.brokers import BROKER_NAME, PATIENCE, SETTINGS, Cluster, ErucaCluster, JavaCluster
from tests.interop.javapeer import JavaProgram, prepare_peer
from tests.needs import starts

pytestmark = pytest.mark.whole

# Java compiles a program of one file by itself when it is given the file.
PROGRAM = Path(__file__).parent / "java" / "Tracing.java"
SHOP, TILL, BILLING = "TracedShop", "TracedTill", "TracedBilling"


@pytest.fixture(scope="module")
@starts("java")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """`Tracing.java`."""
    with JavaProgram(prepare_peer(), str(PROGRAM), tmp_path_factory.mktemp("tracing")) as started:
        yield started


@pytest.fixture(scope="module", params=["eruca", "java"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running system of either kind."""
    home = tmp_path_factory.mktemp(f"traced-{request.param}")
    java = {**SETTINGS, **PATIENCE}
    with ErucaCluster(home) if request.param == "eruca" else JavaCluster(prepare_peer(), home, java) as started:
        yield started


@pytest.fixture(scope="module")
def messages(program: JavaProgram, cluster: Cluster) -> list[dict[str, Any]]:
    """The trace messages that the Java client sent for a shop, a till and a billing service."""
    asked = {"do": "trace", "nameServer": cluster.name_server, "address": cluster.broker, "broker": BROKER_NAME}
    return program.ask(asked, 120)


def test_what_java_writes_is_written_again_byte_for_byte(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        body = bytes.fromhex(message["hex"])
        assert b"".join(map(encode_trace, decode_traces(body))) == body
    # Sends, decisions, and calls of the listener with their ends.
    kinds = Counter(type(record) for record in list_records(messages))
    assert kinds == {PubTrace: 8, EndTransactionTrace: 4, SubBeforeTrace: 11, SubAfterTrace: 11}


def test_keys_are_those_of_java(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        records = decode_traces(bytes.fromhex(message["hex"]))
        # Java does not find a batch by one of its ids.
        batched = {id_ for record in records if "," in record.message_id for id_ in record.message_id.split(",")}
        ours = {key for record in records for key in list_trace_keys(record)}
        assert set(message["keys"].split(" ")) - batched == ours - batched
        assert batched <= ours


def test_the_fields_are_where_we_think(messages: list[dict[str, Any]], cluster: Cluster) -> None:
    records = list_records(messages)
    pubs = [record for record in records if isinstance(record, PubTrace)]
    assert {(pub.region, pub.topic, pub.store_host, pub.success) for pub in pubs} == {
        ("DefaultRegion", "TracedOrders", cluster.broker, True)
    }
    # How large a batch is depends on the ids in it.
    sizes = {pub.message_id: None if "," in pub.message_id else pub.body_bytes for pub in pubs}
    assert [(pub.group, pub.tags, pub.keys, pub.kind, sizes[pub.message_id]) for pub in sorted_by_time(pubs)] == [
        (SHOP, None, None, TracedKind.NORMAL, 5),
        (SHOP, "TagA", "k1 k2", TracedKind.NORMAL, 6),
        (SHOP, "标签", "ключ 🚀", TracedKind.NORMAL, 3),
        (SHOP, "TagB", None, TracedKind.DELAY, 4),
        (SHOP, None, None, TracedKind.NORMAL, None),
        (TILL, "TagT", "t-0", TracedKind.HALF, len("COMMIT_MESSAGE")),
        (TILL, "TagT", "t-1", TracedKind.HALF, len("ROLLBACK_MESSAGE")),
        (TILL, "TagT", "t-2", TracedKind.HALF, len("UNKNOW")),
    ]
    ends = [record for record in records if isinstance(record, EndTransactionTrace)]
    assert [(end.keys, end.state, end.from_check, end.kind) for end in sorted_by_time(ends)] == [
        ("t-0", "COMMIT_MESSAGE", False, TracedKind.COMMIT),
        ("t-1", "ROLLBACK_MESSAGE", False, TracedKind.COMMIT),
        ("t-2", "UNKNOW", False, TracedKind.COMMIT),
        ("t-2", "COMMIT_MESSAGE", True, TracedKind.COMMIT),
    ]
    befores = {record.request_id: record for record in records if isinstance(record, SubBeforeTrace)}
    afters = {record.request_id: record for record in records if isinstance(record, SubAfterTrace)}
    assert befores.keys() == afters.keys()
    assert {before.group for before in befores.values()} | {after.group for after in afters.values()} == {BILLING}
    assert Counter((befores[request].retries, after.outcome, after.success) for request, after in afters.items()) == {
        (0, TracedOutcome.SUCCESS, True): 7,
        (0, TracedOutcome.FAILED, False): 1,
        (0, TracedOutcome.EXCEPTION, False): 1,
        (1, TracedOutcome.SUCCESS, True): 2,
    }


def test_what_we_write_is_read_by_java(program: JavaProgram) -> None:
    message: dict[str, Any] = {
        "region": "DefaultRegion",
        "group": "g",
        "topic": "t",
        "message_id": "m",
        "store_host": "127.0.0.1:1",
    }
    time_ms = 1_700_000_000_000
    records: list[TraceRecord] = [
        PubTrace(time_ms=time_ms, **message, body_bytes=7, cost_ms=2, offset_message_id="o", tags="标签", keys="a b"),
        PubTrace(time_ms=time_ms, **message, body_bytes=0, cost_ms=0, offset_message_id=None, success=False, kind=3),
        SubBeforeTrace(time_ms=time_ms, region=None, group="g", request_id="r", message_id="m", retries=3),
        SubAfterTrace(request_id="r", message_id="m", cost_ms=9, success=False, outcome=4, time_ms=time_ms, group="g"),
        EndTransactionTrace(
            time_ms=time_ms, **message, keys="k", transaction_id="x", state="ROLLBACK_MESSAGE", from_check=True
        ),
    ]
    body = b"".join(map(encode_trace, records))
    rows = program.ask({"do": "decode", "hex": body.hex()})
    assert [bytes.fromhex(row["hex"]) for row in rows] == [encode_trace(record) for record in records]
    # Java's decoder makes a word of a missing key, so only what has keys can be compared.
    assert [set(rows[number]["keys"]) for number in (0, 4)] == [
        set(list_trace_keys(records[number])) for number in (0, 4)
    ]


def list_records(messages: list[dict[str, Any]]) -> list[TraceRecord]:
    """All records of all messages."""
    return [record for message in messages for record in decode_traces(bytes.fromhex(message["hex"]))]


def sorted_by_time(records: list[Any]) -> list[Any]:
    """Records in the order of their times; those of one millisecond stay as they came."""
    return sorted(records, key=lambda record: record.time_ms)
