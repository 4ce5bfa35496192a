"""Sending one message: where it goes, what it carries, what comes back, and what is refused."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from eruca import ClientOptions, MessageQueue, Producer, Receipt, SendStatus
from eruca._client.produce.sending import Parcel
from eruca._wire.codes import ResponseCode
from eruca._wire.headers import QueryMessageHeader
from eruca._wire.ids import decode_offset_id
from eruca._wire.properties import WAIT, parse_properties
from eruca._wire.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_MASK, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from eruca.errors import (
    ClientClosed,
    ConfigError,
    ErucaError,
    InvalidName,
    MessageIllegal,
    NoRoute,
    SendFailed,
    WrongType,
)
from tests.clients.stage import (
    READ,
    create_topic,
    fetch,
    fetch_queue,
    fetch_topic,
    find_broker,
    list_numbers,
    make_consumer,
    poll,
    read_messages,
    read_queue,
    send_numbered,
    wait_for_topic,
    whole,
)

MEBIBYTE = 1024 * 1024
# What Java's SelectMessageQueueByHash gives for three queues; the fifth hashes to the smallest integer there is.
JAVA_SHARDS = {
    "customer-7": 2,
    "customer-8": 1,
    "TagA": 1,
    "中文": 2,
    "polygenelubricants": 2,
    "🚀": 0,
    "order-2147483647": 1,
}


# -- receipts ------------------------------------------------------------------------------------------------------


async def case_a_receipt_says_where_a_message_is(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        queue = (await producer.list_queues(topic))[1]
        first, second = await send_numbered(producer, topic, range(2), queue=queue)
        assert (first.status, first.queue, first.offset) == (SendStatus.STORED, queue, 0)
        assert (second.status, second.queue, second.offset) == (SendStatus.STORED, queue, 1)
        assert first.region == "DefaultRegion"
        message = await fetch(producer, second)
        assert (message.body, message.queue, message.offset) == (b"1", queue, 1)
        assert (message.message_id, message.offset_id) == (second.message_id, second.offset_id)


async def case_ids_lead_to_the_message(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"found", keys=["one", "two"])
        place = decode_offset_id(receipt.offset_id)
        address = await find_broker(producer._session)
        assert f"{place.ip}:{place.port}" == address
        assert (await producer._session.calls.view_message(address, place.position)).body == b"found"


async def case_ids_never_repeat(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer, Producer(nameserver, group=f"{group}-2") as other:
        receipts = await asyncio.gather(*[who.send(topic, b"x") for who in (producer, other) for _ in range(200)])
        assert len({receipt.message_id for receipt in receipts}) == 400
        assert len({receipt.offset_id for receipt in receipts}) == 400


async def case_messages_are_found_by_key(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"found", keys=["needle", "pin"])
        await producer.send(topic, b"other", keys="hay")
        address = await find_broker(producer._session)
        for key in ("needle", "pin"):
            header = QueryMessageHeader(topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=2**62)
            ask = partial(producer._session.calls.query_messages, address, header)
            found = await poll(ask, bool)
            assert [record.body for record in found] == [b"found"]
            assert found[0].queue_offset == receipt.offset


# -- what a message carries ----------------------------------------------------------------------------------------


async def case_any_bytes_are_a_body(nameserver: str, topic: str, group: str) -> None:
    bodies: list[bytes | bytearray | memoryview] = [b"\x00", bytes(range(256)), "текст 🚀".encode()]
    bodies += [bytearray(b"array"), memoryview(b"view of")[:4]]
    async with Producer(nameserver, group=group) as producer:
        for body in bodies:
            message = await fetch(producer, await producer.send(topic, body))
            assert message.body == bytes(body)


async def case_tags_and_keys_arrive(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        message = await fetch(producer, await producer.send(topic, b"x", tags="vip", keys=["o-1", "o-2"]))
        assert (message.tags, message.keys) == ("vip", ["o-1", "o-2"])
        message = await fetch(producer, await producer.send(topic, b"x", tags="标签", keys="ключ"))
        assert (message.tags, message.keys) == ("标签", ["ключ"])
        message = await fetch(producer, await producer.send(topic, b"x"))
        assert (message.tags, message.keys, message.properties) == ("", [], {})


async def case_properties_arrive(nameserver: str, topic: str, group: str) -> None:
    properties = {"region": "eu", "сумма": "100 €", "empty-ish": " ", "json": '{"a": "b\\n"}'}
    async with Producer(nameserver, group=group) as producer:
        message = await fetch(producer, await producer.send(topic, b"x", properties=properties))
        assert message.properties == properties


async def case_flags_arrive(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        for flag in (0, 7, -1, 2**31 - 1, -(2**31)):
            assert (await fetch(producer, await producer.send(topic, b"x", flag=flag))).flag == flag


async def case_a_sender_need_not_wait_for_the_disk(nameserver: str, topic: str, group: str) -> None:
    meter = _Meter()
    async with Producer(nameserver, group=group, hooks=[meter]) as producer:
        for wait in (True, False):
            assert (await producer.send(topic, b"x", wait=wait)).status is SendStatus.STORED
        # The broker does not keep it.
        assert [parse_properties(text)[WAIT] for text in meter.properties] == ["true", "false"]


async def case_times_and_hosts_arrive(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        message = await fetch(producer, await producer.send(topic, b"x"))
        assert before <= message.born_at <= message.stored_at + timedelta(milliseconds=1)
        assert message.stored_at <= datetime.now(UTC)
        assert message.store_host == await find_broker(producer._session)
        assert message.born_host.startswith("127.0.0.1:")


async def case_properties_that_cannot_be_written_are_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        wrong: list[dict[str, Any]] = [
            {"keys": ["with blank"]},
            {"tags": "a\x01b"},
            {"properties": {"a": "b\x02c"}},
            {"properties": {"TAGS": "reserved"}},
            {"properties": {"empty": ""}},
            {"properties": {"long": "x" * 40_000}},
        ]
        for refused in wrong:
            with pytest.raises(MessageIllegal):
                await producer.send(topic, b"x", **refused)


# -- which queue ---------------------------------------------------------------------------------------------------


async def case_the_first_message_makes_the_topic(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        receipt = await producer.send(topic, b"first")
        queues = await wait_for_topic(producer._session, topic, 4)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        assert receipt.queue in queues
        assert (await fetch(producer, receipt)).body == b"first"


async def case_queues_take_turns(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 5)
        receipts = await send_numbered(producer, topic, range(15))
        assert Counter(receipt.queue.queue_id for receipt in receipts) == dict.fromkeys(range(5), 3)


async def case_a_shard_has_the_queue_that_java_gives_it(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 3)
        for _ in range(2):
            chosen = {s: (await producer.send(topic, b"x", shard=s)).queue.queue_id for s in JAVA_SHARDS}
            assert chosen == JAVA_SHARDS


async def case_an_explicit_queue_is_taken(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 4)
        for queue in await producer.list_queues(topic):
            receipts = await send_numbered(producer, topic, range(3), queue=queue)
            assert {receipt.queue for receipt in receipts} == {queue}
            assert [message.body for message in await fetch_queue(producer._session, queue, 3)] == list_numbers(3)


async def case_a_selector_chooses_among_all_queues(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 6)
        seen: list[list[int]] = []

        def take_last(queues: object) -> MessageQueue:
            assert isinstance(queues, list | tuple)
            seen.append([queue.queue_id for queue in queues])
            last = queues[-1]
            assert isinstance(last, MessageQueue)
            return last

        receipt = await producer.send(topic, b"x", selector=take_last)
        assert (seen, receipt.queue.queue_id) == ([[0, 1, 2, 3, 4, 5]], 5)


async def case_a_selector_without_an_answer_is_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        with pytest.raises(MessageIllegal):
            await producer.send(topic, b"x", selector=lambda queues: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(MessageIllegal):
            await producer.send(topic, b"x", shard="a", selector=lambda queues: queues[0])


async def case_a_queue_that_is_not_there_is_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        (queue,) = await producer.list_queues(topic)
        with pytest.raises(SendFailed) as refused:
            await producer.send(topic, b"x", queue=MessageQueue(queue.broker_name, 99, topic))
        assert "99" in str(refused.value)
        with pytest.raises(SendFailed) as refused:
            await producer.send(topic, b"x", queue=MessageQueue("nobody", 0, topic))
        assert "nobody" in str(refused.value)
        assert await fetch_topic(producer._session, topic, 0) == []


# -- what is refused -----------------------------------------------------------------------------------------------


async def case_empty_and_too_large_bodies_are_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, message_bytes_max=1000) as producer:
        receipt = await producer.send(topic, b"x" * 1000)
        assert len((await fetch(producer, receipt)).body) == 1000
        for body in (b"", b"x" * 1001):
            with pytest.raises(MessageIllegal) as refused:
                await producer.send(topic, body)
            assert not refused.value.retryable and refused.value.hint
        with pytest.raises(WrongType):
            await producer.send(topic, "text")  # type: ignore[arg-type]


async def case_what_the_broker_finds_too_large_is_not_tried_again(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, message_bytes_max=8 * MEBIBYTE, compress_from=None) as producer:
        await create_topic(producer, topic)
        with pytest.raises(SendFailed) as refused:
            await producer.send(topic, bytes(4 * MEBIBYTE + 1), timeout=20)
        assert len(refused.value.attempts) == 1
        assert not refused.value.retryable
        assert getattr(refused.value.__cause__, "code", None) == ResponseCode.MESSAGE_ILLEGAL


async def case_the_largest_message_is_taken(nameserver: str, topic: str, group: str) -> None:
    body = random.Random(7).randbytes(4 * MEBIBYTE)
    async with Producer(nameserver, group=group, compress_from=None) as producer:
        receipt = await producer.send(topic, body, timeout=20)
        assert (await fetch(producer, receipt)).body == body


async def case_bad_names_are_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        for name in ("", "a b", "a/b", "../up", "x" * 128, "tęst"):
            with pytest.raises(InvalidName):
                await producer.send(name, b"x")
    for bad in ("", "a b", "x" * 256, "DEFAULT_PRODUCER"):
        with pytest.raises((InvalidName, ConfigError)):
            Producer(nameserver, group=bad)


async def case_a_topic_that_may_not_be_written_is_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 2, perm=READ)
        with pytest.raises(NoRoute) as refused:
            await producer.send(topic, b"x")
        assert topic in str(refused.value) and "permission" in refused.value.hint


async def case_no_route_says_why_and_what_to_do(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        with pytest.raises(NoRoute) as missing:
            await producer._session.routes.get(topic[:-1])
        text = str(missing.value)
        assert f"topic {topic[:-1]} has no route" in text
        assert f"name server {nameserver} does not know it" in text
        assert f"did you mean {topic}" in text
        assert f"eruca send -n {nameserver} {topic[:-1]} BODY" in text


async def case_without_a_name_server_the_error_says_so(nameserver: str, topic: str, group: str) -> None:
    async with Producer("127.0.0.1:1", group=group) as producer:
        with pytest.raises(ErucaError) as failed:
            await producer.send(topic, b"x")
        assert failed.value.retryable and "127.0.0.1:1" in str(failed.value)


async def case_a_dead_name_server_is_passed_over(nameserver: str, topic: str, group: str) -> None:
    async with Producer(["127.0.0.1:1", nameserver], group=group) as producer:
        assert (await producer.send(topic, b"x")).status is SendStatus.STORED


async def case_a_producer_that_is_not_started_says_so(nameserver: str, topic: str, group: str) -> None:
    producer = Producer(nameserver, group=group)
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"x")
    async with producer:
        await producer.send(topic, b"x")
    with pytest.raises(ClientClosed):
        await producer.send(topic, b"x")
    async with producer:
        await producer.send(topic, b"x")


# -- compression ---------------------------------------------------------------------------------------------------


async def _check_compression(nameserver: str, topic: str, group: str, name: str, kind: int) -> None:
    body = b"all work and no play " * 1000
    async with Producer(nameserver, group=group, compression=name) as producer:
        message = await fetch(producer, await producer.send(topic, body))
        assert message.record.sys_flag & COMPRESSED
        assert message.record.sys_flag & COMPRESSION_MASK == kind
        assert len(message.record.body) < len(body) / 10
        assert message.body == body


async def case_large_bodies_are_compressed_with_zlib(nameserver: str, topic: str, group: str) -> None:
    await _check_compression(nameserver, topic, group, "zlib", COMPRESSION_ZLIB)


async def case_large_bodies_are_compressed_with_lz4(nameserver: str, topic: str, group: str) -> None:
    await _check_compression(nameserver, topic, group, "lz4", COMPRESSION_LZ4)


async def case_large_bodies_are_compressed_with_zstd(nameserver: str, topic: str, group: str) -> None:
    await _check_compression(nameserver, topic, group, "zstd", COMPRESSION_ZSTD)


async def case_compression_begins_at_its_size(nameserver: str, topic: str, group: str) -> None:
    async with (
        Producer(nameserver, group=group) as producer,
        Producer(nameserver, group=group, compress_from=None) as plain,
    ):
        for who, size, compressed in ((producer, 4095, 0), (producer, 4096, COMPRESSED), (plain, 50_000, 0)):
            message = await fetch(who, await who.send(topic, b"x" * size))
            assert message.record.sys_flag & COMPRESSED == compressed
            assert message.body == b"x" * size


async def case_a_compressed_message_may_be_larger_than_the_broker_takes(
    nameserver: str, topic: str, group: str
) -> None:
    body = b"compressible " * MEBIBYTE
    async with Producer(nameserver, group=group, message_bytes_max=16 * MEBIBYTE) as producer:
        message = await fetch(producer, await producer.send(topic, body, timeout=20))
        assert message.body == body


# -- other ways to send --------------------------------------------------------------------------------------------


async def case_oneway_messages_arrive(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        for number in range(20):
            await producer.send_oneway(topic, b"%d" % number, tags="one", shard="way")
        messages = await fetch_topic(producer._session, topic, 20)
        # Java's broker works on requests of one connection in several threads: they may pass each other.
        assert sorted(int(message.body) for message in messages) == list(range(20))
        assert len({message.queue for message in messages}) == 1
        assert {message.tags for message in messages} == {"one"}


async def case_sends_in_the_background_give_receipts(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        tasks = [await producer.send_soon(topic, b"%d" % number, tags="soon") for number in range(30)]
        receipts = await asyncio.gather(*tasks)
        assert {receipt.status for receipt in receipts} == {SendStatus.STORED}
        await fetch_topic(producer._session, topic, 30)


async def case_close_waits_for_what_is_under_way(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        tasks = [await producer.send_soon(topic, b"%d" % number) for number in range(30)]
    assert all(task.done() and task.result().status is SendStatus.STORED for task in tasks)


async def case_a_delay_is_kept(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        (queue,) = await producer.list_queues(topic)
        began = time.monotonic()
        sent = [
            await producer.send(topic, b"by time", delay=timedelta(seconds=1), keys=["k"], tags="t"),
            await producer.send(topic, b"by level", delay_level=1),
        ]
        early = await read_queue(producer._session, queue)
        # A busy machine may look too late.
        assert early == [] or time.monotonic() - began >= 0.9
        messages = await fetch_topic(producer._session, topic, 2)
        assert [message.body for message in messages] == [b"by time", b"by level"]
        assert [message.message_id for message in messages] == [receipt.message_id for receipt in sent]
        assert (messages[0].topic, messages[0].keys, messages[0].tags) == (topic, ["k"], "t")
        for message in messages:
            assert message.stored_at - message.born_at >= timedelta(seconds=0.9)


async def case_a_delay_that_no_level_has_is_refused(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        with pytest.raises(MessageIllegal) as refused:
            await producer.send(topic, b"x", delay=timedelta(seconds=7))
        assert "5 s and 10 s" in refused.value.hint and "timer=" in refused.value.hint
        with pytest.raises(MessageIllegal, match="delay=20"):
            await producer.send(topic, b"x", delay=20)  # seconds, though there is no level 20 either
        with pytest.raises(ConfigError, match="delay=-1"):
            await producer.send(topic, b"x", delay=-1)
        with pytest.raises(MessageIllegal, match="delay_level=-1"):
            await producer.send(topic, b"x", delay_level=-1)


# -- many at once --------------------------------------------------------------------------------------------------


async def case_many_tasks_send_at_once(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic)
        numbers = iter(range(1280))

        async def send_some() -> list[Receipt]:
            return [await producer.send(topic, b"%d" % number) for number in numbers]

        receipts = [receipt for part in await asyncio.gather(*[send_some() for _ in range(64)]) for receipt in part]
        assert {receipt.status for receipt in receipts} == {SendStatus.STORED}
        places = Counter((receipt.queue, receipt.offset) for receipt in receipts)
        assert len(places) == 1280
        messages = await fetch_topic(producer._session, topic, 1280)
        assert {message.body for message in messages} == set(list_numbers(1280))


class _Meter:
    """A hook that measures how much is under way."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0
        self.properties: list[str] = []

    def before_send(self, parcel: Parcel, queue: MessageQueue) -> None:
        self.properties.append(parcel.properties)
        self.now += 1
        self.most = max(self.most, self.now)

    def after_send(
        self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
    ) -> None:
        self.now -= 1
        self.done += receipt is not None


