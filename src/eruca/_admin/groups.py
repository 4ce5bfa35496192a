"""Groups: list, show with members, owners and lag, create, change, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.connections import GroupConnections, read_connections
from eruca._admin.groupchanges import delete_group, explain_unknown, put_group, read_group_settings
from eruca._admin.groupmembers import (
    Difference,
    GroupMember,
    Subscribed,
    find_differences,
    read_all_running,
    read_membership,
)
from eruca._admin.groupqueues import GroupQueue, add_messages, add_owners, read_queues
from eruca._admin.lag import is_own_group, list_groups
from eruca._admin.queueends import list_queue_ends
from eruca._admin.results import LIMIT, Changed, Listed, Problem, cut_list, read_time
from eruca._admin.settings import GroupSettings, describe_group, read_group_configs
from eruca._admin.targets import BrokerRow, ask_each, find_targets, one_or_all
from eruca._wire.bodies import ConsumeTimeSpans
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import TopicGroupHeader
from eruca._wire.names import DLQ_PREFIX, check_group
from eruca.errors import RequestRefused


class GroupName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a group."""

    name: str
    # Whether a broker has settings of it, and whether one has offsets of it.
    has_settings: bool
    has_offsets: bool


class GroupOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A group on one broker."""

    broker: str
    address: str
    settings: GroupSettings


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All about one group."""

    name: str
    brokers: list[GroupOnBroker]
    members: list[GroupMember]
    subscriptions: list[Subscribed]
    queues: list[GroupQueue]
    differences: list[Difference]
    # `clustering` or `broadcasting`, `push` or `pull`, and where it starts without offsets; empty without members.
    model: str = ""
    kind: str = ""
    start: str = ""
    lag: int = 0
    # The longest wait of all queues.
    lag_time: timedelta | None = None
    # How many dead letters it has.
    dead_letters: int = 0
    # Messages per second that its members got in the last minute.
    rate: float = 0.0
    # Whether there are more queues or members than the limit.
    cut: bool = False
    problems: list[Problem] = []


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The age of the messages of one queue, and how late a group is in it."""

    topic: str
    broker: str
    queue: int
    first_at: datetime | None
    last_at: datetime | None
    consumed_at: datetime | None
    delay: timedelta


class NamedGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one group on one broker."""

    group: str
    broker: str
    settings: GroupSettings


