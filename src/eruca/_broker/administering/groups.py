"""Creating, changing and deleting subscription groups, and listing their members."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from eruca._broker.administering.stats import Stats
from eruca._broker.administering.topics import Operators
from eruca._broker.groups.clients import Clients, Member
from eruca._broker.groups.groups import Groups
from eruca._broker.groups.locks import QueueLocks
from eruca._broker.groups.offsets import Offsets
from eruca._broker.popping.redelivery import Redelivery
from eruca._broker.refusals import refuse
from eruca._ground.clock import Clock
from eruca._ground.limits import TOPIC_QUEUES_MAX
from eruca._net.handlers import HandlerTable, Reply, Request, encode_apart
from eruca._net.turns import Slices
from eruca._store.tables.saving import TableSaver
from eruca._wire.bodies import (
    Connection,
    ConsumerConnection,
    GroupConfig,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import DeleteGroupHeader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class GroupHandlers:
    """Handles operator requests about groups."""

    _clock: Clock
    _groups: Groups
    _offsets: Offsets
    _clients: Clients
    _stats: Stats
    _saver: TableSaver
    _locks: QueueLocks
    _operators: Operators
    _popping: Redelivery

    def register(self, table: HandlerTable) -> None:
        """Register the handlers."""
        table.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.put)
        table.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete)
        table.add_long(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.list_all)
        table.add_long(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.list_consumers)
        table.add_long(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.list_producers)
        table.add_long(RequestCode.GET_ALL_PRODUCER_INFO, self.list_all_producers)

    # -- changing -----------------------------------------------------------------------------------------------------

    async def put(self, request: Request) -> Reply | None:
        """Create a group or change its settings. Replies once the change survives a crash."""
        self._operators.check()
        config: GroupConfig | None = request.body
        if config is None:
            refuse(ResponseCode.SYSTEM_ERROR, "the request has no body with group settings")
        if not 0 <= config.retry_queue_nums <= TOPIC_QUEUES_MAX:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"retryQueueNums[{config.retry_queue_nums}] is illegal, the range is 0 to {TOPIC_QUEUES_MAX}",
            )
        log.info("group %s was created or changed by %s", config.group_name, request.link.peer)
        self._groups.put(config)
        if request.command.is_oneway:
            return None
        with self._operators.wait():
            await self._saver.wait_until_saved("groups")
        return Reply()

    async def delete(self, request: Request) -> Reply:
        """Delete a group, its locks and statistics, and its offsets if requested."""
        self._operators.check()
        header: DeleteGroupHeader = request.header
        group = header.group_name
        log.info("group %s was deleted by %s", group, request.link.peer)
        self._groups.delete(group)
        if header.remove_offset:
            self._offsets.remove_group(group)
        self._stats.remove_group(group)
        self._locks.remove_group(group)
        self._popping.forget(group=group)
        with self._operators.wait():
            await self._saver.wait_until_saved("groups")
        return Reply()

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list_all(self, request: Request) -> Reply:
        """Return the settings of all groups."""
        return Reply(body=await encode_apart(request, self._groups.snapshot()))

    async def list_consumers(self, request: Request) -> Reply:
        """List the members of a consumer group; the remark names duplicate ids and differing subscriptions."""
        name: str = request.header.consumer_group
        group = self._clients.consumer(name)
        if group is None:
            refuse(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=await _list_connections(group.members.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=dict(group.subscriptions),
        )
        return Reply(body=await encode_apart(request, body), remark="; ".join(group.problems()) or None)

    async def list_producers(self, request: Request) -> Reply:
        """List the members of a producer group."""
        name: str = request.header.producer_group
        members = self._clients.producers.get(name)
        if members is None:
            refuse(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=await _list_connections(members.values()))
        return Reply(body=await encode_apart(request, body))

    async def list_all_producers(self, request: Request) -> Reply:
        """List every producer by group."""
        table = ProducerTable()
        clock = self._clock
        now_ms, now_s = clock.now_ms(), clock.monotonic()
        slices = Slices()
        for name, members in list(self._clients.producers.items()):
            table.data[name] = [
                ProducerInfo(
                    client_id=member.client_id,
                    language=member.language,
                    last_update_timestamp=now_ms - round(1000 * (now_s - member.last_seen_s)),
                    remote_ip=f"/{member.link.peer}",
                    version=member.version,
                )
                for member in members.values()
            ]
            await slices.rest()
        return Reply(body=await encode_apart(request, table))


async def _list_connections(members: Iterable[Member]) -> list[Connection]:
    """Describe members, of which there may be very many."""
    found: list[Connection] = []
    slices = Slices()
    for member in list(members):
        found.append(
            Connection(
                client_addr=member.link.peer,
                client_id=member.client_id,
                language=member.language,
                version=member.version,
            )
        )
        if slices.is_over:
            await slices.rest()
    return found