async def case_no_more_than_wanted_is_under_way(nameserver: str, topic: str, group: str) -> None:
    meter = _Meter()
    async with Producer(nameserver, group=group, in_flight_max=3, hooks=[meter]) as producer:
        await asyncio.gather(*[producer.send(topic, b"x") for _ in range(60)])
        assert (meter.most, meter.done) == (3, 60)


async def case_no_more_bytes_than_wanted_are_under_way(nameserver: str, topic: str, group: str) -> None:
    meter = _Meter()
    async with Producer(
        nameserver, group=group, bytes_in_flight_max=2500, compress_from=None, hooks=[meter]
    ) as producer:
        await asyncio.gather(*[producer.send(topic, b"x" * 1000) for _ in range(40)])
        assert (meter.most, meter.done) == (2, 40)
        # One that is larger than all of it goes alone.
        await producer.send(topic, b"x" * 5000)
        assert meter.done == 41


async def case_hooks_are_told_of_every_message(nameserver: str, topic: str, group: str) -> None:
    told: list[tuple[str, str]] = []

    class Teller(_Meter):
        def after_send(
            self, parcel: Parcel, queue: MessageQueue, receipt: Receipt | None, error: ErucaError | None, seconds: float
        ) -> None:
            told.append((parcel.message_id, "stored" if receipt else type(error).__name__))
            raise RuntimeError("what a hook raises goes no further")

    async with Producer(nameserver, group=group, hooks=[Teller()], retries=1) as producer:
        await create_topic(producer, topic, 1)
        receipt = await producer.send(topic, b"x")
        (queue,) = await producer.list_queues(topic)
        with pytest.raises(SendFailed) as refused:
            await producer.send(topic, b"x", queue=MessageQueue(queue.broker_name, 50, topic))
        assert told[0] == (receipt.message_id, "stored")
        assert [what for _, what in told[1:]] == ["RequestRefused"] * len(refused.value.attempts)


