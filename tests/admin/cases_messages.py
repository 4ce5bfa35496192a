"""Messages: sent, found in every way, read, followed, consumed directly; dead letters, transactions, delayed ones."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eruca import Message, Producer, Receipt
from eruca.admin import Delayed, Listed, State, StoredMessage, TraceRow, Wanted
from eruca.errors import ConfigError, ErucaError, MessageIllegal, NoRoute
from tests.admin.stage import BROKER, Stage, covers, poll
from tests.integration.admin.staging import bury, prepare, wait_for_queues
from tests.patience import PATIENCE_S


@covers("messages.send", "messages.view", "messages.find", "messages.find_by_key", "messages.at", "messages.entries")
async def case_found_in_every_way(stage: Stage) -> None:
    """A message is sent, and found by each of its names and at its place."""
    messages, topic = stage.admin.messages, await stage.create_topic()
    assert await messages.send(topic, b"never", dry_run=True) is None
    key = stage.name("order-7")
    how: dict[str, Any] = {"tags": "new", "keys": [key], "properties": {"a": "b"}}
    receipt = await messages.send(topic, b"hello", broker=BROKER, queue=1, **how)
    assert receipt is not None and receipt.queue.queue_id == 1
    viewed = await messages.view(receipt.offset_id)
    assert (viewed.topic, viewed.stored_in, viewed.broker, viewed.queue, viewed.offset) == (topic, topic, BROKER, 1, 0)
    assert (viewed.body, viewed.tags, viewed.keys, viewed.tries) == (b"hello", "new", [key], 0)
    assert viewed.properties["a"] == "b" and viewed.message_id == receipt.message_id
    assert viewed.stored_at is not None and abs(datetime.now(UTC) - viewed.stored_at) < timedelta(minutes=10)
    await wait_for_queues(stage.raw, topic, [receipt])
    assert await messages.at(topic, BROKER, 1, 0) == viewed
    found = await poll(lambda: messages.find(topic, receipt.message_id), lambda found: bool(found.items))
    assert found.items == [viewed] and not found.cut
    assert (await messages.find_by_key(topic, key)).items == [viewed]
    since = viewed.stored_at + timedelta(seconds=1)
    assert (await messages.find_by_key(topic, key, since=since)).items == []
    assert (await messages.find(topic, "7F0000010000000000000000000000FF")).items == []
    rows = await messages.entries(topic, BROKER, 1, 0, count=5)
    assert [(row.offset, row.position, row.size) for row in rows.rows] == [(0, viewed.position, viewed.size)]
    assert (rows.broker, rows.begin, rows.end) == (BROKER, 0, 1)
    with pytest.raises(NoRoute, match="no message at offset 5"):
        await messages.at(topic, BROKER, 1, 5)
    with pytest.raises(NoRoute):
        await messages.send(stage.name("nothing"), b"lost")
    with pytest.raises(ErucaError):
        await messages.view("not an id")


@covers("messages.read")
async def case_read(stage: Stage) -> None:
    """In the order of storing, by time, place, tag and key."""
    messages, topic = stage.admin.messages, await stage.create_topic()
    receipts = await stage.send(topic, 8)

    async def read(**how: object) -> list[StoredMessage]:
        return [message async for message in messages.read(topic, **how)]  # type: ignore[arg-type]

    everything = await read()
    assert sorted(each.message_id for each in everything) == sorted(each.message_id for each in receipts)
    times = [each.stored_at for each in everything if each.stored_at is not None]
    assert times == sorted(times)
    assert {each.tags for each in await read(tags="odd")} == {"odd"}
    assert [each.keys for each in await read(key=stage.name("key3"))] == [[stage.name("key3")]]
    assert len(await read(limit=3)) == 3
    in_one = [each for each in everything if each.queue == 0]
    assert await read(broker=BROKER, queue=0, offset=1) == in_one[1:]
    middle = times[4]
    assert await read(since=middle) == [each for each in everything if each.stored_at and each.stored_at >= middle]
    assert await read(until=middle) == [each for each in everything if each.stored_at and each.stored_at <= middle]
    backwards = await read(newest_first=True)
    assert sorted(each.message_id for each in backwards) == sorted(each.message_id for each in everything)
    assert [each.stored_at for each in backwards] == times[::-1]
    for direction in (False, True):
        pages: list[StoredMessage] = []
        while page := await read(limit=3, newest_first=direction, resume=note_last(pages)):
            pages += page
        assert [each.stored_at for each in pages] == times[:: -1 if direction else 1]
        assert len({each.message_id for each in pages}) == len(everything)
    with pytest.raises(ConfigError, match="a queue is needed"):
        await read(offset=1)
    with pytest.raises(NoRoute, match="no queue broker-a:9"):
        await read(broker=BROKER, queue=9)


def note_last(messages: list[StoredMessage]) -> dict[str, int]:
    """The offset of the last message of each queue, as `resume` takes it."""
    return {f"{each.broker}:{each.queue}": each.offset for each in messages}


@covers("messages.send", "delayed.list")
async def case_send_by_shard_and_later(stage: Stage) -> None:
    """A shard always has the same queue; a delay is one of the levels."""
    messages, topic = stage.admin.messages, await stage.create_topic(queues=4)
    receipts = [await messages.send(topic, b"hello", shard="customer-7") for _ in range(4)]
    assert len({receipt.queue for receipt in receipts if receipt is not None}) == 1
    later = await messages.send(topic, b"later", delay=timedelta(hours=2))
    assert later is not None
    listed = await poll(lambda: stage.admin.delayed.list(topic=topic), lambda found: bool(found.items))
    assert [each.message_id for each in listed.items] == [later.message_id]
    with pytest.raises(MessageIllegal, match="no such delay level"):
        await messages.send(topic, b"never", delay=7, dry_run=True)
    with pytest.raises(MessageIllegal, match="mutually exclusive"):
        await messages.send(topic, b"never", shard="a", queue=1)


@covers("messages.offset_at", "messages.read", "brokers.statistics")
async def case_at_a_time_and_for_a_group(stage: Stage) -> None:
    """The offset of a time; messages read for a group are counted as its own."""
    messages, topic, group = stage.admin.messages, await stage.create_topic(queues=1), stage.name("billing")
    await stage.send(topic, 3)
    found = [message async for message in messages.read(topic, group=group)]
    times = [message.stored_at for message in found if message.stored_at is not None]
    assert await messages.offset_at(topic, BROKER, 0, times[0] - timedelta(hours=1)) == 0
    assert await messages.offset_at(topic, BROKER, 0, times[0]) == 0
    assert await messages.offset_at(topic, BROKER, 0, times[-1] + timedelta(hours=1)) == 3
    assert (await stage.raw.offsets.show(group)).items == []
    counted = await poll(
        lambda: stage.admin.brokers.statistics("GROUP_GET_NUMS", f"{topic}@{group}"),
        lambda found: any(rate.minute_sum or rate.hour_sum or rate.day_sum for rate in found.items),
    )
    assert [rate.key for rate in counted.items] == [f"{topic}@{group}"]


@covers("messages.send", "messages.view")
async def case_send_creates_a_topic(stage: Stage) -> None:
    """Only if it is told to; a certain queue too."""
    messages = stage.admin.messages
    places: list[dict[str, Any]] = [{}, {"broker": BROKER, "queue": 1}]
    for number, place in enumerate(places):
        topic = stage.name(f"made{number}")
        with pytest.raises(NoRoute):
            await messages.send(topic, b"lost", **place)
        assert await messages.send(topic, b"never", auto_create=True, dry_run=True, **place) is None
        receipt = await messages.send(topic, b"hello", auto_create=True, **place)
        assert receipt is not None and receipt.queue.topic == topic
        assert not place or receipt.queue.queue_id == 1
        assert (await messages.view(receipt.offset_id)).body == b"hello"


@covers("messages.tail")
async def case_tail(stage: Stage) -> None:
    """The last messages, then those that arrive."""
    topic = await stage.create_topic(queues=1)
    before = await stage.send(topic, 3)

    found: list[StoredMessage] = []
    later: list[Receipt] = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in stage.admin.messages.tail(topic, last=2, limit=4):
            found.append(message)
            if len(found) == 2:
                later = await stage.send(topic, 2)
    assert [each.message_id for each in found] == [each.message_id for each in [*before, *later]][-4:]


@covers("messages.consume_directly", "messages.tracks")
async def case_what_groups_did(stage: Stage) -> None:
    """A member consumes a message again; whether each group has had it."""
    messages, topic = stage.admin.messages, await stage.create_topic(queues=1)
    receipts = await stage.send(topic, 2)
    group, waiting, seen = stage.name("billing"), stage.name("slow"), list[Message]()
    await stage.raw.offsets.reset(waiting, topic, "earliest")
    async with stage.member(group, topic, seen):
        target = receipts[1].offset_id

        def outcome_of(found: object) -> dict[str, str]:
            assert isinstance(found, Listed)
            return {each.group: each.outcome for each in found.items}

        await poll(
            lambda: messages.tracks(target),
            lambda found: outcome_of(found) == {group: "consumed", waiting: "waiting"},
        )
        online = {each.group: each.online for each in (await messages.tracks(target)).items}
        assert online == {group: True, waiting: False}
        assert await messages.consume_directly(target, group, dry_run=True) is None
        assert len(seen) == 2
        consumed = await messages.consume_directly(target, group)
        assert consumed is not None and consumed.outcome == "CR_SUCCESS" and consumed.seconds >= 0
        assert [each.offset_id for each in seen].count(target) == 2
        with pytest.raises(NoRoute, match="a member of group"):
            await messages.consume_directly(target, stage.name("nobody"))


@covers("messages.trace")
async def case_traced(stage: Stage) -> None:
    """What clients traced about a message, by its id and by a key."""
    topic, key, trace_topic = await stage.create_topic(), stage.name("traced"), await stage.create_topic("trace")
    async with Producer(stage.nameserver, group=stage.name("senders"), trace=trace_topic) as producer:
        receipt = await producer.send(topic, b"hello", keys=key)
    group = stage.name("billing")
    async with stage.member(group, topic, trace=trace_topic):

        async def trace() -> list[TraceRow]:
            return (await stage.admin.messages.trace(receipt.message_id, trace_topic=trace_topic)).items

        rows = await poll(trace, lambda rows: {row.step for row in rows} == {"sent", "delivered", "consumed"})
    sent = next(row for row in rows if row.step == "sent")
    assert (sent.topic, sent.message_id, sent.keys, sent.size) == (topic, receipt.message_id, key, 5)
    assert sent.succeeded and sent.offset_id == receipt.offset_id and sent.at is not None
    consumed = next(row for row in rows if row.step == "consumed")
    assert (consumed.group, consumed.outcome, consumed.succeeded) == (group, "SUCCESS", True)
    by_key = (await stage.admin.messages.trace(key, trace_topic=trace_topic)).items
    assert {row.step for row in by_key} >= {"sent"}


@covers("dead_letters.list", "dead_letters.count", "dead_letters.read", "dead_letters.find", "dead_letters.resend")
async def case_dead_letters(stage: Stage) -> None:
    """They are counted, read, found, and sent again."""
    letters, topic, group = stage.admin.dead_letters, stage.name("orders"), stage.name("billing")
    await stage.create_topic()
    await stage.raw.groups.create(group)
    ids = await bury(stage.raw, group, topic, 3)
    assert {row.group: row.count for row in (await letters.list()).items}[group] == 3
    assert await letters.count(group) == 3
    found = [letter async for letter in letters.read(group, Wanted(limit=2))]
    assert [letter.message_id for letter in found] == ids[:2]
    assert {(letter.topic, letter.stored_in) for letter in found} == {(topic, f"%DLQ%{group}")}
    assert (await letters.find(group, ids[2])).body == b"body 2"
    planned = [row async for row in letters.resend(group, dry_run=True)]
    assert [row.outcome for row in planned] == ["planned"] * 3
    sent = [row async for row in letters.resend(group, Wanted(ids=[ids[0]]))]
    assert [(row.message_id, row.topic, row.outcome) for row in sent] == [(ids[0], topic, "sent")]
    with pytest.raises(NoRoute, match="has no dead letters"):
        await letters.count(stage.name("nobody"))


@covers("transactions.list", "transactions.find", "transactions.view", "transactions.resume", "transactions.discard")
async def case_transactions(stage: Stage) -> None:
    """A prepared one is listed, viewed and rolled back."""
    transactions, topic, name = stage.admin.transactions, await stage.create_topic(), stage.name("payment")
    await prepare(stage.raw, topic, name)
    listed = await poll(transactions.list, lambda found: name in {row.message_id for row in found.items})
    assert listed.problems == []
    row = await transactions.find(name)
    assert (row.state, row.topic, row.broker) == (State.PREPARED, topic, BROKER)
    assert (await transactions.view(row)).body == b"half " + name.encode()
    assert (await transactions.resume(row)).outcome == "skipped"
    assert (await transactions.discard(row, dry_run=True)).outcome == "planned"

    async def discard() -> str:
        # It may be asked about at this very moment, and then has another place.
        return (await transactions.discard(await transactions.find(name))).outcome

    await poll(discard, lambda outcome: outcome == "discarded")
    await poll(lambda: transactions.find(name), lambda row: row.state is State.ROLLED_BACK)
    with pytest.raises(ConfigError, match="there is no transaction"):
        await transactions.find(stage.name("nothing"))


@covers("delayed.list", "delayed.levels", "delayed.cancel")
async def case_delayed(stage: Stage) -> None:
    """Those that wait are listed with the time when they are due; those with a time of their own can be cancelled."""
    delayed, topic = stage.admin.delayed, await stage.create_topic()
    started = datetime.now(UTC)
    async with Producer(stage.nameserver, group=stage.name("senders")) as producer:
        slow = await producer.send(topic, b"later", keys="k", delay_level=18)
        timed = await producer.send(topic, b"at a time", timer=timedelta(hours=3)) if not stage.is_java else None
    expected = {slow.message_id} | ({timed.message_id} if timed is not None else set())

    async def find() -> Listed[Delayed]:
        return await delayed.list(topic=topic)

    listed = await poll(find, lambda found: {row.message_id for row in found.items} == expected)
    first = listed.items[0]
    assert (first.message_id, first.level, first.topic, first.keys) == (slow.message_id, 18, topic, ["k"])
    assert first.due_at is not None and abs(first.due_at - started - timedelta(hours=2)) < timedelta(minutes=5)
    (level,) = [row for row in (await delayed.levels()).items if row.level == 18]
    assert level.waiting >= 1 and level.broker == BROKER
    assert (await delayed.cancel(topic, slow.message_id)).outcome == "unknown"
    if timed is None:
        return
    planned = await delayed.cancel(topic, timed.message_id, dry_run=True)
    assert planned.outcome == "planned" and planned.due_at == listed.items[1].due_at
    assert (await delayed.cancel(topic, timed.message_id)).outcome == "cancelled"
    await poll(find, lambda found: [row.message_id for row in found.items] == [slow.message_id])
