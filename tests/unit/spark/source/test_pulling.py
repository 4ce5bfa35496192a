"""Reading ranges of a queue: brokers with other bounds, brokers that go away, and brokers that lie."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from eruca._ground.backoff import Backoff
from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.source import pulling
from eruca._spark.source.options import SourceOptions, read_options
from eruca._spark.source.partitions import PulledPartition, QueueRange
from eruca._spark.source.pulling import read_partition
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import ResponseCode
from eruca._wire.headers import PullMessageHeader
from eruca.errors import NetError, OffsetLost, RequestRefused, WireError
from tests.unit.spark.source.pullserver import BROKER, DROP, SILENT, TOPIC, PullServer, Step, make_record

COLUMNS = [column for column in MESSAGE_COLUMNS if column.name in ("queueOffset", "body", "broker")]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(pulling, "RETRIES", Backoff(0.01, 5.0))
    monkeypatch.setattr(pulling, "_SHORT_PAUSE_S", 0.005)


def make_options(server: PullServer, **given: str) -> SourceOptions:
    return read_options({"nameServer": server.address, "subscribe": TOPIC, "retries": "3", **given})


def read(server: PullServer, begin: int, end: int, **given: str) -> list[int]:
    batches = read_partition(server.plan(begin, end), make_options(server, **given), COLUMNS)
    return [row["queueOffset"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def server() -> Iterator[PullServer]:
    with PullServer(1000) as started:
        yield started


# -- how brokers answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", ["1", "5", "64"])
@pytest.mark.parametrize(("count_max", "pulls_max"), [(8, 1400), (32, 360), (1000, 14), (4096, 4)])
def test_all_messages_in_order_whatever_the_bound(count_max: int, pulls_max: int, in_flight: str) -> None:
    with PullServer(10_000, count_max=count_max, bytes_max=4 * 1024 * 1024) as server:
        assert read(server, 0, 10_000, pullInFlight=in_flight) == list(range(10_000))
        # Not many more than are needed.
        assert len(server.asked) <= pulls_max + 3 * int(in_flight)


def test_bodies_and_broker_come_along(server: PullServer) -> None:
    (batch,) = read_partition(server.plan(40, 43), make_options(server), COLUMNS)
    assert batch.to_pylist() == [
        {"broker": BROKER, "queueOffset": offset, "body": b"message-%d" % offset} for offset in (40, 41, 42)
    ]


def test_a_bound_in_bytes_and_messages_of_all_sizes() -> None:
    with PullServer(3000, count_max=4096, bytes_max=20_000) as server:
        for offset in range(3000):
            server.records[offset] = make_record(offset, body=b"x" * (offset * 7919 % 3000))
        server.records[1234] = make_record(1234, body=b"y" * 300_000)
        assert read(server, 0, 3000) == list(range(3000))


def test_one_short_answer_means_nothing() -> None:
    with PullServer(40_000, count_max=4096) as server:
        server.file_entries = 9_999
        assert read(server, 0, 40_000) == list(range(40_000))
        assert len(server.asked) < 40


def test_a_range_ends_where_it_should(server: PullServer) -> None:
    assert read(server, 17, 18) == [17]
    assert read(server, 31, 65) == list(range(31, 65))
    assert max(offset + count for offset, count in server.asked) <= 65


def test_several_ranges_share_a_task(server: PullServer) -> None:
    whole = server.plan(0, 10).ranges + server.plan(500, 510).ranges + server.plan(20, 21).ranges
    batches = list(read_partition(PulledPartition(whole), make_options(server), COLUMNS))
    assert len(batches) == 1
    assert batches[0].column("queueOffset").to_pylist() == [*range(10), *range(500, 510), 20]


def test_two_brokers_share_a_task(server: PullServer) -> None:
    with PullServer(300, count_max=4096) as second:
        other = QueueRange(MessageQueue("broker-b", 0, TOPIC), 10, 300, second.address)
        partition = PulledPartition([*server.plan(0, 100).ranges, other])
        rows = [
            (row["broker"], row["queueOffset"])
            for batch in read_partition(partition, make_options(server), COLUMNS)
            for row in batch.to_pylist()
        ]
    assert rows == [(BROKER, offset) for offset in range(100)] + [("broker-b", offset) for offset in range(10, 300)]
    # What one broker gives at once says nothing of the other.
    assert len(second.asked) == 1


def test_a_plan_without_partitions() -> None:
    assert list(read_partition(InputPartition(None), None, COLUMNS)) == []  # type: ignore[arg-type]


def test_who_stops_reading_leaves_nothing_behind(server: PullServer) -> None:
    batches = read_partition(server.plan(0, 1000), make_options(server), COLUMNS)
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    server.wait_until_alone()


# -- brokers that go away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [DROP, int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)])
@pytest.mark.parametrize("when", [0, 5])
def test_what_passes_is_tried_again(server: PullServer, step: Step, when: int) -> None:
    def fail_thrice(header: PullMessageHeader) -> Step | None:
        return step if when <= len(server.asked) < when + 3 else None

    server.script = fail_thrice
    assert read(server, 0, 1000) == list(range(1000))


def test_many_failures_are_no_matter_as_long_as_it_goes_on(server: PullServer) -> None:
    server.script = lambda header: DROP if len(server.asked) % 3 == 2 else None
    assert read(server, 0, 1000, pullInFlight="2") == list(range(1000))


def test_a_silent_broker_is_hung_up_on(server: PullServer) -> None:
    server.steps.extend([SILENT])
    assert read(server, 0, 100, requestTimeout="200ms") == list(range(100))


def test_it_gives_up_in_the_end(server: PullServer) -> None:
    server.script = lambda header: DROP
    with pytest.raises(NetError, match="the connection to"):
        read(server, 0, 1000)
    assert len(server.asked) == 4


def test_a_refusal_is_told_at_once(server: PullServer) -> None:
    server.script = lambda header: int(ResponseCode.NO_PERMISSION)
    with pytest.raises(RequestRefused, match="as the test wants"):
        read(server, 0, 1000)
    assert len(server.asked) == 1


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_broker_that_moved_is_found_again_or_its_slave(server: PullServer, broker_id: int) -> None:
    with PullServer(1000) as new:
        server.route_to(new.address, broker_id)
        server.script = lambda header: DROP if header.queue_offset >= 320 else None
        assert read(server, 0, 1000) == list(range(1000))
        assert new.asked


def test_no_time_runs_while_nobody_asks(server: PullServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "BATCH_ROWS", 100)
    options = make_options(server, requestTimeout="2s", pullInFlight="4", retries="0")
    seen: list[int] = []
    for number, batch in enumerate(read_partition(server.plan(0, 1000), options, COLUMNS)):
        seen += batch.column("queueOffset").to_pylist()
        if number == 0:
            threading.Event().wait(2.5)  # Spark is busy, and answers wait in the socket
    assert seen == list(range(1000))
    assert number > 0


# -- data loss ---------------------------------------------------------------------------------------------------------


def test_messages_that_expired_meanwhile(server: PullServer, caplog: pytest.LogCaptureFixture) -> None:
    server.min_offset = 900
    with pytest.raises(OffsetLost, match=r"t, broker broker-a, queue 0, should be read from 10 to 1000, but at 10 the"):
        read(server, 10, 1000)
    caplog.set_level(logging.WARNING)
    assert read(server, 10, 1000, failOnDataLoss="false") == list(range(900, 1000))
    assert not caplog.records
    server.asked.clear()
    assert read(server, 10, 1000, failOnDataLoss="warn") == list(range(900, 1000))
    assert [record.getMessage() for record in caplog.records] == [
        "data loss, continuing with what is available: t, broker broker-a, queue 0,"
        " should be read from 10 to 1000, but at 10"
        " the queue now begins at 900"
    ]
    # What is gone is not asked for piece by piece.
    assert len(server.asked) < 30


def test_all_that_was_wanted_expired(server: PullServer) -> None:
    server.min_offset = 900
    assert read(server, 10, 300, failOnDataLoss="false") == []


def test_a_queue_that_ends_before_it_should(server: PullServer) -> None:
    with pytest.raises(OffsetLost, match="from 990 to 1200, but at 1000 the queue ends at 1000"):
        read(server, 990, 1200)
    assert read(server, 990, 1200, failOnDataLoss="false") == list(range(990, 1000))
    assert read(server, 1100, 1200, failOnDataLoss="false") == []


def test_a_queue_that_catches_up(server: PullServer) -> None:
    """A slave, or a broker that comes up."""
    server.max_offset = 995

    def catch_up(header: PullMessageHeader) -> Step | None:
        if len(server.asked) > 5:
            server.max_offset = 1000
        return None

    server.script = catch_up
    assert read(server, 990, 1000) == list(range(990, 1000))


def test_a_topic_that_was_deleted(server: PullServer) -> None:
    server.script = lambda header: int(ResponseCode.TOPIC_NOT_EXIST)
    server.has_route = False
    with pytest.raises(OffsetLost, match="at 0 the topic no longer exists"):
        read(server, 0, 10)
    assert read(server, 0, 10, failOnDataLoss="false") == []


def test_a_broker_that_does_not_know_the_topic_yet(server: PullServer) -> None:
    server.steps.extend([int(ResponseCode.TOPIC_NOT_EXIST)] * 2)
    assert read(server, 0, 10) == list(range(10))


def test_gaps(server: PullServer, caplog: pytest.LogCaptureFixture) -> None:
    for offset in (100, 500, 501):
        del server.records[offset]
    with pytest.raises(OffsetLost, match=r"1 of the messages from \d+ to \d+ are missing, the first at 100"):
        read(server, 0, 1000)
    left = [offset for offset in range(1000) if offset in server.records]
    assert read(server, 0, 1000, failOnDataLoss="warn") == left
    assert "the first at 500" in caplog.text
    # With a filter there are gaps all the time.
    assert read(server, 0, 1000, sql92="a = 1") == left


def test_a_wrong_crc(server: PullServer) -> None:
    record = server.records[7]
    server.records[7] = record.replace(b"message-7", b"massage-7")
    assert 7 in read(server, 0, 20)
    with pytest.raises(OffsetLost, match="the message at 7 does not match its CRC"):
        read(server, 0, 20, verifyCrc="true")
    assert read(server, 0, 20, verifyCrc="true", failOnDataLoss="false") == [*range(7), *range(8, 20)]


# -- filters -----------------------------------------------------------------------------------------------------------


def test_a_filter_that_goes_beyond_what_was_asked_for(server: PullServer) -> None:
    def skip_most(header: PullMessageHeader) -> Step | None:
        at = header.queue_offset
        found: list[int] = []
        while at < 1000 and len(found) < 8:
            if at % 10 == 3:
                found.append(at)
            at += 1
        return at, b"".join(server.records[offset] for offset in found)

    server.script = skip_most
    assert read(server, 0, 1000, sql92="a = 1") == list(range(3, 1000, 10))
    assert read(server, 0, 444, sql92="a = 1") == list(range(3, 444, 10))


def test_a_filter_that_lets_hardly_anything_through() -> None:
    with PullServer(50_000) as server:

        def scan(header: PullMessageHeader) -> Step | None:
            """As a Java broker does: 800 entries, or 32 messages."""
            end = min(header.queue_offset + 800, 50_000)
            found = [offset for offset in range(header.queue_offset, end) if offset % 7000 == 99]
            return end, b"".join(server.records[offset] for offset in found)

        server.script = scan
        assert read(server, 0, 50_000, sql92="a = 1") == list(range(99, 50_000, 7000))
        assert len(server.asked) < 100


def test_tags_with_the_same_hash(server: PullServer) -> None:
    for offset in range(20):
        tag = (b"AaAa", b"BBBB")[offset % 2]
        server.records[offset] = make_record(offset, properties=b"TAGS\x01" + tag + b"\x02")
    assert read(server, 0, 20, tags="BBBB") == list(range(1, 20, 2))


# -- brokers that lie --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ((3, make_record(0) + make_record(1) + make_record(2, topic="other")), "do not belong to t"),
        ((2, make_record(0) + make_record(1, queue_id=1)), "do not belong to t, queue 0"),
        ((3, make_record(0) + make_record(2) + make_record(1)), "do not belong to t, queue 0"),
        ((3, make_record(0) + make_record(0) + make_record(1)), "do not belong to t, queue 0"),
        ((2, make_record(0) + make_record(5)), "do not belong to t, queue 0"),
        ((2, make_record(0) + make_record(1)[:-3]), "do not belong to t"),
        ((2, b"garbage"), "do not belong to t"),
        ((2, make_record(0) * 1000), "do not belong to t"),
        ((0, make_record(0)), "returned 0 as the next offset"),
        ((-5, make_record(0)), "returned -5 as the next offset"),
    ],
)
def test_answers_that_were_not_asked_for(server: PullServer, step: Step, why: str) -> None:
    server.steps.append(step)
    with pytest.raises(WireError, match=why):
        read(server, 0, 100)


def test_an_answer_that_goes_on_far_away(server: PullServer) -> None:
    server.steps.append((2**62, make_record(0)))
    with pytest.raises(OffsetLost, match="are missing, the first at 1"):
        read(server, 0, 100)


def test_queues_of_one_broker_are_told_apart() -> None:
    """Two queues in one batch, each checked for itself."""
    with PullServer(40) as server:
        other = QueueRange(MessageQueue(BROKER, 1, TOPIC), 0, 20, server.address)
        partition = PulledPartition([*server.plan(0, 20).ranges, other])
        with pytest.raises(WireError, match="do not belong to t, queue 1"):
            list(read_partition(partition, make_options(server), COLUMNS))

        def answer(header: PullMessageHeader) -> Any:
            records = [make_record(offset, queue_id=header.queue_id) for offset in range(20)]
            return 20, b"".join(records[header.queue_offset :])

        server.script = answer
        batches = list(read_partition(partition, make_options(server), COLUMNS))
        assert sum(batch.num_rows for batch in batches) == 40
