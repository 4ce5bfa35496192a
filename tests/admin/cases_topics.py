"""Topics: created, changed, deleted, listed and shown; routes and orders."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.admin import TopicSettings, Undo
from eruca.errors import ConfigError, NoRoute
from tests.admin.stage import BROKER, Stage, covers, outcomes, poll


@covers("topics.create", "topics.update", "topics.set_permission", "topics.delete", "topics.list", "topics.show")
async def case_life_of_a_topic(stage: Stage) -> None:
    """It is created, changed, deleted, and each time as it was before."""
    topics, topic = stage.admin.topics, stage.name("orders")
    planned = await topics.create(topic, queues=3, dry_run=True)
    assert (planned.name, outcomes(planned)) == (topic, ["planned"])
    assert (await topics.list(topic)).items == []
    created = await topics.create(topic, queues=3)
    assert created.changes[0].before is None
    assert created.changes[0].after == TopicSettings(read_queues=3, write_queues=3)
    assert created.undo == [Undo(method="topics.delete", arguments={"topic": topic, "brokers": [BROKER]})]
    assert outcomes(await topics.create(topic, queues=3)) == ["unchanged"]
    with pytest.raises(ConfigError, match=f"{BROKER} has a topic {topic} with other settings"):
        await topics.create(topic, queues=4)
    listed = await poll(lambda: topics.list(topic), lambda found: bool(found.items))
    assert [row.name for row in listed.items] == [topic] and not listed.cut
    updated = await topics.update(topic, read_queues=5, write_queues=4)
    assert updated.changes[0].after == TopicSettings(read_queues=5, write_queues=4)
    closed = await topics.set_permission(topic, "R")
    assert await _read_settings(stage, topic) == TopicSettings(read_queues=5, write_queues=4, permission="R")
    await stage.undo(closed)
    await stage.undo(updated)
    assert await _read_settings(stage, topic) == TopicSettings(read_queues=3, write_queues=3)
    assert outcomes(await topics.delete(topic, dry_run=True)) == ["planned"]
    deleted = await topics.delete(topic, brokers=[BROKER])
    assert outcomes(deleted) == ["done"]
    with pytest.raises(NoRoute, match=f"no broker has a topic {topic}"):
        await topics.show(topic)
    await poll(lambda: topics.list(topic), lambda found: not found.items)
    await stage.undo(deleted)
    assert await _read_settings(stage, topic) == TopicSettings(read_queues=3, write_queues=3)


async def _read_settings(stage: Stage, topic: str) -> TopicSettings:
    (row,) = (await stage.admin.topics.show(topic)).brokers
    assert row.broker == BROKER
    return row.settings


@covers("topics.create", "topics.list", "topics.delete", "topics.update", "topics.show")
async def case_what_is_refused(stage: Stage) -> None:
    """Names, kinds, permissions and brokers that cannot be."""
    topics: Any = stage.admin.topics
    with pytest.raises(ConfigError, match="kind='ordinary'"):
        await topics.list(kind="ordinary")
    with pytest.raises(ConfigError, match="permission='RWZ'"):
        await topics.create(stage.name("orders"), permission="RWZ")
    with pytest.raises(NoRoute, match="no broker broker-z is registered"):
        await topics.create(stage.name("orders"), brokers=["broker-z"])
    with pytest.raises(NoRoute, match="there is no cluster elsewhere"):
        await topics.create(stage.name("orders"), cluster="elsewhere")
    for method in (topics.delete, topics.update, topics.show):
        with pytest.raises(NoRoute, match=f"no broker has a topic {stage.name('nothing')}"):
            await method(stage.name("nothing"))
    # The broker refuses what is its own.
    changed = await topics.update("SELF_TEST_TOPIC", queues=7)
    assert changed.failed and "system topic" in changed.changes[0].reason


@covers("topics.list")
async def case_kinds_of_topics(stage: Stage) -> None:
    """Topics are told apart by what they are for, and a long list comes in pages."""
    topics = stage.admin.topics
    names = [await stage.create_topic(f"page{number}") for number in range(3)]
    system = {row.name for row in (await topics.list(kind="system")).items}
    assert {"TBW102", BROKER, "DefaultCluster"} <= system and not system & set(names)
    assert {row.kind for row in (await topics.list(kind="all")).items} >= {"normal", "system"}
    first = await topics.list(stage.name("page"), limit=2)
    assert ([row.name for row in first.items], first.cut) == (names[:2], True)
    rest = await topics.list(stage.name("page"), after=names[1], limit=2)
    assert ([row.name for row in rest.items], rest.cut) == (names[2:], False)
    assert [row.name for row in (await topics.list(stage.name("page"), cluster="DefaultCluster")).items] == names
    assert (await topics.list(cluster="elsewhere")).items == []


@covers(
    "topics.show",
    "topics.queues",
    "topics.ends",
    "topics.groups",
    "topics.traffic",
    "topics.settings",
    "topics.unused",
    "topics.unreachable",
)
async def case_what_a_topic_has(stage: Stage) -> None:
    """Its queues, their ends and times, its groups, its traffic."""
    topics, topic, group = stage.admin.topics, await stage.create_topic(), stage.name("billing")
    empty = await stage.create_topic("empty")
    assert empty in {row.name for row in (await topics.unused()).items}
    receipts = await stage.send(topic, 5)
    await stage.raw.offsets.reset(group, topic, "earliest")
    shown = await topics.show(topic)
    assert (shown.name, shown.kind, shown.count, shown.groups, shown.order) == (topic, "normal", 5, [group], "")
    assert shown.problems == [] and not shown.cut
    for queue in shown.queues:
        stored = [each for each in receipts if each.queue.queue_id == queue.queue]
        assert (queue.begin, queue.end, queue.count) == (0, len(stored), len(stored))
        assert (queue.first_at is None) == (queue.last_at is None) == (not stored)
        assert queue.first_at is None or (queue.last_at is not None and queue.first_at <= queue.last_at)
    assert [(each.queue, each.end) for each in (await topics.queues(topic)).items] == [
        (each.queue, each.end) for each in shown.queues
    ]
    assert (await topics.queues(topic, limit=1)).cut and (await topics.show(topic, limit=1)).cut
    ends = await topics.ends([topic, empty, stage.name("nothing")])
    assert {(each.topic, each.queue): each.end for each in ends.items} == {
        **{(topic, each.queue): each.end for each in shown.queues},
        **{(empty, number): 0 for number in range(2)},
    }
    assert ends.problems == [] and (await topics.ends([topic, empty], limit=3)).cut
    assert (await topics.groups(topic)).items == [group]
    (settings,) = (await topics.settings(topic)).items
    assert (settings.topic, settings.broker, settings.settings.write_queues) == (topic, BROKER, 2)
    traffic = await topics.traffic(topic)
    assert [(rate.broker, rate.key) for rate in traffic.stored] == [(BROKER, topic)] and traffic.problems == []
    unused = {row.name for row in (await topics.unused()).items}
    assert empty in unused and topic not in unused
    changed = await topics.update(topic, read_queues=1)
    lost = [(each.queue, each.count) for each in (await topics.unreachable()).items if each.topic == topic]
    assert lost == [(1, shown.queues[1].count)] and f"{lost[0][1]} message" in changed.warnings[0]


@covers("topics.create", "topics.delete", "nameservers.order_get", "nameservers.order_put", "nameservers.order_delete")
async def case_ordered_topics(stage: Stage) -> None:
    """The order of a topic is told to the name servers, and forgotten with the topic."""
    admin, topic = stage.admin, stage.name("steps")
    created = await admin.topics.create(topic, queues=2, ordered=True)
    assert created.changes[0].after is not None and created.changes[0].after.ordered
    assert (await admin.nameservers.order_get(topic)).value == f"{BROKER}:2"
    changed = await admin.nameservers.order_put(topic, f"{BROKER}:2;broker-b:4")
    assert (await admin.nameservers.order_get(topic)).value == f"{BROKER}:2;broker-b:4"
    await stage.undo(changed)
    with pytest.raises(ConfigError, match="expected BROKER:QUEUES"):
        await admin.nameservers.order_put(topic, "two each")
    await admin.topics.delete(topic)
    assert (await admin.nameservers.order_get(topic)).value is None
    await admin.nameservers.order_put(topic, f"{BROKER}:1")
    assert (await admin.nameservers.order_delete(topic, dry_run=True)).changes[0].outcome == "planned"
    deleted = await admin.nameservers.order_delete(topic)
    assert (deleted.changes[0].before, deleted.changes[0].outcome) == (f"{BROKER}:1", "done")
    await stage.undo(deleted)
    assert (await admin.nameservers.order_get(topic)).value == f"{BROKER}:1"
    await admin.nameservers.order_delete(topic)


@covers("routes.show", "routes.compare", "routes.clusters")
async def case_routes(stage: Stage) -> None:
    """Where the queues of a topic are."""
    routes, topic = stage.admin.routes, await stage.create_topic()
    route = await routes.show(topic)
    (row,) = route.brokers
    assert (row.broker, row.cluster, row.read_queues, row.permission) == (BROKER, "DefaultCluster", 2, "RW")
    assert list(row.addresses) == [0] and route.order == ""
    compared = await routes.compare(topic)
    assert [(each.server, each.route) for each in compared.items] == [(stage.nameserver, route)]
    assert (await routes.compare(stage.name("nothing"))).items[0].route is None
    assert (await routes.clusters(topic)).items == ["DefaultCluster"]
    with pytest.raises(NoRoute, match="eruca topic list"):
        await routes.show(stage.name("nothing"))


@covers("topics.put", "topics.list")
async def case_topic_put(stage: Stage) -> None:
    """It is created or replaced, whatever is there."""
    topics, topic = stage.admin.topics, stage.name("orders")
    first, second = TopicSettings(read_queues=3, write_queues=2), TopicSettings(read_queues=5, write_queues=5)
    assert outcomes(await topics.put(topic, first, dry_run=True)) == ["planned"]
    assert (await topics.list(topic)).items == []
    created = await topics.put(topic, first)
    assert (created.changes[0].before, created.changes[0].after) == (None, first)
    assert outcomes(await topics.put(topic, first, cluster="DefaultCluster")) == ["unchanged"]
    replaced = await topics.put(topic, second, brokers=[BROKER])
    assert await _read_settings(stage, topic) == second
    await stage.undo(replaced)
    assert await _read_settings(stage, topic) == first
    with pytest.raises(NoRoute, match="no broker broker-z is registered"):
        await topics.put(topic, first, brokers=["broker-z"])
