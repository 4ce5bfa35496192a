"""The port of the console: uvicorn's HTTP over the listener that all servers share, with its limits and its TLS."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from eruca._ground import limits
from eruca._net.guards import Reporter
from eruca._net.listening import Listener
from eruca._net.tls import ServerTls
from eruca._net.waiting import choose_to_go

log = logging.getLogger(__name__)
# It warns about every request that is not HTTP, which anybody can send.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

_STOP_S: Final = 3
# The name by which the application finds the connection of a request.
_CONNECTION: Final = "connection"
_NUMBERS: Final = itertools.count()


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
        return _Connection(self._config, self._server.server_state)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command that runs this server."""
        yield


def note_session(request: Request) -> None:
    """Note that the connection of a request is that of a user who has logged in."""
    connection = getattr(request.state, _CONNECTION, None)
    if connection is not None:
        connection.is_known = True


class _Connection(H11Protocol):
    """One connection. The head of a request has to arrive in time.

    Of too many connections, one without a session makes room for a new one: strangers keep no user out.
    """

    def __init__(self, config: uvicorn.Config, server_state: Any) -> None:
        super().__init__(config, server_state, {_CONNECTION: self})
        self._waiting: asyncio.TimerHandle | None = None
        self._is_accepted = False
        #: The order of arrival, and the address.
        self.number = next(_NUMBERS)
        self.host = ""
        #: A request of it had a session.
        self.is_known = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        others = cast("set[_Connection]", self.server_state.connections)
        if len(others) >= limits.CONSOLE_CONNECTIONS_MAX:
            strangers = sorted((each for each in others if not each.is_known), key=lambda each: each.number)
            chosen = choose_to_go(((each, each.host) for each in strangers), self.host)
            if chosen is None:
                transport.abort()
                return
            others.discard(chosen)
            chosen.transport.abort()
        self._is_accepted = True
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
        if self._is_accepted:
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
