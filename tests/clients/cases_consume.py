"""Consuming with handlers and with `async for`: who gets what, how much at once, and how it ends."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eruca import ClientOptions, Consumer, Flow, Message, MessageQueue, Outcome, Producer, Rebalance, RetryLater
from eruca.errors import ClientClosed, ConfigError, InvalidName, RequestRefused
from tests.clients.stage import (
    PATIENCE_SECONDS,
    QUICK_OPTIONS,
    QUICK_REBALANCE,
    Collector,
    create_topic,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    poll,
    read_messages,
    send_numbered,
    wait_for_queues,
    wait_until,
    wait_until_steady,
    whole,
)

# -- handlers ------------------------------------------------------------------------------------------------------


async def case_a_handler_gets_every_message_once(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        await producer.send_batch(topic, list_numbers(500))
        consumer = make_consumer(nameserver, group)
        collector = Collector(consumer, topic)
        async with consumer:
            await send_numbered(producer, topic, range(500, 600))
            await wait_until(lambda: len(collector.bodies) >= 600, "600 messages")
        assert Counter(collector.bodies) == Counter(list_numbers(600))


async def case_plain_functions_run_in_threads(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    threads: list[str] = []
    both = threading.Barrier(2)

    @consumer.handler(topic, concurrency=2)
    def work(message: Message) -> None:
        both.wait(20)  # passes only when two work at the same time
        threads.append(threading.current_thread().name)

    async with Producer(nameserver, group=group) as producer:
        await send_numbered(producer, topic, range(4))
    async with consumer:
        await wait_until(lambda: len(threads) == 4, "4 messages")
    assert len(set(threads)) == 2 and all(topic in name for name in threads)


async def case_a_handler_may_get_several_at_once(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    sizes: list[int] = []
    bodies: list[bytes] = []

    @consumer.handler(topic, batch=10, concurrency=1)
    async def work(messages: list[Message]) -> None:
        sizes.append(len(messages))
        assert len({message.queue for message in messages}) == 1
        bodies.extend(message.body for message in messages)

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(64))
        await fetch_topic(producer._session, topic, 64)
    async with consumer:
        await wait_until(lambda: len(bodies) == 64, "64 messages")
    assert bodies == list_numbers(64)
    assert max(sizes) == 10


async def case_each_topic_has_its_handler(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    one, two = Collector(consumer, f"{topic}-1"), Collector(consumer, f"{topic}-2", tags="b")
    async with Producer(nameserver, group=group) as producer:
        await producer.send(f"{topic}-1", b"one", tags="a")
        await producer.send(f"{topic}-2", b"no", tags="a")
        await producer.send(f"{topic}-2", b"two", tags="b")
    async with consumer:
        assert await one.wait(1) == [b"one"]
        assert await two.wait(1) == [b"two"]


async def case_no_more_handlers_run_than_wanted(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    running = most = done = 0

    @consumer.handler(topic, concurrency=5)
    async def work(message: Message) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        done += 1

    async with Producer(nameserver, group=group) as producer:
        await producer.send_batch(topic, list_numbers(60))
    async with consumer:
        await wait_until(lambda: done == 60, "60 messages")
    assert most == 5


async def case_a_slow_handler_does_not_hold_up_others(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    released = asyncio.Event()
    done: list[bytes] = []

    @consumer.handler(topic, concurrency=2)
    async def work(message: Message) -> None:
        if message.body == b"0":
            await released.wait()
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(100))
    async with consumer:
        await wait_until(lambda: len(done) == 99, "99 messages")
        released.set()
        await wait_until(lambda: len(done) == 100, "100 messages")


async def case_heartbeats_go_on_while_plain_handlers_block(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    released, working = threading.Event(), threading.Event()

    @consumer.handler(topic, concurrency=1)
    def work(message: Message) -> None:
        working.set()
        released.wait(30)

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"slow")
        async with consumer:
            await wait_until(working.is_set, "at work")
            before = consumer._session.last_heartbeat
            await consumer._session.heartbeat()
            assert consumer._session.last_heartbeat > before
            members = await producer._session.calls.list_members(await find_broker(producer._session), group)
            assert members == [consumer._session.client_id]
            released.set()


async def case_wrong_handlers_are_refused(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)

    async def work(message: Message) -> None: ...

    consumer.handler(topic)(work)
    with pytest.raises(ConfigError):
        consumer.handler(topic)(work)
    with pytest.raises(ConfigError):
        consumer.handler(f"{topic}-2", ordered=True)(work)
    with pytest.raises(ConfigError):
        consumer.handler(f"{topic}-2", auto_commit=False)(work)
    with pytest.raises(ConfigError):
        consumer.handler(f"{topic}-2", batch=5000)(work)  # type: ignore[type-var]
    with pytest.raises(ConfigError):
        consumer.handler(f"{topic}-2", concurrency=0)(work)
    with pytest.raises(InvalidName):
        consumer.handler("a b")(work)


async def case_handlers_cannot_come_later(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    Collector(consumer, topic)
    async with consumer:
        with pytest.raises(ConfigError):
            Collector(consumer, f"{topic}-2")
        with pytest.raises(ConfigError):
            consumer.__aiter__()


async def case_bad_groups_are_refused(nameserver: str, topic: str, group: str) -> None:
    for bad in ("", "a b", "a/b", "x" * 256, "DEFAULT_CONSUMER"):
        with pytest.raises((InvalidName, ConfigError)):
            Consumer(nameserver, group=bad, subscribe=topic)
    with pytest.raises(ConfigError):
        Consumer(nameserver, group=group, subscribe=topic, rebalance=Rebalance(strategy="averge"))


# -- one by one ----------------------------------------------------------------------------------------------------


async def case_messages_come_one_by_one(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(40))
        async with make_consumer(nameserver, group, topic) as consumer:
            messages = await read_messages(consumer, 40)
            assert [message.body for message in messages] == list_numbers(40)
            assert [message.offset for message in messages] == list(range(40))


async def case_several_topics_come_in_one_stream(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        for number in range(3):
            await producer.send(f"{topic}-{number}", b"%d" % number)
    async with make_consumer(nameserver, group, [f"{topic}-{number}" for number in range(3)]) as consumer:
        messages = await read_messages(consumer, 3)
        assert sorted((message.topic, message.body) for message in messages) == [
            (f"{topic}-{number}", b"%d" % number) for number in range(3)
        ]


async def case_several_tasks_share_a_stream(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []

    async def work() -> None:
        async for message in consumer:
            seen.append(message.body)
            await message.ack()

    async with Producer(nameserver, group=group) as producer:
        await producer.send_batch(topic, list_numbers(100))
    async with make_consumer(nameserver, group, topic) as consumer:
        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await wait_until(lambda: len(seen) == 100, "100 messages")
    await asyncio.gather(*tasks)
    assert sorted(seen, key=int) == list_numbers(100)


async def case_a_stream_ends_when_its_consumer_closes(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    consumer = make_consumer(nameserver, group, topic)
    seen: list[bytes] = []
    async with consumer:

        async def read() -> None:
            async for message in consumer:
                seen.append(message.body)

        task = asyncio.create_task(read())
        await wait_until(lambda: seen == [b"x"], "a message")
    await asyncio.wait_for(task, PATIENCE_SECONDS)
    with pytest.raises(StopAsyncIteration):
        await consumer.__anext__()
    with pytest.raises(ClientClosed):
        await consumer.commit()


async def case_a_message_says_all_about_itself(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(
            topic, b"body", tags="vip", keys=["a", "b"], properties={"region": "eu"}, flag=3, shard="s"
        )
    async with make_consumer(nameserver, group, topic) as consumer:
        (message,) = await read_messages(consumer, 1)
        assert (message.topic, message.body, message.tags, message.keys) == (topic, b"body", "vip", ["a", "b"])
        assert (message.properties, message.flag, message.delivery) == ({"region": "eu"}, 3, 1)
        assert (message.queue, message.offset) == (receipt.queue, receipt.offset)
        assert (message.message_id, message.offset_id) == (receipt.message_id, receipt.offset_id)
        assert message.origin_id == receipt.offset_id
        assert message.store_host == await find_broker(consumer._session)
        assert abs((datetime.now(UTC) - message.born_at).total_seconds()) < 60
        assert message.message_id in repr(message)


async def case_compressed_messages_are_unpacked(nameserver: str, topic: str, group: str) -> None:
    body = b"the same words, " * 5000
    for name in ("zlib", "lz4", "zstd"):
        async with Producer(nameserver, group=group, compression=name) as producer:
            await producer.send(topic, body + name.encode())
    async with make_consumer(nameserver, group, topic) as consumer:
        messages = await read_messages(consumer, 3)
        assert {message.body for message in messages} == {body + name for name in (b"zlib", b"lz4", b"zstd")}


async def case_delayed_messages_are_consumed_like_others(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"later", delay=1, tags="t", keys=["k"])
        await producer.send(topic, b"now", tags="t")
    async with make_consumer(nameserver, group, {topic: "t"}) as consumer:
        found = {message.body: message for message in await read_messages(consumer, 2)}
        # They are in two queues: who begins late may get either first.
        assert found.keys() == {b"now", b"later"}
        later = found[b"later"]
        assert (later.topic, later.keys) == (topic, ["k"])
        assert later.stored_at - later.born_at >= timedelta(seconds=0.9)


# -- how much at once ----------------------------------------------------------------------------------------------


async def _watch_cached(consumer: Consumer, limit: int, sent: int) -> None:
    """What is cached grows to the limit and one batch more at most."""
    await wait_until(lambda: _count_cached(consumer) > limit, "full")
    # It stays full: nothing comes when there is nobody to take it.
    cached = await wait_until_steady(lambda: _count_cached(consumer))
    assert limit < cached <= limit + 8 < sent


def _count_cached(consumer: Consumer) -> int:
    return sum(info.cached_msg_count for info in consumer._member.describe_running(False).mq_table.values())


async def case_no_more_is_pulled_than_may_wait(nameserver: str, topic: str, group: str) -> None:
    flow = Flow(batch=8, count_max=20, hold=1.0)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(200))
        async with make_consumer(nameserver, group, topic, flow=flow) as consumer:
            await _watch_cached(consumer, 20, 200)
            assert [message.body for message in await read_messages(consumer, 200)] == list_numbers(200)


async def case_no_more_bytes_are_pulled_than_may_wait(nameserver: str, topic: str, group: str) -> None:
    flow = Flow(batch=8, bytes_max=20_000, hold=1.0)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, [b"x" * 1000] * 100)
        async with make_consumer(nameserver, group, topic, flow=flow) as consumer:
            await _watch_cached(consumer, 18, 100)
            assert len(await read_messages(consumer, 100)) == 100


async def case_one_slow_message_stops_the_queue_at_the_span(nameserver: str, topic: str, group: str) -> None:
    flow = Flow(batch=8, span_max=30, hold=1.0)
    released = asyncio.Event()
    done: list[bytes] = []
    consumer = make_consumer(nameserver, group, flow=flow)

    @consumer.handler(topic, concurrency=4)
    async def work(message: Message) -> None:
        if message.body == b"0":
            await released.wait()
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(200))
    async with consumer:
        await wait_until(lambda: len(done) > 30, "at the span")
        assert await wait_until_steady(lambda: len(done)) <= 40
        released.set()
        await wait_until(lambda: len(done) == 200, "200 messages")


async def case_paused_queues_rest_until_they_are_resumed(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2)
        consumer = make_consumer(nameserver, group)
        collector = Collector(consumer, topic)
        one, two = await producer.list_queues(topic)
        async with consumer:
            await wait_for_queues(consumer, 2)
            for queue in (one, two):
                await producer.send(topic, b"before", queue=queue)
            await collector.wait(2)
            # A pull of it is held by the broker now; what that brings is not taken.
            consumer.pause([one])
            for queue in (one, two):
                await producer.send(topic, b"while", queue=queue)
            assert (await collector.wait(3))[2] == b"while"
            assert collector.messages[2].queue == two
            assert await wait_until_steady(lambda: len(collector.messages)) == 3
            consumer.resume()
            await collector.wait(4)
            assert collector.messages[3].queue == one


async def case_a_pause_holds_for_queues_that_come_later(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        consumer = make_consumer(nameserver, group)
        collector = Collector(consumer, topic)
        async with consumer:
            consumer.pause()
            await create_topic(producer, topic, 3)
            await wait_for_queues(consumer, 3)
            queues = (await producer._session.routes.refresh(topic)).write_queues
            for queue in queues:
                await producer.send(topic, b"%d" % queue.queue_id, queue=queue)
            await fetch_topic(producer._session, topic, 3)
            assert await wait_until_steady(lambda: len(collector.messages)) == 0
            consumer.resume([queues[2]])
            assert await collector.wait(1) == [b"2"]
            consumer.resume()
            assert sorted(await collector.wait(3)) == [b"0", b"1", b"2"]


async def case_the_queue_of_a_receipt_is_that_of_its_message(nameserver: str, topic: str, group: str) -> None:
    """Also in a namespace: what a producer was told of can be paused."""
    options = ClientOptions(namespace="shop", route_interval=0.2)
    async with Producer(nameserver, group=group, options=options) as producer:
        receipt = await producer.send(topic, b"1")
        told: list[MessageQueue] = []

        def listen(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
            told.extend(assigned)

        async with make_consumer(
            nameserver,
            group,
            topic,
            options=options,
            rebalance=replace(QUICK_REBALANCE, on_change=listen),
        ) as consumer:
            (message,) = await read_messages(consumer, 1)
            assert message.queue == receipt.queue
            assert receipt.queue in consumer.queues
            assert receipt.queue in told
            consumer.pause([receipt.queue])
            await producer.send(topic, b"2", queue=receipt.queue)
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.wait((waiting,), timeout=0.5)
            assert not waiting.done()
            consumer.resume([receipt.queue])
            assert (await waiting).body == b"2"


# -- the end -------------------------------------------------------------------------------------------------------


async def case_close_waits_for_handlers(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    started, done = asyncio.Event(), []

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        started.set()
        await asyncio.sleep(0.3)  # a handler that takes its time
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await started.wait()
        assert done == []
    assert done == [b"x"]


async def case_close_does_not_wait_for_ever(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, drain=0.2)
    started = asyncio.Event()

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await started.wait()
        before = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - before < PATIENCE_SECONDS / 2  # the usual drain is longer
    async with make_consumer(nameserver, group, topic) as consumer:
        assert [message.body for message in await read_messages(consumer, 1)] == [b"x"]


async def case_run_goes_on_until_it_is_cancelled(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    task = asyncio.create_task(consumer.run())
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        await collector.wait(1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with pytest.raises(RequestRefused):
            await producer._session.calls.list_members(await find_broker(producer._session), group)


async def case_run_ends_when_the_consumer_is_closed(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    task = asyncio.create_task(consumer.run())
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        await collector.wait(1)
    await consumer.close()
    await asyncio.wait_for(task, PATIENCE_SECONDS)


async def case_hooks_are_told_of_every_delivery(nameserver: str, topic: str, group: str) -> None:
    told: list[tuple[list[bytes], Outcome | None]] = []

    class Hook:
        def before_consume(self, messages: list[Message]) -> object:
            told.append(([message.body for message in messages], None))
            return "begun"

        def after_consume(self, messages: list[Message], outcome: Outcome, seconds: float, begun: object) -> None:
            assert begun == "begun" and seconds >= 0
            told.append(([message.body for message in messages], outcome))
            raise RuntimeError("what a hook raises goes no further")

    consumer = make_consumer(nameserver, group, hooks=[Hook()])
    collector = Collector(consumer, topic)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await collector.wait(1)
    assert told == [([b"x"], None), ([b"x"], Outcome.DONE)]


@whole
async def case_thousands_of_messages_pass(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    async with Producer(nameserver, group=group) as producer, consumer:
        await create_topic(producer, topic, 8)
        for start in range(0, 10_000, 100):
            await producer.send_batch(topic, [b"%d" % number for number in range(start, start + 100)])
        await wait_until(lambda: len(collector.messages) >= 10_000, "10,000 messages")
    assert Counter(collector.bodies) == Counter(list_numbers(10_000))


# -- single messages of a batch, topics by pattern, lag ------------------------------------------------------------


async def case_only_what_was_not_acknowledged_comes_again(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(6))
    seen: list[tuple[bytes, int]] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, batch=6, concurrency=1)
    async def work(messages: list[Message]) -> None:
        seen.extend([(message.body, message.delivery) for message in messages])
        if messages[0].delivery == 1:
            for message in messages:
                if int(message.body) % 2:
                    await message.ack()
            raise RetryLater("as wanted", delay_level=1)

    async with consumer:
        await wait_until(lambda: len(seen) >= 9, "three of them again")
    assert sorted(seen) == sorted([(body, 1) for body in list_numbers(6)] + [(b"0", 2), (b"2", 2), (b"4", 2)])


async def case_topics_that_match_are_consumed(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, start="latest")
    seen: list[tuple[str, bytes]] = []

    @consumer.handler(re.compile(f"{topic}-.*"))
    async def work(message: Message) -> None:
        seen.append((message.topic, message.body))

    async with Producer(nameserver, group=group, options=ClientOptions(**QUICK_OPTIONS)) as producer:
        await create_topic(producer, f"{topic}-1", 1)
        await create_topic(producer, topic, 1)
        async with consumer:
            assert {queue.topic for queue in consumer.queues} == {f"{topic}-1"}
            await producer.send(topic, b"not this")
            await producer.send(f"{topic}-1", b"1")
            await create_topic(producer, f"{topic}-2", 1)
            await producer.send(f"{topic}-2", b"2")
            await wait_until(lambda: len(seen) == 2, "both")
            await wait_until_idle(consumer)
    assert sorted(seen) == [(f"{topic}-1", b"1"), (f"{topic}-2", b"2")]


async def wait_until_idle(consumer: Consumer) -> None:
    """Wait until nothing is behind."""
    await poll(consumer.lag, lambda lag: lag.total == 0)