class Groups:
    """Lists, shows, creates, changes and deletes groups: `admin.groups`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(
        self,
        prefix: str = "",
        *,
        topic: str | None = None,
        system: bool = False,
        after: str = "",
        limit: int = LIMIT,
    ) -> Listed[GroupName]:
        """Return the groups that brokers know or hold offsets of, in the order of their names.

        With `topic`, those that are subscribed to it or have offsets in it. With `system`, the brokers' own too.
        `after`: only names after this one, for the next page.
        """
        connection = self._connection
        rows = await find_targets(connection)
        groups, problems = await list_groups(connection, rows)
        names = set(groups)
        if topic is not None:
            found, others = await ask_each(rows, lambda row: connection.calls.list_groups(row.address, topic))
            names = {name for _, part in found for name in part}
            problems += others
        chosen = sorted(name for name in names if name.startswith(prefix) and name > after)
        items = [
            GroupName(name=name, has_settings="settings" in sources, has_offsets="offsets" in sources)
            for name in chosen
            if system or not is_own_group(name)
            for sources in [groups.get(name, set())]
        ]
        return cut_list(items, limit, problems)

    async def show(self, group: str, *, topic: str | None = None, limit: int = LIMIT) -> Group:
        """Return members, subscriptions and progress of a group: in all topics, or in one.

        Members are asked what they hold, so that each queue has its owner. Raises NoRoute if no broker knows the group.
        """
        connection = self._connection
        rows = await find_targets(connection)
        settings, problems = await read_group_settings(connection, check_group(group), rows)
        membership = await read_membership(connection, group, rows)
        queues, rate, others = await read_queues(connection, group, rows, membership)
        on_brokers = [
            GroupOnBroker(broker=row.broker, address=row.address, settings=each)
            for row in rows
            if (each := settings.get(row.where)) is not None
        ]
        problems += [*membership.problems, *others]
        if not on_brokers and not membership.members and not queues and not problems:
            raise explain_unknown(group)
        queues = [each for each in queues if topic in (None, each.topic)]
        asked = membership.members[:limit]
        running, silent = await read_all_running(connection, rows, group, asked)
        listed = queues[:limit]
        letters, _ = await list_queue_ends(connection, DLQ_PREFIX + group, rows)
        listed = await add_messages(connection, add_owners(listed, running))
        return Group(
            name=group,
            brokers=on_brokers,
            members=asked,
            subscriptions=membership.subscriptions,
            queues=listed,
            differences=find_differences(running),
            model=membership.model,
            kind=membership.kind,
            start=membership.start,
            lag=sum(each.lag for each in queues),
            lag_time=max((each.lag_time for each in listed if each.lag_time is not None), default=None),
            dead_letters=sum(each.count for each in letters),
            rate=rate,
            cut=len(queues) > limit or len(membership.members) > limit,
            problems=[*_unique(problems), *silent],
        )

    async def members(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a group."""
        found = await read_membership(self._connection, group, await find_targets(self._connection))
        return cut_list(found.members, limit, found.problems)

    async def connections(
        self, groups: Sequence[str] | None = None, *, broker: str | None = None, limit: int = LIMIT
    ) -> Listed[GroupConnections]:
        """Return the connections of many groups, or of all that brokers know: those that have members.

        Each connection to each broker is a row, so that a client id on two connections is seen. `limit` is the number
        of groups asked about.
        """
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker))
        problems: list[Problem] = []
        if groups is None:
            known, problems = await list_groups(connection, rows)
            groups = sorted(name for name in known if not is_own_group(name))
        found, others = await read_connections(connection, groups[:limit], rows)
        return Listed(items=found, cut=len(groups) > limit, problems=[*problems, *others])

    async def subscriptions(self, group: str, *, limit: int = LIMIT) -> Listed[Subscribed]:
        """Return the subscriptions of a group, as its members last reported them."""
        found = await read_membership(self._connection, group, await find_targets(self._connection))
        return cut_list(found.subscriptions, limit, found.problems)

    async def differences(self, group: str, *, limit: int = LIMIT) -> Listed[Difference]:
        """Return the subscriptions in which members of a group differ. Each member, up to `limit`, is asked."""
        connection = self._connection
        rows = await find_targets(connection)
        found = await read_membership(connection, group, rows)
        running, silent = await read_all_running(connection, rows, group, found.members[:limit])
        more = len(found.members) > limit
        return cut_list(find_differences(running), limit, [*found.problems, *silent], more=more)

    async def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedGroupSettings]:
        """Return the settings of groups on each broker."""
        connection = self._connection
        rows = await find_targets(connection)
        found, problems = await ask_each(rows, lambda row: read_group_configs(connection, row.address))
        settings = [
            NamedGroupSettings(group=name, broker=row.where, settings=describe_group(config))
            for row, table in found
            for name, config in table.items()
            if name.startswith(prefix)
        ]
        settings.sort(key=lambda each: (each.group, each.broker))
        return cut_list(settings, limit, problems)

    async def time_spans(self, group: str, topic: str, *, limit: int = LIMIT) -> Listed[TimeSpan]:
        """Return the age of the messages of a topic, and how late a group is in each queue."""
        connection = self._connection

        async def ask(row: BrokerRow) -> ConsumeTimeSpans:
            header = TopicGroupHeader(topic=topic, group=group)
            try:
                _, body = await connection.ask(row.address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            except RequestRefused as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return ConsumeTimeSpans()
                raise
            return body if isinstance(body, ConsumeTimeSpans) else ConsumeTimeSpans()

        found, problems = await ask_each(await find_targets(connection), ask)
        spans = [
            TimeSpan(
                topic=each.message_queue.topic,
                broker=each.message_queue.broker_name,
                queue=each.message_queue.queue_id,
                first_at=read_time(each.min_timestamp),
                last_at=read_time(each.max_timestamp),
                consumed_at=read_time(each.consume_timestamp),
                delay=timedelta(milliseconds=max(0, each.delay_time)),
            )
            for _, body in found
            for each in body.consume_time_span_set
        ]
        spans.sort(key=lambda each: (each.broker, each.queue))
        return cut_list(spans, limit, problems)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        group: str,
        *,
        consume: bool = True,
        consume_from_min: bool = True,
        broadcast: bool = True,
        retry_queues: int = 1,
        retries: int = 16,
        broker_id: int = 0,
        slow_broker_id: int = 1,
        notify: bool = True,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Create a group on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        settings = GroupSettings(
            consume=consume,
            consume_from_min=consume_from_min,
            broadcast=broadcast,
            retry_queues=retry_queues,
            retries=retries,
            broker_id=broker_id,
            slow_broker_id=slow_broker_id,
            notify=notify,
        )
        rows = await find_targets(self._connection, brokers, cluster)
        return await put_group(
            self._connection, check_group(group), rows, lambda _: settings, is_new=True, dry_run=dry_run
        )

    async def update(
        self,
        group: str,
        *,
        consume: bool | None = None,
        consume_from_min: bool | None = None,
        broadcast: bool | None = None,
        retry_queues: int | None = None,
        retries: int | None = None,
        broker_id: int | None = None,
        slow_broker_id: int | None = None,
        notify: bool | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Change settings of a group on the brokers that have it; those that are None stay. Raises NoRoute."""
        given = {
            "consume": consume,
            "consume_from_min": consume_from_min,
            "broadcast": broadcast,
            "retry_queues": retry_queues,
            "retries": retries,
            "broker_id": broker_id,
            "slow_broker_id": slow_broker_id,
            "notify": notify,
        }
        changed = {name: value for name, value in given.items() if value is not None}

        def choose(was: GroupSettings | None) -> GroupSettings | None:
            return None if was is None else msgspec.structs.replace(was, **changed)

        rows = await find_targets(self._connection, brokers, cluster)
        return await put_group(self._connection, group, rows, choose, is_new=False, dry_run=dry_run)

    async def put(
        self,
        group: str,
        settings: GroupSettings,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Create a group, or replace its settings, on all masters, on those of a cluster, or on the named brokers."""
        check_group(group)
        rows = await find_targets(self._connection, brokers, cluster)
        return await put_group(self._connection, group, rows, lambda _: settings, is_new=False, dry_run=dry_run)

    async def delete(
        self,
        group: str,
        *,
        offsets: bool = True,
        topics: bool = True,
        force: bool = False,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Delete a group, by default with its offsets, its retry topic and its dead letters.

        Raises ConfigError while members are connected, unless `force` is set, and NoRoute if no broker has it. Dead
        letters and messages to retry cannot be restored.
        """
        rows = await find_targets(self._connection, brokers, cluster)
        return await delete_group(
            self._connection, group, rows, offsets=offsets, topics=topics, force=force, dry_run=dry_run
        )


def _unique(problems: Sequence[Problem]) -> list[Problem]:
    """Return each problem once: a broker that is away fails every question."""
    return list({(each.where, each.error): each for each in problems}.values())
