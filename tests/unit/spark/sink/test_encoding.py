"""Rows to requests: their queues, their bytes, their bounds, and what is wrong with some."""

from __future__ import annotations

import itertools
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from eruca._client.produce.choosing import choose_by_shard
from eruca._ground.clock import SystemClock
from eruca._spark.sink import encoding as sinkencoding
from eruca._spark.sink.encoding import Request, RowPacker, UniqueIdBlocks, split_batch
from eruca._spark.sink.options import SinkOptions
from eruca._testing.clock import VirtualClock
from eruca._wire.batch import decode_batch
from eruca._wire.bodies import MessageQueue
from eruca._wire.compression import decompress
from eruca._wire.ids import UniqueIds, decode_unique_id
from eruca._wire.properties import parse_properties
from eruca.errors import MessageIllegal

QUEUES = tuple(MessageQueue("broker-a", number, "orders") for number in range(4))
TIME = pa.timestamp("us", tz="UTC")


def make_packer(partition: int = 0, once: str | None = None, **options: str) -> RowPacker:
    given = {"nameServer": "127.0.0.1:1", "topic": "orders", **options}
    packer = RowPacker(SinkOptions.of(given), partition, UniqueIds("127.0.0.1", 1, SystemClock()), once)
    packer.add_topic("orders", QUEUES)
    return packer


def make_batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def make_bodies(count: int, first: int = 0) -> pa.Array:
    return pa.array([b"row-%d" % number for number in range(first, first + count)], pa.binary())


