"""TLS over an accepted connection: a protocol for the socket, and a transport for the protocol above it.

    Link  <-  EncryptedTransport  |  TlsLayer  <-  transport of the socket  <-  peer

The layers of asyncio and uvloop do the same, but nobody can bound their memory. Whatever is written is encrypted at
once, into a buffer that `get_write_buffer_size` does not count; a buffer of OpenSSL keeps the size of the largest write
for as long as the connection lives; and each connection has a buffer of 256 KiB for reading. Here what is written waits
as it is until the socket takes more, everything that waits is counted, and the buffers of OpenSSL get little at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from eruca._ground.limits import TLS_PIECE_BYTES

# At most this much waits in the transport of the socket, besides one piece; asyncio's own default.
_SOCKET_BYTES_MAX: Final = 64 * 1024
# Defaults for the protocol above; low must not be below what may wait in the socket's transport.
_HIGH: Final = 512 * 1024
_WAITING: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def open_encrypted(
    make_protocol: Callable[[], asyncio.BaseProtocol], sock: socket.socket, context: ssl.SSLContext, handshake_s: float
) -> None:
    """Do the handshake on an accepted connection, and give it its protocol. Raises OSError."""
    loop = asyncio.get_running_loop()
    layer = TlsLayer(loop, cast(asyncio.Protocol, make_protocol()), context)
    try:
        async with asyncio.timeout(handshake_s):
            await loop.connect_accepted_socket(lambda: layer, sock)
            await layer.is_open
    except BaseException as error:
        layer.is_open.cancel()
        layer.abort()
        if isinstance(error, TimeoutError):
            raise ConnectionAbortedError(f"it took longer than {handshake_s:g} s") from None
        raise


class TlsLayer(asyncio.Protocol):
    """The server's side of TLS on one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
        self._loop = loop
        self.protocol = protocol
        self.context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: The transport of the socket.
        self.below: asyncio.Transport | None = None
        #: Done when the handshake is; fails if that does.
        self.is_open: asyncio.Future[None] = loop.create_future()
        self._has_protocol = False
        self.is_closing = False
        self._is_lost = False
        self._failure: Exception | None = None
        # What was read and not decrypted yet: the bytes from a position on.
        self._received = b""
        self._received_at = 0
        self.reads = True
        # What is to be written and not encrypted yet.
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        # What is encrypted and goes to the socket at once.
        self._encrypted: list[bytes] = []
        self._encrypted_bytes = 0
        self._is_below_full = False
        self._is_full = False
        self.high, self.low = _HIGH, _HIGH // 4

    # -- called by the transport of the socket -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the handshake."""
        self.below = cast(asyncio.Transport, transport)
        self.below.set_write_buffer_limits(high=_SOCKET_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent."""
        if self.is_closing:
            return
        self._received = self._received[self._received_at :] + data
        self._received_at = 0
        self._go_on()

    def eof_received(self) -> bool:
        """The peer sends no more; whatever it sent is handled before the connection closes."""
        if not self._has_protocol:
            self.fail(ConnectionResetError("it hung up"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.is_closing = self._is_lost = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._received = b""
        failure = self._failure or exc
        if not self.is_open.done():
            self.is_open.set_exception(failure or ConnectionResetError("it hung up"))
        # It refers to us: without this, both would wait for the garbage collector, and with them what OpenSSL has.
        protocol, self.protocol = self.protocol, asyncio.Protocol()
        if self._has_protocol:
            self._has_protocol = False
            protocol.connection_lost(failure)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self._is_below_full = True

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._is_below_full = False
        self._encrypt()

    # -- reading -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Work on what was received, a piece at a time, as long as the protocol above reads."""
        is_first = True
        try:
            while self.reads and not self.is_closing and (is_first or self._received):
                is_first = False
                self._feed()
                if self._has_protocol or self._shake_hands():
                    self._decrypt()
        except ssl.SSLError as error:
            self.fail(error)

    def _feed(self) -> None:
        """Give OpenSSL the next piece of what was received."""
        begin, end = self._received_at, self._received_at + TLS_PIECE_BYTES
        if begin == 0 and end >= len(self._received):
            self._incoming.write(self._received)
        else:
            self._incoming.write(memoryview(self._received)[begin:end])
        self._received_at = end
        if end >= len(self._received):
            self._received, self._received_at = b"", 0

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is done."""
        try:
            self.tls.do_handshake()
        except _WAITING:
            self._flush()
            return False
        self._flush()
        self._has_protocol = True
        self.protocol.connection_made(EncryptedTransport(self))
        if not self.is_open.done():
            self.is_open.set_result(None)
        return True

    def _decrypt(self) -> None:
        """Pass on what can be decrypted now."""
        chunks = []
        try:
            while chunk := self.tls.read(TLS_PIECE_BYTES):
                chunks.append(chunk)
        except _WAITING:
            chunk = b"more may come"
        if self._unsent:
            self._encrypt()
        elif self._outgoing.pending:
            self._flush()
        if chunks:
            self.protocol.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if not chunk:  # the peer has ended the connection
            self.close()

    def set_reading(self, *, reads: bool) -> None:
        """Stop or continue reading; what was received already waits."""
        self.reads = reads
        if self.below is None or self.below.is_closing():
            return
        if not reads:
            self.below.pause_reading()
            return
        self.below.resume_reading()
        self._loop.call_soon(self._go_on)

    @property
    def unread_bytes(self) -> int:
        """How much was received and not decrypted yet."""
        return len(self._received) - self._received_at + self._incoming.pending

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, as soon as the peer reads."""
        if self.is_closing or not data:
            return
        # A view into a file is copied: the file may be closed while the peer does not read.
        view = memoryview(data if isinstance(data, bytes) else bytes(data))
        self._unsent.append(view)
        self._unsent_bytes += view.nbytes
        self._encrypt()

    def _encrypt(self) -> None:
        """Encrypt what the socket takes, a piece at a time."""
        try:
            while self._unsent and (not self._is_below_full or self.is_closing):
                view = self._unsent[0]
                count = self.tls.write(view[:TLS_PIECE_BYTES])
                self._unsent_bytes -= count
                if count < view.nbytes:
                    self._unsent[0] = view[count:]
                else:
                    self._unsent.popleft()
                self._collect()
                if self._encrypted_bytes >= _SOCKET_BYTES_MAX:
                    self._flush()
        except _WAITING:
            pass
        except ssl.SSLError as error:
            self.fail(error)
            return
        self._flush()
        self.tell_fullness()

    def _collect(self) -> None:
        """Take what OpenSSL has encrypted out of its buffer."""
        data = self._outgoing.read()
        if data:
            self._encrypted.append(data)
            self._encrypted_bytes += len(data)

    def _flush(self) -> None:
        """Pass encrypted bytes on to the socket."""
        self._collect()
        encrypted, self._encrypted, self._encrypted_bytes = self._encrypted, [], 0
        if encrypted and self.below is not None:
            self.below.write(encrypted[0] if len(encrypted) == 1 else b"".join(encrypted))

    @property
    def unsent_bytes(self) -> int:
        """How much was written and waits for the peer."""
        return self._unsent_bytes + (0 if self.below is None else self.below.get_write_buffer_size())

    def tell_fullness(self) -> None:
        """Tell the protocol above when too much waits for the peer, and when there is room again."""
        size = self.unsent_bytes
        if size > self.high and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()
        elif size <= self.low and self._is_full:
            self._is_full = False
            self.protocol.resume_writing()

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left, say goodbye, and close the connection."""
        if self.is_closing:
            return
        self.is_closing = True
        self._encrypt()
        if self._has_protocol:
            # The peer has not said goodbye yet, which it need not do.
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            self._flush()
        if self.below is not None:
            self.below.close()

    def fail(self, error: Exception) -> None:
        """Close the connection because of an error, after the alert that tells the peer about it."""
        self._failure = error
        self._flush()
        self.is_closing = True
        if self.below is None:
            return
        if self._has_protocol:
            self.below.abort()
        else:
            self.below.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_closing = True
        if self.below is not None and not self._is_lost:
            self.below.abort()


class EncryptedTransport(asyncio.Transport):
    """What the protocol above TLS writes to."""

    def __init__(self, layer: TlsLayer) -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Facts about the connection, as transports of asyncio have them."""
        layer = self._layer
        if name == "ssl_object":
            return layer.tls
        if name == "sslcontext":
            return layer.context
        return default if layer.below is None else layer.below.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol above."""
        return self._layer.protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._layer.is_closing

    def close(self) -> None:
        """Write what is left and close the connection."""
        self._layer.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._layer.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, as soon as the peer reads."""
        self._layer.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces."""
        self._layer.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """How much was written and waits for the peer, encrypted or not."""
        return self._layer.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """From when on writing pauses, and until when."""
        return self._layer.low, self._layer.high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when writing pauses. A pause ends at the latest when the socket has taken all but a little."""
        layer = self._layer
        layer.high = max(_HIGH if high is None else high, 4 * _SOCKET_BYTES_MAX)
        layer.low = max(layer.high // 4 if low is None else low, _SOCKET_BYTES_MAX)
        layer.tell_fullness()

    def is_reading(self) -> bool:
        """Whether it reads."""
        return not self._layer.is_closing and self._layer.reads

    def pause_reading(self) -> None:
        """Read nothing more."""
        self._layer.set_reading(reads=False)

    def resume_reading(self) -> None:
        """Read again."""
        self._layer.set_reading(reads=True)

    def get_read_buffer_size(self) -> int:
        """How much was received and not decrypted yet."""
        return self._layer.unread_bytes
