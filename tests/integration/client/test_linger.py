"""Batches that fill up while messages linger: what is packed together, what goes alone, and what senders get."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from eruca._client.options import ClientOptions
from eruca._client.produce.outgoing import Receipt, SendStatus
from eruca._nameserver.app import NameServer
from eruca._wire.bodies import MessageQueue, TopicConfig
from eruca._wire.codes import RequestCode
from eruca.errors import ConfigError, MessageIllegal, SendFailed
from tests.integration.broker.delivery import stored
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import ScriptedBroker, ScriptedCluster, wait_until

LINGER = 0.02
# Long enough that nothing is sent before it is flushed.
FOREVER = 3600
BATCH = True
QUEUES = 4


def list_requests(broker: ScriptedBroker) -> list[tuple[bool, str]]:
    """What a broker got: whether each request is a batch, and its topic."""
    return [(bool(header.batch), header.topic) for header, _ in broker.sends]


async def test_messages_that_are_sent_together_share_a_request(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=QUEUES, write_queue_nums=QUEUES))
    await broker.registration.register_all()
    producer = await make_producer(nameserver.address, linger=LINGER)
    shards = ["a", "b", "c", "d", "e"]
    receipts = await asyncio.gather(
        *[
            producer.send("orders", b"%d" % number, shard=shards[number % 5], tags=f"t{number}", keys=[f"k{number}"])
            for number in range(200)
        ]
    )
    assert {receipt.status for receipt in receipts} == {SendStatus.STORED}
    assert len({receipt.message_id for receipt in receipts}) == len({receipt.offset_id for receipt in receipts}) == 200
    # Each receipt names exactly where its message is.
    found = [record for queue_id in range(QUEUES) for record in stored(broker, "orders", queue_id)]
    records = {(record.queue_id, record.queue_offset): record for record in found}
    assert len(records) == 200
    for number, receipt in enumerate(receipts):
        record = records[receipt.queue.queue_id, receipt.offset]
        assert record.body == b"%d" % number
        assert record.get_property("UNIQ_KEY") == receipt.message_id
        assert (record.get_property("TAGS"), record.get_property("KEYS")) == (f"t{number}", f"k{number}")
    # Messages of one shard are in one queue, in the order they were sent.
    for shard in range(5):
        places = [(receipt.queue.queue_id, receipt.offset) for receipt in receipts[shard::5]]
        assert len({queue_id for queue_id, _ in places}) == 1
        assert places == sorted(places)
    assert producer._engine.window.count == producer._engine.window.bytes == 0


async def test_a_shard_keeps_its_order_across_batches_and_messages_that_go_alone(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, linger=LINGER, message_bytes_max=4096, compress_from=None)
    queue = (await producer.send("orders", b"first", shard="s")).queue
    bodies = [b"%04d" % number + b"x" * (number * 37 % 1500) for number in range(300)]
    pending = []
    for number, body in enumerate(bodies):
        if number % 50 == 49:
            pending.append(await producer.send_soon("orders", body, selector=lambda _: queue))
        else:
            pending.append(await producer.send_soon("orders", body, shard="s"))
    receipts: list[Receipt] = [await each for each in pending]
    assert {receipt.queue for receipt in receipts} == {queue}
    assert [record.body for record in stored(broker, "orders", queue.queue_id)][1:] == bodies


async def test_one_request_for_many_messages(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    scripted.add_topic("clicks")
    producer = await make_producer(scripted.address, linger=FOREVER)
    soon = [await producer.send_soon(topic, b"x") for topic in ("orders", "clicks") * 20]
    soon += [await producer.send_soon("orders", b"y", wait=False), await producer.send_soon("orders", b"z", wait=False)]
    soon += [await producer.send_soon("orders", b"alone", timeout=10)]
    assert not any(each.done() for each in soon)
    await producer.close()
    assert [each.result().status for each in soon] == [SendStatus.STORED] * 43
    assert Counter(list_requests(broker)) == {(BATCH, "orders"): 2, (BATCH, "clicks"): 1, (not BATCH, "orders"): 1}
    waits = [header.properties or "" for header, _ in broker.sends if header.batch]
    assert sorted(waits) == ["WAIT\x01false", "WAIT\x01true", "WAIT\x01true"]
    assert broker.bodies[-1] == b"alone" or b"alone" in broker.bodies


async def test_what_cannot_be_in_a_batch_goes_alone_at_once(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, linger=FOREVER)
    queue = MessageQueue("broker-a", 1, "orders")
    await producer.send("orders", b"later", delay=10)
    await producer.send("orders", b"later", delay_level=3)
    await producer.send("orders", b"later", timer=timedelta(minutes=3))
    await producer.send("orders", bytes(10_000))  # compressed
    await producer.send("orders", b"chosen", selector=lambda _: queue)
    assert list_requests(broker) == [(not BATCH, "orders")] * 5


async def test_a_full_batch_does_not_linger(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, linger=FOREVER, message_bytes_max=1000, compress_from=None)
    soon = [await producer.send_soon("orders", b"x" * 300) for _ in range(7)]
    await wait_until(lambda: len(broker.sends) == 3)
    assert all(len(body) <= 1000 for body in broker.bodies)
    await asyncio.gather(*soon[:6])
    assert not soon[6].done()
    await producer.close()
    assert soon[6].result().status is SendStatus.STORED
    assert [bool(header.batch) for header, _ in broker.sends] == [True, True, True, False]


async def test_a_failure_reaches_every_sender(
    scripted: ScriptedCluster, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, linger=LINGER)
    broker.script.append(13)  # MESSAGE_ILLEGAL
    results = await asyncio.gather(*[producer.send("orders", b"x") for _ in range(5)], return_exceptions=True)
    assert len(broker.sends) == 1
    for result in results:
        assert isinstance(result, SendFailed) and "as the test wants" in str(result)
    assert producer._engine.window.count == 0
    # The next ones are not concerned, nor is a message that is refused before it is packed.
    with pytest.raises(MessageIllegal):
        await producer.send("orders", b"")
    assert (await producer.send("orders", b"x")).status is SendStatus.STORED
    broker.script.append(13)
    await producer.send_soon("orders", b"nobody looks")
    await producer.close()
    assert [record.message for record in caplog.records if "nobody awaited it" in record.message]


async def test_a_sender_that_is_cancelled_takes_its_message_with_it(
    scripted: ScriptedCluster, make_producer: MakeProducer
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, linger=FOREVER)
    tasks = [asyncio.ensure_future(producer.send("orders", b"%d" % number)) for number in range(3)]
    await wait_until(lambda: producer._engine.window.count == 3)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    await producer.close()
    assert (await tasks[2]).status is SendStatus.STORED
    assert broker.bodies == [b"2"]
    assert producer._engine.window.count == 0


async def test_a_batch_is_tried_again(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, linger=LINGER, timeout=20)
    broker.script.extend([2, 2])
    receipts = await asyncio.gather(*[producer.send("orders", b"%d" % number) for number in range(5)])
    assert [receipt.offset - receipts[0].offset for receipt in receipts] == [0, 1, 2, 3, 4]
    assert len(broker.sends) == 3 and len({body for body in broker.bodies}) == 1


async def test_receipts_have_no_namespace(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    options = ClientOptions(namespace="shop", ip="127.0.0.1")
    producer = await make_producer(nameserver.address, options=options, linger=LINGER)
    receipts = await asyncio.gather(*[producer.send("orders", b"x") for _ in range(3)])
    assert {receipt.queue.topic for receipt in receipts} == {"orders"}
    records = stored(broker, "shop%orders", receipts[0].queue.queue_id)
    assert [record.get_property("INSTANCE_ID") for record in records] == ["shop"] * 3


async def test_without_linger_each_message_is_a_request(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    await asyncio.gather(*[producer.send("orders", b"x") for _ in range(5)])
    assert list_requests(broker) == [(not BATCH, "orders")] * 5
    with pytest.raises(ConfigError, match="linger=-1"):
        await make_producer(scripted.address, linger=-1)
    assert int(RequestCode.SEND_BATCH_MESSAGE) == 320
