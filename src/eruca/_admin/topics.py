"""Topics: list, show, create, change, delete."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.orders import list_orders, read_order
from eruca._admin.progress import read_offset_names
from eruca._admin.queueends import QueueEnds, add_first_times, list_queue_ends, list_unreachable
from eruca._admin.rates import Rate, read_rates
from eruca._admin.results import LIMIT, Changed, Listed, Problem, cut_list
from eruca._admin.settings import (
    TopicSettings,
    describe_topic,
    read_permission,
    read_topic_configs,
    show_permission,
)
from eruca._admin.targets import (
    ASKED_AT_ONCE,
    Answering,
    BrokerRow,
    ask_each,
    explain_no_broker,
    find_targets,
    gather_bounded,
)
from eruca._admin.topicchanges import delete_topic, put_topic, read_settings
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from eruca.errors import ConfigError, ErucaError, NoRoute

# Requests are answered through a topic of the cluster with this end.
_REPLY = "_REPLY_TOPIC"


class TopicKind(StrEnum):
    """What a topic is for."""

    NORMAL = "normal"
    # Messages that a group will get again, and those it gave up on.
    RETRY = "retry"
    DLQ = "dlq"
    # Brokers use it themselves, or it is the name of a broker or a cluster.
    SYSTEM = "system"


class TopicName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a topic and what it is for."""

    name: str
    kind: TopicKind


class TopicOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A topic on one broker."""

    broker: str
    address: str
    settings: TopicSettings


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """All about one topic."""

    name: str
    kind: TopicKind
    brokers: list[TopicOnBroker]
    queues: list[QueueEnds]
    # The groups that are connected or have offsets.
    groups: list[str]
    # `broker-a:4;broker-b:4` if it is ordered across brokers.
    order: str = ""
    # Whether there are more queues than the limit.
    cut: bool = False
    problems: list[Problem] = []

    @property
    def count(self) -> int:
        """How many messages the listed queues have."""
        return sum(queue.count for queue in self.queues)


class TopicTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a topic and out of it: messages and bytes, by broker and by group."""

    topic: str
    stored: list[Rate]
    stored_bytes: list[Rate]
    # By group, the key is `topic@group`.
    consumed: list[Rate]
    problems: list[Problem] = []


class NamedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one topic on one broker."""

    topic: str
    broker: str
    settings: TopicSettings


class Topics:
    """Lists, shows, creates, changes and deletes topics: `admin.topics`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(
        self,
        prefix: str = "",
        *,
        kind: TopicKind | str = TopicKind.NORMAL,
        cluster: str | None = None,
        after: str = "",
        limit: int = LIMIT,
    ) -> Listed[TopicName]:
        """Return the topics of a kind (`normal`, `retry`, `dlq`, `system` or `all`), in the order of their names.

        `after`: only names after this one, for the next page.
        """
        wanted = _read_kind(kind)
        # Without brokers, an empty list would look like a cluster without topics.
        own = await _list_own_names(self._connection)
        if not own:
            raise explain_no_broker()
        names = await self._connection.list_topics(cluster)
        rows = [TopicName(name=name, kind=find_kind(name, own)) for name in names if name > after]
        found = [row for row in rows if row.name.startswith(prefix) and wanted in (None, row.kind)]
        return cut_list(found, limit)

    async def show(self, topic: str, *, limit: int = LIMIT) -> Topic:
        """Return settings, queues and groups of a topic. Raises NoRoute if no broker has it."""
        connection = self._connection
        rows = await find_targets(connection)
        order = await read_order(connection, topic)
        before, problems = await read_settings(connection, topic, rows, order)
        rows = [row for row in rows if before.get(row.where) is not None]
        if not rows and not problems:
            raise explain_unknown(topic)
        queues, found = await list_queue_ends(connection, topic, rows)
        problems += found
        groups, found = await _list_groups(connection, topic, rows)
        problems += found
        settings = [
            TopicOnBroker(broker=row.broker, address=row.address, settings=was)
            for row in rows
            if (was := before[row.where]) is not None
        ]
        return Topic(
            name=topic,
            kind=find_kind(topic, await _list_own_names(connection)),
            brokers=settings,
            queues=await add_first_times(connection, queues[:limit], {row.broker: row.address for row in rows}),
            groups=groups,
            order=order,
            cut=len(queues) > limit,
            problems=problems,
        )

    async def queues(self, topic: str, *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the ends of a topic's queues. Raises NoRoute if no broker has it."""
        rows, problems = await list_queue_ends(self._connection, topic, await find_targets(self._connection))
        if not rows and not problems:
            raise explain_unknown(topic)
        return cut_list(rows, limit, problems)

    async def ends(self, topics: Sequence[str], *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the ends of the queues of many topics; a topic that no broker has, has none."""
        connection = self._connection
        brokers = Answering(await find_targets(connection))

        async def ask(topic: str) -> list[QueueEnds]:
            rows, problems = await list_queue_ends(connection, topic, brokers.rows)
            brokers.note(problems)
            return rows

        answers = await gather_bounded(topics, ask)
        rows = [row for answer in answers if not isinstance(answer, ErucaError) for row in answer]
        return cut_list(rows, limit, brokers.problems)

    async def unreachable(self, *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the queues with unread messages that consumers cannot get: their numbers are beyond the read queues.

        They are those that producers write to, and those that any group has an offset in; they begin at the first
        message that one of these groups has not consumed.
        """
        connection = self._connection
        rows = await find_targets(connection)
        found, problems = await ask_each(rows, lambda row: list_unreachable(connection, row))
        return cut_list([queue for _, queues in found for queue in queues], limit, problems)

    async def groups(self, topic: str, *, limit: int = LIMIT) -> Listed[str]:
        """Return the groups that are subscribed to a topic now or have offsets in it."""
        groups, problems = await _list_groups(self._connection, topic, await find_targets(self._connection))
        return cut_list(groups, limit, problems)

    async def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedSettings]:
        """Return the settings of topics on each broker, as the brokers have them."""
        connection = self._connection
        rows = await find_targets(connection)
        orders = await list_orders(connection)
        found, problems = await ask_each(rows, lambda row: read_topic_configs(connection, row.address))
        settings = [
            NamedSettings(
                topic=name, broker=row.where, settings=describe_topic(config, orders.get(name, ""), row.broker)
            )
            for row, table in found
            for name, config in table.items()
            if name.startswith(prefix)
        ]
        settings.sort(key=lambda each: (each.topic, each.broker))
        return cut_list(settings, limit, problems)

    async def traffic(self, topic: str) -> TopicTraffic:
        """Return the rates at which a topic is written and read."""
        connection = self._connection
        rows = await find_targets(connection)
        groups, problems = await _list_groups(connection, topic, rows)
        stored, failed = await read_rates(connection, rows, [("TOPIC_PUT_NUMS", topic)])
        sizes, _ = await read_rates(connection, rows, [("TOPIC_PUT_SIZE", topic)])
        consumed, _ = await read_rates(connection, rows, [("GROUP_GET_NUMS", f"{topic}@{group}") for group in groups])
        return TopicTraffic(
            topic=topic, stored=stored, stored_bytes=sizes, consumed=consumed, problems=problems + failed
        )

    async def unused(self, *, limit: int = LIMIT) -> Listed[TopicName]:
        """Return normal topics that have no message and that no group is subscribed to or has offsets in."""
        connection = self._connection
        rows = await find_targets(connection)
        tables, problems = await ask_each(rows, lambda row: read_offset_names(connection, row.address))
        if problems:
            return cut_list([], limit, problems)
        consumed = {topic for _, names in tables for topic, _ in names}
        found: list[TopicName] = []
        names = (await self.list(limit=sys.maxsize)).items
        for start in range(0, len(names), ASKED_AT_ONCE):
            part = [row for row in names[start : start + ASKED_AT_ONCE] if row.name not in consumed]
            answers = await gather_bounded(part, lambda row: _is_unused(connection, row.name, rows))
            found += [row for row, answer in zip(part, answers, strict=True) if answer is True]
            problems += [
                Problem(where=row.name, error=str(answer))
                for row, answer in zip(part, answers, strict=True)
                if isinstance(answer, ErucaError)
            ]
            if len(found) > limit:
                break
        return cut_list(found, limit, problems)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str = "RW",
        ordered: bool = False,
        system_flag: int = 0,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Create a topic on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        check_topic(topic)
        settings = TopicSettings(
            read_queues=queues if read_queues is None else read_queues,
            write_queues=queues if write_queues is None else write_queues,
            permission=show_permission(read_permission(permission)),
            ordered=ordered,
            system_flag=system_flag,
        )
        rows = await find_targets(self._connection, brokers, cluster)
        return await put_topic(self._connection, topic, rows, lambda _: settings, is_new=True, dry_run=dry_run)

    async def update(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str | None = None,
        ordered: bool | None = None,
        system_flag: int | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Change settings of a topic on the brokers that have it; those that are None stay. Raises NoRoute."""
        given = {
            "read_queues": queues if read_queues is None else read_queues,
            "write_queues": queues if write_queues is None else write_queues,
            "permission": None if permission is None else show_permission(read_permission(permission)),
            "ordered": ordered,
            "system_flag": system_flag,
        }
        changed = {name: value for name, value in given.items() if value is not None}

        def choose(was: TopicSettings | None) -> TopicSettings | None:
            return None if was is None else msgspec.structs.replace(was, **changed)

        rows = await find_targets(self._connection, brokers, cluster)
        return await put_topic(self._connection, topic, rows, choose, is_new=False, dry_run=dry_run)

    async def put(
        self,
        topic: str,
        settings: TopicSettings,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Create a topic, or replace its settings, on all masters, on those of a cluster, or on the named brokers."""
        check_topic(topic)
        rows = await find_targets(self._connection, brokers, cluster)
        return await put_topic(self._connection, topic, rows, lambda _: settings, is_new=False, dry_run=dry_run)

    async def set_permission(
        self,
        topic: str,
        permission: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Set who may use a topic: `RW`, `R` (consumers continue, producers are refused), `W` or `-`."""
        return await self.update(topic, permission=permission, brokers=brokers, cluster=cluster, dry_run=dry_run)

    async def delete(
        self,
        topic: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Delete a topic with its messages, on all brokers, on those of a cluster, or on the named ones.

        Creating it again does not bring the messages back. Raises NoRoute if no broker has it.
        """
        rows = await find_targets(self._connection, brokers, cluster)
        return await delete_topic(self._connection, topic, rows, dry_run=dry_run)


def find_kind(topic: str, own: Collection[str] = ()) -> TopicKind:
    """Return what a topic is for, by its name; `own` are the names of brokers and clusters, which are topics too."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    is_own = is_system_topic(topic) or topic in own or topic.removesuffix(_REPLY) in own
    return TopicKind.SYSTEM if is_own else TopicKind.NORMAL


def explain_unknown(topic: str) -> NoRoute:
    """Return the error for a topic that no broker has."""
    return NoRoute(f"no broker has a topic {topic}", hint=f"eruca topic list shows all; eruca topic create {topic}")


def _read_kind(kind: TopicKind | str) -> TopicKind | None:
    if kind == "all":
        return None
    try:
        return TopicKind(kind)
    except ValueError:
        names = ", ".join(TopicKind)
        raise ConfigError(f"kind={kind!r}: expected {names} or all") from None


async def _list_own_names(connection: Connection) -> frozenset[str]:
    info = await connection.describe_clusters()
    return frozenset({*info.cluster_addr_table, *info.broker_addr_table})


async def _list_groups(
    connection: Connection, topic: str, rows: Sequence[BrokerRow]
) -> tuple[list[str], list[Problem]]:
    found, problems = await ask_each(rows, lambda row: connection.calls.list_groups(row.address, topic))
    return sorted({group for _, groups in found for group in groups}), problems


async def _is_unused(connection: Connection, topic: str, rows: Sequence[BrokerRow]) -> bool:
    queues, problems = await list_queue_ends(connection, topic, rows)
    if problems or any(queue.end for queue in queues):
        return False
    groups, problems = await _list_groups(connection, topic, rows)
    return not problems and not groups
