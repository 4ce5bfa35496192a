"""Clients: the producers and consumers connected to the brokers, and what they are doing."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import (
    RELAY_MS,
    GroupMember,
    Subscribed,
    list_subscriptions,
    read_membership,
    read_running,
)
from eruca._admin.progress import list_connected
from eruca._admin.results import LIMIT, Listed, cut_list, read_time
from eruca._admin.targets import BrokerRow, ask_each, find_targets, one_or_all
from eruca._ground.digits import read_digits
from eruca._wire.bodies import (
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStatus,
    MessageQueue,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerTable,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ConsumerStatusHeader, ProducerGroupHeader
from eruca._wire.versions import name_version
from eruca.errors import NoRoute, RequestRefused

# When a client started, as it reports it.
_STARTED = "PROP_CONSUMER_START_TIMESTAMP"


class ProducerClient(msgspec.Struct, frozen=True, kw_only=True):
    """One connected producer."""

    group: str
    client_id: str
    # Its address as the broker sees it.
    address: str
    language: str
    version: str
    broker: str
    # When the broker last heard of it; None if it does not tell.
    seen_at: datetime | None = None


class HeldQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer holds of one queue."""

    topic: str
    broker: str
    queue: int
    # The next offset it will commit.
    committed: int
    # Messages it has fetched and not finished, with the first and last offset.
    cached: int
    cached_from: int
    cached_to: int
    cached_mib: int
    # Ordered consumers: whether it holds the lock of the queue.
    locked: bool
    dropped: bool
    pulled_at: datetime | None
    consumed_at: datetime | None
    locked_at: datetime | None = None


class TopicPace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a consumer works on one topic."""

    topic: str
    # Messages per second, over the last minute.
    done_rate: float
    failed_rate: float
    failed_hour: int
    pull_rate: float
    # Mean time of handling and of pulling.
    handling_time: timedelta
    pull_time: timedelta


class RunningInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer is doing, as it reports it."""

    group: str
    client_id: str
    queues: list[HeldQueue]
    subscriptions: list[Subscribed]
    paces: list[TopicPace]
    # `PROP_CONSUME_TYPE` and others, as its client library names them.
    properties: dict[str, str]
    started_at: datetime | None = None
    # The stacks of its threads, if asked for.
    stack: str = ""


class ClientOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The offset that a member holds for one queue."""

    client_id: str
    topic: str
    broker: str
    queue: int
    offset: int


class Clients:
    """Lists connected clients and asks what they are doing: `admin.clients`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def producers(
        self, group: str | None = None, *, broker: str | None = None, limit: int = LIMIT
    ) -> Listed[ProducerClient]:
        """Return the connected producers: of all groups, or of one."""
        connection = self._connection
        rows = await find_targets(connection, one_or_all(broker))
        found, problems = await ask_each(rows, lambda row: _list_producers(connection, row, group))
        clients = [each for _, part in found for each in part]
        clients.sort(key=lambda each: (each.group, each.client_id, each.broker))
        return cut_list(clients, limit, problems)

    async def consumers(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a consumer group."""
        found = await read_membership(self._connection, group, await find_targets(self._connection))
        return cut_list(found.members, limit, found.problems)

    async def running(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """Return what a member of a group is doing. Raises NoRoute if it is not connected."""
        info = await self._ask(group, client_id, stack=stack)
        return RunningInfo(
            group=group,
            client_id=client_id,
            queues=[_describe_queue(queue, held) for queue, held in sorted(info.mq_table.items())],
            subscriptions=list_subscriptions(info),
            paces=[_describe_pace(topic, status) for topic, status in sorted(info.status_table.items())],
            properties=info.properties,
            started_at=read_time(read_digits(info.properties.get(_STARTED)) or 0),
            stack=info.jstack or "",
        )

    async def stack(self, group: str, client_id: str) -> str:
        """Return the stacks of the threads of a member. Raises NoRoute if it is not connected."""
        return (await self._ask(group, client_id, stack=True)).jstack or ""

    async def _ask(self, group: str, client_id: str, *, stack: bool) -> ConsumerRunningInfo:
        connection = self._connection
        rows = await find_targets(connection)
        membership = await read_membership(connection, group, rows)
        names = {name for member in membership.members if member.client_id == client_id for name in member.brokers}
        if not names:
            raise NoRoute(
                f"{client_id} is not a connected member of group {group}",
                hint=f"eruca group show {group} lists its members",
            )
        own = [row for row in rows if row.where in names]
        return await read_running(connection, own, group, client_id, stack=stack)

    async def offsets(
        self, group: str, topic: str, *, client_id: str | None = None, limit: int = LIMIT
    ) -> Listed[ClientOffset]:
        """Return the offsets that the members of a group hold, which they may not have committed yet."""
        connection = self._connection

        async def ask(row: BrokerRow) -> ConsumerStatusBody:
            if not await list_connected(connection, row.address, group):
                return ConsumerStatusBody()  # a broker that never saw the group fails
            header = ConsumerStatusHeader(topic=topic, group=group, client_address=client_id)
            _, body = await connection.ask(
                row.address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, timeout_ms=RELAY_MS
            )
            return body if isinstance(body, ConsumerStatusBody) else ConsumerStatusBody()

        found, problems = await ask_each(await find_targets(connection), ask)
        # A member answers each broker it is connected to with the same.
        offsets = {
            (name, queue): ClientOffset(
                client_id=name, topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id, offset=offset
            )
            for _, body in found
            for name, table in body.consumer_table.items()
            for queue, offset in table.items()
        }
        return cut_list([offsets[key] for key in sorted(offsets)], limit, problems)


async def _list_producers(connection: Connection, row: BrokerRow, group: str | None) -> list[ProducerClient]:
    try:
        _, body = await connection.ask(row.address, RequestCode.GET_ALL_PRODUCER_INFO)
    except RequestRefused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or group is None:
            raise
        return await _list_of_group(connection, row, group)  # a broker before 4.9.4
    table = body.data if isinstance(body, ProducerTable) else {}
    return [
        ProducerClient(
            group=name,
            client_id=each.client_id,
            address=(each.remote_ip or "").removeprefix("/"),
            language=each.language,
            version=name_version(each.version),
            broker=row.where,
            seen_at=read_time(each.last_update_timestamp),
        )
        for name, members in table.items()
        if group in (None, name)
        for each in members
    ]


async def _list_of_group(connection: Connection, row: BrokerRow, group: str) -> list[ProducerClient]:
    header = ProducerGroupHeader(producer_group=group)
    try:
        _, body = await connection.ask(row.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    except RequestRefused as error:
        if "not exist" in error.remark:
            return []
        raise
    members = body.connection_set if isinstance(body, ProducerConnection) else []
    return [
        ProducerClient(
            group=group,
            client_id=each.client_id,
            address=each.client_addr,
            language=each.language,
            version=name_version(each.version),
            broker=row.where,
        )
        for each in members
    ]


def _describe_queue(queue: MessageQueue, held: ProcessQueueInfo) -> HeldQueue:
    return HeldQueue(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        committed=held.commit_offset,
        cached=held.cached_msg_count,
        cached_from=held.cached_msg_min_offset,
        cached_to=held.cached_msg_max_offset,
        cached_mib=held.cached_msg_size_mib,
        locked=held.locked,
        dropped=held.dropped,
        pulled_at=read_time(held.last_pull_timestamp),
        consumed_at=read_time(held.last_consume_timestamp),
        locked_at=read_time(held.last_lock_timestamp),
    )


def _describe_pace(topic: str, status: ConsumeStatus) -> TopicPace:
    return TopicPace(
        topic=topic,
        done_rate=status.consume_ok_tps,
        failed_rate=status.consume_failed_tps,
        failed_hour=status.consume_failed_msgs,
        pull_rate=status.pull_tps,
        handling_time=timedelta(milliseconds=status.consume_rt),
        pull_time=timedelta(milliseconds=status.pull_rt),
    )
