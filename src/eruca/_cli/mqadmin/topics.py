"""updateTopic, deleteTopic, updateTopicPerm, topicRoute, topicStatus, topicList, topicClusterList, allocateMQ."""

from __future__ import annotations

import json
from collections.abc import Awaitable

from msgspec.structs import replace

from eruca._admin.queueends import QueueEnds
from eruca._admin.results import Changed
from eruca._admin.routes import RouteBroker, TopicRoute
from eruca._admin.settings import TopicSettings, read_permission
from eruca._admin.targets import BrokerRow
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.javatext import (
    cut,
    permission_letters,
    show_json,
    show_map,
    show_time_ms,
    show_topic,
)
from eruca._core.allocation import AverageStrategy
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DLQ_PREFIX, READ, RETRY_PREFIX
from eruca.errors import NoRoute

# As Java has them: a unit's topic, and one that a unit subscribes to.
_UNIT = 1
_UNIT_SUBSCRIBED = 2
# The dashes of `topicRoute -l`.
_RULE = "-" * 158


# --- changing -------------------------------------------------------------------------------------------------------


async def update_topic(call: Call) -> None:
    """Create a topic, or replace its settings."""
    line, topic = call.line, call.line.text("t")
    settings = TopicSettings(
        read_queues=line.number("r", 8),
        write_queues=line.number("w", 8),
        permission=permission_letters(line.number("p", 6)),
        ordered=line.is_true("o"),
        system_flag=_UNIT * line.is_true("u") + _UNIT_SUBSCRIBED * line.is_true("s"),
    )
    # Without -o the order that name servers keep stays.
    kept = {part.split(":")[0] for part in ((await call.admin.nameservers.order_get(topic)).value or "").split(";")}

    def put(row: BrokerRow) -> Awaitable[Changed[TopicSettings]]:
        own = replace(settings, ordered=settings.ordered or row.broker in kept)
        return call.admin.topics.put(topic, own, brokers=[row.address])

    done: list[str] = []
    async for row, _ in call.change_each(await call.list_masters(), put):
        done.append(f"{row.broker}:{settings.write_queues}")
        call.out.say("create topic to %s success.", row.address)
    if settings.ordered and done:
        what = "broker" if line.has("b") else "cluster"
        call.out.say("set %s orderConf. isOrder=true, orderConf=[%s]", what, ";".join(done))
    call.out.say(show_topic(topic, settings))


async def delete_topic(call: Call) -> None:
    """Delete a topic in a cluster. Like Java, it succeeds if there is no such topic."""
    topic, cluster = call.line.text("t"), call.line.text("c")
    await call.list_masters()
    await delete_from_cluster(call, topic, cluster)


async def delete_from_cluster(call: Call, topic: str, cluster: str) -> None:
    """Delete a topic in a cluster, whether it is there or not."""
    try:
        if call.check(await call.admin.topics.delete(topic, cluster=cluster)).failed:
            return
    except NoRoute:
        pass
    call.out.say("delete topic [%s] from cluster [%s] success.", topic, cluster)
    call.out.say("delete topic [%s] from NameServer success.", topic)


async def update_topic_perm(call: Call) -> None:
    """Change who may use a topic."""
    topic, number = call.line.text("t"), call.line.number("p")
    letters = permission_letters(number)

    route = await call.admin.routes.show(topic)
    before = {row.broker: read_permission(row.permission) for row in route.brokers}
    masters = await call.list_masters()
    if call.line.has("b") and before.get(masters[0].broker) == number:
        call.out.say("new perm equals to the old one!")
        return
    async for row, changed in call.change_each(
        masters, lambda row: call.admin.topics.set_permission(topic, letters, brokers=[row.address])
    ):
        call.out.say("update topic perm from %s to %s in %s success.", before.get(row.broker, 0), number, row.address)
        if call.line.has("b"):
            for change in changed.changes:
                if change.after is not None:
                    call.out.say("%s.", show_topic(topic, change.after))


# --- looking --------------------------------------------------------------------------------------------------------


