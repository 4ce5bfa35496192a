"""Name servers: configuration, keys and values, and the order configuration of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from eruca._admin.brokers import ServerConfig
from eruca._admin.comparing import Disagreement, compare_name_servers
from eruca._admin.connection import Connection
from eruca._admin.orders import check_order, list_values, read_value
from eruca._admin.results import (
    LIMIT,
    Change,
    Changed,
    Listed,
    Problem,
    Undo,
    cut_list,
    fail_silent,
    name_outcome,
)
from eruca._admin.serveroptions import choose_options, list_different
from eruca._admin.targets import gather_bounded
from eruca._wire.bodies import ClusterInfo, TopicList
from eruca._wire.codes import RequestCode
from eruca._wire.ext import Header
from eruca._wire.headers import KVConfigHeader, PutKVConfigHeader
from eruca._wire.names import ORDER_TOPICS
from eruca.errors import ConfigError, ErucaError, RequestRefused

Answer = TypeVar("Answer")
Facts = TypeVar("Facts")
# Within the class `list` is a method.
Changes: TypeAlias = list[Change[Facts]]
Problems: TypeAlias = list[Problem]


class NameServer(msgspec.Struct, frozen=True, kw_only=True):
    """One name server of the list that clients use."""

    address: str
    answers: bool
    # How many brokers and topics it knows.
    brokers: int = 0
    topics: int = 0
    problem: str = ""


class KeyValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that name servers keep."""

    namespace: str
    key: str
    # The value on each name server by its address; None where it has none. They should be the same.
    values: dict[str, str | None]
    problems: list[Problem] = []

    @property
    def value(self) -> str | None:
        """The value, if the name servers agree; otherwise the first."""
        return next((value for value in self.values.values() if value is not None), None)

    @property
    def agreed(self) -> bool:
        """Whether all name servers have the same value."""
        return len(set(self.values.values())) <= 1


