"""updateSubGroup, deleteSubGroup, getConsumerConfig, consumerConnection, consumerProgress."""

from __future__ import annotations

from collections.abc import Iterable

from eruca._admin.connections import Connected, GroupConnections
from eruca._admin.progress import Progress
from eruca._admin.settings import GroupSettings
from eruca._cli.mqadmin.call import ALL, Call, ask_each
from eruca._cli.mqadmin.javatext import cut, java_version, list_group_fields, show_group, show_plain, show_time
from eruca._cli.mqadmin.topics import delete_from_cluster
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX
from eruca.errors import NoRoute

# How Java names the kinds of consumers.
_KINDS = {"push": "CONSUME_PASSIVELY", "pull": "CONSUME_ACTIVELY"}
_STARTS = {
    "latest": "CONSUME_FROM_LAST_OFFSET",
    "earliest": "CONSUME_FROM_FIRST_OFFSET",
    "timestamp": "CONSUME_FROM_TIMESTAMP",
}

# --- changing -------------------------------------------------------------------------------------------------------


async def update_sub_group(call: Call) -> None:
    """Create a group, or replace its settings. What is not given gets Java's default, not what it was before."""
    line, group = call.line, call.line.text("g")
    plain = GroupSettings()
    settings = GroupSettings(
        consume=line.is_true("s", plain.consume),
        consume_from_min=line.is_true("m"),
        broadcast=line.is_true("d"),
        retry_queues=line.number("q", plain.retry_queues),
        retries=line.number("r", plain.retries),
        broker_id=line.number("i", plain.broker_id),
        slow_broker_id=line.number("w", plain.slow_broker_id),
        notify=line.is_true("a", plain.notify),
    )
    async for row, _ in call.change_each(
        await call.list_masters(), lambda row: call.admin.groups.put(group, settings, brokers=[row.address])
    ):
        call.out.say("create subscription group to %s success.", row.address)
    call.out.say(show_group(group, settings))


async def delete_sub_group(call: Call) -> None:
    """Delete a group on a broker; in a cluster, its retry topic and dead letters too."""
    group, cluster, offsets = call.line.text("g"), call.line.find("c"), call.line.is_true("r")
    for row in await call.list_masters():
        try:
            changed = await call.admin.groups.delete(
                group, offsets=offsets, topics=False, brokers=[row.address], force=True
            )
            if call.check(changed).failed:
                continue
        except NoRoute:
            pass  # Java reports success for a group that is not there
        where = "" if call.line.has("b") else f" in cluster [{cluster}]"
        call.out.say("delete subscription group [%s] from broker [%s]%s success.", group, row.address, where)
    if cluster is not None and not call.line.has("b"):
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            await delete_from_cluster(call, prefix + group, cluster)


# --- looking --------------------------------------------------------------------------------------------------------


async def get_consumer_config(call: Call) -> None:
    """Show the settings of a group on each broker."""
    group = call.line.text("g")
    clusters = {row.broker: row.cluster for row in await call.list_brokers()}
    rows = [row for row in call.take(await call.admin.groups.settings(group, limit=ALL)) if row.group == group]
    if not rows:
        raise NoRoute(
            f"no broker has settings of group {group}", hint="a group gets them when its first member connects"
        )
    for row in rows:
        call.out.say(f"{'=' * 29}%s:%s{'=' * 29}", clusters.get(row.broker, ""), row.broker)
        for name, value in list_group_fields(group, row.settings).items():
            call.out.say("%-40s=  %s", name, show_plain(value))


async def find_connections(call: Call, group: str, broker: str | None = None) -> GroupConnections:
    """Return the members of a group. Raises NoRoute if none is connected."""
    found = call.take(await call.admin.groups.connections([group], broker=broker))
    if not found or not found[0].connections:
        raise NoRoute(f"no member of group {group} is connected", hint="consumerProgress shows how far it is")
    return found[0]


def list_members(found: GroupConnections) -> list[Connected]:
    """Return one connection for each member: a member is connected to several brokers."""
    return list({each.client_id: each for each in reversed(found.connections)}.values())[::-1]


