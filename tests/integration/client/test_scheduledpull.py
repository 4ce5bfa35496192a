"""Scheduled pull against a broker in this process: which queues are called for, when, and one call at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from typing import Any

import pytest

from eruca import ClientOptions, MessageQueue, PullContext, Rebalance, ScheduledPull
from eruca._nameserver.app import NameServer
from eruca.errors import ClientClosed, ConfigError, QueueNotOurs
from tests.clients import cases_pull
from tests.clients.cases_pull import make_scheduled
from tests.clients.stage import wait_until
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.patience import PATIENCE_S


def schedule(nameserver: NameServer, **how: Any) -> ScheduledPull:
    return make_scheduled(nameserver.address, "billing", **how)


async def make_topic(nameserver: NameServer, make_producer: MakeProducer, count: int = 1) -> None:
    """A topic of four queues."""
    producer = await make_producer(nameserver.address)
    for number in range(count):
        await producer.send("orders", b"%d" % number)


async def test_case(nameserver: NameServer, start_broker: StartBroker) -> None:
    broker = await start_broker()
    await cases_pull.case_scheduled_pull_calls_for_the_queues_that_are_ours(nameserver.address, "orders", "billing")
    assert broker.clients.consumers == {}


async def test_a_call_that_fails_is_repeated(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    await start_broker()
    await make_topic(nameserver, make_producer)
    scheduled = schedule(nameserver)
    calls: Counter[int] = Counter()

    @scheduled.callback("orders")
    async def fail(queue: MessageQueue, context: PullContext) -> None:
        calls[queue.queue_id] += 1
        raise ValueError("the callback fails")

    with caplog.at_level(logging.ERROR, "eruca._client.pull.scheduledpull"):
        async with scheduled:
            await wait_until(lambda: len(calls) == 4 and min(calls.values()) >= 3, "three calls for each queue")
    assert "the callback of orders failed on queue" in caplog.text
    assert "ValueError: the callback fails" in caplog.text


async def test_a_plain_function_runs_in_a_thread(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await make_topic(nameserver, make_producer, 20)
    scheduled = schedule(nameserver, threads=2)
    bodies: list[bytes] = []
    threads: set[str] = set()

    @scheduled.callback("orders")
    def read(queue: MessageQueue, context: PullContext) -> None:
        threads.add(threading.current_thread().name)
        offset = context.wait_for(context.consumer.committed(queue))
        assert offset is not None
        result = context.wait_for(context.consumer.pull(queue, offset))
        context.wait_for(context.consumer.commit({queue: result.next_offset}))
        bodies.extend(message.body for message in result.messages)

    async with scheduled:
        await wait_until(lambda: len(bodies) >= 20, "every message")
    assert sorted(bodies) == sorted([b"%d" % number for number in range(20)])
    assert threads <= {"eruca-pull_0", "eruca-pull_1"}


async def test_the_callback_says_when_it_is_called_again(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await make_topic(nameserver, make_producer)
    scheduled = schedule(nameserver, delay=0.15)
    calls: Counter[int] = Counter()
    delays: set[float] = set()

    @scheduled.callback("orders")
    async def count(queue: MessageQueue, context: PullContext) -> None:
        calls[queue.queue_id] += 1
        delays.add(context.next_delay)
        context.next_delay = 0 if queue.queue_id == 0 else 3600

    async with scheduled:
        await wait_until(lambda: calls[0] >= 20 and len(calls) == 4, "many calls for the first queue")
        assert [calls[number] for number in (1, 2, 3)] == [1, 1, 1]
    # Each call begins with the delay of the settings, and closing waits for none.
    assert delays == {0.15}


async def test_one_call_at_a_time_even_when_a_queue_comes_back(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await make_topic(nameserver, make_producer)
    one, two = schedule(nameserver), schedule(nameserver)
    gate = asyncio.Event()
    running: Counter[MessageQueue] = Counter()
    began: Counter[MessageQueue] = Counter()
    refused: list[MessageQueue] = []
    is_open = True

    @one.callback("orders")
    async def hold(queue: MessageQueue, context: PullContext) -> None:
        running[queue] += 1
        began[queue] += 1
        assert running[queue] == 1
        if not is_open:
            await gate.wait()
            try:
                await context.consumer.commit({queue: 0})
            except QueueNotOurs:
                refused.append(queue)
        running[queue] -= 1

    @two.callback("orders")
    async def ignore(queue: MessageQueue, context: PullContext) -> None:
        context.next_delay = 0.02

    async with one:
        await wait_until(lambda: len(began) == 4, "a call for each queue")
        is_open = False
        await wait_until(lambda: sum(running.values()) == 4, "a call under way for each queue")
        async with two:
            await wait_until(lambda: len(one.queues) == len(two.queues) == 2, "two queues each")
            lost = set(two.queues)
            gate.set()
            # Calls under way end, but cannot commit for another member; there are no more of them.
            await wait_until(lambda: set(refused) == lost, "calls that end too late")
            is_open = True
            gate.clear()
            before = began.copy()
            await wait_until(lambda: all(began[queue] > before[queue] + 3 for queue in one.queues), "calls for ours")
            assert all(began[queue] == before[queue] for queue in lost)
        await wait_until(lambda: all(began[queue] > before[queue] for queue in lost), "calls for those that came back")


async def test_closing_lets_calls_end(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    await make_topic(nameserver, make_producer)
    scheduled = schedule(nameserver)
    began, ended = asyncio.Event(), []
    gate = asyncio.Event()

    @scheduled.callback("orders")
    async def work(queue: MessageQueue, context: PullContext) -> None:
        began.set()
        await gate.wait()
        await context.consumer.commit({queue: 0})
        ended.append(queue)

    async with asyncio.timeout(PATIENCE_S):
        run = asyncio.create_task(scheduled.run())
        await began.wait()
        await wait_until(lambda: len(scheduled.queues) == 4, "the queues")
        closing = asyncio.create_task(scheduled.close())
        await asyncio.sleep(0)
        assert not ended
        gate.set()
        await closing
        await run
    assert len(ended) >= 1
    assert list(broker.clients.consumers) == []
    with pytest.raises(ClientClosed):
        _ = scheduled.consumer
    assert scheduled.queues == []


async def test_closing_does_not_wait_for_ever(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    await make_topic(nameserver, make_producer)
    scheduled = schedule(nameserver, drain=0.05)
    stuck = []

    @scheduled.callback("orders")
    async def hang(queue: MessageQueue, context: PullContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stuck.append(queue)

    async with asyncio.timeout(PATIENCE_S), scheduled:
        await wait_until(lambda: len(scheduled.queues) == 4, "the queues")
        assert stuck == []
    assert len(stuck) == 4


async def test_a_namespace_is_not_seen(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    options = ClientOptions(namespace="shop")
    producer = await make_producer(nameserver.address, options=options)
    await producer.send("orders", b"1")
    told: list[tuple[list[str], list[str]]] = []

    async def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        told.append(([queue.topic for queue in assigned], [queue.topic for queue in revoked]))

    scheduled = schedule(nameserver, options=options, rebalance=Rebalance(on_change=listen))
    called: set[MessageQueue] = set()

    @scheduled.callback("orders")
    async def read(queue: MessageQueue, context: PullContext) -> None:
        called.add(queue)

    async with scheduled:
        await wait_until(lambda: len(called) == 4, "a call for each queue")
        assert called == set(scheduled.queues)
    assert told == [(["orders"] * 4, []), ([], ["orders"] * 4)]


async def test_what_cannot_be(nameserver: NameServer, start_broker: StartBroker) -> None:
    scheduled = schedule(nameserver)
    with pytest.raises(ConfigError, match="no callback"):
        await scheduled.start()

    @scheduled.callback("orders")
    async def read(queue: MessageQueue, context: PullContext) -> None:
        """Nothing to do."""

    with pytest.raises(ConfigError, match="orders has a callback already"):
        scheduled.callback("orders")(read)
    with pytest.raises(ConfigError, match="threads=0"):
        schedule(nameserver, threads=0)
    with pytest.raises(ConfigError, match="reserved"):
        make_scheduled(nameserver.address, "DEFAULT_CONSUMER")
    await start_broker()
    async with scheduled:
        with pytest.raises(ConfigError, match="started already"):
            scheduled.callback("others")(read)
