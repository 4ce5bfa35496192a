"""A name server and brokers in this process for clients to talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._ground.clock import Clock
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from tests.integration.broker.conftest import allow_new_files, make_peer
from tests.integration.broker.peer import find_port
from tests.unit.client.conftest import MakeProducer, forbid_waiting, make_producer, no_nameservers, scripted

__all__ = [
    "MakeProducer",
    "StartBroker",
    "allow_new_files",
    "forbid_waiting",
    "make_peer",
    "make_producer",
    "nameserver",
    "no_nameservers",
    "scripted",
    "start_broker",
]

StartBroker = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[NameServer]:
    """A name server that knows nobody."""
    paths: dict[str, Any] = {
        "kv_config_path": str(tmp_path / "kv.json"),
        "config_store_path": str(tmp_path / "namesrv.conf"),
    }
    server = NameServer(NameServerOptions(listen_port=0, **paths))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def start_broker(nameserver: NameServer, tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Starts brokers that register with the name server."""
    running: list[Broker] = []

    async def start(name: str = "broker-a", *, clock: Clock | None = None, **options: Any) -> Broker:
        small = StoreOptions(
            commitlog_segment_bytes=1 << 20, consumequeue_segment_bytes=2000, index_slots=500, index_entries=2000
        )
        chosen = BrokerOptions(**{"name": name, "port": find_port(), "nameservers": nameserver.address, **options})
        broker = Broker(chosen, small, tmp_path / name, clock=clock)
        await broker.start()
        running.append(broker)
        return broker

    yield start
    for broker in running:
        await broker.stop()
