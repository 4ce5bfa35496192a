"""A server: listens, makes a link of each connection, and guards against peers that hang, flood or send garbage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eruca._ground.limits import (
    CONNECTIONS_MAX,
    FIRST_BYTE_SECONDS_MAX,
    HANDSHAKE_SECONDS_MAX,
    IDLE_SECONDS_MAX,
)
from eruca._ground.repeating import Repeating
from eruca._net.budget import PROCESS, Budget
from eruca._net.guards import Reporter
from eruca._net.link import Handler, Link
from eruca._net.listening import Listener
from eruca._net.tls import ServerTls

log = logging.getLogger(__name__)

# How long a stop waits for peers to read their last responses.
_GOODBYE_SECONDS = 1.0


@dataclass(slots=True)
class ServerSettings:
    """Where a server listens and its limits."""

    host: str = "127.0.0.1"
    port: int = 0
    idle_seconds: float = IDLE_SECONDS_MAX
    connections_max: int = CONNECTIONS_MAX
    # The memory budget of connections, shared with the other servers of the process.
    budget: Budget = field(default_factory=lambda: PROCESS)
    # How often idle connections and overdue calls are scanned for.
    scan_seconds: float = 1.0
    # None: the port accepts only plain connections.
    tls: ServerTls | None = None
    first_byte_seconds: float = FIRST_BYTE_SECONDS_MAX
    handshake_seconds: float = HANDSHAKE_SECONDS_MAX


class Server:
    """Accepts connections and passes their requests to handlers."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        handle_unknown: Handler,
        settings: ServerSettings,
        *,
        on_close: Callable[[Link], None] | None = None,
    ) -> None:
        self.handlers = handlers
        self.handle_unknown = handle_unknown
        self.settings = settings
        self.links: set[Link] = set()
        self._on_close = on_close
        self._reporter = Reporter(log)
        self._listener: Listener | None = None
        self._scanning = Repeating("scanning connections", self._scan_links, lambda: settings.scan_seconds)
        self._emptied: asyncio.Event | None = None

    async def start(self) -> None:
        """Listen."""
        settings = self.settings
        listener = Listener(
            lambda: Link(self, serves=True),
            settings.tls,
            self._reporter,
            room=lambda: settings.connections_max - len(self.links),
            first_byte_s=min(settings.first_byte_seconds, settings.idle_seconds),
            handshake_s=settings.handshake_seconds,
            scan_s=settings.scan_seconds,
        )
        await listener.start(settings.host, settings.port)
        self._listener = listener
        self._scanning.start()

    @property
    def port(self) -> int:
        """The listening port; if 0 was requested, the one chosen by the system."""
        return self.settings.port if self._listener is None else self._listener.port

    async def stop(self) -> None:
        """Close the port and every connection; a peer that does not read its last responses is cut off."""
        await self._scanning.stop()
        if self._listener is None:
            return
        await self._listener.stop()
        self._emptied = asyncio.Event()
        for link in list(self.links):
            link.close()
        if self.links:
            try:
                async with asyncio.timeout(_GOODBYE_SECONDS):
                    await self._emptied.wait()
            except TimeoutError:
                for link in list(self.links):
                    link.abort()
        self._listener = None

    # -- called by links ---------------------------------------------------------------------------------------------

    def on_open(self, link: Link) -> None:
        """Add a connection, unless there are too many."""
        if len(self.links) >= self.settings.connections_max:
            self.report(link, f"refused: {self.settings.connections_max} connections are already open")
            link.abort()
            return
        self.links.add(link)
        self.settings.budget.join(link)

    def on_close(self, link: Link) -> None:
        """Remove a connection."""
        if link in self.links:
            self.links.discard(link)
            self.settings.budget.leave(link)
            if self._emptied is not None and not self.links:
                self._emptied.set()
            if self._on_close is not None:
                self._on_close(link)

    def on_held(self, link: Link, size: int) -> None:
        """Keep what connections hold within its limit, also between two scans."""
        self.settings.budget.add(size)

    def report(self, link: Link, reason: str) -> None:
        """Log the misbehaviour of a peer, with a rate limit."""
        self._reporter.report(link.peer_host[0], f"{link.peer} {reason}")

    async def _scan_links(self) -> None:
        """Close idle connections, fail overdue calls, and keep what connections hold within its limit."""
        now = asyncio.get_running_loop().time()
        idle_before = now - self.settings.idle_seconds
        for link in list(self.links):
            link.expire_calls(now)
            if link.last_active < idle_before:
                # Not close(): that waits until the peer has read everything, and this one does not read.
                link.abort()
        self.settings.budget.bound()
