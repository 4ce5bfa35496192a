"""Where a group begins, and where it continues: `start` means what it says, and restarts neither lose nor repeat."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from eruca import Consumer, Message, MessageQueue, Offsets, Producer, PullConsumer
from eruca.errors import ConfigError, ErucaError
from tests.clients.cases_pull import poll_until
from tests.clients.stage import (
    PATIENCE_SECONDS,
    Collector,
    create_topic,
    fetch_topic,
    find_broker,
    is_eruca,
    list_numbers,
    make_consumer,
    poll,
    read_messages,
    send_numbered,
    wait_for_queues,
    wait_until,
    whole,
)


async def case_earliest_gives_what_was_sent_before(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await send_numbered(producer, topic, range(8))
    consumer = make_consumer(nameserver, group, start="earliest")
    collector = Collector(consumer, topic)
    async with consumer:
        assert sorted(await collector.wait(8)) == list_numbers(8)


async def case_latest_gives_only_what_comes_from_now_on(nameserver: str, topic: str, group: str) -> None:
    """The topic is young: a broker then answers "offset 0" for a group that it does not know."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        await send_numbered(producer, topic, range(8))
        await fetch_topic(producer._session, topic, 8)
        consumer = make_consumer(nameserver, group, start="latest")
        collector = Collector(consumer, topic)
        async with consumer:
            await wait_for_queues(consumer, 4)
            for queue in await producer.list_queues(topic):
                await producer.send(topic, b"new", queue=queue)
            assert await collector.wait(4) == [b"new"] * 4


async def case_a_new_group_gets_what_is_sent_right_after_its_start(nameserver: str, topic: str, group: str) -> None:
    """It has its queues, and knows where to begin in them, when `start` returns; both kinds of consumers."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        queues = await producer.list_queues(topic)
        async with Consumer(nameserver, group=group, subscribe=topic) as consumer:
            assert len(consumer.queues) == 4
            for queue in queues:
                await producer.send(topic, b"right after", queue=queue)
            assert [message.body for message in await read_messages(consumer, 4)] == [b"right after"] * 4
        async with PullConsumer(nameserver, group=f"{group}-pull", subscribe=topic) as puller:
            assert len(puller.assignment) == 4
            for queue in queues:
                await producer.send(topic, b"and again", queue=queue)
            assert [message.body for message in await poll_until(puller, 4)] == [b"and again"] * 4


async def case_a_consumer_starts_before_its_topic(nameserver: str, topic: str, group: str) -> None:
    """It does not wait for a topic that does not exist, and gets the message that creates it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        Producer(nameserver, group=group) as producer,
        Consumer(nameserver, group=group, subscribe=topic) as consumer,
    ):
        assert loop.time() - began < PATIENCE_SECONDS
        assert consumer.queues == []
        await producer.send(topic, b"first")
        # The default interval at which routes are asked for is thirty seconds.
        assert [message.body for message in await read_messages(consumer, 1)] == [b"first"]


