"""Sending in the background: backpressure, what the caller gets, and failures that nobody looks at."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from typing import Any

import pytest

import eruca
import eruca.sync
from eruca._client.produce.outgoing import SendStatus
from eruca._nameserver.app import NameServer
from eruca._net.link import Answer, Link
from eruca._wire.frame import Command
from eruca.errors import ClientClosed, MessageIllegal, SendFailed, WrongType
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import ScriptedCluster, wait_until


def list_unseen(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


async def test_it_waits_for_room(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    gate = asyncio.Event()

    def answer_later(link: Link, command: Command) -> Answer:
        async def later() -> bytes | None:
            await gate.wait()
            return broker.answer(link, command)

        return later()

    broker.script.extend([answer_later] * 3)
    producer = await make_producer(scripted.address, in_flight_max=3, timeout=20)
    soon = [await producer.send_soon("orders", b"%d" % number) for number in range(3)]
    await wait_until(lambda: len(broker.sends) == 3)
    waiting = asyncio.ensure_future(producer.send_soon("orders", b"3"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done() and producer._engine.window.count == 3
    gate.set()
    soon.append(await waiting)
    assert [(await each).status for each in soon] == [SendStatus.STORED] * 4
    assert broker.bodies == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("linger", [0, 0.001], ids=["alone", "batches"])
async def test_a_long_loop_that_drops_its_futures_uses_bounded_memory(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, linger: float
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address, in_flight_max=50, timeout=60, linger=linger)
    most = most_tasks = 0
    for number in range(3000):
        await producer.send_soon("orders", b"%d" % number)
        most = max(most, producer._engine.window.count)
        most_tasks = max(most_tasks, len(producer._engine.under_way))
    # A task that has ended is forgotten one turn of the loop later.
    assert most == 50 and most_tasks <= 100
    await producer.close()
    assert not producer._engine.under_way and producer._engine.window.count == 0


async def test_a_failure_that_nobody_awaits_is_one_warning(
    scripted: ScriptedCluster, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    await producer.send("orders", b"x")
    broker.script.extend([13, 13, 13])
    awaited = await producer.send_soon("orders", b"x")
    with pytest.raises(SendFailed, match="as the test wants"):
        await awaited
    del awaited
    asked = await producer.send_soon("orders", b"x")
    await asyncio.wait([asked])
    assert isinstance(asked.exception(), SendFailed)
    del asked
    assert list_unseen(caplog) == []
    await producer.send_soon("orders", b"x")
    await wait_until(lambda: not producer._engine.under_way)
    await wait_until(lambda: bool(list_unseen(caplog)))
    (told,) = list_unseen(caplog)
    assert told.startswith("a message for orders was not sent, and nobody awaited it: ")
    assert "as the test wants" in told
    gc.collect()
    assert len(list_unseen(caplog)) == 1 and noise == []


async def test_what_is_wrong_is_raised_at_once(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    producer = await make_producer(scripted.address)
    wrong: Any = 7
    with pytest.raises(MessageIllegal, match="the body is empty"):
        await producer.send_soon("orders", b"")
    with pytest.raises(WrongType, match="shard must be a str"):
        await producer.send_soon("orders", b"x", shard=wrong)
    with pytest.raises(MessageIllegal, match="delay and timer are mutually exclusive"):
        await producer.send_soon("orders", b"x", delay=10, timer=20)
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send_soon("orders", b"x")
    assert producer._engine.window.count == 0


async def test_a_cancelled_future_cancels_its_send(scripted: ScriptedCluster, make_producer: MakeProducer) -> None:
    broker = await scripted.add_broker()
    scripted.add_topic("orders")
    producer = await make_producer(scripted.address)
    await producer.send("orders", b"first")
    broker.script.append("silent")
    soon = await producer.send_soon("orders", b"x")
    await wait_until(lambda: len(broker.sends) == 2)
    soon.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon
    assert producer._engine.window.count == 0


def test_both_clients_have_the_arguments_of_send() -> None:
    for kind in (eruca.Producer, eruca.sync.Producer):
        wanted = inspect.signature(kind.send).parameters
        assert inspect.signature(kind.send_soon).parameters == wanted
    assert dict(inspect.signature(eruca.Producer.send).parameters) == dict(
        inspect.signature(eruca.sync.Producer.send).parameters
    )
