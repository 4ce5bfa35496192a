"""A name server and brokers in this process for clients to talk to, and peers that misbehave on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from eruca._broker.app import Broker
from eruca._broker.options import BrokerOptions
from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from eruca._ground.clock import Clock
from eruca._ground.config import StoreOptions
from eruca._nameserver.app import NameServer
from eruca._nameserver.options import NameServerOptions
from tests.unit.broker.conftest import allow_new_files, make_peer
from tests.unit.broker.peer import find_port
from tests.unit.client.scripted import ScriptedCluster

__all__ = ["allow_new_files", "make_peer"]

# Gives a Producer, or one of the kind that is asked for.
MakeProducer = Callable[..., Awaitable[Any]]
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


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedCluster]:
    """A cluster that does what a test says."""
    cluster = ScriptedCluster()
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def no_nameservers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment says where a name server is."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.fixture
async def make_producer() -> AsyncIterator[MakeProducer]:
    """Starts producers, and closes them in the end."""
    running: list[Producer] = []

    async def make(nameservers: str, kind: type[Producer] = Producer, **how: Any) -> Producer:
        how.setdefault("options", ClientOptions(ip="127.0.0.1"))
        producer = kind(nameservers, **{"group": "senders", **how})
        await producer.start()
        running.append(producer)
        return producer

    yield make
    for producer in running:
        await producer.close()


@pytest.fixture
def forbid_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real routes are learnt at once."""
    monkeypatch.setattr("eruca._client.session.routes._LEARN_ALONE_S", 0.01)
    monkeypatch.setattr("eruca._client.session.routes._LEARN_S", 0.01)