async def case_latest_loses_nothing_over_a_restart(nameserver: str, topic: str, group: str) -> None:
    """The group leaves without having consumed anything; what is sent while it is away is for it."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        await send_numbered(producer, topic, range(8))
        await fetch_topic(producer._session, topic, 8)
        async with make_consumer(nameserver, group, topic, start="latest") as consumer:
            await wait_for_queues(consumer, 4)
        for queue in await producer.list_queues(topic):
            await producer.send(topic, b"meanwhile", queue=queue)
        async with make_consumer(nameserver, group, topic, start="latest") as consumer:
            messages = await read_messages(consumer, 4)
            assert [message.body for message in messages] == [b"meanwhile"] * 4


async def case_a_time_gives_what_was_stored_since(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2)
        queues = await producer.list_queues(topic)
        for queue in queues:
            await send_numbered(producer, topic, range(3), queue=queue)
        old = await fetch_topic(producer._session, topic, 6)
        moment = max(message.stored_at for message in old) + timedelta(milliseconds=1)
        await wait_until(lambda: datetime.now(UTC) > moment, "later")
        for queue in queues:
            await producer.send(topic, b"since", queue=queue)
        await fetch_topic(producer._session, topic, 8)
        async with make_consumer(nameserver, group, topic, start=moment) as consumer:
            messages = await read_messages(consumer, 2)
            assert [message.body for message in messages] == [b"since"] * 2


async def case_a_time_before_everything_gives_everything(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
        await fetch_topic(producer._session, topic, 5)
    moment = datetime.now(UTC) - timedelta(days=1)
    async with make_consumer(nameserver, group, topic, start=moment) as consumer:
        assert [message.body for message in await read_messages(consumer, 5)] == list_numbers(5)


async def case_a_known_group_goes_on_whatever_start_says(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(4))
        async with make_consumer(nameserver, group, topic) as consumer:
            assert [message.body for message in await read_messages(consumer, 4)] == list_numbers(4)
        await producer.send(topic, b"next")
        for start in ("latest", "earliest", datetime.now(UTC) - timedelta(days=1)):
            async with make_consumer(nameserver, group, topic, start=start) as consumer:
                assert [message.body for message in await read_messages(consumer, 1)] == [b"next"]
            await producer.send(topic, b"next")


async def case_no_other_start_is_taken(nameserver: str, topic: str, group: str) -> None:
    for start in ("first", "", None, 0):
        with pytest.raises(ConfigError):
            Consumer(nameserver, group=group, subscribe=topic, start=start)  # type: ignore[arg-type]


async def case_a_queue_that_comes_later_is_read_from_its_beginning(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2)
        async with make_consumer(nameserver, group, topic, start="latest") as consumer:
            await wait_for_queues(consumer, 2)
            await create_topic(producer, topic, 4)
            queues = (await producer._session.routes.refresh(topic)).write_queues
            for queue in queues:
                await producer.send(topic, b"%d" % queue.queue_id, queue=queue)
            messages = await read_messages(consumer, 4)
            assert sorted(message.body for message in messages) == list_numbers(4)


async def case_a_topic_that_comes_later_is_consumed(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, start="latest")
    collector = Collector(consumer, topic)
    async with consumer, Producer(nameserver, group=group) as producer:
        assert consumer.queues == []
        await send_numbered(producer, topic, range(6))
        assert sorted(await collector.wait(6)) == list_numbers(6)


async def case_a_clean_restart_neither_loses_nor_repeats(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        numbers = iter(range(10**6))
        sent = 0
        for _ in range(5):
            consumer = make_consumer(nameserver, group)

            async def keep(message: Message) -> None:
                await asyncio.sleep(0.002)
                seen.append(message.body)

            consumer.handler(topic, concurrency=4)(keep)
            async with consumer:
                count = len(seen)
                while len(seen) < count + 40:
                    await producer.send(topic, b"%d" % next(numbers))
                    sent += 1
        async with make_consumer(nameserver, group, topic) as consumer:
            rest = await read_messages(consumer, sent - len(seen)) if sent > len(seen) else []
    assert sorted([*seen, *[message.body for message in rest]], key=int) == list_numbers(sent)


async def case_what_was_not_acknowledged_comes_again(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
    async with make_consumer(nameserver, group, topic) as consumer:
        messages = await read_messages(consumer, 5, ack=False)
        for message in messages[:2]:
            await message.ack()
        await messages[4].ack()
        # One that is done behind one that is not: Java's broker has one offset and cannot tell.
        again = [b"2", b"3"] if await is_eruca(consumer) else [b"2", b"3", b"4"]
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"next")
    async with make_consumer(nameserver, group, topic) as consumer:
        found = await read_messages(consumer, len(again) + 1)
        assert [message.body for message in found] == [*again, b"next"]


async def case_commit_puts_offsets_on_the_broker(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
    async with make_consumer(nameserver, group, topic, offsets=Offsets(interval=3600)) as consumer:
        await read_messages(consumer, 5)
        await consumer.commit()
        assert await _read_offset(consumer, group) == 5


async def case_offsets_are_committed_in_intervals(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
    async with make_consumer(nameserver, group, topic, offsets=Offsets(interval=0.05)) as consumer:
        await read_messages(consumer, 5)
        await poll(lambda: _read_offset(consumer, group), lambda offset: offset == 5)


async def _read_offset(consumer: Consumer, group: str) -> int | None:
    (queue,) = consumer.queues
    address = await find_broker(consumer._session)
    return await consumer._session.calls.read_offset(address, group, queue)


async def case_a_slow_message_holds_the_offset(nameserver: str, topic: str, group: str) -> None:
    """Messages behind it may be done; the offset stays, so that a crash does not lose it."""
    released = asyncio.Event()
    done: list[bytes] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, concurrency=4)
    async def work(message: Message) -> None:
        if message.body == b"1":
            await released.wait()
        done.append(message.body)

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(6))
    async with consumer:
        await wait_until(lambda: len(done) == 5, "5 messages")
        await consumer.commit()
        assert await _read_offset(consumer, group) == 1
        released.set()
        await wait_until(lambda: len(done) == 6, "6 messages")
        await consumer.commit()
        assert await _read_offset(consumer, group) == 6


async def case_an_offset_that_is_gone_is_corrected(nameserver: str, topic: str, group: str) -> None:
    """Somebody committed an offset beyond the end; the broker says where to continue."""
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        (queue,) = await producer.list_queues(topic)
        await send_numbered(producer, topic, range(3))
        await fetch_topic(producer._session, topic, 3)
        address = await find_broker(producer._session)
        await producer._session.calls.write_offset(address, group, queue, 1000, wait=True)
        async with make_consumer(nameserver, group, topic) as consumer:
            await wait_for_queues(consumer, 1)
            await wait_until(lambda: consumer._member.list_offsets(topic) == {queue: 3}, "the offset corrected")
            await producer.send(topic, b"new")
            assert [message.body for message in await read_messages(consumer, 1)] == [b"new"]


@whole
async def case_an_offset_is_never_committed_backwards_by_a_restart(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        (queue,) = await producer.list_queues(topic)
        address = await find_broker(producer._session)
        calls = producer._session.calls
        offsets = []
        for number in range(6):
            await producer.send(topic, b"%d" % number)
            async with make_consumer(nameserver, group, topic) as consumer:
                (message,) = await read_messages(consumer, 1)
                assert message.body == b"%d" % number
            offsets.append(await calls.read_offset(address, group, queue))
        assert offsets == [1, 2, 3, 4, 5, 6]


async def case_groups_do_not_disturb_each_other(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
    async with (
        make_consumer(nameserver, f"{group}-a", topic) as one,
        make_consumer(nameserver, f"{group}-b", topic) as two,
    ):
        assert one._session is two._session
        for consumer in (one, two):
            assert [message.body for message in await read_messages(consumer, 5)] == list_numbers(5)


async def case_a_failed_start_leaves_nothing_behind(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    with pytest.raises(ConfigError):
        await consumer.start()
    with pytest.raises(ErucaError):
        await consumer.commit()
    assert consumer.queues == []
    assert MessageQueue("b", 0, topic) not in consumer.queues
