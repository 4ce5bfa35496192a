"""Peers that misbehave on demand, and producers that talk to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from eruca._client.options import ClientOptions
from eruca._client.produce.producer import Producer
from tests.unit.client.scripted import ScriptedCluster

# Gives a Producer, or one of the kind that is asked for.
MakeProducer = Callable[..., Awaitable[Any]]


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
