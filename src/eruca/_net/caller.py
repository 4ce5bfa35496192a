"""A caller: one connection for each peer, opened when needed and reopened after it was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from eruca._ground.backoff import Backoff
from eruca._ground.limits import CALLS_IN_FLIGHT_MAX, IDLE_SECONDS_MAX, UNSENT_BYTES_MAX
from eruca._ground.repeating import Repeating
from eruca._net.arrivals import Arrivals
from eruca._net.dialing import dial
from eruca._net.guards import Reporter
from eruca._net.handlers import refuse_unknown
from eruca._net.link import Handler, Link
from eruca._net.tls import OutgoingTls
from eruca._wire.frame import Command
from eruca._wire.signature import Credentials
from eruca.errors import ConnectFailed, ConnectionLost, TooManyCalls

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 3.0
_GOODBYE_SECONDS = 1.0
# When an unreachable peer may be tried again; until then calls fail at once. The wait is mostly random, so that a
# thousand clients do not reconnect at the same moment.
_RETRIES = Backoff(0.2, 5.0, jitter=0.9)
# A connection that received nothing for this long while a call got no response may be dead for good: a firewall dropped
# it, or the peer waits for the rest of a frame whose size was corrupted in transit. Java closes it too.
_SILENCE_SECONDS = 3.0


class _Peer:
    """One address: its link, and when it may be tried again after a failure."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.opening: asyncio.Task[Link] | None = None
        self.failures = 0
        self.retry_at = 0.0
        # Why the last attempt failed.
        self.reason = ""
        # The calls that wait for the link.
        self.arrivals = Arrivals()

    def get_open_link(self) -> Link | None:
        """Return the connection if it is open."""
        return self.link if self.link is not None and self.link.is_open else None


