"""What members of a group are told and can ask: changes of queues, lag, topics by pattern, values, a forgotten end."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from eruca import ClientOptions, Consumer, Message, MessageQueue, PullConsumer, Rebalance, sync
from eruca._client.group import discovery
from eruca._client.namespaces import wrap
from eruca._nameserver.app import NameServer
from eruca._testing.embedded import EmbeddedBroker
from eruca.admin import Admin
from eruca.serializers import json_deserializer
from tests.clients.stage import QUICK_REBALANCE, create_topic, make_consumer
from tests.integration.client.conftest import MakeProducer, StartBroker
from tests.unit.client.scripted import SECONDS_MAX, wait_until

Queues = list[MessageQueue]


def consume(nameserver: NameServer, subscribe: Any = (), **how: Any) -> Consumer:
    return make_consumer(nameserver.address, "billing", subscribe, **how)


# -- changes of queues ---------------------------------------------------------------------------------------------


async def test_revoked_queues_are_committed_after_the_listener(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    producer = await make_producer(nameserver.address)
    await create_topic(producer, "orders", 1)
    await producer.send("orders", b"x")
    told: list[tuple[int, int]] = []
    held: list[Message] = []

    async def listen(assigned: Queues, revoked: Queues) -> None:
        await asyncio.sleep(0)
        told.append((len(assigned), len(revoked)))
        for message in held if revoked else []:
            await message.ack()

    async with consume(nameserver, "orders", rebalance=replace(QUICK_REBALANCE, on_change=listen)) as consumer:
        assert told == [(1, 0)]
        async with asyncio.timeout(SECONDS_MAX):
            held.append(await anext(consumer))
    assert told == [(1, 0), (0, 1)]
    assert broker.offsets.get("billing", "orders", 0) == 1


async def test_the_queues_of_a_member_that_crashes_are_free_after_ten_seconds(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    broker = await start_broker()
    await create_topic(await make_producer(nameserver.address), "orders", 1)
    async with Consumer(nameserver.address, group="billing", subscribe="orders", rebalance=Rebalance(exclusive=True)):
        left = [lock.ends_at - broker.clock.monotonic() for lock in broker.locks._groups["billing"].values()]
    assert left and all(seconds <= 10.0 for seconds in left)


@pytest.mark.parametrize("polls", [False, True])
async def test_the_listener_returns_before_the_first_message(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, polls: bool
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    await create_topic(producer, "orders", 1)
    await producer.send("orders", b"x")
    lines: list[str] = []
    may_return = asyncio.Event()

    async def listen(assigned: Queues, revoked: Queues) -> None:
        if assigned:
            lines.append("told")
            await may_return.wait()
            lines.append("returns")

    rebalance = replace(QUICK_REBALANCE, on_change=listen)
    consumer = consume(nameserver, rebalance=rebalance)

    @consumer.handler("orders")
    async def work(message: Message) -> None:
        lines.append("message")

    pull = PullConsumer(nameserver.address, group="billing", subscribe="orders", start="earliest", rebalance=rebalance)
    client = pull if polls else consumer
    starting = asyncio.create_task(client.start())
    await wait_until(lambda: lines == ["told"])
    if polls:
        assert await pull.poll(0.05) == []
    assert [inbox.task for queue, inbox in client._member.inboxes.items() if queue.topic == "orders"] == [None]
    may_return.set()
    await starting
    async with client, asyncio.timeout(SECONDS_MAX):
        if polls:
            lines += ["message" for _ in await pull.poll(None)]
        await wait_until(lambda: len(lines) == 3)
    assert lines == ["told", "returns", "message"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_listener_raises_is_logged_and_ends_nothing(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"x")

    def fail(assigned: Queues, revoked: Queues) -> None:
        raise ValueError("the listener fails")

    async def fail_later(assigned: Queues, revoked: Queues) -> None:
        fail(assigned, revoked)

    rebalance = replace(QUICK_REBALANCE, on_change=fail_later if is_async else fail)
    async with consume(nameserver, "orders", rebalance=rebalance) as consumer, asyncio.timeout(SECONDS_MAX):
        assert (await anext(consumer)).body == b"x"
    assert "Rebalance.on_change failed" in caplog.text


def test_a_plain_listener_may_use_its_consumer() -> None:
    with EmbeddedBroker(hurry=True) as broker:
        broker.create_topic("orders", queues=2)
        told: list[tuple[int, int]] = []

        def listen(assigned: Queues, revoked: Queues) -> None:
            assert len(consumer.queues) == 2
            if assigned:
                consumer.commit()
            told.append((len(assigned), len(revoked)))

        consumer = sync.Consumer(
            broker.nameserver, group="billing", subscribe="orders", rebalance=Rebalance(on_change=listen)
        )
        with consumer:
            assert told == [(2, 0)]
        assert told == [(2, 0), (0, 2)]


def test_a_plain_iterator_holds_no_messages_of_exclusive_queues_back() -> None:
    with EmbeddedBroker(hurry=True) as broker:
        broker.create_topic("orders", queues=1)
        with sync.Producer(broker.nameserver, group="shop") as producer:
            producer.send_batch("orders", [b"%d" % number for number in range(50)])
        rebalance = Rebalance(exclusive=True)
        with sync.Consumer(
            broker.nameserver, group="billing", subscribe="orders", start="earliest", rebalance=rebalance
        ) as consumer:
            first = next(consumer)
            (inbox,) = [found for queue, found in consumer._twin._member.inboxes.items() if queue.topic == "orders"]
            assert (inbox.handed_to, inbox.is_settled) == (1, False)
            first.ack()
            assert next(consumer).body == b"1"  # the loop has had the acknowledgement by then
            assert (inbox.handed_to, inbox.process.first_open) == (2, 1)


# -- lag -----------------------------------------------------------------------------------------------------------


async def test_lag_counts_what_is_not_done(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    await create_topic(producer, "orders", 2)
    queues = [MessageQueue("broker-a", number, "orders") for number in range(2)]
    for number in range(5):
        await producer.send("orders", b"x", queue=queues[number % 2])
    async with consume(nameserver, "orders") as consumer, asyncio.timeout(SECONDS_MAX):
        lag = await consumer.lag()
        assert (lag.total, lag.queues) == (5, {queues[0]: 3, queues[1]: 2})
        async for message in consumer:
            await message.ack()
            if (await consumer.lag()).total == 0:
                break
    pull = PullConsumer(nameserver.address, group="audit", subscribe="orders", start="earliest")
    async with pull, asyncio.timeout(SECONDS_MAX):
        assert (await pull.lag()).total == 5
        while (await pull.lag()).total:
            await pull.poll(1.0, 1)
        assert (await pull.lag()).queues == dict.fromkeys(queues, 0)


def test_lag_of_plain_consumers() -> None:
    with EmbeddedBroker(hurry=True) as broker:
        broker.create_topic("orders", queues=1)
        with sync.Producer(broker.nameserver, group="shop") as producer:
            producer.send_batch("orders", [b"1", b"2"])
        kinds: list[Any] = [sync.Consumer, sync.PullConsumer]
        for number, kind in enumerate(kinds):
            with kind(broker.nameserver, group=f"g-{number}", subscribe="orders", start="earliest") as consumer:
                assert consumer.lag().total == 2


# -- topics by pattern ---------------------------------------------------------------------------------------------


async def test_topics_that_match_are_consumed_and_those_made_later_too(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    for topic in ("orders-eu", "bills", "old-orders-eu"):
        await producer.send(topic, topic.encode())
    seen: list[tuple[str, bytes]] = []
    consumer = consume(nameserver, start="latest")

    @consumer.handler(re.compile("orders-.*"))
    async def work(message: Message) -> None:
        seen.append((message.topic, message.body))

    async with consumer:
        assert {queue.topic for queue in consumer.queues} == {"orders-eu"}
        await producer.send("orders-eu", b"1")
        # It is new to the group, so nothing of it is missed although the group begins with the latest.
        await producer.send("orders-us", b"2")
        await wait_until(lambda: len(seen) == 2)
    assert sorted(seen) == [("orders-eu", b"1"), ("orders-us", b"2")]
    async with consumer:  # and once more, with what is there now
        assert {queue.topic for queue in consumer.queues} == {"orders-eu", "orders-us"}


async def test_no_topic_of_the_system_matches(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    await producer.send("orders", b"x")
    async with consume(nameserver, {re.compile(".*"): "*"}) as consumer:
        assert {queue.topic for queue in consumer.queues} == {"orders"}
        # Now there is a retry topic of the group too.
        await producer.send("bills", b"x")
        await wait_until(lambda: {queue.topic for queue in consumer.queues} == {"orders", "bills"})
    pull = PullConsumer(
        nameserver.address, group="audit", subscribe=re.compile(".*"), start="earliest", rebalance=QUICK_REBALANCE
    )
    async with pull, asyncio.timeout(SECONDS_MAX):
        assert {queue.topic for queue in pull.assignment} == {"orders", "bills"}
        found: set[str] = set()
        while found != {"orders", "bills"}:
            found |= {message.topic for message in await pull.poll(1.0)}


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_brokers_tell_about_topics_that_are_created(
    nameserver: NameServer,
    start_broker: StartBroker,
    make_producer: MakeProducer,
    monkeypatch: pytest.MonkeyPatch,
    namespace: str,
) -> None:
    """Nobody lists topics here, and one of the brokers has nothing that matches."""
    monkeypatch.setattr(discovery, "_LOOK_S", 3600.0)
    brokers = {name: await start_broker(name) for name in ("broker-a", "broker-b")}
    options = ClientOptions(ip="127.0.0.1", namespace=namespace)
    other = ClientOptions(ip="127.0.0.1", namespace="" if namespace else "shop")
    producer = await make_producer(nameserver.address, options=options)
    elsewhere = await make_producer(nameserver.address, options=other)
    brokers["broker-a"].topics.create_internal(wrap(namespace, "orders-eu"), 1)
    await producer.send("orders-eu", b"0")
    rebalance = Rebalance(interval=3600.0)
    how: dict[str, Any] = {"options": options, "rebalance": rebalance, "start": "earliest"}
    pattern = re.compile("orders-.*")
    seen: list[tuple[str, bytes]] = []
    async with (
        Consumer(nameserver.address, group="billing", subscribe=pattern, **how) as consumer,
        PullConsumer(nameserver.address, group="audit", subscribe=pattern, **how) as pull,
        asyncio.timeout(SECONDS_MAX),
    ):
        assert [(await anext(consumer)).body, (await anext(pull)).body] == [b"0", b"0"]
        await elsewhere.send("orders-asia", b"of another namespace")
        await producer.send("bills-eu", b"of another name")
        # In the second turn a broker creates a topic that is consumed from the other one already.
        for number, name in enumerate(("broker-b", "broker-a"), 1):
            brokers[name].topics.create_internal(wrap(namespace, "orders-us"), 1)
            await producer.send("orders-us", b"%d" % number, queue=MessageQueue(name, 0, "orders-us"))
            for client in (consumer, pull):
                message = await anext(client)
                seen.append((message.topic, message.body))
    assert seen == [("orders-us", b"1")] * 2 + [("orders-us", b"2")] * 2


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_a_deleted_topic_is_dropped_and_consumed_from_the_beginning_when_it_is_created_again(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, namespace: str
) -> None:
    await start_broker()
    options = ClientOptions(ip="127.0.0.1", namespace=namespace)
    producer = await make_producer(nameserver.address, options=options)
    await producer.send("orders-eu", b"eu 1")
    await producer.send("orders-us", b"us 1")
    consumer = consume(nameserver, re.compile("orders-.*"), start="earliest", options=options)
    async with Admin(nameserver.address) as admin, consumer, asyncio.timeout(SECONDS_MAX):

        async def read(count: int) -> set[bytes]:
            messages = [await anext(consumer) for _ in range(count)]
            for message in messages:
                await message.ack()
            return {message.body for message in messages}

        assert await read(2) == {b"eu 1", b"us 1"}
        await admin.topics.delete(wrap(namespace, "orders-us"))
        await wait_until(lambda: {queue.topic for queue in consumer.queues} == {"orders-eu"})
        await producer.send("orders-eu", b"eu 2")
        assert await read(1) == {b"eu 2"}
        await admin.topics.create(wrap(namespace, "orders-us"), queues=1)
        await wait_until(lambda: {queue.topic for queue in consumer.queues} == {"orders-eu", "orders-us"})
        await producer.send("orders-us", b"us 2", queue=MessageQueue("broker-a", 0, "orders-us"))
        assert await read(1) == {b"us 2"}


# -- values --------------------------------------------------------------------------------------------------------


async def test_a_body_that_cannot_be_decoded_is_a_failure_of_its_message(
    nameserver: NameServer, start_broker: StartBroker, make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    await start_broker()
    producer = await make_producer(nameserver.address)
    caplog.set_level(logging.INFO)
    seen: list[object] = []
    consumer = consume(nameserver, deserializer=json_deserializer())

    @consumer.handler("orders")
    async def work(message: Message) -> None:
        seen.append(message.value)

    async with consumer:
        await producer.send("orders", b"{")
        await producer.send("orders", b'{"id": 7}')
        await wait_until(lambda: seen == [{"id": 7}] and "is not done: again in 10 s" in caplog.text)
    assert "cannot be decoded" in caplog.text


# -- a forgotten close ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_forgotten_close_is_a_warning_that_names_the_group(
    nameserver: NameServer, start_broker: StartBroker
) -> None:
    await start_broker()
    consumer: Consumer | None = consume(nameserver, "orders")
    assert consumer is not None
    await consumer.start()
    member = consumer._member
    with pytest.warns(
        ResourceWarning, match=r"<Consumer group='billing' topics=\['orders'\] .* started> was not closed"
    ):
        consumer = None
        gc.collect()
    await member.close()


def test_a_forgotten_close_of_a_plain_consumer() -> None:
    with EmbeddedBroker(hurry=True) as broker:
        consumer: sync.Consumer | None = sync.Consumer(broker.nameserver, group="billing", subscribe="orders")
        assert consumer is not None
        consumer.start()
        thread, twin = consumer._thread, consumer._twin
        assert thread is not None
        with pytest.warns(
            ResourceWarning, match=r"<Consumer group='billing' topics=\['orders'\] .* started> was not closed"
        ):
            consumer = None
            gc.collect()
        thread.run(twin.close())
        thread.remove(twin)