def read_bodies(requests: list[Request]) -> dict[int, list[bytes]]:
    """Bodies by queue, in their order."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for request in requests:
        if request.properties is None:
            items = decode_batch(request.body)
            assert len(items) == request.rows
            found[request.queue.queue_id] += [item.body for item in items]
        else:
            found[request.queue.queue_id].append(request.body)
    return dict(found)


def read_properties(requests: list[Request]) -> list[dict[str, str]]:
    found = []
    for request in requests:
        if request.properties is not None:
            found.append(parse_properties(request.properties))
        else:
            found += [parse_properties(item.properties) for item in decode_batch(request.body)]
    return found


def test_stripes_take_the_queues_in_turn_whatever_the_batches_are() -> None:
    expected = {
        (number // 10 + 1) % 4: [b"row-%d" % row for row in range(100) if (row // 10 + 1) % 4 == (number // 10 + 1) % 4]
        for number in range(0, 40, 10)
    }
    for cuts in ([0, 100], [0, 3, 50, 51, 100], [0, 10, 20, 100]):
        packer = make_packer(partition=1, batchRows="10")
        requests = []
        for begin, end in itertools.pairwise(cuts):
            requests += list(packer.pack(make_batch(body=make_bodies(end - begin, begin))))
        assert read_bodies(requests) == expected
        assert packer.rows == 100


def test_requests_keep_their_bounds() -> None:
    packer = make_packer(batchBytes="1000", batchRows="7")
    requests = list(packer.pack(make_batch(body=[b"x" * 100] * 50 + [b"y" * 2000])))
    assert all(len(request.body) <= 1000 and request.rows <= 7 for request in requests[:-1])
    singles = [request for request in requests if request.properties is not None]
    assert [request.body for request in singles] == [b"y" * 2000]
    assert sum(request.rows for request in requests) == 51


def test_sharding_keys_choose_as_java_does() -> None:
    keys = ["a", "订单", "o-77", None, "", "polygenelubricants"]
    requests = list(make_packer().pack(make_batch(body=make_bodies(6), shardingKey=keys)))
    queue_of = {body: queue_id for queue_id, bodies in read_bodies(requests).items() for body in bodies}
    for number, key in enumerate(keys):
        expected = choose_by_shard(QUEUES, key).queue_id if key else 0
        assert queue_of[b"row-%d" % number] == expected
    only = list(make_packer(shardingKey="a").pack(make_batch(body=make_bodies(5000))))
    assert set(read_bodies(only)) == {choose_by_shard(QUEUES, "a").queue_id}


def test_rows_may_name_their_queue() -> None:
    requests = list(make_packer().pack(make_batch(body=make_bodies(4), queueId=[3, None, 1, 3])))
    assert read_bodies(requests) == {3: [b"row-0", b"row-3"], 0: [b"row-1"], 1: [b"row-2"]}
    assert set(read_bodies(list(make_packer(queueId="2").pack(make_batch(body=make_bodies(9)))))) == {2}
    with pytest.raises(MessageIllegal, match=r"row 1 of partition 0 .* queueId"):
        list(make_packer().pack(make_batch(body=make_bodies(2), queueId=[0, 9])))


def test_topics_of_a_column() -> None:
    packer = make_packer()
    batch = make_batch(body=make_bodies(4), topic=["a", None, "b", "a"])
    assert packer.list_unknown_topics(batch) == ["a", "b"]
    packer.add_topic("a", [MessageQueue("broker-a", 0, "a")])
    packer.add_topic("b", [MessageQueue("broker-b", 0, "b")])
    found = {(request.queue.topic, request.queue.broker_name): request.rows for request in packer.pack(batch)}
    assert found == {("a", "broker-a"): 2, ("orders", "broker-a"): 1, ("b", "broker-b"): 1}


def test_properties_of_rows() -> None:
    batch = make_batch(
        body=pa.array(["one", "zwei €"], pa.string()),
        tags=["red", None],
        keys=[["k1", "k2"], None],
        flag=pa.array([5, None], pa.int32()),
        properties=pa.array([[("a", "b"), ("UNIQ_KEY", "no"), ("Own", "x")], None], pa.map_(pa.string(), pa.string())),
    )
    packer = make_packer(tags="blue", properties='{"from": "spark"}', waitStoreOk="false", once="q:3:0")
    requests = list(packer.pack(batch))
    first, second = read_properties(requests)
    assert [(item.flag, item.body) for item in decode_batch(requests[0].body)] == [(5, b"one"), (0, "zwei €".encode())]
    ids = [each.pop("UNIQ_KEY") for each in (first, second)]
    assert len(set(ids)) == 2
    assert first == {
        "TAGS": "red",
        "KEYS": "k1 k2",
        "a": "b",
        "Own": "x",
        "from": "spark",
        "WAIT": "false",
        "ERUCA_ONCE": "q:3:0:0",
    }
    assert second == {"TAGS": "blue", "from": "spark", "WAIT": "false", "ERUCA_ONCE": "q:3:0:1"}


def test_delayed_rows_are_sent_one_by_one_and_stay_in_order() -> None:
    packer = make_packer()
    requests = list(packer.pack(make_batch(body=make_bodies(4), delayLevel=[0, 3, None, 16])))
    assert [(request.rows, request.properties is None) for request in requests] == [
        (1, True),
        (1, False),
        (1, True),
        (1, False),
    ]
    assert [each.get("DELAY") for each in read_properties(requests)] == [None, "3", None, "16"]
    assert read_bodies(requests)[0] == [b"row-0", b"row-1", b"row-2", b"row-3"]
    moments = pa.array([datetime(2030, 1, 1, tzinfo=UTC), None], TIME)
    found = read_properties(list(packer.pack(make_batch(body=make_bodies(2), deliverAt=moments))))
    assert [each.get("TIMER_DELIVER_MS") for each in found] == ["1893456000000", None]
    found = read_properties(list(make_packer(delay="90s").pack(make_batch(body=make_bodies(2)))))
    assert [each.get("TIMER_DELAY_MS") for each in found] == ["90000", "90000"]
    with pytest.raises(MessageIllegal, match=r"row 6 .* negative"):
        list(packer.pack(make_batch(body=make_bodies(1), delay=[-5])))
    for wrong in (float("nan"), float("inf"), 1e30):
        with pytest.raises(MessageIllegal, match=r"row \d+ .* negative"):
            list(make_packer().pack(make_batch(body=make_bodies(1), delay=[wrong])))
    batch = make_batch(body=make_bodies(5), delay=[2, 0, None, 1, 600])
    found = read_properties(list(make_packer().pack(batch)))
    assert [each.get("TIMER_DELAY_MS") for each in found] == ["2000", None, None, "1000", "600000"]
    batch = make_batch(body=make_bodies(3), delay=[1.5, None, 0.0004])
    assert [each.get("TIMER_DELAY_MS") for each in read_properties(list(make_packer(delay="3").pack(batch)))] == [
        "1500",
        "3000",
        None,
    ]


def test_large_bodies_are_compressed() -> None:
    batch = make_batch(body=[b"x" * 100, b"y" * 5000, b"z" * 6000, b"w"])
    requests = list(make_packer(compression="zlib").pack(batch))
    assert [request.rows for request in requests] == [1, 2, 1]
    assert [bool(request.sys_flag) for request in requests] == [False, True, False]
    items = decode_batch(requests[1].body)
    assert [decompress(item.body, requests[1].sys_flag) for item in items] == [b"y" * 5000, b"z" * 6000]


def test_a_bad_row_fails_or_is_skipped_and_counted() -> None:
    batch = make_batch(body=[b"good", None, b"", b"also good"], tags=["x", "x", "x", "a\x01b"])
    with pytest.raises(MessageIllegal, match=r"row 1 of partition 7 .* no body.*onBadRow=skip"):
        list(make_packer(partition=7).pack(batch))
    packer = make_packer(onBadRow="skip", once="q:0:0")
    requests = list(packer.pack(batch))
    assert read_bodies(requests) == {0: [b"good"]}
    assert (packer.bad.count, packer.rows) == (3, 4)
    # The numbers of rows do not depend on what was skipped.
    assert read_properties(list(packer.pack(make_batch(body=[b"next"]))))[0]["ERUCA_ONCE"] == "q:0:0:4"


def test_a_body_above_the_limit() -> None:
    with pytest.raises(MessageIllegal, match="maxMessageBytes"):
        list(make_packer(maxMessageBytes="1k", batchBytes="1k").pack(make_batch(body=[b"x" * 1025])))


def test_large_batches_are_cut_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinkencoding, "PIECE_BYTES", 100)
    monkeypatch.setattr(sinkencoding, "PIECE_ROWS", 3)
    batch = make_batch(body=[b"x" * 60, b"x" * 60, b"", b"", b"", b"", b"x" * 300, b"x"])
    assert [piece.num_rows for piece in split_batch(batch)] == [1, 3, 2, 1, 1]
    packer = make_packer(onBadRow="skip")
    assert sum(request.rows for request in packer.pack(batch)) == 4


def test_slices_and_large_types_are_read_right() -> None:
    columns = {
        "body": pa.array(["skipped", "one", "two"], pa.large_string()),
        "keys": pa.array([["no"], ["k1"], ["k2", "k3"]], pa.list_(pa.string())),
        "properties": pa.array([[("n", "o")], [("a", "1")], [("b", "2")]], pa.map_(pa.string(), pa.string())),
        "tags": ["no", None, "t"],
    }
    requests = list(make_packer().pack(make_batch(**columns).slice(1)))
    assert read_bodies(requests) == {0: [b"one", b"two"]}
    found = read_properties(requests)
    assert [(each.get("KEYS"), each.get("TAGS"), each.get("a"), each.get("b")) for each in found] == [
        ("k1", None, "1", None),
        ("k2 k3", "t", None, "2"),
    ]


def test_ids_tell_rows_and_times_apart() -> None:
    clock = VirtualClock()
    blocks = UniqueIdBlocks(UniqueIds("10.0.0.1", 77, clock))
    taken = [blocks.take(30_000) for _ in range(2)]
    assert [first for _, first in taken] == [0, 30_000]
    clock.advance(1)
    prefix, first = blocks.take(16_384)
    assert (first, prefix != taken[0][0]) == (0, True)
    unique = decode_unique_id(prefix.decode() + "0000", clock.now_ms())
    assert (unique.ip, unique.pid, unique.timestamp) == ("10.0.0.1", 77, clock.now_ms())
