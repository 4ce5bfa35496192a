"""Message trace: what producers and consumers did, in the official format."""

from __future__ import annotations

import asyncio

from eruca import Consumer, Message, Outcome, Producer
from eruca._client.produce.checks import Decision
from eruca._client.produce.transactions import TransactionalProducer
from eruca._client.session.session import Session
from eruca._wire.names import TRACE_TOPIC
from eruca._wire.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TracedKind,
    TracedOutcome,
    TraceRecord,
    decode_traces,
)
from tests.clients.stage import (
    Collector,
    create_topic,
    find_broker,
    list_queues,
    make_consumer,
    poll,
    read_queue,
    send_numbered,
    whole,
)


async def _read_traces(session: Session, topic: str, count: int) -> list[TraceRecord]:
    """Wait for this many records in a trace topic of this case alone."""

    async def read() -> list[TraceRecord]:
        return [record for message in await _read_all(session, topic) for record in decode_traces(message.body)]

    records = await poll(read, lambda records: len(records) >= count)
    assert len(records) == count, records
    return records


async def _read_all(session: Session, topic: str) -> list[Message]:
    return [message for queue in await list_queues(session, topic) for message in await read_queue(session, queue)]


async def case_sends_are_traced(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, trace=f"{topic}-trace") as producer:
        await create_topic(producer, f"{topic}-trace", 1)
        receipt = await producer.send(topic, b"hello", tags="t", keys=["a", "b"])
        delayed = await producer.send(topic, b"later", delay=1)
        records = await _read_traces(producer._session, f"{topic}-trace", 2)
        by_id = {record.message_id: record for record in records if isinstance(record, PubTrace)}
        first = by_id[receipt.message_id]
        assert (first.group, first.topic, first.tags, first.keys) == (group, topic, "t", "a b")
        assert (first.body_bytes, first.kind, first.success) == (5, TracedKind.NORMAL, True)
        assert (first.region, first.offset_message_id) == ("DefaultRegion", receipt.offset_id)
        assert first.store_host == await find_broker(producer._session)
        assert by_id[delayed.message_id].kind == TracedKind.DELAY


async def case_traces_go_to_the_official_topic(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group, trace=True) as producer:
        assert producer._engine.trace is not None
        dispatcher = producer._engine.trace.dispatcher
        sent: set[str] = set()
        loop = asyncio.get_running_loop()
        again_at = 0.0

        async def find() -> list[Message]:
            # A trace that a busy broker does not take in time is let go. Most are counted; a Java broker that is just
            # making the topic was seen to take one that nobody finds.
            nonlocal again_at
            if dispatcher.failed + dispatcher.dropped >= len(sent) or loop.time() >= again_at:
                again_at = loop.time() + 10
                sent.add((await producer.send(topic, b"hello", keys=[topic])).message_id)
            traces = await _read_all(producer._session, TRACE_TOPIC)
            return [message for message in traces if sent & set(message.keys)]

        try:
            found = (await poll(find, bool))[0]
        except AssertionError as error:
            error.add_note(f"traces: {dispatcher.sent} sent, {dispatcher.failed} failed, {dispatcher.dropped} dropped")
            raise
        assert topic in found.keys
        assert sent & {record.message_id for record in decode_traces(found.body)}


async def case_deliveries_are_traced(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, trace=f"{topic}-trace")

    @consumer.handler(topic)
    async def work(message: Message) -> Outcome | None:
        return Outcome.DEAD if message.body == b"1" else None

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, f"{topic}-trace", 1)
        receipts = await send_numbered(producer, topic, range(2), keys=["k"])
        async with consumer:
            records = await _read_traces(producer._session, f"{topic}-trace", 4)
    befores = {record.message_id: record for record in records if isinstance(record, SubBeforeTrace)}
    afters = {record.message_id: record for record in records if isinstance(record, SubAfterTrace)}
    assert befores.keys() == afters.keys() == {receipt.message_id for receipt in receipts}
    for message_id, before in befores.items():
        after = afters[message_id]
        assert (before.group, before.retries, before.keys) == (group, 0, "k")
        assert after.request_id == before.request_id
        assert after.success == (message_id == receipts[0].message_id)
        assert after.outcome == (TracedOutcome.SUCCESS if after.success else TracedOutcome.FAILED)


@whole
async def case_retries_are_traced(nameserver: str, topic: str, group: str) -> None:
    consumer = make_consumer(nameserver, group, trace=f"{topic}-trace")

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        if message.delivery == 1:
            raise ValueError("as wanted")

    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, f"{topic}-trace", 1)
        receipt = await producer.send(topic, b"x")
        async with consumer:
            records = await _read_traces(producer._session, f"{topic}-trace", 4)
    befores = [record for record in records if isinstance(record, SubBeforeTrace)]
    assert sorted(before.retries for before in befores) == [0, 1]
    assert {before.message_id for before in befores} == {receipt.message_id}


async def case_decisions_are_traced(nameserver: str, topic: str, group: str) -> None:
    async def check(message: Message) -> Decision:
        return Decision.ROLLBACK

    async with TransactionalProducer(nameserver, group=group, check=check, trace=f"{topic}-trace") as producer:
        await create_topic(producer, f"{topic}-trace", 1)
        async with producer.transaction(topic, b"x", keys=["k"]) as half:
            pass
        records = await _read_traces(producer._session, f"{topic}-trace", 2)
        (pub,) = [record for record in records if isinstance(record, PubTrace)]
        (end,) = [record for record in records if isinstance(record, EndTransactionTrace)]
        assert (pub.kind, pub.message_id) == (TracedKind.HALF, half.transaction_id)
        assert (end.state, end.from_check, end.keys) == ("COMMIT_MESSAGE", False, "k")
        assert end.message_id == half.transaction_id


async def case_closing_sends_what_is_left(nameserver: str, topic: str, group: str) -> None:
    async with Producer(nameserver, group=group) as looker:
        await create_topic(looker, f"{topic}-trace", 1)
        async with Producer(nameserver, group=group, trace=f"{topic}-trace") as producer:
            await send_numbered(producer, topic, range(20))
        records = await _read_traces(looker._session, f"{topic}-trace", 20)
        assert len({record.message_id for record in records}) == 20


async def case_without_trace_nothing_is_written(nameserver: str, topic: str, group: str) -> None:
    consumer: Consumer = make_consumer(nameserver, group)
    collector = Collector(consumer, topic)
    async with Producer(nameserver, group=group) as producer:
        await create_topic(producer, topic, 1)
        receipt = await producer.send(topic, b"x", keys=[topic])
        async with consumer:
            await collector.wait(1)
        for message in await _read_all(producer._session, TRACE_TOPIC):
            assert receipt.message_id not in message.keys
