"""A listening port: accepts connections and finds out by the first byte of each whether it uses TLS.

A TLS connection starts with a handshake record, whose first byte is 0x16. A frame starts with its size in four bytes,
at most 16 MiB in all (`FRAME_BYTES_MAX`), so its first byte is 0. A slave starts with a position in the log, whose
first byte is 0 up to 2^56, or with 0x7f (`HELLO_MAGIC`). Java's servers and clients rely on the same.

The byte is only looked at (MSG_PEEK), before the connection has a transport. So an established connection is the same
as one of a port without TLS, and costs the same. Connections that have not sent a byte, and handshakes in progress, are
limited in number and time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from eruca._ground.limits import (
    ACCEPTS_AT_ONCE,
    FIRST_BYTE_SECONDS_MAX,
    HANDSHAKE_SECONDS_MAX,
    HANDSHAKES_MAX,
)
from eruca._ground.repeating import Repeating
from eruca._net.encrypted import open_encrypted
from eruca._net.guards import Reporter
from eruca._net.tls import ServerTls, explain_failure
from eruca._net.tlsoptions import TlsMode
from eruca._net.turns import find_turns
from eruca._net.waiting import Waiting
from eruca.errors import ConfigError, ConnectFailed

log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_TLS_HANDSHAKE: Final = 0x16
# The system has no files or memory for another connection: wait before the next attempt.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_SECONDS: Final = 1.0
# Without room for more connections, some may still send their first byte: so they get to know that there are too many.
_WAITING_MIN: Final = 16


class _Visitor:
    """A connection that is not open yet: nothing was received, or its handshake is in progress."""

    __slots__ = ("host", "peer", "since", "sock", "task")

    def __init__(self, sock: socket.socket, address: Any, since: float) -> None:
        self.sock = sock
        self.host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        self.since = since
        self.task: asyncio.Task[Any] | None = None


class ForeignAddress(ConnectFailed):
    """The address to listen on is not one of this machine, so another port would not help."""


class Listener:
    """Accepts the connections of one port and gives each of them a protocol."""

    def __init__(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls | None,
        reporter: Reporter,
        *,
        room: Callable[[], int],
        first_byte_s: float = FIRST_BYTE_SECONDS_MAX,
        handshake_s: float = HANDSHAKE_SECONDS_MAX,
        scan_s: float = 1.0,
    ) -> None:
        """`room` returns how many connections may wait for their first byte or their handshake. Those that have a
        protocol are limited by it.
        """
        self._make_protocol = make_protocol
        self._tls = None if tls is None or tls.mode is TlsMode.DISABLED else tls
        self._reporter = reporter
        self._room = room
        self._first_byte_s = first_byte_s
        self._handshake_s = handshake_s
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._silent: Waiting[_Visitor] = Waiting()
        self._shaking: Waiting[_Visitor] = Waiting()
        self._opening: set[_Visitor] = set()
        self._scanning = Repeating("closing connections that send nothing", self._drop_silent, lambda: scan_s)

    @property
    def waiting(self) -> int:
        """How many connections have no protocol yet."""
        return len(self._silent) + len(self._shaking) + len(self._opening)

    @property
    def port(self) -> int:
        """The listening port, 0 if it is not open."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else 0

    async def start(self, host: str, port: int) -> None:
        """Listen on all addresses of a host. Raises ConnectFailed."""
        self._loop = loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_listen(family, kind, protocol, address))
        except OSError as error:
            self._close_sockets()
            said = f"cannot listen on {host}:{port}: {error.strerror or error}"
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise ForeignAddress(
                    said,
                    hint="this machine has no such address: set bindAddress (--host) to one that it has; without it a"
                    " broker listens on brokerIP1",
                ) from error
            raise ConnectFailed(said, hint="another process uses the port; choose another one") from error
        for sock in self._sockets:
            loop.add_reader(sock, self._accept, sock)
        if self._tls is not None:
            self._scanning.start()

    async def stop(self) -> None:
        """Close the port and the connections that are not open yet."""
        await self._scanning.stop()
        self._close_sockets()
        for visitor in [*self._silent, *self._shaking]:
            self._drop(visitor)
        # Their protocols exist, and close like all others.
        opening = [visitor.task for visitor in self._opening if visitor.task is not None]
        if opening:
            await asyncio.wait(opening)

    def _close_sockets(self) -> None:
        while self._sockets:
            sock = self._sockets.pop()
            if self._loop is not None:
                self._loop.remove_reader(sock)
            sock.close()

    # -- accepting ---------------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        """Accept some connections; the loop calls again if there are more."""
        assert self._loop is not None
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._reporter.report("", f"no connection can be accepted: {error.strerror}")
                self._loop.remove_reader(listening)
                self._loop.call_later(_EXHAUSTED_SECONDS, self._resume, listening)
                return
            sock.setblocking(False)
            self._take(_Visitor(sock, address, self._loop.time()))

    def _resume(self, listening: socket.socket) -> None:
        if self._loop is not None and listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _take(self, visitor: _Visitor) -> None:
        if self._tls is None:
            self._open(visitor)
            return
        if self.waiting >= max(self._room(), _WAITING_MIN):
            # If there is none to make room, the protocol refuses this one.
            oldest = (self._silent if len(self._silent) else self._shaking).choose(visitor.host)
            if oldest is not None:
                self._drop(oldest)
        self._silent.add(visitor, visitor.host)
        if not self._look(visitor) and self._loop is not None:
            self._loop.add_reader(visitor.sock, self._look_again, visitor)

    # -- the first byte ----------------------------------------------------------------------------------------------

    def _look_again(self, visitor: _Visitor) -> None:
        if self._loop is not None and visitor in self._silent:
            self._loop.remove_reader(visitor.sock)
            if not self._look(visitor):
                self._loop.add_reader(visitor.sock, self._look_again, visitor)

    def _look(self, visitor: _Visitor) -> bool:
        """Look at the first byte and decide; return False if there is none yet."""
        try:
            found = visitor.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            found = b""
        self._silent.discard(visitor)
        assert self._tls is not None
        if not found:  # the peer has closed it
            visitor.sock.close()
        elif found[0] == _TLS_HANDSHAKE:
            self._shake_hands(visitor, self._tls)
        elif self._tls.mode is TlsMode.ENFORCING:
            why = "it does not use TLS, which this port requires (tls.server.mode=enforcing)"
            self._reporter.report_peer(visitor.host, f"{visitor.peer} refused: {why}")
            visitor.sock.close()
        else:
            self._open(visitor)
        return True

    async def _drop_silent(self) -> None:
        assert self._loop is not None
        before = self._loop.time() - self._first_byte_s
        for visitor in [visitor for visitor in self._silent if visitor.since < before]:
            self._drop(visitor)

    def _drop(self, visitor: _Visitor) -> None:
        """Close a connection that is not open yet."""
        if self._silent.discard(visitor):
            if self._loop is not None:
                self._loop.remove_reader(visitor.sock)
            visitor.sock.close()
        elif self._shaking.discard(visitor) and visitor.task is not None:
            visitor.task.cancel()

    # -- opening -----------------------------------------------------------------------------------------------------

    def _open(self, visitor: _Visitor) -> None:
        """Give a plain connection its protocol."""
        assert self._loop is not None
        self._opening.add(visitor)
        opening = self._loop.connect_accepted_socket(self._make_protocol, visitor.sock)
        visitor.task = task = self._loop.create_task(opening)
        task.add_done_callback(lambda _: self._on_opened(visitor))

    def _shake_hands(self, visitor: _Visitor, tls: ServerTls) -> None:
        assert self._loop is not None
        if len(self._shaking) >= HANDSHAKES_MAX:
            # A handshake takes one or two round trips, so the oldest is one that hangs.
            oldest = self._shaking.choose(visitor.host)
            assert oldest is not None
            self._drop(oldest)
        self._shaking.add(visitor, visitor.host)
        visitor.task = task = self._loop.create_task(self._open_encrypted(visitor, tls))
        task.add_done_callback(lambda _: self._on_opened(visitor))

    async def _open_encrypted(self, visitor: _Visitor, tls: ServerTls) -> None:
        """Do the handshake, and give the connection its protocol."""
        assert self._loop is not None
        # Its cryptography takes as long as a hundred requests: of a crowd, one in each turn of the loop.
        await find_turns(self._loop).wait()
        context = await tls.get_context()
        await open_encrypted(self._make_protocol, visitor.sock, context, self._handshake_s)

    def _on_opened(self, visitor: _Visitor) -> None:
        """The connection is open and has its protocol, or it failed."""
        self._opening.discard(visitor)
        self._shaking.discard(visitor)
        assert visitor.task is not None
        if visitor.task.cancelled():
            visitor.sock.close()
            return
        error = visitor.task.exception()
        if error is None:
            return
        visitor.sock.close()
        if isinstance(error, OSError | ConfigError):
            why = explain_failure(error) if isinstance(error, ssl.SSLError | ConfigError) else str(error)
            self._reporter.report_peer(visitor.host, f"{visitor.peer}: the TLS handshake failed: {why or 'it hung up'}")
        else:
            log.error("a connection from %s could not be opened", visitor.peer, exc_info=error)


def _listen(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The port of IPv4 is another socket, as with the servers of asyncio.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
