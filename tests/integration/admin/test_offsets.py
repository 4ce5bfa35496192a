"""Groups are shown and moved: with nobody connected, with members, from group to group."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from eruca import Offsets
from eruca._client.message import Message
from eruca._client.push.consumer import Consumer
from eruca._testing.embedded import EmbeddedBroker
from eruca._wire.bodies import MessageQueue
from eruca.admin import Admin
from eruca.errors import ConfigError, NoRoute
from tests.integration.admin.staging import send, wait_until
from tests.patience import PATIENCE_S

QUEUES = [MessageQueue("embedded", number, "orders") for number in range(2)]


@pytest.fixture
async def filled(broker: EmbeddedBroker, admin: Admin) -> EmbeddedBroker:
    """Two queues with ten messages each."""
    await asyncio.to_thread(broker.create_topic, "orders", 2)
    await send(admin, "orders", 20)
    return broker


async def commit(admin: Admin, broker: EmbeddedBroker, group: str, *places: int) -> None:
    for queue, place in zip(QUEUES, places, strict=True):
        await admin.connection.calls.write_offset(broker.address, group, queue, place, wait=True)


async def list_offsets(admin: Admin, group: str) -> list[int]:
    return [row.offset for row in (await admin.offsets.show(group, "orders")).items]


async def find_times(admin: Admin, queue: MessageQueue) -> list[datetime]:
    return [message.stored_at async for message in admin.connection.read_queue(queue)]


async def test_progress_is_shown(filled: EmbeddedBroker, admin: Admin) -> None:
    await commit(admin, filled, "billing", 4, 10)
    rows = (await admin.offsets.show("billing")).items
    ends = [await admin.connection.reader.find_end(queue) for queue in QUEUES]
    assert [(row.offset, row.end, row.lag) for row in rows] == [(4, ends[0], ends[0] - 4), (10, ends[1], 0)]
    assert rows[0].consumed_at == (await find_times(admin, QUEUES[0]))[3]
    assert (await admin.offsets.show("nobody")).items == []


async def test_a_group_that_is_away_goes_where_it_is_wanted(filled: EmbeddedBroker, admin: Admin) -> None:
    await commit(admin, filled, "billing", 4, 10)
    moves = (await admin.offsets.reset("billing", "orders", "earliest")).moves
    assert [(move.before, move.after, move.outcome) for move in moves] == [(4, 0, "written"), (10, 0, "written")]
    assert await list_offsets(admin, "billing") == [0, 0]
    moves = (await admin.offsets.reset("billing", "orders", "latest", force=False)).moves
    assert [move.after for move in moves] == [0, 0]
    moves = (await admin.offsets.skip("billing", "orders")).moves
    ends = [await admin.connection.reader.find_end(queue) for queue in QUEUES]
    assert [move.after for move in moves] == ends == await list_offsets(admin, "billing")


async def test_a_time_is_its_first_message(filled: EmbeddedBroker, admin: Admin) -> None:
    await commit(admin, filled, "billing", 0, 0)
    times = {queue: await find_times(admin, queue) for queue in QUEUES}
    moment = times[QUEUES[0]][7]
    planned = (await admin.offsets.reset("billing", "orders", moment, dry_run=True)).moves
    assert await list_offsets(admin, "billing") == [0, 0]
    moves = (await admin.offsets.reset("billing", "orders", moment)).moves
    expected = [sum(time < moment for time in times[queue]) for queue in QUEUES]
    assert [move.after for move in planned] == [move.after for move in moves] == expected
    assert [move.outcome for move in planned] == ["planned", "planned"]


async def test_a_new_group_begins_where_it_was_put(filled: EmbeddedBroker, admin: Admin) -> None:
    moves = (await admin.offsets.reset("newcomers", "orders", "earliest")).moves
    assert [(move.before, move.after, move.outcome) for move in moves] == [(None, 0, "written")] * 2
    seen: set[str] = set()
    consumer = Consumer(filled.nameserver, group="newcomers", start="latest")

    @consumer.handler("orders")
    async def take(message: Message) -> None:
        seen.add(message.properties["number"])

    async with consumer:
        await wait_until(lambda: _has(seen, 20), "the messages from the beginning on")
    assert len(seen) == 20


async def _has(seen: set[str], count: int) -> bool:
    return len(seen) >= count


async def test_members_are_told(filled: EmbeddedBroker, admin: Admin) -> None:
    seen: list[str] = []
    consumer = Consumer(filled.nameserver, group="billing", start="earliest", offsets=Offsets(interval=0.05))

    @consumer.handler("orders")
    async def take(message: Message) -> None:
        seen.append(message.properties["number"])

    async def is_done() -> bool:
        rows = (await admin.offsets.show("billing", "orders")).items
        return len(rows) == 2 and all(row.lag == 0 and row.offset for row in rows)

    async with consumer:
        await wait_until(is_done, "the first round")
        moves = (await admin.offsets.reset("billing", "orders", "earliest")).moves
        assert [(move.after, move.outcome) for move in moves] == [(0, "told")] * 2
        async with asyncio.timeout(PATIENCE_S):
            await wait_until(lambda: _has_all_twice(seen), "the second round")
    assert sorted(seen, key=int) == [str(number // 2) for number in range(40)]


async def _has_all_twice(seen: list[str]) -> bool:
    return len(seen) >= 40


async def test_clone(filled: EmbeddedBroker, admin: Admin) -> None:
    await commit(admin, filled, "billing", 4, 10)
    moves = (await admin.offsets.clone("billing", "audit")).moves
    assert [(move.before, move.after, move.outcome) for move in moves] == [(None, 4, "written"), (None, 10, "written")]
    assert await list_offsets(admin, "audit") == [4, 10]
    with pytest.raises(NoRoute, match="group nobody has no offsets"):
        await admin.offsets.clone("nobody", "audit")


async def test_clone_does_not_fight_with_members(filled: EmbeddedBroker, admin: Admin) -> None:
    await commit(admin, filled, "billing", 4, 10)
    consumer = Consumer(filled.nameserver, group="audit")

    @consumer.handler("orders")
    async def take(message: Message) -> None:
        pass

    async with consumer:
        with pytest.raises(ConfigError, match="1 connected member"):
            await admin.offsets.clone("billing", "audit")


async def test_a_topic_that_is_not_there(admin: Admin) -> None:
    with pytest.raises(NoRoute, match="nowhere"):
        await admin.offsets.reset("billing", "nowhere", "earliest")


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "yesterday", 0])
async def test_a_time_needs_a_zone(admin: Admin, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="to="):
        await admin.offsets.reset("billing", "orders", wrong)
