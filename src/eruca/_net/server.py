"""A server: listens, makes a link of each connection, and guards against peers that hang, flood or send garbage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from eruca._ground.limits import FIRST_BYTE_SECONDS_MAX, GOODBYE_SECONDS, HANDSHAKE_SECONDS_MAX, IDLE_SECONDS_MAX
from eruca._ground.repeating import Repeating
from eruca._net.admission import Admission
from eruca._net.budget import PROCESS, Budget
from eruca._net.guards import Reporter
from eruca._net.limitoptions import LimitOptions
from eruca._net.link import Answer, Handler, Link
from eruca._net.listening import Listener
from eruca._net.meters import count_refused
from eruca._net.peers import Peer
from eruca._net.tls import ServerTls
from eruca._net.turns import Slices
from eruca._wire.frame import Command
from eruca.errors import RequestRefused

log = logging.getLogger(__name__)

_DEFAULTS = LimitOptions()


@dataclass(slots=True)
class ServerSettings:
    """Where a server listens and its limits."""

    host: str = "127.0.0.1"
    port: int = 0
    idle_seconds: float = IDLE_SECONDS_MAX
    # Returns the limits in force.
    limits: Callable[[], LimitOptions] = lambda: _DEFAULTS
    # Counts connections; servers that share it share the limits. None: the server has its own.
    admission: Admission | None = None
    # Whether requests need an account, so that those of strangers are limited.
    has_accounts: bool = False
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
        self._answer_unknown = handle_unknown
        self.handle_unknown: Handler = self._meet_unknown if settings.has_accounts else handle_unknown
        self.settings = settings
        self.unsent_bytes_max = settings.limits().unread_bytes_max
        shared = settings.admission  # false while it has no connections
        self._admission = Admission(settings.limits, time.monotonic) if shared is None else shared
        self.links: set[Link] = set()
        self._on_close = on_close
        self._reporter = Reporter(log)
        self._listener: Listener | None = None
        self._scanning = Repeating("scanning connections", self._scan_links, lambda: settings.scan_seconds)
        self._emptied: asyncio.Event | None = None

    async def start(self) -> None:
        """Listen."""
        settings = self.settings
        if held_bytes_max := settings.limits().held_bytes_max:
            settings.budget.bytes_max = held_bytes_max
        listener = Listener(
            lambda: Link(self, serves=True),
            settings.tls,
            self._reporter,
            room=lambda: settings.limits().connections_max - len(self.links),
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
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._emptied.wait()
            except TimeoutError:
                for link in list(self.links):
                    link.abort()
        self._listener = None

    # -- called by links ---------------------------------------------------------------------------------------------

    def on_open(self, link: Link) -> None:
        """Add a connection, unless there are too many."""
        if self._admission.admit(link, self.report, has_accounts=self.settings.has_accounts):
            self.links.add(link)
            self.settings.budget.join(link)

    def on_close(self, link: Link) -> None:
        """Remove a connection."""
        if link in self.links:
            self.links.discard(link)
            self._admission.leave(link)
            self.settings.budget.leave(link)
            if self._emptied is not None and not self.links:
                self._emptied.set()
            if self._on_close is not None:
                self._on_close(link)

    def on_held(self, link: Link, size: int) -> None:
        """Keep what connections hold within its limit, also between two scans."""
        self.settings.budget.add(size)

    def on_refused(self, link: Link, error: Exception) -> Exception:
        """With accounts, count refused requests of connections that never authenticated."""
        if link.account is None and self.settings.has_accounts:
            try:
                self._admission.on_stranger(link)
            except RequestRefused as refusal:
                return refusal
        return error

    def on_stray(self, link: Link) -> None:
        """With accounts, a response of a stranger to no call counts as a refused request; nothing answers it."""
        if self.settings.has_accounts:
            with suppress(RequestRefused):
                self._admission.on_stranger(link)

    def _meet_unknown(self, link: Link, command: Command) -> Answer:
        """Handle a code without a handler; those of strangers count as refused requests."""
        if link.account is None:
            self._admission.on_stranger(link)
        return self._answer_unknown(link, command)

    def report(self, link: Peer, reason: str) -> None:
        """Log the misbehaviour of a peer, with a rate limit."""
        self._reporter.report_peer(link.peer_host[0], f"{link.peer} {reason}")

    async def _scan_links(self) -> None:
        """Close connections that are idle or too slow, fail overdue calls, and limit what connections hold."""
        now = asyncio.get_running_loop().time()
        idle_before = now - self.settings.idle_seconds
        frame_seconds = self.settings.limits().frame_seconds_max
        slices = Slices()
        for link in list(self.links):
            if slices.is_over:
                await slices.rest()
            link.expire_calls(now)
            if link.last_active < idle_before:
                # Not close(): that waits until the peer has read everything, and this one does not read.
                link.abort()
            elif link.measure_unfinished(now) > frame_seconds:
                count_refused("serverMaxFrameSeconds")
                self.report(link, f"was closed: a request took longer than {frame_seconds} s (serverMaxFrameSeconds)")
                link.abort()
        self._admission.forget_addresses()
        await self.settings.budget.scan()
