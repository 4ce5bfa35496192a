"""A message whose answer was lost is sent again, and an idempotent producer has it stored once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from eruca._broker.app import Broker
from eruca._client.produce.outgoing import SendStatus
from eruca._nameserver.app import NameServer
from eruca._wire.codes import ResponseCode
from eruca._wire.properties import ERUCA_ONCE
from eruca.errors import ConfigError
from tests.integration.broker.delivery import stored
from tests.integration.broker.peer import find_port
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.integration.client.losing import Loss
from tests.unit.client.scripted import ScriptedCluster, wait_until

PATIENT = 60


@pytest.fixture
def loss(monkeypatch: pytest.MonkeyPatch) -> Loss:
    return Loss(monkeypatch)


def count_bodies(*brokers: Broker) -> Counter[bytes]:
    return Counter(
        message.body for broker in brokers for queue_id in range(8) for message in stored(broker, "orders", queue_id)
    )


async def test_without_it_a_lost_answer_makes_two_copies(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, loss: Loss
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, timeout=PATIENT)
    loss.left = 1
    assert (await producer.send("orders", b"x")).offset >= 0
    assert count_bodies(broker) == {b"x": 2}


async def test_a_lost_answer_makes_no_copy(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, loss: Loss
) -> None:
    brokers = [await start_broker("broker-a"), await start_broker("broker-b")]
    producer = await make_producer(nameserver.address, timeout=PATIENT, idempotent=True)
    loss.left = 3
    receipt = await producer.send("orders", b"x")
    assert (receipt.status, receipt.offset, receipt.offset_id) == (SendStatus.STORED, -1, "")
    assert loss.lost == 3
    assert (await producer.send("orders", b"y")).offset >= 0
    assert count_bodies(*brokers) == {b"x": 1, b"y": 1}


async def test_many_at_the_same_time(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, loss: Loss
) -> None:
    """More than there are lanes, and every cut connection loses the answers of many."""
    broker = await start_broker()
    producer = await make_producer(nameserver.address, timeout=PATIENT, idempotent=True)
    await producer.send("orders", b"first")
    bodies = [b"%d" % number for number in range(500)]
    loss.left = 20
    sends = [await producer.send_soon("orders", body, shard="one") for body in bodies]
    await asyncio.gather(*sends)
    assert loss.lost == 20
    assert count_bodies(broker) == Counter([b"first", *bodies])


@pytest.mark.parametrize("linger", [0, 0.01])
async def test_batches(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, loss: Loss, linger: float
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, timeout=PATIENT, idempotent=True, linger=linger)
    await producer.send("orders", b"first")
    bodies = [b"%d" % number for number in range(10)]
    loss.left = 1
    if linger:
        receipts = await asyncio.gather(*[await producer.send_soon("orders", body) for body in bodies])
        assert [receipt.offset for receipt in receipts] == [-1] * 10
    else:
        (receipt,) = await producer.send_batch("orders", bodies)
        assert receipt.offset == -1
    assert count_bodies(broker) == Counter([b"first", *bodies])


async def test_a_restart_in_between(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, loss: Loss
) -> None:
    port = find_port()
    broker = await start_broker(port=port)
    producer = await make_producer(nameserver.address, timeout=PATIENT, idempotent=True)
    await producer.send("orders", b"first")
    loss.left = 1 << 30
    send = asyncio.ensure_future(producer.send("orders", b"x"))
    await wait_until(lambda: loss.lost > 0)
    await broker.stop()
    loss.left = 0
    again = await start_broker(port=port)
    assert (await send).offset == -1
    assert count_bodies(again) == {b"first": 1, b"x": 1}


async def test_a_broker_that_refuses_a_message_is_left_for_another(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    brokers = [await start_broker("broker-a"), await start_broker("broker-b")]
    producer = await make_producer(nameserver.address, timeout=PATIENT, idempotent=True)
    for number in range(8):
        await producer.send("orders", b"%d" % number)
    await brokers[0].stop()
    for number in range(8, 16):
        await producer.send("orders", b"%d" % number)
    assert {b"%d" % number for number in range(8, 16)} <= set(count_bodies(brokers[1]))


async def test_one_way_and_plain_messages_have_no_mark(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address, idempotent=True)
    await producer.send_oneway("orders", b"x")
    await wait_until(lambda: count_bodies(broker) == {b"x": 1})
    marks = [message.get_property(ERUCA_ONCE) for queue in range(8) for message in stored(broker, "orders", queue)]
    assert marks == [None]


async def test_a_broker_that_knows_no_marks_is_refused(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    broker.runtime = {}
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT, idempotent=True)
    with pytest.raises(ConfigError, match=r"idempotent=True needs Eruca brokers.*broker-a"):
        await producer.send("orders", b"x")
    assert not broker.sends


async def test_a_retry_stays_where_the_message_may_be(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    brokers = [await scripted.add_broker("broker-a"), await scripted.add_broker("broker-b")]
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address, timeout=PATIENT, idempotent=True)
    for broker in brokers:
        # Refused: not stored. Then lost: it may be stored, and a refusal after that changes nothing.
        broker.script.extend(["drop the connection", int(ResponseCode.SYSTEM_BUSY), "drop the connection"])
    await producer.send("orders", b"x")
    assert sorted(len(broker.sends) for broker in brokers) == [0, 4]
    (used,) = [broker for broker in brokers if broker.sends]
    assert len({(header.queue_id, header.properties) for header, _ in used.sends}) == 1
