"""Batches: many messages in one request."""

from __future__ import annotations

import asyncio
import random

import pytest

from eruca import Outgoing, Producer, SendStatus
from eruca.errors import MessageIllegal
from tests.clients.stage import (
    create_topic,
    fetch_queue,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    read_messages,
)

MEBIBYTE = 1024 * 1024


async def case_a_batch_is_stored_in_its_order(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        (receipt,) = await producer.send_batch(topic, list_numbers(50))
        assert (receipt.status, receipt.offset) == (SendStatus.STORED, 0)
        messages = await fetch_queue(producer._session, receipt.queue, 50)
        assert [message.body for message in messages] == list_numbers(50)
        assert [message.offset for message in messages] == list(range(50))
        await fetch_topic(producer._session, topic, 50)


async def case_a_batch_has_an_id_for_each_message(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        (receipt,) = await producer.send_batch(topic, list_numbers(5))
        messages = await fetch_queue(producer._session, receipt.queue, 5)
        assert receipt.message_id.split(",") == [message.message_id for message in messages]
        assert receipt.offset_id.split(",") == [message.offset_id for message in messages]
        address = await find_broker(producer._session)
        assert {message.store_host for message in messages} == {address}


async def case_each_message_of_a_batch_has_its_own_properties(nameserver: str, topic: str, group: str) -> None:
    batch = [
        Outgoing(b"1", tags="vip", keys=["o-1", "o-2"]),
        Outgoing(b"2", properties={"region": "eu"}, flag=7),
        Outgoing("три".encode(), tags="标签"),
    ]
    async with Producer(nameserver, group=group) as producer:
        (receipt,) = await producer.send_batch(topic, batch)
        one, two, three = await fetch_queue(producer._session, receipt.queue, 3)
        assert (one.body, one.tags, one.keys, one.flag) == (b"1", "vip", ["o-1", "o-2"], 0)
        assert (two.body, two.tags, two.properties, two.flag) == (b"2", "", {"region": "eu"}, 7)
        assert (three.body.decode(), three.tags) == ("три", "标签")


async def case_a_large_batch_is_split(nameserver: str, topic: str, group: str) -> None:
    bodies = [random.Random(number).randbytes(MEBIBYTE) for number in range(9)]
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        receipts = await producer.send_batch(topic, bodies, timeout=20)
        assert [receipt.offset for receipt in receipts] == [0, 3, 6]
        assert [len(receipt.message_id.split(",")) for receipt in receipts] == [3, 3, 3]
        messages = await fetch_queue(producer._session, receipts[0].queue, 9)
        assert [message.body for message in messages] == bodies


async def case_a_batch_of_very_many_messages_is_stored_once(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        receipts = await producer.send_batch(topic, [b"x"] * 40_000, timeout=30)
        counts = [len(receipt.offset_id.split(",")) for receipt in receipts]
        assert [receipt.offset for receipt in receipts] == [sum(counts[:number]) for number in range(len(counts))]
        assert {receipt.status for receipt in receipts} == {SendStatus.STORED}
        # What is sent next comes right behind them.
        assert (await producer.send(topic, b"last")).offset == sum(counts) == 40_000


async def case_a_batch_goes_to_the_queue_of_its_shard(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 3)
        (receipt,) = await producer.send_batch(topic, list_numbers(3), shard="customer-7")
        assert receipt.queue.queue_id == 2
        (queue, *_) = await producer.list_queues(topic)
        (receipt,) = await producer.send_batch(topic, list_numbers(3), queue=queue)
        assert receipt.queue == queue
        (receipt,) = await producer.send_batch(topic, list_numbers(3), selector=lambda queues: queues[1])
        assert receipt.queue.queue_id == 1


async def case_what_cannot_be_in_a_batch_is_refused_whole(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, message_bytes_max=10_000) as producer:
        await create_topic(producer, topic)
        for bad in (
            Outgoing(b"delayed", delay=1),
            Outgoing(b""),
            Outgoing(b"x" * 10_001),
            Outgoing(b"x", wait=False),
            Outgoing(b"x", keys=["a b"]),
        ):
            with pytest.raises(MessageIllegal):
                await producer.send_batch(topic, [b"good", bad])
        assert await producer.send_batch(topic, []) == []
        assert await fetch_topic(producer._session, topic, 0) == []


async def case_a_batch_is_consumed_one_by_one(nameserver: str, topic: str, group: str) -> None:
    batch = [Outgoing(b"%d" % number, tags="even" if number % 2 == 0 else "odd") for number in range(10)]
    async with Producer(nameserver, group=group) as producer:
        await producer.send_batch(topic, batch)
    async with make_consumer(nameserver, group, {topic: "even"}) as consumer:
        messages = await read_messages(consumer, 5)
        assert [message.body for message in messages] == [b"0", b"2", b"4", b"6", b"8"]


async def case_messages_that_linger_share_requests(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, linger=0.05) as producer:
        await create_topic(producer, topic)
        sends = [producer.send(topic, b"%d" % number, shard=f"s{number % 3}", tags="t") for number in range(60)]
        receipts = await asyncio.gather(*sends)
        late = await producer.send_soon(topic, b"at the end", shard="s0")
        for shard in range(3):
            own = receipts[shard::3]
            messages = await fetch_queue(producer._session, own[0].queue, len(own), own[0].offset)
            found = {message.offset: message for message in messages}
            for number, receipt in zip(range(shard, 60, 3), own, strict=True):
                message = found[receipt.offset]
                assert (message.body, message.tags, message.message_id) == (b"%d" % number, "t", receipt.message_id)
            assert [receipt.offset for receipt in own] == sorted({receipt.offset for receipt in own})
        ids = {receipt.offset_id for receipt in receipts}
        assert len(ids) == 60 and not any("," in found for found in ids)
    assert late.done() and late.result().offset > receipts[57].offset
