"""Name servers: configuration, keys and values, and the order configuration of topics."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eruca._admin.brokers import ServerConfig
from eruca._admin.comparing import Disagreement, compare_name_servers
from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Changed, Listed, cut_list


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

    @property
    def value(self) -> str | None:
        """The value, if the name servers agree; otherwise the first."""
        return next((value for value in self.values.values() if value is not None), None)

    @property
    def agreed(self) -> bool:
        """Whether all name servers have the same value."""
        return len(set(self.values.values())) <= 1


class NameServers:
    """`admin.nameservers`: every name server of the list is asked, and every one is changed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Listed[NameServer]:
        """Return the name servers of the list, whether each answers, and what it knows."""
        raise NotImplementedError

    async def compare(self, *, limit: int = LIMIT) -> Listed[Disagreement]:
        """Return the brokers and topics that some name servers know and others do not."""
        found, problems = await compare_name_servers(self._connection)
        return cut_list(found, limit, problems)

    async def config(self) -> Listed[ServerConfig]:
        """Return the configuration of each name server."""
        raise NotImplementedError

    async def set_config(self, options: Mapping[str, str], *, dry_run: bool = False) -> Changed[dict[str, str]]:
        """Change options of every name server. Before and after have the changed options only."""
        raise NotImplementedError

    # -- keys and values ---------------------------------------------------------------------------------------------

    async def kv_list(self, namespace: str, *, limit: int = LIMIT) -> Listed[KeyValue]:
        """Return the keys and values of a namespace; empty if there is no such namespace."""
        raise NotImplementedError

    async def kv_get(self, namespace: str, key: str) -> KeyValue:
        """Return the value of a key, on each name server."""
        raise NotImplementedError

    async def kv_put(self, namespace: str, key: str, value: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the value of a key on every name server."""
        raise NotImplementedError

    async def kv_delete(self, namespace: str, key: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete a key on every name server."""
        raise NotImplementedError

    # -- the order configuration of a topic --------------------------------------------------------------------------

    async def order_get(self, topic: str) -> KeyValue:
        """Return the order configuration of a topic: `broker-a:4;broker-b:4`."""
        raise NotImplementedError

    async def order_put(self, topic: str, order: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the order configuration of a topic."""
        raise NotImplementedError

    async def order_delete(self, topic: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete the order configuration of a topic."""
        raise NotImplementedError