async def topic_list(call: Call) -> None:
    """List the topics; with `-c`, their clusters and groups too."""
    topics = [row.name for row in call.take(await call.admin.topics.list(kind="all", limit=ALL))]
    if not call.line.has("c"):
        for topic in topics:
            call.out.say("%s", topic)
        return
    call.out.say("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    topics = [topic for topic in topics if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    clusters = dict(await ask_each(topics, call.admin.routes.clusters))
    for topic, groups in await ask_each(topics, lambda topic: call.admin.topics.groups(topic, limit=ALL)):
        found = clusters[topic]
        cluster = found.items[0] if found and found.items else ""
        for group in (groups.items if groups else []) or [""]:
            call.out.say("%-20s  %-64s  %-64s", cut(cluster, 20), cut(topic, 64), cut(group, 64))


async def topic_route(call: Call) -> None:
    """Show the route of a topic as JSON; with `-l`, as a table."""
    route = await call.admin.routes.show(call.line.text("t"))
    if not call.line.has("l"):
        call.out.say("%s", show_json(_list_route(route)))
        return
    form = "%-45s %-32s %-50s %-10s %-11s %-5s"
    show = call.out.table(form, "ClusterName", "BrokerName", "BrokerAddrs", "ReadQueue", "WriteQueue", "Perm")
    rows = sorted(route.brokers, key=lambda row: row.broker)
    for row in rows:
        number = read_permission(row.permission)
        show(row.cluster, row.broker, show_map(row.addresses), row.read_queues, row.write_queues, number)
    call.out.say(_RULE)
    show("Total:", len(rows), "", sum(row.read_queues for row in rows), sum(row.write_queues for row in rows), "")


def _list_route(route: TopicRoute) -> dict[str, object]:
    order = {"orderTopicConf": route.order} if route.order else {}
    return order | {
        "brokerDatas": [
            {"brokerAddrs": row.addresses, "brokerName": row.broker, "cluster": row.cluster} for row in route.brokers
        ],
        "filterServerTable": route.filter_servers,
        "queueDatas": [_list_queues(row) for row in route.brokers],
    }


def _list_queues(row: RouteBroker) -> dict[str, object]:
    return {
        "brokerName": row.broker,
        "perm": read_permission(row.permission),
        "readQueueNums": row.read_queues,
        "topicSysFlag": row.system_flag,
        "writeQueueNums": row.write_queues,
    }


async def topic_status(call: Call) -> None:
    """Show the ends of a topic's queues."""
    topic = call.line.text("t")
    queues = call.take(await call.admin.topics.queues(topic, limit=ALL))
    if not queues:
        raise NoRoute(f"no broker has a queue of topic {topic}", hint="the first message creates them")
    form = "%-32s  %-4s  %-20s  %-20s    %s"
    show = call.out.table(form, "Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated")
    for queue in sorted(queues, key=_place):
        show(cut(queue.broker, 32), queue.queue, queue.begin, queue.end, show_time_ms(queue.last_at))


def _place(queue: QueueEnds) -> tuple[str, int]:
    return queue.broker, queue.queue


async def topic_cluster_list(call: Call) -> None:
    """List the clusters that have a topic."""
    for cluster in call.take(await call.admin.routes.clusters(call.line.text("t"))):
        call.out.say("%s", cluster)


async def allocate_mq(call: Call) -> None:
    """Show which member of a group would get which queue of a topic, with the usual strategy."""
    topic, members = call.line.text("t"), call.line.text("i").split(",")
    route = await call.admin.routes.show(topic)
    queues = [
        MessageQueue(row.broker, queue, topic)
        for row in sorted(route.brokers, key=lambda row: row.broker)
        if read_permission(row.permission) & READ
        for queue in range(row.read_queues)
    ]
    strategy = AverageStrategy()
    result = {
        member: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": topic}
            for queue in strategy.allocate("aa", member, queues, members)
        ]
        for member in members
    }
    call.out.say("%s", json.dumps({"result": result}, separators=(",", ":")))
