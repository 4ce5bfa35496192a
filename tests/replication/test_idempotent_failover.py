"""An idempotent producer over a failover: what the old master stored and could not confirm is stored once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from eruca import ClientOptions, Producer
from eruca._broker.app import Broker
from eruca._client.produce.outgoing import SendStatus
from tests.integration.broker.delivery import stored
from tests.integration.broker.replication.members import wait_for_copy, wait_until
from tests.integration.client.losing import Loss
from tests.patience import PATIENCE_S
from tests.replication.test_failover_brokers import Elected, allow_disk_work, elected

__all__ = ["allow_disk_work", "elected"]

# Masters change on their own on a busy machine: not for the slice.
pytestmark = pytest.mark.whole
OPTIONS = ClientOptions(route_interval=0.2, call_timeout=1)


@pytest.fixture
async def producer(elected: Elected) -> AsyncIterator[Producer]:
    """A producer of a group of three, whose master is number 0."""
    await elected.start(0, 1, 2)
    await elected.wait_for_master(0)
    await elected.wait_for_set(0, 1, 2)
    address = elected.group.nameserver.address
    async with Producer(
        address, group="feeder", timeout=PATIENCE_S, try_timeout=1.0, idempotent=True, options=OPTIONS
    ) as started:
        yield started


def count_bodies(broker: Broker) -> Counter[bytes]:
    return Counter(message.body for number in range(8) for message in stored(broker, "orders", number))


async def test_a_message_whose_answer_was_lost_with_its_master(
    elected: Elected, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = elected.brokers[0]
    await producer.send("orders", b"first")
    loss = Loss(monkeypatch)
    loss.left = 1 << 30
    send = asyncio.create_task(producer.send("orders", b"x"))
    await wait_until(lambda: loss.lost > 0, "stored, and the answer lost")
    for number in (1, 2):
        await wait_for_copy(elected.brokers[number], master)
    await elected.kill(0)
    loss.left = 0
    successor = await elected.wait_for_master(1, 2)
    receipt = await send
    # The broker knows the message, so it has no place to report. Its new slave may not have joined yet.
    assert receipt.offset == -1
    assert receipt.status in (SendStatus.STORED, SendStatus.SLAVE_NOT_AVAILABLE)
    assert count_bodies(successor) == {b"first": 1, b"x": 1}


async def test_a_master_that_dies_under_load(elected: Elected, producer: Producer) -> None:
    await producer.send("orders", b"first")
    bodies = [b"%d" % number for number in range(1000)]
    pending = [await producer.send_soon("orders", body) for body in bodies[:500]]
    await pending[100]
    await elected.kill(0)
    successor = await elected.wait_for_master(1, 2)
    pending += [await producer.send_soon("orders", body) for body in bodies[500:]]
    statuses = [receipt.status for receipt in await asyncio.gather(*pending)]
    counts = count_bodies(successor)
    # Nothing is there twice. The master that stopped reported which messages its slaves had not confirmed: those alone
    # may be gone with it.
    assert set(counts.values()) == {1}
    confirmed = {body for body, status in zip(bodies, statuses, strict=True) if status is SendStatus.STORED}
    assert confirmed <= counts.keys()
    assert len(confirmed) > 500