class Caller:
    """Calls peers by address; requests from them on the same connections go to its handlers."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        tls: OutgoingTls | None = None,
        credentials: Credentials | None = None,
        calls_max: int = CALLS_IN_FLIGHT_MAX,
        idle_seconds: float = IDLE_SECONDS_MAX,
        scan_seconds: float = 0.1,
        silence_seconds: float = _SILENCE_SECONDS,
        on_close: Callable[[str], None] | None = None,
    ) -> None:
        """With `credentials` every request is signed."""
        self.handlers: Mapping[int, Handler] = handlers or {}
        self.handle_unknown: Handler = refuse_unknown
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self._tls = tls
        self.credentials = credentials
        self._calls_max = calls_max
        # Calls of the fast path leave room for those that are counted exactly, and they cannot be signed.
        self._fast_calls_max = calls_max // 2 if credentials is None else 0
        self._idle_seconds = idle_seconds
        self._silence_seconds = silence_seconds
        self._on_close = on_close
        self._peers: dict[str, _Peer] = {}
        self._addresses: dict[Link, str] = {}
        self._reporter = Reporter(log)
        self._scanning = Repeating("scanning connections to peers", self._scan_links, lambda: scan_seconds)
        self._closed = False
        # Done when the last connection is gone; made by `close`.
        self._all_gone: asyncio.Future[None] | None = None

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to a peer and return its response. Raises a NetError."""
        if self.credentials is not None:
            self.credentials.sign(command)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        link = await self._get_link(address, timeout_ms / 1000)
        if sum(len(link.calls.waiting) for link in self._addresses) >= self._calls_max:
            raise TooManyCalls(f"{self._calls_max} calls are already waiting for a response")
        # The remaining time: a peer that is slow to connect to does not get the timeout twice.
        return await link.call(command, deadline - loop.time())

    def find_link(self, address: str) -> Link | None:
        """Return the connection to a peer if it is open."""
        peer = self._peers.get(address)
        return None if peer is None else peer.get_open_link()

    def find_free_link(self, address: str) -> Link | None:
        """Return the connection to a peer if it is open and may take another call: the fast path for frequent calls.

        Returns None if the call must be signed, or wait for its turn.
        """
        peer = self._peers.get(address)
        if peer is None or peer.arrivals.waiting:
            return None
        link = peer.link
        if link is None or not link.is_open or len(link.calls.waiting) >= self._fast_calls_max:
            return None
        return link

    async def notify(self, address: str, command: Command) -> None:
        """Send a oneway request."""
        if self.credentials is not None:
            self.credentials.sign(command)
        link = await self._get_link(address, _CONNECT_SECONDS)
        link.notify(command)

    def is_connected(self, address: str) -> bool:
        """Whether a connection to the peer is open."""
        peer = self._peers.get(address)
        return peer is not None and peer.link is not None and peer.link.is_open

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        loop = asyncio.get_running_loop()
        for peer in self._peers.values():
            if peer.opening is not None:
                peer.opening.cancel()  # waiting calls get a ConnectionLost
            if peer.link is not None:
                peer.link.close()
                # A peer that does not read its last requests would keep the connection open forever.
                loop.call_later(_GOODBYE_SECONDS, peer.link.abort)
        self._peers.clear()
        await self._scanning.stop()
        if self._tls is not None and self._addresses:
            # TLS ends with a goodbye of both sides, and a program often ends its loop when it has closed its clients.
            self._all_gone = loop.create_future()
            await asyncio.wait((self._all_gone,), timeout=2 * _GOODBYE_SECONDS)

    async def _get_link(self, address: str, timeout_s: float) -> Link:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer()
        if (link := peer.get_open_link()) is not None and not peer.arrivals.waiting:
            return link
        # Calls that already wait for the connection go first, otherwise calls would overtake each other.
        return await peer.arrivals.take(peer.get_open_link, lambda: self._wait_for_link(address, peer, timeout_s))

    async def _wait_for_link(self, address: str, peer: _Peer, timeout_s: float) -> Link:
        if self._closed:
            raise ConnectionLost("the caller is closed")
        loop = asyncio.get_running_loop()
        self._scanning.start()
        opening = peer.opening
        if opening is None:
            wait_s = peer.retry_at - loop.time()
            if wait_s > 0:
                # The same text as for the attempt itself, so that repeated errors can be recognised in logs.
                raise ConnectFailed(
                    f"cannot connect to {address}: {peer.reason}", hint=f"next attempt in {wait_s:.1f} s"
                )
            opening = peer.opening = loop.create_task(self._open(address, peer))
            opening.add_done_callback(_forget_error)
        # Others may wait longer for the same connection, so a timeout ends only this wait.
        await asyncio.wait((opening,), timeout=timeout_s)
        if not opening.done():
            raise ConnectFailed(f"cannot connect to {address}: no answer", hint="is it running?")
        if opening.cancelled():
            raise ConnectionLost("the caller was closed")
        return opening.result()

    async def _open(self, address: str, peer: _Peer) -> Link:
        loop = asyncio.get_running_loop()
        try:
            link = await dial(lambda: Link(self), address, self._tls, _CONNECT_SECONDS)
            if not link.is_open:
                # It was closed before we got here: a server with too many connections does that.
                told = link.calls.farewell
                hint = None if told else "does it have too many connections?"
                raise ConnectFailed(told or "closed by the peer at once", hint=hint)
        except ConnectFailed as error:
            peer.failures += 1
            peer.retry_at = loop.time() + _RETRIES.after(peer.failures)
            peer.reason = error.args[0]
            raise ConnectFailed(f"cannot connect to {address}: {peer.reason}", hint=error.hint) from error
        finally:
            peer.opening = None
        peer.failures = 0
        peer.link = link
        self._addresses[link] = address
        return link

    # -- called by links ---------------------------------------------------------------------------------------------

    def on_open(self, link: Link) -> None:
        """Nothing to do: `_open` keeps the link."""

    def on_close(self, link: Link) -> None:
        """Remove a closed connection; the next call opens another."""
        address = self._addresses.pop(link, None)
        if address is not None and self._on_close is not None and not self._closed:
            self._on_close(address)
        if self._all_gone is not None and not self._addresses and not self._all_gone.done():
            self._all_gone.set_result(None)

    def on_held(self, link: Link, size: int) -> None:
        """Nothing to do: we chose the peers we call, and requests to them have their own limits."""

    def on_stray(self, link: Link) -> None:
        """The call of this response has timed out."""

    def on_refused(self, link: Link, error: Exception) -> Exception:
        """Nothing to do: requests of peers that we chose are not counted."""
        return error

    def report(self, link: Link, reason: str) -> None:
        """Log the misbehaviour of a peer, with a rate limit."""
        self._reporter.report_peer(link.peer_host[0], f"{link.peer} {reason}")

    async def _scan_links(self) -> None:
        now = asyncio.get_running_loop().time()
        for link in list(self._addresses):
            is_late = link.expire_calls(now)
            if is_late and link.last_heard <= now - self._silence_seconds:
                self.report(link, "sent neither a response nor anything else: the next call reconnects")
                link.abort()
            elif link.last_active < now - self._idle_seconds:
                link.abort()


def _forget_error(opening: asyncio.Task[Link]) -> None:
    """Retrieve the error of an attempt that no call waits for any more, so that the loop does not report it."""
    if not opening.cancelled():
        opening.exception()
