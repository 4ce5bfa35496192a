"""What a batch reads, asked of a real broker: expired queues, filters it does not take, groups it does not know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca import Producer
from eruca._broker.app import Broker
from eruca._spark.cluster import Cluster
from eruca._spark.columns import MESSAGE_COLUMNS
from eruca._spark.offsets import Offsets
from eruca._spark.source.bounds import check_offsets, find_batch
from eruca._spark.source.options import SourceOptions, read_options
from eruca._spark.source.partitions import PulledPartition, QueueRange
from eruca._spark.source.pulling import read_partition
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConfigError, NetError, OffsetLost, RequestRefused
from tests.integration.broker.conftest import allow_new_files

__all__ = ["allow_new_files"]

COUNT = 30
QUEUE = MessageQueue("broker-a", 0, "orders")


def start(home: Path, **options: Any) -> EmbeddedBroker:
    return EmbeddedBroker(home, name="broker-a", **options)


def fill(broker: EmbeddedBroker) -> None:
    broker.create_topic("orders", 1)

    async def send() -> None:
        async with Producer(broker.nameserver, group="senders") as producer:
            await producer.send_batch("orders", [b"%d" % number for number in range(COUNT)])

    asyncio.run(send())


@pytest.fixture
def broker(tmp_path: Path, allow_new_files: None, forbid_blocking_calls: BlockBuster) -> Iterator[EmbeddedBroker]:
    with start(tmp_path / "home") as started:
        fill(started)
        yield started


def make_options(broker: EmbeddedBroker, **given: str) -> SourceOptions:
    return read_options({"nameServer": broker.nameserver, "subscribe": "orders", "retries": "0", **given})


def find(broker: EmbeddedBroker, **given: str) -> list[QueueRange]:
    options = make_options(broker, **given)
    with Cluster(options.access) as cluster:
        return find_batch(cluster, options, 0)


def count(broker: EmbeddedBroker, **given: str) -> int:
    options = make_options(broker, **given)
    batches = read_partition(PulledPartition(find(broker, **given)), options, MESSAGE_COLUMNS)
    return sum(batch.num_rows for batch in batches)


def expire(broker: EmbeddedBroker, offset: int) -> None:
    """Forget the first messages of the queue."""
    inside = broker._broker
    assert isinstance(inside, Broker)
    queue = inside.store.queues.get("orders", 0)
    assert queue is not None
    queue.min_offset = offset


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingTimestamp", "2100-01-01"),
        ("startingOffsetsByTimestamp", '{"orders": "2100-01-01"}'),
        ("startingOffsets", '{"orders": {"broker-a": {"0": "2100-01-01"}}}'),
    ],
)
def test_a_queue_without_a_message_at_the_time(broker: EmbeddedBroker, option: str, value: str) -> None:
    strategy = "startingOffsetsByTimestampStrategy"
    assert find(broker, **{option: value}) == []
    assert count(broker, **{option: value, strategy: "earliest"}) == COUNT
    said = r"orders, broker broker-a, queue 0 has no message stored at 2100-01-01T00:00:00\+00:00 or later .*=latest"
    with pytest.raises(ConfigError, match=said):
        find(broker, **{option: value, strategy: "error"})
    # Where there is one, nothing changes; an end has no strategy.
    for each in ("latest", "earliest", "error"):
        assert count(broker, startingTimestamp="-1h", endingTimestamp="2100-01-01", **{strategy: each}) == COUNT


def test_a_place_for_some_queues_and_the_beginning_of_the_others(broker: EmbeddedBroker) -> None:
    broker.create_topic("clicks", 1)
    both = {"subscribe": "orders,clicks"}
    for place, expected in (("7", COUNT - 7), ('"-1h"', COUNT), ('"latest"', 0), ('"earliest"', COUNT)):
        assert count(broker, **both, startingOffsets=f'{{"orders": {{"broker-a": {{"0": {place}}}}}}}') == expected
        assert count(broker, **both, startingOffsets=f'{{"orders": {place}}}') == expected
    assert count(broker, **both, startingOffsets='{"clicks": "latest"}') == COUNT
    assert count(broker, **both, endingOffsets='{"clicks": "latest", "orders": 5}') == 5
    with pytest.raises(ConfigError, match=r"startingOffsets contains order, .*did you mean orders"):
        find(broker, **both, startingOffsets='{"order": "latest"}')
    with pytest.raises(ConfigError, match=r"startingOffsetsByTimestamp contains order, .*did you mean orders"):
        find(broker, **both, startingOffsetsByTimestamp='{"order": "latest"}')


def test_the_whole_topic(broker: EmbeddedBroker) -> None:
    assert find(broker) == [QueueRange(QUEUE, 0, COUNT, broker.address)]
    assert count(broker) == COUNT


def test_messages_that_expired_before_the_plan(broker: EmbeddedBroker) -> None:
    expire(broker, 12)
    assert [(each.begin, each.end) for each in find(broker)] == [(12, COUNT)]
    first = json.dumps({"orders": 5})
    where = "orders, broker broker-a, queue 0"
    with pytest.raises(OffsetLost, match=f"{where}, should be read from 5, but now begins at 12"):
        find(broker, startingOffsets=first)
    assert count(broker, startingOffsets=first, failOnDataLoss="false") == COUNT - 12
    with pytest.raises(OffsetLost, match="should be read up to 7, but now begins at 12"):
        find(broker, endingOffsets=json.dumps({"orders": 7}))


def test_messages_that_expire_between_plan_and_read(broker: EmbeddedBroker) -> None:
    partition = PulledPartition(find(broker))
    expire(broker, 12)
    with pytest.raises(OffsetLost, match="from 0 to 30, but at 0 the queue now begins at 12"):
        list(read_partition(partition, make_options(broker), MESSAGE_COLUMNS))
    options = make_options(broker, failOnDataLoss="warn")
    assert sum(batch.num_rows for batch in read_partition(partition, options, MESSAGE_COLUMNS)) == COUNT - 12


def test_a_broker_that_takes_no_sql92(tmp_path: Path, allow_new_files: None) -> None:
    with start(tmp_path / "home", property_filter=False) as broker:
        fill(broker)
        assert count(broker, tags="a") == 0
        with pytest.raises(ConfigError, match=r"broker broker-a cannot evaluate it: .*SQL92.*enablePropertyFilter"):
            find(broker, sql92="a = 1")


def test_a_broker_that_makes_no_groups(tmp_path: Path, allow_new_files: None) -> None:
    with start(tmp_path / "home", auto_create_group=False) as broker:
        fill(broker)
        assert count(broker) == COUNT
        with pytest.raises(RequestRefused, match=r"group \[own\] does not exist.*eruca group create"):
            count(broker, consumerGroup="own")


def test_nobody_is_there(broker: EmbeddedBroker) -> None:
    with pytest.raises(NetError, match="no name server answers"):
        find(broker, nameServer="127.0.0.1:1", requestTimeout="200ms")


def test_offsets_a_queue_does_not_have() -> None:
    begins: Offsets = {QUEUE: 10}
    ends: Offsets = {QUEUE: 20}
    for offset, expected in ((10, 10), (15, 15), (20, 20)):
        assert check_offsets({QUEUE: offset}, begins, ends, "true") == {QUEUE: expected}
    for offset, expected in ((9, 10), (21, 20)):
        assert check_offsets({QUEUE: offset}, begins, ends, "false") == {QUEUE: expected}
        with pytest.raises(OffsetLost):
            check_offsets({QUEUE: offset}, begins, ends, "true")
