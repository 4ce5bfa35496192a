"""Groups: created, changed, deleted, listed; members, owners, lag, and what clients are doing."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from eruca import Message, Producer
from eruca.admin import Group, GroupSettings, Subscribed
from eruca.errors import ConfigError, NoRoute
from tests.admin.stage import BROKER, Stage, covers, outcomes, poll


@covers("groups.create", "groups.update", "groups.delete", "groups.list", "groups.settings", "groups.show")
async def case_life_of_a_group(stage: Stage) -> None:
    """It is created, changed, deleted, and each time as it was before."""
    groups, group = stage.admin.groups, stage.name("billing")
    assert outcomes(await groups.create(group, retries=3, dry_run=True)) == ["planned"]
    assert (await groups.list(group)).items == []
    created = await groups.create(group, retries=3)
    assert created.changes[0].after == GroupSettings(retries=3)
    assert outcomes(await groups.create(group, retries=3)) == ["unchanged"]
    with pytest.raises(ConfigError, match=f"{BROKER} has a group {group} with other settings"):
        await groups.create(group)
    (row,) = (await groups.list(group)).items
    assert (row.name, row.has_settings, row.has_offsets) == (group, True, False)
    updated = await groups.update(group, retries=5, notify=False)
    (settings,) = (await groups.settings(group)).items
    assert (settings.broker, settings.settings) == (BROKER, GroupSettings(retries=5, notify=False))
    await stage.undo(updated)
    (settings,) = (await groups.settings(group)).items
    assert settings.settings == GroupSettings(retries=3)
    topic = await stage.create_topic()
    await stage.send(topic, 4)
    await stage.raw.offsets.reset(group, topic, "latest")
    assert outcomes(await groups.delete(group, dry_run=True)) == ["planned"]
    deleted = await groups.delete(group)
    assert outcomes(deleted) == ["done"]
    with pytest.raises(NoRoute, match=f"no broker knows a group {group}"):
        await groups.show(group)
    with pytest.raises(NoRoute, match="eruca group list"):
        await groups.delete(group)
    await stage.undo(deleted)
    shown = await groups.show(group)
    assert shown.brokers[0].settings == GroupSettings(retries=3)
    assert sum(queue.offset or 0 for queue in shown.queues) == 4


@covers("groups.list", "groups.update")
async def case_lists_of_groups(stage: Stage) -> None:
    """By name, by topic, in pages; the brokers' own are left out."""
    groups, topic = stage.admin.groups, await stage.create_topic()
    names = [stage.name(f"page{number}") for number in range(3)]
    for name in names:
        await stage.raw.offsets.reset(name, topic, "earliest")
    first = await groups.list(stage.name("page"), limit=2)
    assert ([row.name for row in first.items], first.cut) == (names[:2], True)
    assert [row.name for row in (await groups.list(stage.name("page"), after=names[1])).items] == names[2:]
    assert [row.name for row in (await groups.list(topic=topic)).items] == names
    assert "TOOLS_CONSUMER" not in {row.name for row in (await groups.list()).items}
    assert "TOOLS_CONSUMER" in {row.name for row in (await groups.list(system=True)).items}
    with pytest.raises(NoRoute, match="no broker knows a group"):
        await groups.update(stage.name("nobody"), retries=1)


@covers("groups.show", "offsets.show", "offsets.lag", "groups.time_spans")
async def case_a_group_that_is_away(stage: Stage) -> None:
    """Its lag in messages and in time, and the message each queue waits with; nobody owns a queue."""
    admin, topic, group = stage.admin, await stage.create_topic(), stage.name("billing")
    receipts = await stage.send(topic, 6)
    await stage.raw.offsets.reset(group, topic, "earliest")
    shown = await admin.groups.show(group)
    assert (shown.name, shown.members, shown.lag, shown.cut) == (group, [], 6, False)
    assert shown.lag_time is not None and shown.lag_time >= timedelta()
    by_place = {(each.queue.queue_id, each.offset): each for each in receipts}
    for queue in shown.queues:
        assert (queue.topic, queue.offset, queue.owner) == (topic, 0, "")
        assert queue.stuck_on is not None
        first = by_place[queue.queue, 0]
        assert (queue.stuck_on.message_id, queue.stuck_on.offset_id) == (first.message_id, first.offset_id)
        assert queue.stuck_on.keys and queue.lag_time is not None
    assert (await admin.groups.show(group, topic=stage.name("other"))).queues == []
    assert (await admin.groups.show(group, limit=1)).cut
    progress = (await admin.offsets.show(group, topic)).items
    assert [(row.queue, row.offset, row.lag) for row in progress] == [(row.queue, 0, row.end) for row in progress]
    lags = await admin.offsets.lag([group])
    assert sum(row.lag for row in lags.items) == 6 and all(row.lag_time is not None for row in lags.items)
    everyone = {(row.group, row.topic): row for row in (await admin.offsets.lag(times=False)).items}
    assert everyone[group, topic].lag_time is None
    cut = await admin.offsets.lag([group], limit=1)
    assert (len(cut.items), cut.cut) == (1, True)
    spans = (await admin.groups.time_spans(group, topic)).items
    assert [row.queue for row in spans] == [row.queue for row in progress]
    assert all(row.first_at is not None and row.last_at is not None and row.delay >= timedelta() for row in spans)


