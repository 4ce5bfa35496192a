"""Consumers against a broker in this process: whatever fails, vanishes or is cancelled, it continues."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from eruca import (
    ClientOptions,
    Consumer,
    Flow,
    Message,
    MessageQueue,
    Offsets,
    Outcome,
    Producer,
    PullConsumer,
    Rebalance,
    Retry,
    sync,
)
from eruca._broker.app import Broker
from eruca._client.group.inbox import Inbox
from eruca._client.group.offsets import Progress
from eruca._client.group.pausing import Pauses
from eruca._client.session.session import _SESSIONS
from eruca._ground.backoff import Backoff
from eruca._nameserver.app import NameServer
from eruca._observe.telemetry import Telemetry
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.record import Record
from eruca.errors import ClientClosed, NetError
from tests.clients.stage import make_consumer
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import SECONDS_MAX, ScriptedCluster, wait_until

QUEUE = MessageQueue("broker-a", 0, "orders")


def consume(nameserver: NameServer, subscribe: Any = (), **how: Any) -> Consumer:
    return make_consumer(nameserver.address, "billing", subscribe, **how)


def find_committed(broker: Broker, queue: MessageQueue = QUEUE) -> int | None:
    return broker.offsets.get("billing", queue.topic, queue.queue_id)


async def send_one(make_producer: MakeProducer, nameserver: NameServer, body: bytes = b"x", **how: Any) -> None:
    producer = await make_producer(nameserver.address)
    await producer.send("orders", body, **how)


# -- offsets -------------------------------------------------------------------------------------------------------


async def test_a_commit_that_failed_is_tried_again(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more comes to the queue, so nothing but the failure itself is a reason to commit again."""
    broker = await start_broker()
    await send_one(make_producer, nameserver, queue=QUEUE)
    async with consume(nameserver, "orders", offsets=Offsets(interval=0.01)) as consumer:
        calls, failures = consumer._session.calls, 0
        write = calls.write_offset

        async def fail_twice(address: str, group: str, queue: MessageQueue, offset: int, **how: Any) -> None:
            nonlocal failures
            if queue == QUEUE and offset == 1 and failures < 2:
                failures += 1
                raise NetError("as the test wants")
            await write(address, group, queue, offset, **how)

        monkeypatch.setattr(calls, "write_offset", fail_twice)
        await (await anext(consumer)).ack()
        await wait_until(lambda: find_committed(broker) == 1)
        assert failures == 2


