"""The ports of a broker: the main port, and the fast port, which does not accept pulls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from eruca._broker.options import FAST_PORT_BELOW, HA_PORT_ABOVE, LiveOptions
from eruca._net.admission import Admission
from eruca._net.handlers import HandlerTable, refuse_unknown
from eruca._net.link import Link
from eruca._net.server import Server, ServerSettings
from eruca._net.tls import ServerTls
from eruca._wire.codes import RequestCode
from eruca.errors import ConnectFailed

# The range for automatically chosen ports. Operating systems choose from 32,768 upwards, for clients too, and a
# client's port stays in use for a minute after its connection closes: after thousands of connections hardly any port
# there has free neighbours.
_PORTS: Final = range(12_000, 20_000)
_TRIES: Final = 100


class Ports:
    """Listens."""

    def __init__(
        self,
        options: LiveOptions,
        table: HandlerTable,
        on_close: Callable[[Link], None],
        tls: ServerTls | None = None,
    ) -> None:
        """`on_close` is called for every closed connection."""
        self._live = options
        self._options = options.now
        self._has_accounts = table.has_accounts
        # The limits apply to both ports together.
        self._admission = Admission(lambda: options.now, time.monotonic)
        #: The handlers of the main port.
        self.handlers = table.handlers
        self._on_close = on_close
        self._tls = tls
        #: The open servers.
        self.servers: list[Server] = []

    async def open(self) -> int:
        """Open both ports; return the main one.

        With port 0, a port whose neighbours are free too is chosen.
        """
        given = self._options.port
        for left in reversed(range(1 if given else _TRIES)):
            try:
                return await self._open(given or random.choice(_PORTS))
            except ConnectFailed:
                await self.close()
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _open(self, port: int) -> int:
        handlers = self.handlers
        main = Server(handlers, refuse_unknown, self._settings(port), on_close=self._on_close)
        await main.start()
        self.servers.append(main)
        without_pulls = {code: handler for code, handler in handlers.items() if code != RequestCode.PULL_MESSAGE}
        fast_port = max(0, main.port - FAST_PORT_BELOW)
        fast = Server(without_pulls, refuse_unknown, self._settings(fast_port), on_close=self._on_close)
        await fast.start()
        self.servers.append(fast)
        if not self._options.port:
            # The port for slaves is opened later, with the role.
            probe = Server({}, refuse_unknown, self._settings(main.port + HA_PORT_ABOVE))
            await probe.start()
            await probe.stop()
        return main.port

    def _settings(self, port: int) -> ServerSettings:
        return ServerSettings(
            host=self._options.bind_host,
            port=port,
            idle_seconds=self._options.idle_seconds,
            limits=lambda: self._live.now,
            admission=self._admission,
            has_accounts=self._has_accounts,
            tls=self._tls,
        )

    async def close(self) -> None:
        """Close all ports and connections."""
        while self.servers:
            await self.servers.pop().stop()
