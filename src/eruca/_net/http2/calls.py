"""What gRPC services see of their transport: methods, calls, errors.

A table of methods by path is all that a port needs:

>>> async def hold(call: Call, request: bytes) -> bytes:
...     await asyncio.sleep(1)
...     return b""
>>> methods = {
...     "/demo.Echo/Say": Method("Say", Kind.UNARY, lambda call, request: request),
...     "/demo.Echo/Hold": Method("Hold", Kind.UNARY, hold),
... }
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias


class GrpcStatus(enum.IntEnum):
    """The status of a call, sent in the trailer `grpc-status`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends a call with a status other than OK. Handlers raise it."""

    def __init__(self, status: GrpcStatus, text: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Kind(enum.Enum):
    """How many messages go in each direction."""

    UNARY = "unary"  # one request, one response
    SERVER_STREAM = "server stream"  # one request, any number of responses
    BIDI = "bidi"  # any number in each direction, independent of each other


class Connection(Protocol):
    """The connection of a call, shared by all calls on it. Guards (`net.peers.Peer`) count it as any other."""

    peer: str
    local: str
    peer_host: tuple[str, int]
    #: SHA-256 fingerprint of the peer's certificate, in lower-case hex; None without TLS or without a certificate.
    certificate: str | None
    #: The account of the last request that was accepted; None: none was, or there are no accounts. Services set it.
    account: str | None
    is_open: bool
    #: Data that other packages attach to a connection, each under its own name.
    notes: dict[str, Any]

    def complain(self, reason: str) -> None:
        """Log the misbehaviour of the peer, with a rate limit."""

    def pause_for(self, seconds: float) -> None:
        """Read nothing for a time."""

    def abort(self) -> None:
        """Close the connection at once."""


class Call(Protocol):
    """One call.

    The task of a handler is cancelled when its call is over before the handler is: the client cancelled it, its
    deadline passed, or the connection was lost.
    """

    #: Full path, `/package.Service/Name`.
    path: str
    #: All headers of the request except pseudo headers, in lower case. Values of keys that end in `-bin` stay in
    #: base64; several values of one key are joined by commas. Calls may share it: it must not be changed.
    metadata: Mapping[str, str]
    #: Loop time at which the client gives up; None: never.
    deadline: float | None
    #: Host and port that the client used to reach this server, by the header `:authority`.
    authority: str
    #: Address of the client, `host:port`.
    peer: str
    over_tls: bool
    connection: Connection

    @property
    def is_open(self) -> bool:
        """Whether the client still waits for something. False also when the handler has returned."""

    async def receive(self) -> bytes | None:
        """Return the next message of a BIDI call; None when the client sends no more."""

    async def send(self, message: bytes) -> None:
        """Send a message of a stream, after waiting until the client has read most of those before."""

    def push(self, message: bytes) -> None:
        """Send a message of a stream without waiting, also from outside its handler.

        What the client does not read is kept in memory. A call that is over drops it.
        """

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call from outside its handler, whose task is cancelled, after everything that was sent."""

    def when_closed(self, listener: Callable[[], None]) -> None:
        """Call a function once when the call is over, for whatever reason; at once if it is over already."""


# A unary handler that needs not wait returns the bytes themselves, which saves the task. Server streams may also return
# None after some `push`.
UnaryHandler: TypeAlias = Callable[[Call, bytes], bytes | Awaitable[bytes]]
ServerStreamHandler: TypeAlias = Callable[[Call, bytes], Awaitable[None] | None]
BidiHandler: TypeAlias = Callable[[Call], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service. Messages are the serialized bytes, without framing and compression."""

    name: str
    kind: Kind
    handler: Callable[..., Any]  # UnaryHandler, ServerStreamHandler or BidiHandler, as `kind` says
