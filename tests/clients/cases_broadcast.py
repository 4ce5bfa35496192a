"""Broadcast: every member gets every message and keeps its offsets in its own file."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from eruca import ClientOptions, Consumer, Message, Offsets, Producer
from eruca.errors import ConfigError
from tests.clients.stage import (
    QUICK_OPTIONS,
    Collector,
    create_topic,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    read_messages,
    send_numbered,
    wait_for_queues,
    wait_until,
)


def _make(nameserver: str, group: str, directory: str, subscribe: Any = (), name: str = "one", **more: Any) -> Consumer:
    options = ClientOptions(instance=name, **QUICK_OPTIONS)
    return make_consumer(
        nameserver,
        group,
        subscribe,
        broadcast=True,
        offsets=Offsets(interval=0.2, directory=Path(directory)),
        options=options,
        **more,
    )


async def case_every_member_gets_every_message(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic)
            one, two = (_make(nameserver, group, directory, name=name) for name in ("one", "two"))
            seen = [Collector(one, topic), Collector(two, topic)]
            async with one, two:
                await wait_for_queues(one, 4)
                await wait_for_queues(two, 4)
                await send_numbered(producer, topic, range(12))
                for collector in seen:
                    assert sorted(await collector.wait(12), key=int) == list_numbers(12)


async def case_a_restart_goes_on_from_its_file(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await send_numbered(producer, topic, range(5))
            async with _make(nameserver, group, directory, topic) as consumer:
                assert [message.body for message in await read_messages(consumer, 5)] == list_numbers(5)
            await send_numbered(producer, topic, range(5, 8))
            async with _make(nameserver, group, directory, topic) as consumer:
                assert [message.body for message in await read_messages(consumer, 3)] == [b"5", b"6", b"7"]
            # Another name is another member: it begins anew.
            async with _make(nameserver, group, directory, topic, name="two") as consumer:
                assert [message.body for message in await read_messages(consumer, 8)] == list_numbers(8)


async def case_latest_loses_nothing_over_a_restart(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await send_numbered(producer, topic, range(5))
            await fetch_topic(producer._session, topic, 5)
            async with _make(nameserver, group, directory, topic, start="latest") as consumer:
                await wait_for_queues(consumer, 1)
            await producer.send(topic, b"meanwhile")
            async with _make(nameserver, group, directory, topic, start="latest") as consumer:
                assert [message.body for message in await read_messages(consumer, 1)] == [b"meanwhile"]


async def case_the_file_is_that_of_java(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await send_numbered(producer, topic, range(5))
        async with _make(nameserver, group, directory, topic) as consumer:
            await read_messages(consumer, 5)
            (queue,) = consumer.queues
            owner = f"{consumer.options.ip}@one"
        text = await asyncio.to_thread((Path(directory) / owner / group / "offsets.json").read_text)
        assert json.loads(_quote_keys(text)) == {
            "offsetTable": {f"{queue.broker_name} 0 {topic}": 5},
        }


def _quote_keys(text: str) -> str:
    """Make JSON of the file: its keys are objects."""
    before, _, rest = text.partition('{"brokerName":"')
    name, _, rest = rest.partition('","queueId":')
    number, _, rest = rest.partition(',"topic":"')
    topic, _, rest = rest.partition('"}')
    return f'{before}"{name} {number} {topic}"{rest}'


async def case_two_members_of_one_name_are_refused(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with _make(nameserver, group, directory, topic):
            second = _make(nameserver, group, directory, topic)
            with pytest.raises(ConfigError) as refused:
                await second.start()
            assert "instance" in refused.value.hint
        async with _make(nameserver, group, directory, topic):
            pass


async def case_a_failed_message_does_not_come_again(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        consumer = _make(nameserver, group, directory)
        seen: list[bytes] = []

        @consumer.handler(topic, concurrency=1)
        async def work(message: Message) -> None:
            seen.append(message.body)
            raise ValueError("as wanted")

        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await send_numbered(producer, topic, range(3))
        async with consumer:
            await wait_until(lambda: len(seen) == 3, "3 messages")
            await wait_until(lambda: list(consumer._member.list_offsets(topic).values()) == [3], "passed over")
        assert seen == list_numbers(3)


async def case_the_broker_keeps_no_offsets_of_it(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await send_numbered(producer, topic, range(3))
            async with _make(nameserver, group, directory, topic) as consumer:
                await read_messages(consumer, 3)
                (queue,) = consumer.queues
            address = await find_broker(producer._session)
            assert not await producer._session.calls.has_offset(address, group, queue)


async def case_ordered_handlers_need_no_locks(nameserver: str, topic: str, group: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        one, two = (_make(nameserver, group, directory, name=name) for name in ("one", "two"))
        seen = [Collector(consumer, topic, ordered=True) for consumer in (one, two)]
        async with Producer(nameserver, group=group) as producer:
            await create_topic(producer, topic, 1)
            await producer.send_batch(topic, list_numbers(30))
        async with one, two:
            for collector in seen:
                assert await collector.wait(30) == list_numbers(30)
