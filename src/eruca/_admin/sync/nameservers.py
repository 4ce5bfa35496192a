"""`NameServers` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.nameservers` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping

from eruca._admin.brokers import ServerConfig
from eruca._admin.nameservers import KeyValue, NameServer
from eruca._admin.nameservers import NameServers as AsyncNameServers
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.sync.base import PlainPart


class NameServers(PlainPart[AsyncNameServers]):
    """Shows and changes what name servers keep: `admin.nameservers`. Every one is asked, and every one is changed."""

    def list(self) -> Listed[NameServer]:
        """Return the name servers of the list, whether each answers, and what it knows."""
        return self._run(self._twin.list())

    def config(self) -> Listed[ServerConfig]:
        """Return the configuration of each name server."""
        return self._run(self._twin.config())

    def set_config(self, options: Mapping[str, str], *, dry_run: bool = False) -> Changed[dict[str, str]]:
        """Change options of every name server. Before and after have these options only."""
        return self._run(self._twin.set_config(options, dry_run=dry_run))

    def kv_list(self, namespace: str, *, limit: int = LIMIT) -> Listed[KeyValue]:
        """Return the keys and values of a namespace; empty if there is no such namespace."""
        return self._run(self._twin.kv_list(namespace, limit=limit))

    def kv_get(self, namespace: str, key: str) -> KeyValue:
        """Return the value of a key, on each name server."""
        return self._run(self._twin.kv_get(namespace, key))

    def kv_put(self, namespace: str, key: str, value: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the value of a key on every name server."""
        return self._run(self._twin.kv_put(namespace, key, value, dry_run=dry_run))

    def kv_delete(self, namespace: str, key: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete a key on every name server."""
        return self._run(self._twin.kv_delete(namespace, key, dry_run=dry_run))

    def order_get(self, topic: str) -> KeyValue:
        """Return the order configuration of a topic: `broker-a:4;broker-b:4`."""
        return self._run(self._twin.order_get(topic))

    def order_put(self, topic: str, order: str, *, dry_run: bool = False) -> Changed[str]:
        """Set the order configuration of a topic: `broker-a:4;broker-b:4`. Raises ConfigError for another form."""
        return self._run(self._twin.order_put(topic, order, dry_run=dry_run))

    def order_delete(self, topic: str, *, dry_run: bool = False) -> Changed[str]:
        """Delete the order configuration of a topic."""
        return self._run(self._twin.order_delete(topic, dry_run=dry_run))