@covers(
    "groups.show",
    "groups.members",
    "groups.subscriptions",
    "groups.differences",
    "groups.connections",
    "groups.delete",
    "clients.consumers",
    "clients.running",
    "clients.stack",
    "clients.offsets",
)
async def case_a_group_at_work(stage: Stage) -> None:
    """Its members, which queues each has, and what each is doing."""
    admin, topic, group = stage.admin, await stage.create_topic(queues=4), stage.name("billing")
    await stage.send(topic, 8)
    seen: list[Message] = []
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(stage.member(group, topic, seen))

        def is_shared(shown: Group) -> bool:
            own = [queue for queue in shown.queues if queue.topic == topic]
            return len(own) == 4 and len({queue.owner for queue in own}) == 2 and shown.lag == 0

        shown = await poll(lambda: admin.groups.show(group), is_shared)
        members = (await admin.groups.members(group)).items
        assert (shown.model, shown.kind, shown.start) == ("clustering", "push", "earliest")
        assert shown.members == members and len(members) == 2
        assert {queue.owner for queue in shown.queues if queue.topic == topic} == {each.client_id for each in members}
        assert {(each.language, each.brokers[0]) for each in members} == {("PYTHON", BROKER)}
        assert {each.version for each in members} == {"4.9.7"}
        assert (await admin.clients.consumers(group)).items == members
        subscriptions = (await admin.groups.subscriptions(group)).items
        assert Subscribed(topic=topic, expression="*") in subscriptions
        assert (await admin.groups.differences(group)).items == [] == shown.differences
        (connected,) = (await admin.groups.connections([group, stage.name("nobody")])).items
        assert (connected.group, connected.model, connected.start) == (group, "clustering", "earliest")
        assert sorted(each.client_id for each in connected.connections) == sorted(each.client_id for each in members)
        assert Subscribed(topic=topic, expression="*") in connected.subscriptions
        assert group in {each.group for each in (await admin.groups.connections()).items}
        assert (await admin.groups.connections([group, stage.name("nobody")], limit=1)).cut
        first = members[0].client_id
        running = await admin.clients.running(group, first)
        held = {(queue.topic, queue.queue) for queue in running.queues if queue.topic == topic}
        assert held == {(row.topic, row.queue) for row in shown.queues if row.owner == first and row.topic == topic}
        assert running.started_at is not None and "PROP_CLIENT_VERSION" in running.properties and running.stack == ""
        assert "MainThread" in await admin.clients.stack(group, first)
        offsets = (await admin.clients.offsets(group, topic)).items
        assert sum(each.offset for each in offsets) == 8
        assert {each.client_id for each in offsets} == {each.client_id for each in members}
        with pytest.raises(NoRoute, match="nobody is not a connected member"):
            await admin.clients.running(group, "nobody")
        with pytest.raises(ConfigError, match="2 connected members"):
            await admin.groups.delete(group)
    await poll(lambda: admin.groups.members(group), lambda found: found.items == [])
    assert len({message.message_id for message in seen}) == 8


@covers("groups.differences", "groups.show")
async def case_members_that_differ(stage: Stage) -> None:
    """Members with different subscriptions are named."""
    admin, topic, group = stage.admin, await stage.create_topic(), stage.name("billing")
    async with stage.member(group, topic, tags="even"), stage.member(group, topic, tags="odd"):
        (difference,) = (await poll(lambda: admin.groups.differences(group), lambda found: bool(found.items))).items
        assert difference.topic == topic
        expressions = {each.expression for each in difference.by_member.values() if each is not None}
        assert expressions == {"even", "odd"}
        assert (await admin.groups.show(group)).differences == [difference]


@covers("clients.producers")
async def case_producers(stage: Stage) -> None:
    """Connected producers are listed, by group too."""

    topic, group = await stage.create_topic(), stage.name("senders")
    async with Producer(stage.nameserver, group=group) as producer:
        await producer.send(topic, b"hello")
        found = await poll(lambda: stage.admin.clients.producers(group), lambda found: bool(found.items))
        (row,) = found.items
        assert (row.group, row.language, row.version, row.broker) == (group, "PYTHON", "4.9.7", BROKER)
        assert row.address.startswith("127.0.0.1:") and row.seen_at is not None
        assert group in {each.group for each in (await stage.admin.clients.producers()).items}
    assert (await stage.admin.clients.producers(stage.name("nobody"))).items == []


@covers("groups.put", "groups.settings")
async def case_group_put(stage: Stage) -> None:
    """It is created or replaced, whatever is there."""
    groups, group = stage.admin.groups, stage.name("billing")
    assert outcomes(await groups.put(group, GroupSettings(retries=3), dry_run=True)) == ["planned"]
    assert (await groups.settings(group)).items == []
    created = await groups.put(group, GroupSettings(retries=3))
    assert (created.changes[0].before, created.changes[0].after) == (None, GroupSettings(retries=3))
    replaced = await groups.put(group, GroupSettings(broadcast=False), brokers=[BROKER])
    (row,) = (await groups.settings(group)).items
    assert row.settings == GroupSettings(broadcast=False)
    await stage.undo(replaced)
    (row,) = (await groups.settings(group)).items
    assert row.settings == GroupSettings(retries=3)
