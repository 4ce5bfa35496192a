"""A name server and brokers with certificates, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from eruca._net.tlsoptions import TlsOptions
from tests.authority import Authority
from tests.integration.broker.conftest import allow_new_files
from tests.integration.broker.peer import find_port

__all__ = ["StartCluster", "allow_new_files", "authority", "start_cluster"]

_SMALL: dict[str, Any] = {
    "commitlog_segment_bytes": 1 << 20,
    "consumequeue_segment_bytes": 2000,
    "index_slots": 500,
    "index_entries": 2000,
}


class Cluster:
    """A name server, and brokers that register with it; all have the same options of TLS."""

    def __init__(self, home: Path, tls: dict[str, Any]) -> None:
        self._home = home
        self.tls = TlsOptions(**tls)
        self.names = NameServer(
            NameServerOptions(
                listen_port=0,
                kv_config_path=str(home / "kv.json"),
                config_store_path=str(home / "namesrv.conf"),
            ),
            tls=self.tls,
        )
        self.brokers: list[Broker] = []

    @property
    def address(self) -> str:
        """The address of the name server."""
        return self.names.address

    async def add_broker(self, number: int = 0, *, tls: TlsOptions | None = None, **options: Any) -> Broker:
        """Start a broker; 0 is the master."""
        given = {"broker_id": number, "port": find_port(), "nameservers": self.address, **options}
        store = self._home / f"store{number}"
        broker = Broker(BrokerOptions(**given), StoreOptions(**_SMALL), store, tls=tls or self.tls)
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def stop(self) -> None:
        """Stop everything."""
        for broker in reversed(self.brokers):
            await broker.stop()
        await self.names.stop()


StartCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return Authority(tmp_path)


@pytest.fixture
async def start_cluster(tmp_path: Path, authority: Authority) -> AsyncIterator[StartCluster]:
    """Starts a name server; arguments are options of TLS. `own` leaves out the certificate of the authority."""
    running: list[Cluster] = []

    async def start(*, own: bool = False, **tls: Any) -> Cluster:
        if not own:
            pair = await asyncio.to_thread(authority.issue, "server")
            tls = {"certificate": str(pair.certificate), "key": str(pair.key), **tls}
        cluster = Cluster(tmp_path, tls)
        running.append(cluster)
        await cluster.names.start()
        return cluster

    yield start
    for cluster in running:
        await cluster.stop()
