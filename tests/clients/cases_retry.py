"""Failures: a message comes again, how often it came, and where it goes in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from eruca import Consumer, Message, Outcome, Producer, Retry, RetryLater
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX
from tests.clients.stage import (
    Collector,
    create_topic,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    read_messages,
    send_numbered,
    wait_until,
    whole,
)


class _Failing:
    """A handler that fails on each message a number of times, in one of the ways to fail."""

    def __init__(self, consumer: Consumer, topic: str, times: int, outcome: object = None) -> None:
        self.seen: list[Message] = []
        self._times = times
        self._outcome = outcome
        register: Callable[[Any], Any] = consumer.handler(topic)  # what it returns may be wrong
        register(self.work)

    async def work(self, message: Message) -> object:
        """The handler."""
        self.seen.append(message)
        if message.delivery > self._times:
            return None
        if self._outcome is None:
            raise ValueError("as wanted")
        return self._outcome

    async def wait(self, count: int) -> list[Message]:
        """Wait until it was called this often."""
        await wait_until(lambda: len(self.seen) >= count, f"{count} calls")
        return self.seen


async def case_an_exception_brings_the_message_again(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 1)
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"x", tags="t", keys=["k"], properties={"p": "1"}, flag=5)
    async with consumer:
        first, again = await handler.wait(2)
    assert (first.delivery, again.delivery) == (1, 2)
    for message in (first, again):
        assert (message.topic, message.body, message.tags, message.keys) == (topic, b"x", "t", ["k"])
        assert (message.properties, message.flag) == ({"p": "1"}, 5)
        assert message.message_id == receipt.message_id
        assert message.origin_id == receipt.offset_id
    assert again.queue.topic == RETRY_PREFIX + group
    assert again.offset_id != first.offset_id


async def case_an_outcome_brings_the_message_again(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 1, Outcome.LATER)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        assert [message.delivery for message in await handler.wait(2)] == [1, 2]


async def case_a_wrong_answer_of_a_handler_brings_the_message_again(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 1, "ok")
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        assert [message.delivery for message in await handler.wait(2)] == [1, 2]


@whole
async def case_a_plain_function_may_fail_too(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    seen: list[int] = []

    @consumer.handler(topic)
    def work(message: Message) -> None:
        seen.append(message.delivery)
        if message.delivery == 1:
            raise ValueError("as wanted")

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await wait_until(lambda: len(seen) == 2, "2 calls")
    assert seen == [1, 2]


@whole
async def case_every_failure_counts(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 3)
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"x")
    async with consumer:
        messages = await handler.wait(4)
    assert [message.delivery for message in messages] == [1, 2, 3, 4]
    assert {message.topic for message in messages} == {topic}
    assert {message.origin_id for message in messages} == {receipt.offset_id}


async def case_a_failed_batch_comes_again_one_by_one(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    seen: Counter[tuple[bytes, int]] = Counter()

    @consumer.handler(topic, batch=5, concurrency=1)
    async def work(messages: list[Message]) -> Outcome | None:
        seen.update((message.body, message.delivery) for message in messages)
        return Outcome.LATER if messages[0].delivery == 1 else None

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await producer.send_batch(topic, list_numbers(5))
    async with consumer:
        await wait_until(lambda: sum(seen.values()) >= 10, "all again")
    assert seen == {(body, delivery): 1 for body in list_numbers(5) for delivery in (1, 2)}


async def case_others_go_on_while_one_fails(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    done: list[bytes] = []

    @consumer.handler(topic, concurrency=1)
    async def work(message: Message) -> None:
        if message.body == b"0" and message.delivery == 1:
            raise ValueError("as wanted")
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(10))
    async with consumer:
        await wait_until(lambda: len(done) == 10, "10 messages")
    assert done == [*list_numbers(10)[1:], b"0"]


async def case_retries_survive_a_restart(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 1)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await handler.wait(1)
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    async with consumer:
        await collector.wait(1)
        (message,) = collector.messages
        assert (message.body, message.delivery, message.topic) == (b"x", 2, topic)


async def case_what_fails_too_often_becomes_a_dead_letter(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, retry=Retry(max_deliveries=2))
    handler = _Failing(consumer, topic, 100)
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"x", keys=["k"], tags="t")
        async with consumer:
            (dead,) = await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
        assert [message.delivery for message in handler.seen] == [1, 2]
        assert (dead.body, dead.keys, dead.tags, dead.message_id) == (b"x", ["k"], "t", receipt.message_id)
        assert dead.origin_id == receipt.offset_id
        assert dead.all_properties["RETRY_TOPIC"] == topic


async def case_no_attempt_more_may_be_wanted(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, retry=Retry(max_deliveries=1))
    handler = _Failing(consumer, topic, 100)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        async with consumer:
            await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
        assert len(handler.seen) == 1


async def case_a_handler_may_give_up_at_once(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 100, Outcome.DEAD)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        async with consumer:
            (dead,) = await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
        assert (dead.body, len(handler.seen)) == (b"x", 1)


async def case_dead_letters_can_be_consumed(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    _Failing(consumer, topic, 100, Outcome.DEAD)
    async with Producer(nameserver, group=group) as producer:
        await producer.send_batch(topic, list_numbers(5))
        async with consumer:
            await fetch_topic(producer._session, DLQ_PREFIX + group, 5)
    async with make_consumer(nameserver, f"{group}-dead", DLQ_PREFIX + group) as undertaker:
        messages = await read_messages(undertaker, 5)
        assert sorted(message.body for message in messages) == list_numbers(5)
        assert {message.topic for message in messages} == {DLQ_PREFIX + group}


async def case_one_by_one_a_message_may_be_wanted_again(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"x")
    async with make_consumer(nameserver, group, topic) as consumer:
        (first,) = await read_messages(consumer, 1, ack=False)
        await first.retry()
        (again,) = await read_messages(consumer, 1)
        assert (again.topic, again.body, again.delivery) == (topic, b"x", 2)
        assert again.message_id == receipt.message_id


@whole
async def case_the_pause_before_a_retry_may_be_chosen(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with make_consumer(nameserver, group, topic) as consumer:
        (first,) = await read_messages(consumer, 1, ack=False)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await first.retry(delay_level=2)  # two seconds here
        (again,) = await read_messages(consumer, 1)
        assert again.delivery == 2
        assert loop.time() - began >= 1.8


async def case_one_by_one_a_message_may_be_buried(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        async with make_consumer(nameserver, group, topic) as consumer:
            (message,) = await read_messages(consumer, 1, ack=False)
            await message.bury()
            (dead,) = await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
            assert dead.body == b"x"
            (queue,) = [queue for queue in consumer.queues if queue == message.queue]
            assert consumer._member.list_offsets(topic)[queue] == message.offset + 1


@whole
async def case_a_handler_that_takes_too_long_loses_its_message(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, retry=Retry(handler_timeout=0.4))
    released = asyncio.Event()
    seen: list[tuple[bytes, int]] = []

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        seen.append((message.body, message.delivery))
        if message.delivery == 1:
            await released.wait()

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"slow")
    async with consumer:
        await wait_until(lambda: len(seen) == 2, "delivered again")
        released.set()
    assert seen == [(b"slow", 1), (b"slow", 2)]


@whole
async def case_compressed_messages_come_again_whole(nameserver: str, topic: str, group: str) -> None:
    body = b"long " * 5000
    consumer = make_consumer(nameserver, group)
    handler = _Failing(consumer, topic, 1)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, body)
    async with consumer:
        assert [message.body for message in await handler.wait(2)] == [body, body]


async def case_each_topic_gets_its_own_retries(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    one, two = _Failing(consumer, f"{topic}-1", 1), _Failing(consumer, f"{topic}-2", 1)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(f"{topic}-1", b"1")
        await producer.send(f"{topic}-2", b"2")
    async with consumer:
        assert [(message.body, message.delivery) for message in await one.wait(2)] == [(b"1", 1), (b"1", 2)]
        assert [(message.body, message.delivery) for message in await two.wait(2)] == [(b"2", 1), (b"2", 2)]


@whole
async def case_nothing_is_lost_when_every_second_fails(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    done: list[bytes] = []

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        if int(message.body) % 2 and message.delivery < 3:
            raise ValueError("as wanted")
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await producer.send_batch(topic, list_numbers(200))
        async with consumer:
            await wait_until(lambda: len(done) >= 200, "200 messages", 60)
            address = await find_broker(producer._session)
            await consumer.commit()
            for queue, offset in consumer._member.list_offsets(RETRY_PREFIX + group).items():
                assert await producer._session.calls.find_max_offset(address, queue) == offset == 200
    assert Counter(done) == Counter(list_numbers(200))


async def case_a_handler_chooses_any_delay(nameserver: str, topic: str, group: str) -> None:
    """Eruca keeps it; other brokers use the next longer delay level."""
    consumer = make_consumer(nameserver, group)
    seen: list[Message] = []

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        seen.append(message)
        if message.delivery == 1:
            raise RetryLater(delay=timedelta(seconds=1.5))
        if message.delivery == 2:
            await message.retry(delay=0.5)

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
    async with consumer:
        await wait_until(lambda: len(seen) == 3, "3 calls")
    # By the clock of the broker, which stores the message before and after each pause.
    pauses = [(later.stored_at - message.stored_at).total_seconds() for message, later in pairwise(seen)]
    assert [message.delivery for message in seen] == [1, 2, 3]
    assert pauses[0] >= 1.5 and pauses[1] >= 0.5
    is_exact = ["TIMER_OUT_MS" in message.all_properties for message in seen[1:]]
    assert is_exact in ([True, True], [False, False])


@whole
async def case_the_back_off_of_a_group(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, retry=Retry(backoff=[0.3, timedelta(seconds=1)], max_deliveries=4))
    handler = _Failing(consumer, topic, 4)
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        async with consumer:
            seen = await handler.wait(4)
            await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
    pauses = [(later.stored_at - message.stored_at).total_seconds() for message, later in pairwise(seen)]
    assert all(pause >= least for pause, least in zip(pauses, (0.3, 1, 1), strict=True))
