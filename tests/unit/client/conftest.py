"""A name server and brokers in this process for clients to talk to, and peers that misbehave on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from eruca.broker.app import Broker
from eruca.client.options import ClientOptions
from eruca.client.producer import Producer
from eruca.client.routes import Routes
from eruca.client.transactions import TransactionalProducer
from eruca.nameserver.app import NameServer
from eruca.nameserver.options import NameServerOptions
from tests.unit.broker.conftest import allow_new_files, make_broker, make_peer
from tests.unit.client.scripted import ScriptedCluster

__all__ = ["allow_new_files", "make_broker", "make_peer"]

MakeProducer = Callable[..., Awaitable[Producer]]
MakeTransactional = Callable[..., Awaitable[TransactionalProducer]]
StartBroker = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[NameServer]:
    """A name server that knows nobody."""
    paths = {"kv_config_path": str(tmp_path / "kv.json"), "config_store_path": str(tmp_path / "namesrv.conf")}
    server = NameServer(NameServerOptions(listen_port=0, **paths))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def start_broker(nameserver: NameServer, make_broker: StartBroker) -> StartBroker:  # noqa: F811
    """Starts brokers that register with the name server."""

    async def start(name: str = "broker-a", **options: Any) -> Broker:
        return await make_broker(name=name, nameservers=nameserver.address, **options)

    return start


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
    monkeypatch.setattr("eruca.client.routes._LEARN_ALONE_S", 0.01)
    monkeypatch.setattr("eruca.client.routes._LEARN_S", 0.01)