async def consumer_connection(call: Call) -> None:
    """Show the connected members of a group, and what it is subscribed to."""
    found = await find_connections(call, call.line.text("g"), call.line.find("b"))
    show = call.out.table("%-36s %-22s %-10s %s", "ClientId", "ClientAddr", "Language", "Version")
    for member in list_members(found):
        show(member.client_id, member.address, member.language, java_version(member.version))
    call.out.say("")
    call.out.say("Below is subscription:")
    show = call.out.table("%-20s %s", "Topic", "SubExpression")
    for each in found.subscriptions:
        show(each.topic, each.expression)
    call.out.say("")
    call.out.say("ConsumeType: %s", _KINDS.get(found.kind, found.kind))
    call.out.say("MessageModel: %s", found.model.upper())
    call.out.say("ConsumeFromWhere: %s", _STARTS.get(found.start, found.start))


async def consumer_progress(call: Call) -> None:
    """Show how far a group is in each queue; without `-g`, how far behind each group is."""
    if call.line.has("g"):
        await _show_progress(call, call.line.text("g"))
    else:
        await _list_progress(call)


async def _show_progress(call: Call, group: str) -> None:
    progress = await call.admin.offsets.progress(group)
    rows = call.take(progress.queues)
    if not rows:
        raise NoRoute(f"group {group} has no offsets", hint="it commits its first ones after it has consumed messages")
    owners = await _find_owners(call, group) if call.line.is_true("s") else None
    middle, heads = ("  %-20s %-20s", ["Client IP", "Diff"]) if owners is not None else ("  %-20s", ["Diff"])
    form = "%-64s  %-32s  %-4s  %-20s  %-20s" + middle + "  %s"
    show = call.out.table(form, "Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset", *heads, "LastTime")
    for row in rows:
        owner = [] if owners is None else [owners.get((row.topic, row.broker, row.queue), "N/A")]
        last = show_time(row.consumed_at, "N/A")
        lag = row.end - row.offset
        show(cut(row.topic, 64), cut(row.broker, 32), row.queue, row.end, row.offset, *owner, lag, last)
    call.out.say("")
    call.out.say("Consume TPS: %.2f", progress.rate)
    call.out.say("Diff Total: %d", sum(row.end - row.offset for row in rows))


async def _find_owners(call: Call, group: str) -> dict[tuple[str, str, int], str]:
    """Return the address of the member that has each queue, as members report it."""
    try:
        members = list_members(await find_connections(call, group))
    except NoRoute:
        return {}
    found: dict[tuple[str, str, int], str] = {}
    for member, running in await ask_each(members, lambda member: call.admin.clients.running(group, member.client_id)):
        for held in running.queues if running else []:
            found[held.topic, held.broker, held.queue] = member.client_id.split("@")[0]
    return found


async def _list_progress(call: Call) -> None:
    form = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
    show = call.out.table(form, "Group", "Count", "Version", "Type", "Model", "TPS", "Diff Total")
    topics = call.take(await call.admin.topics.list(kind="retry", limit=ALL))
    groups = [topic.name.removeprefix(RETRY_PREFIX) for topic in topics]
    connected = {row.group: row for row in call.take(await call.admin.groups.connections(groups, limit=ALL))}
    for group, progress in await ask_each(groups, call.admin.offsets.progress):
        show(cut(group, 64), *_describe_group(connected.get(group)), *_describe_lag(progress))


def _describe_group(found: GroupConnections | None) -> Iterable[object]:
    if found is None:
        return 0, "OFFLINE", "", ""
    members = list_members(found)
    oldest = min((member.version for member in members), key=_order_version)
    is_pull = found.kind == "pull"
    return len(members), java_version(oldest), "PULL" if is_pull else "PUSH", "" if is_pull else found.model.upper()


def _order_version(version: str) -> list[int]:
    return [int(part) for part in version.split("-", maxsplit=1)[0].split(".") if part.isdigit()]


def _describe_lag(progress: Progress | None) -> Iterable[object]:
    if progress is None:
        return 0, 0
    return int(progress.rate), sum(row.end - row.offset for row in progress.queues.items)