async def test_what_the_broker_keeps_is_not_told_again(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    await send_one(make_producer, nameserver, queue=QUEUE)
    async with consume(nameserver, "orders", offsets=Offsets(interval=0.005)) as consumer:
        await (await anext(consumer)).ack()
        await wait_until(lambda: find_committed(broker) == 1)
        told: list[MessageQueue] = []
        calls = consumer._session.calls
        tell = calls.write_offset

        async def note(address: str, group: str, queue: MessageQueue, offset: int, **how: Any) -> None:
            told.append(queue)
            await tell(address, group, queue, offset, **how)

        monkeypatch.setattr(calls, "write_offset", note)
        rounds = 0
        assert consumer._member.membership is not None
        write = consumer._member.membership.offsets.write

        async def count(positions: Mapping[MessageQueue, Progress], *, wait: bool = False) -> None:
            nonlocal rounds
            rounds += 1
            await write(positions, wait=wait)

        monkeypatch.setattr(consumer._member.membership.offsets, "write", count)
        await wait_until(lambda: rounds > 5)
        # The queue of retries may come later, and is told of once.
        assert QUEUE not in told and len(told) <= 1
        monkeypatch.undo()


# -- iterating -----------------------------------------------------------------------------------------------------


async def test_a_cancelled_wait_leaves_its_message_to_another(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is called for a message is cancelled before it runs: a timeout around `anext` does that."""
    await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"0", queue=QUEUE)
    consumer = consume(nameserver, "orders")
    deliver, waiting = consumer._member._deliver, list[asyncio.Task[Message]]()

    def deliver_and_cancel(inbox: Inbox, records: list[Record]) -> None:
        deliver(inbox, records)
        if waiting:
            waiting.pop(0).cancel()

    monkeypatch.setattr(consumer._member, "_deliver", deliver_and_cancel)
    async with consumer:
        await (await anext(consumer)).ack()

        async def take() -> Message:
            return await anext(consumer)

        first, second = asyncio.create_task(take()), asyncio.create_task(take())
        await wait_until(lambda: consumer._member.stream.waiting == 2)
        waiting.append(first)
        await producer.send("orders", b"1", queue=QUEUE)
        async with asyncio.timeout(SECONDS_MAX):
            assert (await second).body == b"1"
        assert first.cancelled()


async def test_waits_that_time_out_leave_nothing_behind(nameserver: NameServer, start_broker: StartBroker) -> None:
    await start_broker()
    async with consume(nameserver, "orders") as consumer:
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.001)
        assert consumer._member.stream.waiting == 0


# -- handlers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_handler_whose_work_is_cancelled_has_failed(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, ordered: bool
) -> None:
    """It takes neither its worker nor its message away: both come back."""
    await start_broker()
    producer = await make_producer(nameserver.address)
    for number in range(4):
        await producer.send("orders", b"%d" % number, queue=QUEUE)
    consumer = consume(nameserver, retry=Retry(max_deliveries=1))
    done: list[bytes] = []
    cancelled: list[bytes] = []

    @consumer.handler("orders", concurrency=1, ordered=ordered)
    async def work(message: Message) -> None:
        if message.body in (b"0", b"1") and message.body not in cancelled:
            cancelled.append(message.body)
            raise asyncio.CancelledError
        done.append(message.body)

    async with consumer:
        await wait_until(lambda: done[-2:] == [b"2", b"3"])
    assert cancelled == [b"0", b"1"]


async def test_a_dead_letter_is_logged(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await start_broker()
    producer = await make_producer(nameserver.address)
    receipt = await producer.send("orders", b"x", keys=["k1", "k2"])
    consumer = consume(nameserver, retry=Retry(max_deliveries=1))

    @consumer.handler("orders")
    async def work(message: Message) -> Outcome:
        return Outcome.LATER

    async with consumer:
        await wait_until(lambda: "becomes a dead letter" in caplog.text)
    (record,) = [record for record in caplog.records if "becomes a dead letter" in record.message]
    assert record.message == (
        f"message {receipt.message_id} of orders, keys k1 k2, delivery 1, becomes a dead letter in %DLQ%billing"
    )
    assert record.levelno == logging.WARNING


async def test_a_retry_is_logged_with_its_pause(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await start_broker()
    producer = await make_producer(nameserver.address)
    receipt = await producer.send("orders", b"x")
    async with consume(nameserver, "orders") as consumer:
        await (await anext(consumer)).retry()
    wanted = f"message {receipt.message_id} of orders, delivery 1, is not done: again in 10 s (delay level 3"
    assert wanted in caplog.text


@pytest.mark.parametrize("deliveries_max", [1, 6])
async def test_what_becomes_of_a_message_that_takes_too_long_is_logged(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    caplog: pytest.LogCaptureFixture,
    deliveries_max: int,
) -> None:
    caplog.set_level(logging.INFO)
    await start_broker()
    await send_one(make_producer, nameserver)
    consumer = consume(nameserver, retry=Retry(max_deliveries=deliveries_max, handler_timeout=0.1), drain=0.1)

    @consumer.handler("orders")
    async def work(message: Message) -> None:
        await asyncio.Event().wait()

    words = "becomes a dead letter in" if deliveries_max == 1 else "not done: again in 10 s"
    async with consumer:
        await wait_until(lambda: words in caplog.text)
    assert "for over 0.1 s" in caplog.text
    assert "delivered again" not in caplog.text


# -- loops ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_mistake_in_a_background_task_is_not_its_end(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
    ordered: bool,
) -> None:
    """Each loop meets an exception that nobody expects, and goes on: pulls, commits, heartbeats, routes, locks."""
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    options = ClientOptions(ip="127.0.0.1", heartbeat_interval=0.05, route_interval=0.05, instance="other")
    flow = Flow(hold=0.05, error_pause=0.01)
    consumer = consume(
        nameserver, options=options, offsets=Offsets(interval=0.02), rebalance=Rebalance(lock_interval=0.05), flow=flow
    )
    done: list[bytes] = []

    @consumer.handler("orders", ordered=ordered)
    async def work(message: Message) -> None:
        done.append(message.body)

    async with consumer:
        session = consumer._session
        met: set[str] = set()
        places: list[tuple[Any, str]] = [
            (session.calls, "pull"),
            (session.calls, "write_offset"),
            (session, "heartbeat"),
            (session.routes, "refresh_all"),
        ]
        if ordered:
            places.append((session.calls, "lock"))

        def fail_once(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            async def call(*args: Any, **how: Any) -> Any:
                if name not in met:
                    met.add(name)
                    raise ZeroDivisionError(f"a mistake in {name}")
                return await function(*args, **how)

            return call

        for place, name in places:
            monkeypatch.setattr(place, name, fail_once(name, getattr(place, name)))
        await producer.send("orders", b"1", queue=QUEUE)
        await wait_until(lambda: len(met) == len(places))
        await producer.send("orders", b"2", queue=QUEUE)
        await wait_until(lambda: done == [b"1", b"2"])
        await wait_until(lambda: find_committed(broker) == 2)
        beaten = session.last_heartbeat
        await wait_until(lambda: session.last_heartbeat > beaten)
        assert met == {name for _, name in places}


# -- coming and going ----------------------------------------------------------------------------------------------


async def test_a_start_without_a_cluster_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Consumer("127.0.0.1:1", group="billing", subscribe="orders")
    consumer._member.settings = replace(consumer._member.settings, start_seconds_max=0.2)
    async with consumer:
        assert consumer.queues == []
        assert "group billing has started without all its queues" in caplog.text
    assert _SESSIONS == {}


async def test_a_topic_that_is_waited_for_is_asked_for_often(
    scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca._client.session.session._MISSES", Backoff(0.05, 5.0, factor=1.1))
    async with Consumer(scripted.address, group="billing", subscribe="orders"):
        await wait_until(lambda: scripted.nameserver.asked.count("orders") > 20)
        assert "orders" not in scripted.nameserver.topics


async def test_an_outage_is_one_warning_and_its_end_another(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"x")
    await producer.close()  # it has its own session, which would say the same
    flow = Flow(hold=0.05, error_pause=0.01)
    options = ClientOptions(ip="127.0.0.1", heartbeat_interval=0.05)
    consumer = consume(nameserver, "orders", flow=flow, options=options)
    async with consumer:
        await (await anext(consumer)).ack()
        caplog.clear()
        tried = 0
        port = broker.standing.port
        await broker.stop()
        pull = consumer._session.calls.pull

        async def count(*args: Any, **how: Any) -> Any:
            nonlocal tried
            tried += 1
            return await pull(*args, **how)

        consumer._session.calls.pull = count  # type: ignore[method-assign]
        await wait_until(lambda: tried > 40)
        await start_broker(port=port)
        await wait_until(lambda: "answers again" in caplog.text)
    lines = [record.message for record in caplog.records if record.name.startswith("eruca._client")]
    away = [line for line in lines if "cannot be reached" in line]
    assert len(away) == 1, lines
    assert len([line for line in lines if "answers again" in line]) == 1, lines
    assert len(lines) <= 4, lines


async def test_spans_are_asked_for_at_the_start(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer may be made when its module is loaded, and the providers be set in main()."""
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    await start_broker()
    await send_one(make_producer, nameserver)
    consumer = consume(nameserver)
    done = asyncio.Event()

    @consumer.handler("orders")
    async def work(message: Message) -> None:
        done.set()

    spans, tracers = InMemorySpanExporter(), await asyncio.to_thread(TracerProvider)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(tracers, NoOpMeterProvider())
    monkeypatch.setattr("eruca._client.group.observing.find_telemetry", lambda: telemetry)
    async with consumer:
        async with asyncio.timeout(SECONDS_MAX):
            await done.wait()
        await wait_until(lambda: bool(spans.get_finished_spans()))
        assert [span.name for span in spans.get_finished_spans()] == ["process orders"]


# -- signals -------------------------------------------------------------------------------------------------------

TERMINATED = """
import asyncio, sys
from eruca import Consumer

def make(group):
    consumer = Consumer(sys.argv[1], group=group, start="earliest")

    @consumer.handler("work")
    async def work(message):
        print("began", group, flush=True)
        await asyncio.sleep(0.5)
        print("ended", group, flush=True)

    return consumer

async def main():
    try:
        await asyncio.gather(make("one").run(), make("two").run())
    finally:
        print("cleaned up", flush=True)

"""


# How the loop is run, the signal, and what the process ends with: SIGINT raises KeyboardInterrupt.
SIGNALS = [
    ("asyncio.run(main())", signal.SIGTERM, 128 + signal.SIGTERM),
    ("asyncio.run(main())", signal.SIGINT, -signal.SIGINT),
    ("asyncio.new_event_loop().run_until_complete(main())", signal.SIGTERM, 128 + signal.SIGTERM),
    ("asyncio.new_event_loop().run_until_complete(main())", signal.SIGINT, -signal.SIGINT),
]


@pytest.mark.parametrize(("run", "number", "code"), SIGNALS)
def test_signals_let_async_consumers_end_what_they_began(run: str, number: signal.Signals, code: int) -> None:
    with EmbeddedBroker(hurry=True) as broker:
        broker.create_topic("work")
        with sync.Producer(broker.nameserver, group="shop") as producer:
            producer.send("work", b"x")
        process = subprocess.Popen(
            [sys.executable, "-c", TERMINATED + run, broker.nameserver],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        try:
            said = {process.stdout.readline(), process.stdout.readline()}
            assert said == {"began one\n", "began two\n"}
            os.kill(process.pid, number)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        assert sorted(rest.split("\n")[:2]) == ["ended one", "ended two"]
        # Without asyncio.run nobody cancels the task that waits.
        assert rest.endswith("cleaned up\n") == run.startswith("asyncio.run(")
        assert process.returncode == code


# -- event loops ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Producer, Consumer, PullConsumer])
def test_a_client_in_a_second_event_loop_says_what_is_wrong(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(hurry=True) as broker:
        client: Any = kind(broker.nameserver, group="billing", **{} if kind is Producer else {"subscribe": "orders"})

        async def use() -> None:
            if kind is Producer:
                await client.send("orders", b"x")
            elif kind is Consumer:
                await anext(client)
            else:
                await client.poll()

        async def start() -> None:
            await client.start()
            # Otherwise Python complains about connections, which cannot be closed once their loop has ended.
            links = list(client._session.caller._addresses)
            await client._session.caller.close()
            await wait_until(lambda: not any(link.is_open for link in links))
            await asyncio.sleep(0)

        asyncio.run(start())
        for work in (client.start, use):
            with pytest.raises(ClientClosed, match="started in an event loop that has ended"):
                asyncio.run(work())
        asyncio.run(client.close())
        assert "not closed before its event loop ended" in caplog.text
        with pytest.raises(ClientClosed, match="not started"):
            asyncio.run(use())
    _SESSIONS.clear()


def test_a_consumer_may_run_in_one_event_loop_after_the_other() -> None:
    with EmbeddedBroker(hurry=True) as broker:
        broker.create_topic("orders")
        consumer = Consumer(broker.nameserver, group="billing", subscribe="orders")

        async def run() -> None:
            running = asyncio.create_task(consumer.run())
            await wait_until(lambda: len(consumer.queues) == 4)
            await consumer.close()
            await running

        for _ in range(2):
            asyncio.run(run())
        assert consumer.queues == []


# -- pauses --------------------------------------------------------------------------------------------------------


def test_pauses() -> None:
    one, two = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")
    pauses = Pauses()
    assert not pauses.covers(one)
    pauses.pause([one])
    assert (pauses.covers(one), pauses.covers(two)) == (True, False)
    pauses.pause(None)
    pauses.resume([one])
    assert (pauses.covers(one), pauses.covers(two)) == (False, True)
    pauses.pause([one])
    assert pauses.covers(one)
    pauses.resume(None)
    assert (pauses.covers(one), pauses.covers(two)) == (False, False)
