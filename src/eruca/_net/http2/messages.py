"""Messages of gRPC in the data of a stream.

 0            1      5
| compressed | size | `size` bytes
"""

from __future__ import annotations

import zlib
from typing import Final

from eruca._net.http2.answers import PREFIX
from eruca._net.http2.calls import GrpcError, GrpcStatus
from eruca._net.meters import count_refused

#: A message, and whether it is compressed.
Message = tuple[bytes, bool]
_GZIP_BITS: Final = 31
# What is inflated at a time, so that the limit is exceeded by little.
_PIECE_BYTES: Final = 64 * 1024


class MessageReader:
    """Cuts the data of one stream into messages."""

    __slots__ = ("_buffer", "_needed", "bytes_max", "count", "is_encoded")

    def __init__(self, encoding: str, bytes_max: int) -> None:
        self.is_encoded = encoding != "identity"
        self.bytes_max = bytes_max
        #: How many messages there were.
        self.count = 0
        self._buffer = bytearray()
        # The size from which on the buffer contains a message, or at least its size.
        self._needed = PREFIX.size

    @property
    def buffered_bytes(self) -> int:
        """How much of an unfinished message there is."""
        return len(self._buffer)

    @property
    def announced_bytes(self) -> int:
        """How large the unfinished message will be, as far as that is known."""
        return self._needed

    def clear(self) -> None:
        """Forget an unfinished message."""
        if self._buffer:
            self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add data; return the messages that are complete now. Raises GrpcError."""
        buffer = self._buffer
        if not buffer and len(data) >= PREFIX.size:
            flag, size = PREFIX.unpack_from(data)
            if size == len(data) - PREFIX.size:  # the usual case
                self.count += 1
                return [(data[PREFIX.size :], self._check(flag, size))]
        buffer += data
        found: list[Message] = []
        at = 0
        while len(buffer) - at >= self._needed:
            flag, size = PREFIX.unpack_from(buffer, at)
            is_compressed = self._check(flag, size)
            end = at + PREFIX.size + size
            if end > len(buffer):
                self._needed = PREFIX.size + size
                break
            found.append((bytes(memoryview(buffer)[at + PREFIX.size : end]), is_compressed))
            at, self._needed = end, PREFIX.size
            self.count += 1
        if at == len(buffer):
            self._buffer = bytearray()  # gives the memory back
        else:
            del buffer[:at]
        return found

    def _check(self, flag: int, size: int) -> bool:
        """Return whether a message is compressed. Raises GrpcError."""
        if size > self.bytes_max:
            raise refuse_large(size, self.bytes_max)
        if flag > 1:
            raise GrpcError(GrpcStatus.INTERNAL, f"a message has the unknown flag {flag}")
        if flag and not self.is_encoded:
            raise GrpcError(GrpcStatus.INTERNAL, "a message is compressed, and grpc-encoding names no compression")
        return flag == 1


def refuse_large(size: int, bytes_max: int) -> GrpcError:
    """Count and return the error for a message that is too large."""
    count_refused("grpcMaxInboundMessageSize")
    return GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"a message of {size} bytes exceeds the limit of {bytes_max}")


class Inflating:
    """Inflates one message, in one go or first a part of it."""

    def __init__(self, data: bytes, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._decoder = zlib.decompressobj(wbits=_GZIP_BITS)
        self._rest = data
        self._pieces: list[bytes] = []
        self._bytes = 0

    def inflate(self, at_once_max: int) -> bytes | None:
        """Inflate; return the message, or None once there is more of it than this. Call again for the rest.

        Raises GrpcError.
        """
        decoder = self._decoder
        while not decoder.eof:
            if self._bytes >= at_once_max:
                return None
            try:
                piece = decoder.decompress(self._rest, _PIECE_BYTES)
            except zlib.error as error:
                raise GrpcError(GrpcStatus.INTERNAL, f"a message is not gzip: {error}") from None
            self._rest = decoder.unconsumed_tail
            self._bytes += len(piece)
            self._pieces.append(piece)
            if self._bytes > self._bytes_max:
                raise refuse_large(self._bytes, self._bytes_max)
            if not piece and not self._rest and not decoder.eof:
                raise GrpcError(GrpcStatus.INTERNAL, "a compressed message is cut off")
        return b"".join(self._pieces)
