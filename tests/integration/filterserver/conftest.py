"""A name server, a broker that accepts filter servers, and filter servers, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from eruca._access.options import AccessOptions
from eruca._broker.app import Broker
from eruca._filterserver.app import FilterServer
from eruca._filterserver.options import FilterServerOptions
from tests.integration.client.conftest import StartBroker, allow_new_files, nameserver, start_broker

__all__ = ["allow_new_files", "nameserver", "start_broker"]

StartFilterServer = Callable[..., Awaitable[FilterServer]]

# Enough for a busy machine to get to the last message of a pull: after half of it none is started.
TIME_MS = 60_000


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(filter_servers_max=2)


@pytest.fixture
async def start_filter_server() -> AsyncIterator[StartFilterServer]:
    """Starts filter servers for a broker."""
    running: list[FilterServer] = []

    async def start(broker: Broker, *, access: AccessOptions | None = None, **options: Any) -> FilterServer:
        chosen = {"broker": broker.standing.address, "time_ms": TIME_MS, **options}
        server = FilterServer(FilterServerOptions(**chosen), access=access)
        running.append(server)
        await server.start()
        return server

    yield start
    for server in running:
        await server.stop()


@pytest.fixture
async def filter_server(broker: Broker, start_filter_server: StartFilterServer) -> FilterServer:
    return await start_filter_server(broker)
