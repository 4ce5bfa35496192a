"""Routes: where the queues of a topic are, as the name servers report it."""

from __future__ import annotations

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Listed, Problem
from eruca._admin.settings import show_permission
from eruca._admin.targets import gather_bounded
from eruca._admin.topics import explain_unknown
from eruca._wire.bodies import TopicRouteData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import RouteHeader
from eruca.errors import ErucaError, NetError, RequestRefused


class RouteBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of a topic on one broker name, and the members of that name."""

    broker: str
    cluster: str
    # Addresses by id; 0 is the master.
    addresses: dict[int, str]
    read_queues: int
    write_queues: int
    permission: str
    system_flag: int = 0


class TopicRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route of a topic, as a name server reports it."""

    topic: str
    brokers: list[RouteBroker]
    # `broker-a:4;broker-b:4` if it is ordered across brokers.
    order: str = ""
    # Filter servers by the address of their broker.
    filter_servers: dict[str, list[str]] = {}


class ServerRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route of a topic that one name server has; None if it knows none."""

    server: str
    route: TopicRoute | None


class Routes:
    """Shows where the queues of topics are: `admin.routes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def show(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises NoRoute if there is none."""
        connection = self._connection
        failure: ErucaError = explain_unknown(topic)
        for server in await connection.list_nameservers():
            try:
                route = await _ask(connection, server, topic)
            except NetError as error:
                failure = error
                continue
            if route is not None:
                return route
        raise failure

    async def compare(self, topic: str) -> Listed[ServerRoute]:
        """Return the route that each name server has; they should be the same."""
        connection = self._connection
        servers = await connection.list_nameservers()
        answers = await gather_bounded(servers, lambda server: _ask(connection, server, topic))
        items, problems = [], []
        for server, answer in zip(servers, answers, strict=True):
            if isinstance(answer, ErucaError):
                problems.append(Problem(where=server, address=server, error=str(answer.args[0]), hint=answer.hint))
            else:
                items.append(ServerRoute(server=server, route=answer))
        return Listed(items=items, problems=problems)

    async def clusters(self, topic: str) -> Listed[str]:
        """Return the clusters that have a topic. Raises NoRoute if there is none."""
        route = await self.show(topic)
        return Listed(items=sorted({each.cluster for each in route.brokers if each.cluster}))


async def _ask(connection: Connection, server: str, topic: str) -> TopicRoute | None:
    """Return the route that one name server has; None if it knows no such topic."""
    try:
        _, data = await connection.ask_nameserver(
            server, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic, accept_standard_json_only=True)
        )
    except RequestRefused as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    if not isinstance(data, TopicRouteData):
        raise NetError(f"name server {server} answered without a route")
    brokers = {each.broker_name: each for each in data.broker_datas}
    rows = [
        RouteBroker(
            broker=queues.broker_name,
            cluster=brokers[queues.broker_name].cluster or "",
            addresses=dict(sorted(brokers[queues.broker_name].broker_addrs.items())),
            read_queues=queues.read_queue_nums,
            write_queues=queues.write_queue_nums,
            permission=show_permission(queues.perm),
            system_flag=queues.topic_sys_flag,
        )
        for queues in data.queue_datas
        if queues.broker_name in brokers
    ]
    return TopicRoute(
        topic=topic,
        brokers=sorted(rows, key=lambda row: row.broker),
        order=data.order_topic_conf or "",
        filter_servers=dict(data.filter_server_table),
    )
