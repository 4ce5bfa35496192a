"""Creating, changing and deleting topics on brokers and name servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.orders import join_order, read_order, split_order, write_order
from eruca._admin.queueends import list_queue_ends
from eruca._admin.results import Change, Changed, Problem, Undo, fail_silent, name_outcome
from eruca._admin.settings import TopicSettings, describe_topic, read_permission, read_topic_configs
from eruca._admin.targets import BrokerRow, ask_each, change_each, list_registered
from eruca._ground.printable import say_count
from eruca._wire.codes import RequestCode
from eruca._wire.headers import CreateTopicHeader, DeleteTopicInNameServerHeader, TopicHeader
from eruca._wire.names import MASTER_ID, TEMPLATE_TOPIC
from eruca.errors import ConfigError, ErucaError, NoRoute

# How many queues a warning names.
_QUEUES_NAMED = 8

# What becomes of the settings of a topic on one broker; None: nothing.
Choose = Callable[[TopicSettings | None], TopicSettings | None]


async def read_settings(
    connection: Connection, topic: str, rows: Sequence[BrokerRow], order: str
) -> tuple[dict[str, TopicSettings | None], list[Problem]]:
    """Return the settings of a topic by broker, None where it has none."""

    async def read(row: BrokerRow) -> TopicSettings | None:
        config = (await read_topic_configs(connection, row.address)).get(topic)
        return None if config is None else describe_topic(config, order, row.broker)

    found, problems = await ask_each(rows, read)
    return {row.where: settings for row, settings in found}, problems


async def put_topic(
    connection: Connection, topic: str, rows: Sequence[BrokerRow], choose: Choose, *, is_new: bool, dry_run: bool
) -> Changed[TopicSettings]:
    """Create or change a topic on some brokers."""
    order = await read_order(connection, topic)
    before, problems = await read_settings(connection, topic, rows, order)
    wanted = {where: choose(was) for where, was in before.items()}
    if is_new:
        _refuse_others(topic, before, wanted)
    rows = [row for row in rows if wanted.get(row.where) is not None]
    if not rows and not problems:
        raise NoRoute(f"no broker has a topic {topic}", hint=f"eruca topic create {topic} creates it")

    async def put(row: BrokerRow) -> Change[TopicSettings]:
        was, after = before[row.where], wanted[row.where]
        assert after is not None
        if not dry_run and was != after:
            await connection.ask(row.address, RequestCode.UPDATE_AND_CREATE_TOPIC, _make_header(topic, after))
        outcome = name_outcome(was, after, dry_run=dry_run)
        return Change(where=row.where, before=was, after=after, outcome=outcome)

    warnings = await _count_lost(connection, topic, rows, before, wanted)
    changes = await change_each(rows, put, before)
    if not dry_run:
        changes = await _follow_order(connection, topic, order, changes)
    return Changed(
        name=topic, changes=changes + fail_silent(problems), undo=_undo_put(topic, changes), warnings=warnings
    )


async def _count_lost(
    connection: Connection,
    topic: str,
    rows: Sequence[BrokerRow],
    before: Mapping[str, TopicSettings | None],
    wanted: Mapping[str, TopicSettings | None],
) -> list[str]:
    """Return a warning for each broker with messages in queues that consumers will no longer read."""
    least = {
        row.broker: after.read_queues
        for row in rows
        if (was := before[row.where]) is not None
        and (after := wanted[row.where]) is not None
        and after.read_queues < was.read_queues
    }
    ends, _ = await list_queue_ends(connection, topic, [row for row in rows if row.broker in least])
    warnings = []
    for broker, queues in least.items():
        lost = [row for row in ends if row.broker == broker and row.queue >= queues and row.count]
        if lost:
            count = say_count(sum(row.count for row in lost), "message")
            names = ", ".join(str(row.queue) for row in lost[:_QUEUES_NAMED])
            more = f" and {len(lost) - _QUEUES_NAMED} more" if len(lost) > _QUEUES_NAMED else ""
            warnings.append(
                f"{broker}: {count} in {'queue' if len(lost) == 1 else 'queues'} {names}{more}"
                f" {'is' if count.startswith('1 ') else 'are'} out of reach of consumers"
            )
    return warnings


def _refuse_others(
    topic: str, before: Mapping[str, TopicSettings | None], wanted: Mapping[str, TopicSettings | None]
) -> None:
    others = [name for name, was in before.items() if was is not None and was != wanted[name]]
    if others:
        raise ConfigError(
            f"{', '.join(others)} has a topic {topic} with other settings",
            hint=f"eruca topic show {topic} shows them, eruca topic update changes them",
        )


def _make_header(topic: str, settings: TopicSettings) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=settings.read_queues,
        write_queue_nums=settings.write_queues,
        perm=read_permission(settings.permission),
        topic_filter_type=settings.filter_type,
        topic_sys_flag=settings.system_flag,
        order=settings.ordered,
    )


async def _follow_order(
    connection: Connection, topic: str, order: str, changes: list[Change[TopicSettings]]
) -> list[Change[TopicSettings]]:
    """Tell the name servers about changed queues of an ordered topic."""
    queues = split_order(order)
    for change in changes:
        if change.outcome == "done" and change.after is not None:
            if change.after.ordered:
                queues[change.where] = change.after.write_queues
            else:
                queues.pop(change.where, None)
    if queues == split_order(order):
        return changes
    try:
        await write_order(connection, topic, join_order(queues))
    except ErucaError as error:
        reason = f"its order is not on all name servers: {error}"
        return [msgspec.structs.replace(change, outcome="failed", reason=reason) for change in changes]
    return changes


def _undo_put(topic: str, changes: Sequence[Change[TopicSettings]]) -> list[Undo]:
    changed = [change for change in changes if change.outcome in ("done", "planned")]
    undo = []
    created = [change.where for change in changed if change.before is None]
    if created:
        undo.append(Undo(method="topics.delete", arguments={"topic": topic, "brokers": created}))
    for before in dict.fromkeys(change.before for change in changed if change.before is not None):
        names = [change.where for change in changed if change.before == before]
        undo.append(
            Undo(method="topics.update", arguments={"topic": topic, **_name_settings(before), "brokers": names})
        )
    return undo


def _name_settings(settings: TopicSettings) -> dict[str, object]:
    """Return settings as the arguments of `create` and `update`."""
    return {
        "read_queues": settings.read_queues,
        "write_queues": settings.write_queues,
        "permission": settings.permission,
        "ordered": settings.ordered,
        "system_flag": settings.system_flag,
    }


# --- deleting ---------------------------------------------------------------------------------------------------------


async def delete_topic(
    connection: Connection, topic: str, rows: Sequence[BrokerRow], *, dry_run: bool
) -> Changed[TopicSettings]:
    """Delete a topic from some brokers, and from the name servers where no other broker has it."""
    everywhere = [row for row in await list_registered(connection) if row.broker_id == MASTER_ID]
    order = await read_order(connection, topic)
    before, problems = await read_settings(connection, topic, everywhere, order)
    wanted = {row.where for row in rows}
    problems = [problem for problem in problems if problem.where in wanted]
    rows = [row for row in rows if before.get(row.where) is not None]
    if not rows and not problems:
        raise NoRoute(f"no broker has a topic {topic}", hint="eruca topic list shows the topics")

    async def delete(row: BrokerRow) -> Change[TopicSettings]:
        was = before[row.where]
        if not dry_run:
            await connection.ask(row.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic))
        return Change(where=row.where, before=was, after=None, outcome=name_outcome(was, None, dry_run=dry_run))

    changes = await change_each(rows, delete, before)
    gone = {change.where for change in changes if change.outcome != "failed"}
    if not dry_run:
        # One that does not answer may have it.
        left = [row for row in everywhere if before.get(row.where, row) is not None and row.where not in gone]
        changes = await _forget(connection, topic, order, changes, [row for row in rows if row.where in gone], left)
    undo = []
    for was in dict.fromkeys(change.before for change in changes if change.where in gone and change.before is not None):
        names = [change.where for change in changes if change.where in gone and change.before == was]
        arguments = {"topic": topic, **_name_settings(was), "brokers": names}
        undo.append(Undo(method="topics.create", arguments=arguments, lacks="without its messages"))
    return Changed(name=topic, changes=changes + fail_silent(problems), undo=undo)


async def _forget(
    connection: Connection,
    topic: str,
    order: str,
    changes: list[Change[TopicSettings]],
    gone: Sequence[BrokerRow],
    left: Sequence[BrokerRow],
) -> list[Change[TopicSettings]]:
    """Have the name servers forget a topic, unless other brokers have it."""
    emptied = sorted({row.cluster for row in gone} - {row.cluster for row in left})
    if left:
        headers = [DeleteTopicInNameServerHeader(topic=topic, cluster_name=cluster) for cluster in emptied]
    else:
        headers = [DeleteTopicInNameServerHeader(topic=topic)] if gone else []
    try:
        for server in await connection.list_nameservers():
            for header in headers:
                await connection.ask_nameserver(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        queues = split_order(order)
        for row in gone:
            queues.pop(row.broker, None)
        if queues != split_order(order):
            await write_order(connection, topic, join_order(queues))
    except ErucaError as error:
        reason = f"deleted, but not all name servers have forgotten it: {error}"
        return [msgspec.structs.replace(change, outcome="failed", reason=reason) for change in changes]
    return changes
