"""What operators ask of consumers, and do to them, through the broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eruca import Consumer, Message, Outcome, Producer, Sql
from eruca._client.session.session import Session
from eruca._wire.bodies import ConsumeDirectlyResult, ConsumeResult, ConsumerRunningInfo
from eruca._wire.codes import RequestCode
from eruca._wire.headers import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ProducerGroupHeader,
    ResetOffsetHeader,
)
from eruca.errors import RequestRefused
from tests.clients.stage import (
    Collector,
    ask_broker,
    create_topic,
    fetch_topic,
    list_numbers,
    make_consumer,
    read_messages,
    send_numbered,
    wait_for_queues,
    wait_until,
)
from tests.patience import PATIENCE_S


async def _ask_running(session: Session, consumer: Consumer, stacks: bool = False) -> ConsumerRunningInfo:
    header = ConsumerRunningInfoHeader(
        consumer_group=consumer.group, client_id=consumer._session.client_id, jstack_enable=stacks
    )
    info = await ask_broker(session, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert isinstance(info, ConsumerRunningInfo)
    return info


async def case_a_consumer_says_what_it_is_doing(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    released = asyncio.Event()
    working: list[bytes] = []

    @consumer.handler(topic, tags="a || b", concurrency=3)
    async def work(message: Message) -> None:
        working.append(message.body)
        if message.body == b"3":
            await released.wait()

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5), tags="a")
        async with consumer:
            await wait_until(lambda: len(working) == 5, "5 messages")
            info = await _ask_running(producer._session, consumer)
            assert info.properties["PROP_CONSUME_ORDERLY"] == "false"
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
            assert info.properties["PROP_CLIENT_VERSION"].startswith("V4_9")
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
            subscribed = {data.topic: data.sub_string for data in info.subscription_set}
            assert subscribed == {topic: "a || b", f"%RETRY%{group}": "*"}
            (queue,) = consumer.queues
            state = info.mq_table[queue]
            assert (state.commit_offset, state.cached_msg_count) == (3, 1)
            assert not state.dropped and state.last_pull_timestamp > 0
            assert not info.jstack
            released.set()


async def case_a_consumer_shows_its_stacks(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    released, started = asyncio.Event(), asyncio.Event()

    @consumer.handler(topic)
    async def wait_here(message: Message) -> None:
        started.set()
        await released.wait()

    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        async with consumer:
            await asyncio.wait_for(started.wait(), PATIENCE_S)
            info = await _ask_running(producer._session, consumer, stacks=True)
            assert info.jstack is not None
            assert "MainThread" in info.jstack and "cases_admin.py" in info.jstack
            released.set()


async def case_an_ordered_consumer_says_which_queues_are_locked(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic, ordered=True)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2)
        await send_numbered(producer, topic, range(4))
        async with consumer:
            await collector.wait(4)
            info = await _ask_running(producer._session, consumer)
            assert info.properties["PROP_CONSUME_ORDERLY"] == "true"
            assert [info.mq_table[queue].locked for queue in consumer.queues] == [True, True]
            assert all(info.mq_table[queue].last_lock_timestamp > 0 for queue in consumer.queues)


async def case_failures_are_counted(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    calls = 0

    @consumer.handler(topic)
    async def work(message: Message) -> Outcome | None:
        nonlocal calls
        calls += 1
        return Outcome.DEAD if message.body in (b"1", b"2") else None

    async with Producer(nameserver, group=group) as producer:
        await send_numbered(producer, topic, range(5))
        async with consumer:
            await wait_until(lambda: calls == 5, "5 calls")
            info = await _ask_running(producer._session, consumer)
            assert info.status_table[topic].consume_failed_msgs == 2


async def case_a_group_that_is_not_there_is_not_asked(nameserver: str, topic: str, group: str) -> None:
    header = ConsumerRunningInfoHeader(consumer_group=f"{group}-none", client_id="nobody", jstack_enable=False)
    async with Producer(nameserver, group=group) as producer:
        with pytest.raises(RequestRefused):
            await ask_broker(producer._session, RequestCode.GET_CONSUMER_RUNNING_INFO, header)


# -- one message now -----------------------------------------------------------------------------------------------


async def _consume_directly(session: Session, consumer: Consumer, offset_id: str, broker: str) -> ConsumeDirectlyResult:
    header = ConsumeDirectlyHeader(
        consumer_group=consumer.group, client_id=consumer._session.client_id, message_id=offset_id, broker_name=broker
    )
    result = await ask_broker(session, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert isinstance(result, ConsumeDirectlyResult)
    return result


async def case_one_message_may_be_consumed_now(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, start="latest")
    seen: list[bytes] = []

    @consumer.handler(topic)
    async def work(message: Message) -> Outcome | None:
        seen.append(message.body)
        assert message.topic == topic
        if message.body == b"raise":
            raise ValueError("as wanted")
        return Outcome.LATER if message.body == b"later" else None

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        receipts = [await producer.send(topic, body) for body in (b"good", b"later", b"raise")]
        await fetch_topic(producer._session, topic, 3)
        async with consumer:
            await wait_for_queues(consumer, 1)
            results = [
                await _consume_directly(producer._session, consumer, receipt.offset_id, receipt.queue.broker_name)
                for receipt in receipts
            ]
            assert seen == [b"good", b"later", b"raise"]
            assert results[0].consume_result == ConsumeResult.CR_SUCCESS
            assert results[1].consume_result == ConsumeResult.CR_LATER
            assert results[2].consume_result in (ConsumeResult.CR_LATER, ConsumeResult.CR_THROW_EXCEPTION)
            assert not any(result.order for result in results)
            # The queue is where it was.
            assert list(consumer._member.list_offsets(topic).values()) == [3]


async def case_one_message_may_be_consumed_now_in_order(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, start="latest")
    collector = Collector(consumer, topic, ordered=True)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        receipt = await producer.send(topic, b"good")
        await fetch_topic(producer._session, topic, 1)
        async with consumer:
            await wait_for_queues(consumer, 1)
            result = await _consume_directly(producer._session, consumer, receipt.offset_id, receipt.queue.broker_name)
            assert (result.consume_result, result.order) == (ConsumeResult.CR_SUCCESS, True)
            assert collector.bodies == [b"good"]


# -- offsets -------------------------------------------------------------------------------------------------------


async def _reset(session: Session, topic: str, group: str, time_ms: int) -> Any:
    header = ResetOffsetHeader(topic=topic, group=group, timestamp=time_ms, is_force=True)
    return await ask_broker(session, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def case_a_running_group_may_be_sent_back(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2)
        await send_numbered(producer, topic, range(10))
        async with consumer:
            await collector.wait(10)
            await consumer.commit()
            table = (await _reset(producer._session, topic, group, 0)).offset_table
            assert set(table.values()) == {0}
            assert sorted((await collector.wait(20))[10:]) == list_numbers(10)
            # And it continues from there.
            await producer.send(topic, b"next")
            assert (await collector.wait(21))[20] == b"next"


async def case_a_running_group_may_be_sent_to_the_end(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    released = asyncio.Event()
    seen: list[bytes] = []

    @consumer.handler(topic, concurrency=1)
    async def work(message: Message) -> None:
        seen.append(message.body)
        await released.wait()

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(10))
        async with consumer:
            await wait_until(lambda: seen == [b"0"], "at work")
            await _reset(producer._session, topic, group, -1)
            await wait_until(lambda: list(consumer._member.list_offsets(topic).values()) == [10], "at the end")
            released.set()
            await producer.send(topic, b"next")
            await wait_until(lambda: len(seen) == 2, "the next message")
            assert seen == [b"0", b"next"]


async def case_an_ordered_group_may_be_sent_back(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic, ordered=True)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(10))
        async with consumer:
            await collector.wait(10)
            await _reset(producer._session, topic, group, 0)
            assert await collector.wait(20) == list_numbers(10) * 2


async def case_one_by_one_a_group_may_be_sent_back(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
        async with make_consumer(nameserver, group, topic) as consumer:
            await read_messages(consumer, 5)
            await _reset(producer._session, topic, group, 0)
            assert [message.body for message in await read_messages(consumer, 5)] == list_numbers(5)


async def case_a_group_may_be_sent_to_a_time(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(3))
        async with consumer:
            await collector.wait(3)
            later = collector.messages[-1].stored_at + timedelta(milliseconds=50)
            await wait_until(lambda: datetime.now(UTC) > later, "later")
            await send_numbered(producer, topic, range(3, 6))
            await collector.wait(6)
            # Nearer to those after it than to those before it: brokers take the nearest.
            wanted = next(message for message in collector.messages if message.body == b"3")
            await _reset(producer._session, topic, group, wanted.record.store_timestamp - 1)
            assert sorted((await collector.wait(9))[6:]) == [b"3", b"4", b"5"]


async def case_consumers_say_how_far_they_are(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(5))
        async with make_consumer(nameserver, group, topic) as consumer:
            await read_messages(consumer, 5)
            (queue,) = consumer.queues
            header = ConsumerStatusHeader(topic=topic, group=group)
            status = await ask_broker(producer._session, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            assert status.consumer_table == {consumer._session.client_id: {queue: 5}}


async def case_the_broker_knows_producers(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await producer.send(topic, b"x")
        await producer._session.heartbeat()
        header = ProducerGroupHeader(producer_group=group)
        known = await ask_broker(producer._session, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        assert [connection.client_id for connection in known.connection_set] == [producer._session.client_id]
        async with Producer(nameserver, group=f"{group}-2") as other:
            await producer.close()
            with pytest.raises(RequestRefused):
                await ask_broker(other._session, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)


async def case_sql_groups_say_what_they_want(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        async with make_consumer(nameserver, group, {topic: Sql("a > 1")}) as consumer:
            await wait_for_queues(consumer, 1)
            info = await _ask_running(producer._session, consumer)
            kinds = {data.topic: (data.expression_type, data.sub_string) for data in info.subscription_set}
            assert kinds[topic] == ("SQL92", "a > 1")
