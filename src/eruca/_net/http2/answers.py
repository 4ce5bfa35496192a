"""What a server of gRPC answers: headers and trailers, encoded once where they are always the same.

Nothing is added to the dynamic table of the peer, and no text has a Huffman code: then the headers of a response are
constant bytes, and there is no state to keep.
"""

from __future__ import annotations

import struct
from typing import Final

from eruca._net.http2.calls import GrpcStatus

# Characters of `grpc-message`. Clients limit the size of trailers to 8 KiB.
_MESSAGE_CHARS_MAX: Final = 1024
#: The prefix of a message: whether it is compressed, and its size.
PREFIX: Final = struct.Struct(">BI")
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x25}


def encode_field(name: str, value: str) -> bytes:
    """Encode a header field as HPACK: a literal that is not added to the table."""
    return b"".join((b"\0", _encode_text(name), _encode_text(value)))


def _encode_text(text: str) -> bytes:
    data = text.encode("latin-1")
    size = len(data)
    if size < 0x7F:
        return bytes((size,)) + data
    size -= 0x7F
    prefix = [0x7F]
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*prefix, size)) + data


def _encode_status(status: int) -> bytes:
    # The static table has 200 at index 8; the name of another status is at index 8 too.
    return b"\x88" if status == 200 else b"\x08" + _encode_text(str(status))


_CONTENT_TYPE: Final = encode_field("content-type", "application/grpc")
#: The headers of every response with messages.
HEADERS: Final = _encode_status(200) + _CONTENT_TYPE
#: The trailers of a call that succeeded.
TRAILERS_OK: Final = encode_field("grpc-status", "0")
#: Sent with UNIMPLEMENTED for a compression that we do not know.
ACCEPTED_ENCODINGS: Final = encode_field("grpc-accept-encoding", "identity,gzip")


def encode_trailers(status: GrpcStatus, text: str) -> bytes:
    """Encode the trailers of a call."""
    if status is GrpcStatus.OK and not text:
        return TRAILERS_OK
    fields = encode_field("grpc-status", str(int(status)))
    return fields + encode_field("grpc-message", escape_message(text)) if text else fields


def escape_message(text: str) -> str:
    """Encode a text as `grpc-message`: percent signs and everything but printable ASCII become %XX."""
    data = text[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace")
    return "".join([chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data])


def encode_refusal(status: GrpcStatus, text: str) -> bytes:
    """Encode the headers of a response that has no messages."""
    return HEADERS + encode_trailers(status, text)


def encode_http_refusal(http_status: int, status: GrpcStatus, text: str) -> bytes:
    """Encode the headers of an answer to something that is not gRPC."""
    return _encode_status(http_status) + _CONTENT_TYPE + encode_trailers(status, text)
