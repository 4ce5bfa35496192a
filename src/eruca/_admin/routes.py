"""Routes: where the queues of a topic are, as the name servers report it."""

from __future__ import annotations

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Listed


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
    """`admin.routes`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def show(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises NoRoute if there is none."""
        raise NotImplementedError

    async def compare(self, topic: str) -> Listed[ServerRoute]:
        """Return the route that each name server has; they should be the same."""
        raise NotImplementedError

    async def clusters(self, topic: str) -> Listed[str]:
        """Return the clusters that have a topic."""
        raise NotImplementedError