# -- who we are ----------------------------------------------------------------------------------------------------


async def case_producers_of_a_process_share_a_session(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as one, Producer(nameserver, group=f"{group}-2") as two:
        assert one._session is two._session
        other = ClientOptions(call_timeout=4)
        async with Producer(nameserver, group=group, options=other) as three:
            assert three._session is not one._session
            assert three._session.client_id != one._session.client_id
        await one.send(topic, b"x")


async def case_a_namespace_is_seen_by_the_broker_only(nameserver: str, topic: str, group: str) -> None:
    options = ClientOptions(namespace="shop", route_interval=0.2)
    async with Producer(nameserver, group=group, options=options) as producer:
        receipt = await producer.send(topic, b"mine", tags="t")
        assert receipt.queue.topic == topic
        (stored,) = await fetch_topic(producer._session, f"shop%{topic}", 1)
        assert stored.all_properties["INSTANCE_ID"] == "shop"
        async with make_consumer(nameserver, group, {topic: "t"}, options=options) as consumer:
            (message,) = await read_messages(consumer, 1)
            assert (message.topic, message.body) == (topic, b"mine")
            members = await producer._session.calls.list_members(await find_broker(producer._session), f"shop%{group}")
            assert members == [consumer._session.client_id]
    async with Producer(nameserver, group=group) as outside:
        with pytest.raises(NoRoute):
            await outside._session.routes.get(topic)


@whole
async def case_a_queue_is_taken_again_after_a_failure(nameserver: str, topic: str, group: str) -> None:
    """A connection that breaks is made anew by the next try."""
    async with Producer(nameserver, group=group) as producer:
        await send_numbered(producer, topic, range(4))
        address = await find_broker(producer._session)
        for number in range(5):
            link = producer._session.caller.find_link(address)
            assert link is not None
            link.close()
            assert (await producer.send(topic, b"again %d" % number)).status is SendStatus.STORED
        await fetch_topic(producer._session, topic, 9)
