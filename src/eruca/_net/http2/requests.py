"""The headers of a request: which method, which metadata, until when, and what is wrong with them."""

from __future__ import annotations

from math import inf
from typing import Final

from eruca._net.http2.answers import ACCEPTED_ENCODINGS, encode_http_refusal, encode_refusal
from eruca._net.http2.calls import GrpcStatus
from eruca._net.http2.kernel.hpack import TOO_LARGE

_TIMEOUT_DIGITS_MAX: Final = 8
_UNIT_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_GRPC: Final = "application/grpc"
#: How messages of a request may be compressed.
ENCODINGS: Final = ("identity", "gzip")


class Malformed(Exception):
    """A request breaks the rules of HTTP/2: its stream is reset."""


class Refused(Exception):
    """A request is answered with an error before its method is looked for; `args[0]` are the headers of the answer."""


class Head:
    """What the headers of a request say."""

    __slots__ = ("authority", "content_length", "encoding", "metadata", "path", "seconds")

    def __init__(self, fields: dict[str, str], problem: str) -> None:
        """Raises Malformed and Refused."""
        if problem:
            if problem == TOO_LARGE:
                raise Refused(encode_refusal(GrpcStatus.RESOURCE_EXHAUSTED, TOO_LARGE))
            raise Malformed(problem)
        method = fields.pop(":method", "")
        path = fields.pop(":path", "")
        if not method or not path or not fields.pop(":scheme", ""):
            raise Malformed("a pseudo header is missing")
        self.path = path
        self.authority = fields.pop(":authority", "") or fields.get("host", "")
        self.metadata = fields
        if method != "POST":
            raise Refused(encode_http_refusal(405, GrpcStatus.INTERNAL, f"{method:.20} is not POST"))
        kind = fields.get("content-type", "")
        if kind != _GRPC and not is_grpc(kind):
            text = f"content type {kind:.80} is not {_GRPC}"
            raise Refused(encode_http_refusal(415, GrpcStatus.INTERNAL, text))
        self.content_length = _read_length(fields["content-length"]) if "content-length" in fields else -1
        self.encoding = fields.get("grpc-encoding", "identity")
        if self.encoding not in ENCODINGS:
            text = f"grpc-encoding {self.encoding:.40} is not supported"
            raise Refused(encode_refusal(GrpcStatus.UNIMPLEMENTED, text) + ACCEPTED_ENCODINGS)
        #: How long the client waits.
        self.seconds = inf
        if "grpc-timeout" in fields:
            self.seconds = read_timeout(fields["grpc-timeout"])


def is_grpc(content_type: str) -> bool:
    """Whether it is the content type of gRPC, with any format of messages."""
    kind = content_type.lower()
    return kind.startswith(_GRPC) and kind[len(_GRPC) : len(_GRPC) + 1] in ("", "+", ";", " ")


def read_timeout(text: str) -> float:
    """Decode `grpc-timeout`: digits and a unit. Raises Refused."""
    seconds, digits = _UNIT_SECONDS.get(text[-1:]), text[:-1]
    if seconds is None or not (digits.isascii() and digits.isdigit()) or len(digits) > _TIMEOUT_DIGITS_MAX:
        text = f"grpc-timeout {text:.20} is not a time"
        raise Refused(encode_refusal(GrpcStatus.INTERNAL, text))
    return int(digits) * seconds


def _read_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Malformed("content-length is not a number")
    return int(text)
