"""Requests and replies."""

from __future__ import annotations

import asyncio

import pytest

from eruca import ClientOptions, Message, Producer
from eruca.errors import MessageIllegal, NoListener, RequestTimeout
from tests.clients.stage import (
    PATIENCE_SECONDS,
    create_topic,
    list_numbers,
    make_consumer,
    read_messages,
    wait_for_queues,
)


async def case_a_request_gets_its_reply(nameserver: str, topic: str, group: str) -> None:
    options = ClientOptions(call_timeout=3.001)
    async with (
        Producer(nameserver, group=f"{group}-q") as asker,
        Producer(nameserver, group=f"{group}-a", options=options) as replier,
    ):
        assert asker._session is not replier._session
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic)
        async def answer(message: Message) -> None:
            await replier.reply(message, message.body.upper(), tags="answer", properties={"by": "me"})

        async with consumer:
            reply = await asker.request(topic, b"hello", timeout=20, tags="t", keys=["k"])
            assert (reply.body, reply.tags, reply.properties) == (b"HELLO", "answer", {"by": "me"})


async def case_a_consumer_replies_without_a_producer(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=f"{group}-q", options=ClientOptions(call_timeout=3.001)) as asker:
        await create_topic(asker, topic)
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic)
        async def answer(message: Message) -> None:
            await message.reply(message.body.upper(), tags="answer", properties={"by": "me"})

        async with consumer:
            assert asker._session is not consumer._session
            replies = await asyncio.gather(*[asker.request(topic, b"q%d" % number, timeout=20) for number in range(10)])
        assert [reply.body for reply in replies] == [b"Q%d" % number for number in range(10)]
        assert {(reply.tags, reply.properties["by"]) for reply in replies} == {("answer", "me")}


async def case_a_request_that_nobody_hears_ends_early(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=f"{group}-q") as asker:
        await create_topic(asker, topic)
        async with make_consumer(nameserver, group, topic) as consumer:
            asking = asyncio.create_task(
                asker.request(topic, b"anybody?", timeout=PATIENCE_SECONDS, listener_timeout=0.5)
            )
            (question,) = await read_messages(consumer, 1, ack=False)
            await asyncio.wait([asking], timeout=2)  # longer than nobody may be there
            assert not asking.done()
            await question.reply(b"me")
            assert (await asking).body == b"me"
        # The group is known still, but none of its members is connected.
        with pytest.raises(NoListener, match=f"nobody listens to topic {topic}"):
            await asker.request(topic, b"anybody?", timeout=PATIENCE_SECONDS, listener_timeout=0.5)


async def case_requester_and_replier_may_be_one(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        async with make_consumer(nameserver, group, topic) as consumer:
            await wait_for_queues(consumer, 1)
            task = asyncio.create_task(producer.request(topic, b"ping", timeout=20))
            (message,) = await read_messages(consumer, 1)
            assert message.body == b"ping"
            await producer.reply(message, b"pong")
            assert (await task).body == b"pong"


async def case_many_requests_get_each_its_own_reply(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic)
        async def answer(message: Message) -> None:
            await asyncio.sleep(0.01 * (int(message.body) % 4))
            await producer.reply(message, b"re " + message.body)

        async with consumer:
            replies = await asyncio.gather(*[producer.request(topic, body, timeout=20) for body in list_numbers(40)])
            assert [reply.body for reply in replies] == [b"re " + body for body in list_numbers(40)]


async def case_large_replies_come_whole(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic)
        async def answer(message: Message) -> None:
            await producer.reply(message, message.body * 2)

        async with consumer:
            body = b"0123456789" * 5000
            assert (await producer.request(topic, body, timeout=20)).body == body * 2


async def case_without_a_reply_the_request_ends_in_time(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestTimeout) as late:
            await producer.request(topic, b"anybody?", timeout=2)
        assert 1.9 < loop.time() - began < PATIENCE_SECONDS
        assert late.value.retryable and topic in str(late.value)


async def case_only_requests_can_be_replied_to(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"no request")
        async with make_consumer(nameserver, group, topic) as consumer:
            (message,) = await read_messages(consumer, 1)
            with pytest.raises(MessageIllegal):
                await producer.reply(message, b"reply")


async def case_a_late_reply_disturbs_nobody(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        async with make_consumer(nameserver, group, topic) as consumer:
            with pytest.raises(RequestTimeout):
                await producer.request(topic, b"first", timeout=2)
            (first,) = await read_messages(consumer, 1)
            task = asyncio.create_task(producer.request(topic, b"second", timeout=20))
            (second,) = await read_messages(consumer, 1)
            await producer.reply(first, b"too late")
            await producer.reply(second, b"in time")
            assert (await task).body == b"in time"
