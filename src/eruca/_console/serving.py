"""The port of the console: uvicorn's HTTP over the listener that all servers share, with its limits and its TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from eruca._ground import limits
from eruca._net.guards import Reporter
from eruca._net.listening import Listener
from eruca._net.tls import ServerTls

log = logging.getLogger(__name__)

_STOP_S: Final = 3


class WebServer:
    """Serves one application on one port."""

    def __init__(self, app: ASGIApp, tls: ServerTls, *, proxies: str) -> None:
        """`proxies` are the addresses whose X-Forwarded headers are believed, separated by commas; empty: none."""
        self._tls = tls
        self._config = uvicorn.Config(
            app,
            http=_Connection,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            # Without the list it would believe everybody on this machine.
            proxy_headers=bool(proxies),
            forwarded_allow_ips=proxies or "",
            timeout_graceful_shutdown=_STOP_S,
        )
        self._server = _Server(self._config)
        self._serving: asyncio.Task[None] | None = None
        self._listener = Listener(
            self._make_connection,
            tls,
            Reporter(log),
            room=lambda: limits.CONSOLE_CONNECTIONS_MAX - len(self._server.server_state.connections),
        )

    @property
    def port(self) -> int:
        """The listening port; 0 if it is not open."""
        return self._listener.port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ConnectFailed if the port is taken, and ConfigError for certificates that cannot be used."""
        await self._tls.start()
        self._config.load()
        await self._listener.start(host, port)
        self._serving = asyncio.create_task(self._server.serve(sockets=[]))

    async def stop(self) -> None:
        """Close the port and its connections; requests in progress get a moment."""
        await self._listener.stop()
        serving, self._serving = self._serving, None
        if serving is not None:
            self._server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
        await self._tls.stop()

    def look_again(self) -> None:
        """Check the certificates for changes now."""
        self._tls.look_again()

    def _make_connection(self) -> asyncio.Protocol:
        return _Connection(self._config, self._server.server_state, {})


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs this server."""
        yield


class _Connection(H11Protocol):
    """One connection. The head of a request has to arrive in time, and too many connections are closed."""

    def __init__(self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.server_state.connections) >= limits.CONSOLE_CONNECTIONS_MAX:
            transport.abort()
            return
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._waiting is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self in self.server_state.connections:
            super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._waiting = self.loop.call_later(limits.WEB_HEAD_SECONDS_MAX, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        self.transport.close()