class NameServers:
    """Shows and changes what name servers keep: `admin.nameservers`. Every one is asked, and every one is changed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Listed[NameServer]:
        """Return the name servers of the list, whether each answers, and what it knows."""
        servers = await self._connection.list_nameservers()
        return Listed(items=list(await asyncio.gather(*[self._look_at(server) for server in servers])))

    async def _look_at(self, server: str) -> NameServer:
        connection = self._connection
        try:
            _, info = await connection.ask_nameserver(server, RequestCode.GET_BROKER_CLUSTER_INFO)
            _, topics = await connection.ask_nameserver(server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        except ErucaError as error:
            return NameServer(address=server, answers=isinstance(error, RequestRefused), problem=str(error))
        return NameServer(
            address=server,
            answers=True,
            brokers=len(info.broker_addr_table) if isinstance(info, ClusterInfo) else 0,
            topics=len(topics.topic_list) if isinstance(topics, TopicList) else 0,
        )

    async def compare(self, *, limit: int = LIMIT) -> Listed[Disagreement]:
        """Return the brokers and topics that some name servers know and others do not."""
        found, problems = await compare_name_servers(self._connection)
        return cut_list(found, limit, problems)

    async def config(self) -> Listed[ServerConfig]:
        """Return the configuration of each name server."""
        found, problems = await self._ask_all(self._read_config)
        items = [ServerConfig(where=server, address=server, options=options) for server, options in found.items()]
        return Listed(items=items, problems=problems)

    async def _read_config(self, server: str) -> dict[str, str]:
        _, options = await self._connection.ask_nameserver(server, RequestCode.GET_NAMESRV_CONFIG)
        return options if isinstance(options, dict) else {}

    async def _ask_all(self, ask: Callable[[str], Awaitable[Answer]]) -> tuple[dict[str, Answer], Problems]:
        """Ask every name server; return the answers, and a problem for each that failed."""
        servers = await self._connection.list_nameservers()
        found: dict[str, Answer] = {}
        problems = []
        for server, answer in zip(servers, await gather_bounded(servers, ask), strict=True):
            if isinstance(answer, ErucaError):
                problems.append(Problem(where=server, address=server, error=str(answer.args[0]), hint=answer.hint))
            else:
                found[server] = answer
        return found, problems

    async def set_config(self, options: Mapping[str, str], *, dry_run: bool = False) -> Changed[dict[str, str]]:
        """Change options of every name server. Before and after have these options only."""
        wanted = {name: str(value) for name, value in options.items()}
        if not wanted:
            raise ConfigError("no option is named", hint='pass options={"orderMessageEnable": "true"}, for example')
        configs, problems = await self._ask_all(self._read_config)
        before = {server: choose_options(config, wanted) for server, config in configs.items()}

        async def change(server: str) -> Change[dict[str, str]]:
            was = before[server]
            planned = wanted if list_different(wanted, was) else was
            if dry_run or planned == was:
                outcome = name_outcome(was, planned, dry_run=dry_run)
                return Change(where=server, before=was, after=planned, outcome=outcome)
            await self._connection.ask_nameserver(server, RequestCode.UPDATE_NAMESRV_CONFIG, body=wanted)
            after = choose_options(await self._read_config(server), wanted)
            ignored = list_different(wanted, after)
            reason = f"the name server did not take {', '.join(ignored)}" if ignored else ""
            outcome = "failed" if ignored else "done"
            return Change(where=server, before=was, after=after, outcome=outcome, reason=reason)

        changes = await self._change_all(change, before)
        same = {tuple(sorted(each.before.items())) for each in changes if each.before and each.outcome != "unchanged"}
        # Every name server is changed alike, so that what they had in common can be restored.
        undo = [Undo(method="nameservers.set_config", arguments={"options": dict(each)}) for each in same]
        undo = undo if len(undo) == 1 else []
        return Changed(name=", ".join(wanted), changes=changes + fail_silent(problems), undo=undo)

    async def _change_all(
        self, change: Callable[[str], Awaitable[Change[Facts]]], before: Mapping[str, Facts | None]
    ) -> Changes[Facts]:
        """Change something on the name servers that have reported how it was."""
        servers = [server for server in await self._connection.list_nameservers() if server in before]
        answers = await gather_bounded(servers, change)
        return [
            Change(where=server, before=before[server], after=before[server], outcome="failed", reason=str(answer))
            if isinstance(answer, ErucaError)
            else answer
            for server, answer in zip(servers, answers, strict=True)
        ]

    # -- keys and values ---------------------------------------------------------------------------------------------

    async def kv_list(self, namespace: str, *, limit: int = LIMIT) -> Listed[KeyValue]:
        """Return the keys and values of a namespace; empty if there is no such namespace."""
        tables, problems = await self._ask_all(lambda server: list_values(self._connection, server, namespace))
        keys = sorted({key for table in tables.values() for key in table})
        items = [
            KeyValue(namespace=namespace, key=key, values={server: table.get(key) for server, table in tables.items()})
            for key in keys
        ]
        return cut_list(items, limit, problems)

    async def kv_get(self, namespace: str, key: str) -> KeyValue:
        """Return the value of a key, on each name server."""
        values, problems = await self._ask_all(lambda server: read_value(self._connection, server, namespace, key))
        return KeyValue(namespace=namespace, key=key, values=values, problems=problems)

    async def kv_put(self, namespace: str, key: str, value: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the value of a key on every name server."""
        header = PutKVConfigHeader(namespace=namespace, key=key, value=value)
        return await self._put(namespace, key, value, RequestCode.PUT_KV_CONFIG, header, dry_run=dry_run)

    async def kv_delete(self, namespace: str, key: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete a key on every name server."""
        header = KVConfigHeader(namespace=namespace, key=key)
        return await self._put(namespace, key, None, RequestCode.DELETE_KV_CONFIG, header, dry_run=dry_run)

    async def _put(
        self, namespace: str, key: str, value: str | None, code: RequestCode, header: Header, *, dry_run: bool
    ) -> Changed[str]:
        known = await self.kv_get(namespace, key)

        async def change(server: str) -> Change[str]:
            was = known.values[server]
            if not dry_run and was != value:
                await self._connection.ask_nameserver(server, code, header)
            return Change(where=server, before=was, after=value, outcome=name_outcome(was, value, dry_run=dry_run))

        changes = await self._change_all(change, known.values)
        undo = []
        if any(each.outcome in ("done", "planned") for each in changes):
            place = {"namespace": namespace, "key": key}
            was = known.value
            if was is None:
                undo.append(Undo(method="nameservers.kv_delete", arguments=place))
            elif known.agreed:
                undo.append(Undo(method="nameservers.kv_put", arguments={**place, "value": was}))
        return Changed(name=f"{namespace}/{key}", changes=changes + fail_silent(known.problems), undo=undo)

    # -- the order configuration of a topic --------------------------------------------------------------------------

    async def order_get(self, topic: str) -> KeyValue:
        """Return the order configuration of a topic: `broker-a:4;broker-b:4`."""
        return await self.kv_get(ORDER_TOPICS, topic)

    async def order_put(self, topic: str, order: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the order configuration of a topic: `broker-a:4;broker-b:4`. Raises ConfigError for another form."""
        return await self.kv_put(ORDER_TOPICS, topic, check_order(order), dry_run=dry_run)

    async def order_delete(self, topic: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete the order configuration of a topic."""
        return await self.kv_delete(ORDER_TOPICS, topic, dry_run=dry_run)
