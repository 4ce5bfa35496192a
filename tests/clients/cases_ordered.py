"""Ordered consuming: one message of a queue after the other, by one member at a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from eruca import Consumer, Message, MessageQueue, Outcome, Producer, Retry
from eruca._wire.names import DLQ_PREFIX
from tests.clients.stage import (
    QUICK_REBALANCE,
    Collector,
    create_topic,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    poll,
    send_numbered,
    wait_for_queues,
    wait_until,
    whole,
)


async def _send(nameserver: str, topic: str, group: str, count: int, queues: int = 1) -> list[MessageQueue]:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, queues)
        found = await producer.list_queues(topic)
        for queue in found:
            await producer.send_batch(topic, list_numbers(count), queue=queue)
        return found


async def case_each_queue_is_consumed_in_order(nameserver: str, topic: str, group: str) -> None:
    queues = await _send(nameserver, topic, group, 100, queues=4)
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic, ordered=True)
    async with consumer:
        await collector.wait(400)
    for queue in queues:
        assert [message.body for message in collector.messages if message.queue == queue] == list_numbers(100)


async def case_messages_of_a_shard_stay_in_order(nameserver: str, topic: str, group: str) -> None:
    seen: defaultdict[str, list[int]] = defaultdict(list)
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> None:
        await asyncio.sleep(0.0005 * (int(message.body) % 3))
        seen[message.keys[0]].append(int(message.body))

    async with Producer(nameserver, group=group) as producer, consumer:
        await create_topic(producer, topic, 4)
        for number in range(30):
            for customer in ("ann", "bob", "eve", "joe", "kim"):
                await producer.send(topic, b"%d" % number, keys=[customer], shard=customer)
        await wait_until(lambda: sum(map(len, seen.values())) >= 150, "150 messages")
    assert dict(seen) == {name: list(range(30)) for name in ("ann", "bob", "eve", "joe", "kim")}


async def case_one_handler_at_a_time_works_on_a_queue(nameserver: str, topic: str, group: str) -> None:
    running: set[MessageQueue] = set()
    together = asyncio.Event()
    done = twice = 0
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> None:
        nonlocal done, twice
        twice += message.queue in running
        running.add(message.queue)
        if len(running) == 3:
            together.set()
        # The first of each queue waits for the others: a queue whose messages come late does not work alone.
        await together.wait()
        await asyncio.sleep(0.002)
        running.discard(message.queue)
        done += 1

    await _send(nameserver, topic, group, 30, queues=3)
    async with consumer:
        await wait_until(lambda: done >= 90, "90 messages, three queues at a time")
    assert (done, twice) == (90, 0)


async def case_a_failed_message_is_tried_again_in_its_place(nameserver: str, topic: str, group: str) -> None:
    seen: list[tuple[bytes, int]] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> Outcome | None:
        seen.append((message.body, message.delivery))
        if message.body == b"2" and message.delivery == 1:
            raise ValueError("as wanted")
        return Outcome.LATER if message.body == b"2" and message.delivery == 2 else None

    await _send(nameserver, topic, group, 5)
    async with consumer:
        await wait_until(lambda: len(seen) == 7, "7 calls")
    assert seen == [(b"0", 1), (b"1", 1), (b"2", 1), (b"2", 2), (b"2", 3), (b"3", 1), (b"4", 1)]


async def case_a_failing_queue_waits_a_moment(nameserver: str, topic: str, group: str) -> None:
    times: list[float] = []
    consumer = make_consumer(nameserver, group, retry=Retry(suspend=0.3))

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> Outcome | None:
        times.append(asyncio.get_running_loop().time())
        return Outcome.LATER if message.delivery < 3 else None

    await _send(nameserver, topic, group, 1)
    async with consumer:
        await wait_until(lambda: len(times) == 3, "3 calls")
    assert all(later - earlier >= 0.29 for earlier, later in pairwise(times))


async def case_a_failing_queue_does_not_hold_up_others(nameserver: str, topic: str, group: str) -> None:
    released = False
    done: list[Message] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> Outcome | None:
        if message.queue == one and not released:
            return Outcome.LATER
        done.append(message)
        return None

    one, two = await _send(nameserver, topic, group, 20, queues=2)
    async with consumer:
        await wait_until(lambda: len(done) == 20, "20 messages")
        assert {message.queue for message in done} == {two}
        released = True
        await wait_until(lambda: len(done) == 40, "40 messages")


async def case_after_too_many_deliveries_the_queue_goes_on(nameserver: str, topic: str, group: str) -> None:
    seen: list[tuple[bytes, int]] = []
    consumer = make_consumer(nameserver, group, retry=Retry(max_deliveries=3, suspend=0.3))

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> None:
        seen.append((message.body, message.delivery))
        if message.body == b"1":
            raise ValueError("as wanted")

    await _send(nameserver, topic, group, 3)
    async with consumer, Producer(nameserver, group=group) as producer:
        (dead,) = await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
        assert dead.body == b"1"
        await wait_until(lambda: len(seen) == 5, "5 calls")
    assert seen == [(b"0", 1), (b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1)]


async def case_a_message_may_be_given_up_at_once(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> Outcome | None:
        seen.append(message.body)
        return Outcome.DEAD if message.body == b"1" else None

    await _send(nameserver, topic, group, 3)
    async with consumer, Producer(nameserver, group=group) as producer:
        await wait_until(lambda: b"2" in seen, "3 calls")
        (dead,) = await fetch_topic(producer._session, DLQ_PREFIX + group, 1)
        assert dead.body == b"1"
    # A broker that is busy may refuse the dead letter once; then the message comes again, in its place.
    assert seen in (list_numbers(3), [b"0", b"1", b"1", b"2"])


async def case_several_at_once_keep_their_order(nameserver: str, topic: str, group: str) -> None:
    batches: list[list[bytes]] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True, batch=8)
    async def work(messages: list[Message]) -> None:
        batches.append([message.body for message in messages])
        if len(batches) == 1:
            raise ValueError("as wanted")

    await _send(nameserver, topic, group, 60)
    async with consumer:
        await wait_until(lambda: sum(map(len, batches[1:])) >= 60, "60 messages")
    assert batches[0] == batches[1][: len(batches[0])]
    assert [body for batch in batches[1:] for body in batch] == list_numbers(60)
    assert max(map(len, batches)) == 8


async def case_a_handler_may_commit_by_itself(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True, auto_commit=False)
    async def work(message: Message) -> Outcome | None:
        seen.append(message.body)
        return Outcome.COMMIT if message.body == b"4" else None

    (queue,) = await _send(nameserver, topic, group, 8)
    async with consumer:
        await wait_until(lambda: len(seen) == 8, "8 messages")
        assert consumer._member.list_offsets(topic) == {queue: 5}
    # What was not committed comes again.
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic, ordered=True)
    async with consumer:
        assert await collector.wait(3) == [b"5", b"6", b"7"]


async def case_a_handler_may_roll_back_by_itself(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []
    rolled_back = False
    consumer = make_consumer(nameserver, group)

    @consumer.handler(topic, ordered=True, auto_commit=False)
    async def work(message: Message) -> Outcome | None:
        nonlocal rolled_back
        seen.append(message.body)
        if message.body == b"3" and not rolled_back:
            rolled_back = True
            return Outcome.ROLLBACK
        return Outcome.COMMIT if message.body in (b"1", b"5") else None

    (queue,) = await _send(nameserver, topic, group, 6)
    async with consumer:
        await wait_until(lambda: len(seen) == 8, "8 calls")
        assert seen == [b"0", b"1", b"2", b"3", b"2", b"3", b"4", b"5"]
        await wait_until(lambda: consumer._member.list_offsets(topic) == {queue: 6}, "committed")


async def case_a_clean_restart_goes_on_in_order(nameserver: str, topic: str, group: str) -> None:
    seen: list[bytes] = []
    await _send(nameserver, topic, group, 120)
    for part in (30, 60, 90, 120):
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic, ordered=True)
        async def work(message: Message) -> None:
            await asyncio.sleep(0.001)
            seen.append(message.body)

        async with consumer:
            await wait_until(lambda part=part: len(seen) >= part, f"{part} messages")  # type: ignore[misc]
    assert seen == list_numbers(120)


async def _list_locked(consumer: Consumer, group: str, queues: list[MessageQueue], who: str) -> set[MessageQueue]:
    """Try to lock queues as somebody else; those that are got are given free again."""
    calls, address = consumer._session.calls, await find_broker(consumer._session)
    free = (await calls.lock(address, group, who, queues)).locked
    await calls.unlock(address, group, who, free)
    return set(queues) - set(free)


async def case_the_broker_keeps_queues_for_their_member(nameserver: str, topic: str, group: str) -> None:
    queues = await _send(nameserver, topic, group, 1, queues=4)
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic, ordered=True)
    async with make_consumer(nameserver, f"{group}-2", topic) as other:
        async with consumer:
            await collector.wait(4)
            assert await _list_locked(other, group, queues, "somebody") == set(queues)
        assert await _list_locked(other, group, queues, "somebody") == set()


async def case_a_queue_that_another_has_locked_is_waited_for(nameserver: str, topic: str, group: str) -> None:
    one, two = await _send(nameserver, topic, group, 5, queues=2)
    async with Producer(nameserver, group=group) as producer:
        calls, address = producer._session.calls, await find_broker(producer._session)
        assert (await calls.lock(address, group, "somebody", [one])).locked == [one]
        consumer = make_consumer(nameserver, group)
        collector = Collector(consumer, topic, ordered=True)
        async with consumer:
            await collector.wait(5)
            assert {message.queue for message in collector.messages} == {two}
            await calls.unlock(address, group, "somebody", [one])
            await collector.wait(10)


async def _steal(consumer: Consumer, queue: MessageQueue, who: str) -> set[MessageQueue]:
    """Take the lock of a queue from its consumer, unless that just renewed it; returns what was got."""
    calls, address = consumer._session.calls, await find_broker(consumer._session)
    await calls.unlock(address, consumer.group, consumer._session.client_id, [queue])
    return set((await calls.lock(address, consumer.group, who, [queue])).locked)


async def case_a_lock_that_is_lost_ends_the_queue(nameserver: str, topic: str, group: str) -> None:
    """The broker gives it to another (here by force); the consumer notices when it renews and waits for its turn."""
    (queue,) = await _send(nameserver, topic, group, 5)
    consumer = make_consumer(nameserver, group, rebalance=replace(QUICK_REBALANCE, lock_interval=0.1))
    collector = Collector(consumer, topic, ordered=True)
    async with consumer, Producer(nameserver, group=group) as producer:
        await collector.wait(5)
        calls, address = producer._session.calls, await find_broker(producer._session)
        await poll(lambda: _steal(consumer, queue, "somebody"), lambda got: queue in got)
        await wait_until(lambda: consumer.queues == [], "given up")
        await producer.send(topic, b"5")
        await calls.unlock(address, group, "somebody", [queue])
        assert await collector.wait(6) == list_numbers(6)


async def case_who_lost_a_lock_leaves_the_offset_alone(nameserver: str, topic: str, group: str) -> None:
    """The new owner may be further; what was done since the lock was lost would take the group back."""
    (queue,) = await _send(nameserver, topic, group, 5)
    consumer = make_consumer(nameserver, group, rebalance=replace(QUICK_REBALANCE, lock_interval=0.1))
    begun, may_end = asyncio.Event(), asyncio.Event()

    @consumer.handler(topic, ordered=True)
    async def work(message: Message) -> None:
        begun.set()
        await may_end.wait()

    async with consumer, Producer(nameserver, group=group) as producer:
        await begun.wait()
        calls, address = producer._session.calls, await find_broker(producer._session)
        inbox = consumer._member.inboxes[queue]
        await poll(lambda: _steal(consumer, queue, "somebody"), lambda got: queue in got)
        await wait_until(lambda: not inbox.locked_until, "lost")
        await calls.write_offset(address, group, queue, 4, wait=True)
        may_end.set()
        await wait_until(lambda: consumer.queues == [], "given up")
        assert await calls.read_offset(address, group, queue) == 4
    async with Producer(nameserver, group=group) as producer:
        assert await producer._session.calls.read_offset(address, group, queue) == 4


async def case_two_members_never_have_one_queue(nameserver: str, topic: str, group: str) -> None:
    queues = await _send(nameserver, topic, group, 50, queues=4)
    seen: list[tuple[str, Message]] = []

    def make(name: str) -> Consumer:
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic, ordered=True)
        async def work(message: Message) -> None:
            await asyncio.sleep(0.002)
            seen.append((name, message))

        return consumer

    async with make("one") as one:
        await wait_until(lambda: len(seen) >= 20, "20 messages")
        async with make("two") as two:
            await wait_until(lambda: len(one.queues) == len(two.queues) == 2, "two queues each")
            assert not set(one.queues) & set(two.queues)
            # The first may be through with all by now; these are for both.
            async with Producer(nameserver, group=group) as producer:
                for queue in queues:
                    await producer.send_batch(topic, list_numbers(60)[50:], queue=queue)
            await wait_until(lambda: len(seen) >= 240, "240 messages")
    for queue in queues:
        assert [message.body for _, message in seen if message.queue == queue] == list_numbers(60)
    assert {name for name, _ in seen} == {"one", "two"}


@whole
async def case_order_survives_members_that_come_and_go(nameserver: str, topic: str, group: str) -> None:
    await _send(nameserver, topic, group, 1, queues=4)
    seen: defaultdict[int, list[int]] = defaultdict(list)

    def make() -> Consumer:
        consumer = make_consumer(nameserver, group)

        @consumer.handler(topic, ordered=True)
        async def work(message: Message) -> None:
            await asyncio.sleep(0.001)
            seen[message.queue.queue_id].append(message.offset)

        return consumer

    async with Producer(nameserver, group=group) as producer, make():
        queues = await producer.list_queues(topic)
        for turn in range(4):
            async with make() as guest:
                await wait_for_queues(guest, 2)
                for queue in queues:
                    await send_numbered(producer, topic, range(20), queue=queue)
                await wait_until(lambda turn=turn: sum(map(len, seen.values())) > 40 + 80 * turn, "more")  # type: ignore[misc]
        await wait_until(lambda: sum(map(len, seen.values())) >= 324, "all messages")
    assert dict(seen) == {number: list(range(81)) for number in range(4)}
