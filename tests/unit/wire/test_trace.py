"""Trace records: bytes of the Java client, records of older clients, and whatever else may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

# Written by the Java client 4.9.7 (`tests/clients/test_java_trace.py` lets it write more), and what it means.
ID = "FD0000000000000000000000000000022C3F4E0E2F2A4AFF6"
OFFSET_ID = "7F0000010000665A000000000000"
HOST = "127.0.0.1:26202"
JAVA: list[tuple[str, TraceRecord]] = [
    (
        f"Pub\x011794749451353\x01DefaultRegion\x01TracedShop\x01TracedOrders\x01{ID}4590002\x01TagA\x01k1 k2\x01{HOST}"
        f"\x016\x017\x010\x01{OFFSET_ID}00C4\x01true\x02",
        PubTrace(
            time_ms=1794749451353,
            region="DefaultRegion",
            group="TracedShop",
            topic="TracedOrders",
            message_id=f"{ID}4590002",
            tags="TagA",
            keys="k1 k2",
            store_host=HOST,
            body_bytes=6,
            cost_ms=7,
            kind=TracedKind.NORMAL,
            offset_message_id=f"{OFFSET_ID}00C4",
            success=True,
        ),
    ),
    (
        f"Pub\x011794749451364\x01DefaultRegion\x01TracedShop\x01TracedOrders\x01{ID}4640006\x01TagB\x01null\x01{HOST}"
        f"\x014\x012\x013\x01{OFFSET_ID}027F\x01true\x02",
        PubTrace(
            time_ms=1794749451364,
            region="DefaultRegion",
            group="TracedShop",
            topic="TracedOrders",
            message_id=f"{ID}4640006",
            tags="TagB",
            store_host=HOST,
            body_bytes=4,
            cost_ms=2,
            kind=TracedKind.DELAY,
            offset_message_id=f"{OFFSET_ID}027F",
            success=True,
        ),
    ),
    (
        f"Pub\x011794749451360\x01DefaultRegion\x01TracedShop\x01TracedOrders\x01{ID}4600004\x01标签\x01ключ 🚀\x01"
        f"{HOST}\x013\x014\x010\x01{OFFSET_ID}019E\x01true\x02",
        PubTrace(
            time_ms=1794749451360,
            region="DefaultRegion",
            group="TracedShop",
            topic="TracedOrders",
            message_id=f"{ID}4600004",
            tags="标签",
            keys="ключ 🚀",
            store_host=HOST,
            body_bytes=3,
            cost_ms=4,
            offset_message_id=f"{OFFSET_ID}019E",
        ),
    ),
    (
        f"SubBefore\x011794749451511\x01null\x01TracedBilling\x01{ID}4F70019\x01{ID}4590002\x010\x01k1 k2\x02",
        SubBeforeTrace(
            time_ms=1794749451511,
            region=None,
            group="TracedBilling",
            request_id=f"{ID}4F70019",
            message_id=f"{ID}4590002",
            retries=0,
            keys="k1 k2",
        ),
    ),
    (
        f"SubAfter\x01{ID}4F70019\x01{ID}4590002\x010\x01false\x01k1 k2\x012\x011794749451511\x01TracedBilling\x02",
        SubAfterTrace(
            request_id=f"{ID}4F70019",
            message_id=f"{ID}4590002",
            cost_ms=0,
            success=False,
            keys="k1 k2",
            outcome=TracedOutcome.EXCEPTION,
            time_ms=1794749451511,
            group="TracedBilling",
        ),
    ),
    (
        f"EndTransaction\x011794749452772\x01DefaultRegion\x01TracedTill\x01TracedOrders\x01{ID}4970012\x01TagT\x01t-2"
        f"\x01{HOST}\x012\x01{ID}4970012\x01COMMIT_MESSAGE\x01true\x02",
        EndTransactionTrace(
            time_ms=1794749452772,
            region="DefaultRegion",
            group="TracedTill",
            topic="TracedOrders",
            message_id=f"{ID}4970012",
            tags="TagT",
            keys="t-2",
            store_host=HOST,
            kind=TracedKind.COMMIT,
            transaction_id=f"{ID}4970012",
            state="COMMIT_MESSAGE",
            from_check=True,
        ),
    ),
]

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))
words = texts.filter(lambda text: text != "null")
maybe = st.none() | words
numbers = st.integers(-(2**63), 2**63 - 1)
records: st.SearchStrategy[TraceRecord] = st.one_of(
    st.builds(
        PubTrace,
        time_ms=numbers,
        region=maybe,
        group=texts,
        topic=texts,
        message_id=texts,
        tags=maybe,
        keys=maybe,
        store_host=maybe,
        body_bytes=numbers,
        cost_ms=numbers,
        kind=numbers,
        offset_message_id=maybe,
        success=st.booleans(),
        client_host=maybe,
    ),
    st.builds(
        SubBeforeTrace,
        time_ms=numbers,
        region=maybe,
        group=texts,
        request_id=texts,
        message_id=texts,
        retries=numbers,
        keys=maybe,
    ),
    st.builds(
        SubAfterTrace,
        request_id=texts,
        message_id=texts,
        cost_ms=numbers,
        success=st.booleans(),
        keys=maybe,
        outcome=numbers,
        time_ms=numbers,
        group=texts,
    ),
    st.builds(
        EndTransactionTrace,
        time_ms=numbers,
        region=maybe,
        group=texts,
        topic=texts,
        message_id=texts,
        tags=maybe,
        keys=maybe,
        store_host=maybe,
        kind=numbers,
        transaction_id=maybe,
        state=texts,
        from_check=st.booleans(),
    ),
)


@pytest.mark.parametrize(("text", "record"), JAVA, ids=[type(record).__name__ for _, record in JAVA])
def test_records_of_the_java_client(text: str, record: TraceRecord) -> None:
    assert decode_traces(text.encode()) == [record]
    assert encode_trace(record) == text.encode()


def test_a_body_is_records_one_after_the_other() -> None:
    assert decode_traces("".join(text for text, _ in JAVA).encode()) == [record for _, record in JAVA]
    assert decode_traces(b"") == []


@given(st.lists(records, max_size=4))
def test_what_is_written_is_read(given_records: list[TraceRecord]) -> None:
    assert decode_traces(b"".join(map(encode_trace, given_records))) == given_records


@given(st.binary() | st.lists(st.sampled_from([b"Pub", b"SubAfter", b"\x01", b"\x02", b"7", b"x"])).map(b"".join))
def test_any_bytes_are_read_as_something(body: bytes) -> None:
    for record in decode_traces(body):
        assert decode_traces(encode_trace(record)) == [record]


# --- older and other clients --------------------------------------------------------------------------------------


def make_pub(*last: str) -> bytes:
    first = ("Pub", "5", "region", "group", "topic", "id", "tag", "key", "host", "7", "3", "0")
    return "\x01".join((*first, *last)).encode() + b"\x02"


def make_after(*last: str) -> bytes:
    return "\x01".join(("SubAfter", "request", "id", "3", "TRUE", "key", *last)).encode() + b"\x02"


@pytest.mark.parametrize(
    ("last", "offset_id", "success", "client_host"),
    [
        (("true",), None, True, None),
        (("false",), None, False, None),
        (("offset-id", "true"), "offset-id", True, None),
        (("offset-id", "false", "client"), "offset-id", False, "client"),
        (("null", "true", "client", "more"), None, True, "client"),
    ],
)
def test_sends_of_all_ages(
    last: tuple[str, ...], offset_id: str | None, success: bool, client_host: str | None
) -> None:
    (record,) = decode_traces(make_pub(*last))
    assert isinstance(record, PubTrace)
    assert (record.offset_message_id, record.success, record.client_host) == (offset_id, success, client_host)


@pytest.mark.parametrize(
    ("last", "outcome", "time_ms", "group"),
    [
        ((), 0, None, None),
        (("4",), 4, None, None),
        (("4", ""), 4, None, None),
        (("4", "5", "group"), 4, 5, "group"),
        (("4", "5", "group", "more"), 4, 5, "group"),
    ],
)
def test_ends_of_listeners_of_all_ages(
    last: tuple[str, ...], outcome: int, time_ms: int | None, group: str | None
) -> None:
    (record,) = decode_traces(make_after(*last))
    assert isinstance(record, SubAfterTrace)
    assert record.success
    assert (record.outcome, record.time_ms, record.group) == (outcome, time_ms, group)


def test_ends_without_a_time_are_written_as_older_clients_did() -> None:
    (record,) = decode_traces(make_after("4"))
    assert encode_trace(record) == make_after("4").replace(b"TRUE", b"true")


def test_records_that_the_cloud_channel_joined() -> None:
    # There Java 4.9 ends a SubAfter as it ends a field.
    joined = make_after("4")[:-1] + b"\x01"
    after = decode_traces(make_after("4"))
    body = joined + joined + encode_trace(JAVA[0][1]) + joined
    assert decode_traces(body) == [*after, *after, JAVA[0][1], *after]


@pytest.mark.parametrize(
    "bad",
    [
        b"Recall\x015\x01region\x01group\x01topic\x01id\x01true\x02",
        b"\x02\x02\x01\x02",
        b"Pub\x02",
        b"Pub\x01five\x02",
        make_pub(),
        make_pub("true").replace(b"\x017\x01", b"\x01seven\x01"),
        make_pub("true").replace(b"\x017\x01", b"\x01" + b"9" * 400 + b"\x01"),
        b"SubBefore\x015\x01region\x01group\x02",
        b"SubAfter\x01request\x02",
        b"EndTransaction\x015\x01region\x01group\x01topic\x01id\x02",
        b"\xff\xfe\x02",
    ],
)
def test_what_cannot_be_read_hides_nothing_else(bad: bytes) -> None:
    good = encode_trace(JAVA[0][1])
    assert decode_traces(bad + good + bad) == [JAVA[0][1]]


# --- keys ---------------------------------------------------------------------------------------------------------


def test_keys_are_the_id_and_the_keys_of_the_message() -> None:
    assert list_trace_keys(JAVA[0][1]) == [f"{ID}4590002", "k1", "k2"]
    assert list_trace_keys(JAVA[1][1]) == [f"{ID}4640006"]


def test_a_batch_is_found_by_each_of_its_ids() -> None:
    (record,) = decode_traces(make_pub("true").replace(b"\x01id\x01", b"\x01id-0,id-1\x01"))
    assert list_trace_keys(record) == ["id-0,id-1", "id-0", "id-1", "key"]
