"""The port of gRPC: listens, makes a link of each connection, and guards against peers that hang, flood or idle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eruca._ground.limits import (
    FIRST_BYTE_SECONDS_MAX,
    GOODBYE_SECONDS,
    GRPC_DRAIN_SECONDS,
    HANDSHAKE_SECONDS_MAX,
)
from eruca._ground.repeating import Repeating
from eruca._net.admission import Admission
from eruca._net.budget import PROCESS, Budget
from eruca._net.guards import Reporter
from eruca._net.http2.calls import Connection, GrpcError, GrpcStatus, Method
from eruca._net.http2.link import Http2Link
from eruca._net.http2.options import GrpcOptions
from eruca._net.limitoptions import LimitOptions
from eruca._net.listening import Listener
from eruca._net.meters import count_refused
from eruca._net.peers import Peer
from eruca._net.tls import ServerTls
from eruca._net.turns import Slices
from eruca.errors import RequestRefused

log = logging.getLogger(__name__)

#: What `ServerTls` offers to clients of this port.
PROTOCOLS = ("h2",)
_LIMITS = LimitOptions()
_STOPPING = "the server stops"


@dataclass(slots=True)
class GrpcSettings:
    """Where a port listens and its limits."""

    host: str = "127.0.0.1"
    port: int = 0
    grpc: GrpcOptions = field(default_factory=GrpcOptions)
    # Returns the limits in force.
    limits: Callable[[], LimitOptions] = lambda: _LIMITS
    # Counts connections; servers that share it share the limits. None: the port has its own.
    admission: Admission | None = None
    # Whether calls need an account, so that those of strangers are limited.
    has_accounts: bool = False
    # The memory budget of connections, shared with the servers of the process.
    budget: Budget = field(default_factory=lambda: PROCESS)
    # How often idle and stalled connections are scanned for.
    scan_seconds: float = 1.0
    # None: the port accepts only plain connections. Its protocols must be `PROTOCOLS`.
    tls: ServerTls | None = None
    first_byte_seconds: float = FIRST_BYTE_SECONDS_MAX
    handshake_seconds: float = HANDSHAKE_SECONDS_MAX
    # How long calls may still take when the port is closed.
    drain_seconds: float = GRPC_DRAIN_SECONDS


class GrpcPort:
    """Accepts connections and passes their calls to methods."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        settings: GrpcSettings,
        *,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        """`methods` by their paths, `/package.Service/Name`. `on_close` is called for every closed connection."""
        self.methods = methods
        self.settings = settings
        self.unsent_bytes_max = settings.limits().unread_bytes_max
        self.message_bytes_max = settings.grpc.message_bytes_max
        self.streams_max = settings.grpc.streams_max
        self.links: set[Http2Link] = set()
        shared = settings.admission  # false while it has no connections
        self._admission = Admission(settings.limits, time.monotonic) if shared is None else shared
        self._on_close = on_close
        self._reporter = Reporter(log)
        self._listener: Listener | None = None
        self._scanning = Repeating("scanning gRPC connections", self._scan, lambda: settings.scan_seconds)
        # Set when a call or a connection ends while the port closes.
        self._changed: asyncio.Event | None = None

    @property
    def port(self) -> int:
        """The listening port; if 0 was requested, the one chosen by the system."""
        return self.settings.port if self._listener is None else self._listener.port

    async def open(self) -> int:
        """Listen; return the port. Raises ConnectFailed."""
        settings = self.settings
        listener = Listener(
            lambda: Http2Link(self),
            settings.tls,
            self._reporter,
            room=lambda: settings.limits().connections_max - len(self.links),
            first_byte_s=settings.first_byte_seconds,
            handshake_s=settings.handshake_seconds,
            scan_s=settings.scan_seconds,
        )
        await listener.start(settings.host, settings.port)
        self._listener = listener
        self._scanning.start()
        return listener.port

    async def close(self) -> None:
        """Close the port: calls under way may end, those that take longer are ended, then connections are closed."""
        await self._scanning.stop()
        if self._listener is None:
            return
        await self._listener.stop()
        self._changed = asyncio.Event()
        for link in list(self.links):
            link.leave(_STOPPING)
        await self._wait_until(lambda: not any(link.is_busy for link in self.links), self.settings.drain_seconds)
        for link in list(self.links):
            link.end_calls(_STOPPING)
        await self._wait_until(lambda: not self.links, GOODBYE_SECONDS)
        for link in list(self.links):
            link.abort()
        self._listener = None

    async def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> None:
        assert self._changed is not None
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    def refuse_stranger(self, connection: Connection) -> None:
        """Count a call that was refused for lack of an account or rights.

        Above the limit for connections that never authenticated, raises GrpcError, and reads nothing for some seconds.
        """
        if connection.account is None and self.settings.has_accounts and isinstance(connection, Http2Link):
            try:
                self._admission.on_stranger(connection)
            except RequestRefused as refusal:
                raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, refusal.remark) from None

    # -- called by links ---------------------------------------------------------------------------------------------

    def on_open(self, link: Http2Link) -> None:
        """Add a connection, unless there are too many."""
        if self._admission.admit(link, self.report, has_accounts=self.settings.has_accounts):
            self.links.add(link)
            self.settings.budget.join(link)

    def on_close(self, link: Http2Link) -> None:
        """Remove a connection."""
        if link not in self.links:
            return
        self.links.discard(link)
        self._admission.leave(link)
        self.settings.budget.leave(link)
        self.on_over()
        if self._on_close is not None:
            self._on_close(link)

    def on_over(self) -> None:
        """A call of a connection that is closing has ended, or the connection."""
        if self._changed is not None:
            self._changed.set()

    def on_held(self, link: Http2Link, size: int) -> None:
        """Keep what connections hold within its limit, also between two scans."""
        self.settings.budget.add(size)

    def report(self, link: Peer, reason: str) -> None:
        """Log the misbehaviour of a peer, with a rate limit."""
        self._reporter.report_peer(link.peer_host[0], f"{link.peer} {reason}")

    # -- scans -------------------------------------------------------------------------------------------------------

    async def _scan(self) -> None:
        """Close connections that are idle, dead or too slow, and limit what connections hold."""
        now = asyncio.get_running_loop().time()
        idle_s = self.settings.grpc.grpc_idle_ms / 1000
        stalled_s = self.settings.limits().frame_seconds_max
        slices = Slices()
        for link in list(self.links):
            if slices.is_over:
                await slices.rest()
            if link.measure_stalled(now) > stalled_s:
                count_refused("serverMaxFrameSeconds")
                self.report(
                    link,
                    f"was closed: a message took longer than {stalled_s} s to arrive, or to be read "
                    "(serverMaxFrameSeconds)",
                )
                link.abort()
            elif link.is_idle and link.last_active < now - idle_s:
                link.leave("the connection is idle")
            elif not link.check_alive(now, idle_s):
                self.report(link, "was closed: it does not answer a ping")
                link.abort()
        self._admission.forget_addresses()
        await self.settings.budget.scan()
