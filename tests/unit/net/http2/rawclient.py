"""The client's end of a connection of HTTP/2, bare: frames on a transport that remembers, or on a socket."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from eruca._ground.limits import GRPC_MESSAGE_BYTES_MAX, HTTP2_STREAMS_MAX, UNSENT_BYTES_MAX
from eruca._net.http2.answers import PREFIX, encode_field
from eruca._net.http2.calls import Call, GrpcError, GrpcStatus, Kind, Method
from eruca._net.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    ErrorCode,
    FrameType,
    Setting,
    encode_frame,
    encode_settings,
    encode_window_update,
)
from eruca._net.http2.kernel.cutting import cut_frames
from eruca._net.http2.kernel.hpack import HeaderDecoder
from eruca._net.http2.link import Http2Link
from eruca._net.http2.port import GrpcPort, GrpcSettings
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import RecordingTransport

ACKNOWLEDGED = encode_frame(FrameType.SETTINGS, 1, 0)
HELLO = PREFACE + encode_settings({})
HEAD = {":method": "POST", ":scheme": "http", ":path": "/demo/echo", ":authority": "host:1", "te": "trailers"}
HEAD |= {"content-type": "application/grpc"}


# -- methods -----------------------------------------------------------------------------------------------------------


def echo(call: Call, request: bytes) -> bytes:
    return request


async def echo_later(call: Call, request: bytes) -> bytes:
    await asyncio.sleep(0)
    return request


async def repeat(call: Call, request: bytes) -> None:
    for _ in range(3):
        await call.send(request)


async def converse(call: Call) -> None:
    while (message := await call.receive()) is not None:
        await call.send(message)


async def hang(call: Call, request: bytes) -> bytes:
    await asyncio.get_running_loop().create_future()
    return b""


def refuse(call: Call, request: bytes) -> bytes:
    raise GrpcError(GrpcStatus.NOT_FOUND, "50 % of grün\n")


METHODS = {
    "/demo/echo": Method("echo", Kind.UNARY, echo),
    "/demo/later": Method("later", Kind.UNARY, echo_later),
    "/demo/repeat": Method("repeat", Kind.SERVER_STREAM, repeat),
    "/demo/converse": Method("converse", Kind.BIDI, converse),
    "/demo/hang": Method("hang", Kind.UNARY, hang),
    "/demo/refuse": Method("refuse", Kind.UNARY, refuse),
}


# -- frames ------------------------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A frame that was received."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """A header block."""
    return b"".join(encode_field(name, value) for name, value in fields.items())


def headers(stream: int, fields: Mapping[str, str] | None = None, *, end: bool = False, **more: str) -> bytes:
    """HEADERS of a request; `path` and others replace those of `HEAD`."""
    found = dict(HEAD if fields is None else fields)
    for name, value in more.items():
        found[f":{name}" if f":{name}" in HEAD else name.replace("_", "-")] = value
    return encode_frame(FrameType.HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, encode_fields(found))


def message(body: bytes, flag: int = 0) -> bytes:
    """A message of gRPC."""
    return PREFIX.pack(flag, len(body)) + body


def data(stream: int, payload: bytes = b"", *, end: bool = False, flags: int = 0) -> bytes:
    """DATA, in as many frames as it takes."""
    pieces = [payload[at : at + 16_384] for at in range(0, len(payload), 16_384)] or [b""]
    ended = flags | (END_STREAM if end else 0)
    frames = [encode_frame(FrameType.DATA, flags, stream, piece) for piece in pieces[:-1]]
    return b"".join((*frames, encode_frame(FrameType.DATA, ended, stream, pieces[-1])))


def call(stream: int, body: bytes = b"x", **more: str) -> bytes:
    """A request with one message."""
    return headers(stream, None, end=False, **more) + data(stream, message(body), end=True)


def reset(stream: int, code: int = ErrorCode.CANCEL) -> bytes:
    """RST_STREAM."""
    return encode_frame(FrameType.RST_STREAM, 0, stream, struct.pack(">I", code))


def widen(stream: int, size: int) -> bytes:
    """WINDOW_UPDATE."""
    return encode_window_update(stream, size)


def settings(**values: int) -> bytes:
    """SETTINGS, by lower-case names."""
    return encode_settings({Setting[name.upper()]: value for name, value in values.items()})


def split(received: bytes) -> list[Frame]:
    """The frames in some bytes, which must be whole."""
    found, at = cut_frames(received, 0, 1 << 20, 1 << 24)
    assert at == len(received)
    return [Frame(*frame) for frame in found]


class Answer(NamedTuple):
    """What a call got."""

    status: int | None
    text: str
    messages: list[bytes]
    fields: dict[str, str]


class Client:
    """Reads what a server sends."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._decoder = HeaderDecoder()
        self._fields: dict[int, dict[str, str]] = {}
        self._rest = b""

    def take(self, received: bytes) -> None:
        """Read more."""
        found, at = cut_frames(self._rest + received, 0, 1 << 20, 1 << 24)
        self._rest = (self._rest + received)[at:]
        for frame in map(Frame._make, found):
            self.frames.append(frame)
            if frame.kind == FrameType.HEADERS:
                fields, _ = self._decoder.decode(frame.payload, 1 << 20)
                self._fields.setdefault(frame.stream, {}).update(fields)

    def list_kinds(self, stream: int | None = None) -> list[int]:
        """The types of all frames, or of those of a stream."""
        return [frame.kind for frame in self.frames if stream in (None, frame.stream)]

    def find(self, kind: int) -> list[Frame]:
        """All frames of a type."""
        return [frame for frame in self.frames if frame.kind == kind]

    def read_data(self, stream: int) -> bytes:
        """All data of a stream."""
        return b"".join(frame.payload for frame in self.find(FrameType.DATA) if frame.stream == stream)

    def read(self, stream: int) -> Answer:
        """What a call got so far: whole messages."""
        rest, messages = self.read_data(stream), []
        while len(rest) >= 5 and len(rest) >= 5 + (size := PREFIX.unpack_from(rest)[1]):
            messages.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        fields = self._fields.get(stream, {})
        status = int(fields["grpc-status"]) if "grpc-status" in fields else None
        return Answer(status, fields.get("grpc-message", ""), messages, fields)

    def read_resets(self) -> dict[int, int]:
        """The error codes of the streams that the server ended."""
        return {frame.stream: int.from_bytes(frame.payload, "big") for frame in self.find(FrameType.RST_STREAM)}

    def read_goaway(self) -> tuple[int, int, str] | None:
        """The last GOAWAY: last stream, error code and reason."""
        found = self.find(FrameType.GOAWAY)
        if not found:
            return None
        last, code = struct.unpack_from(">II", found[-1].payload)
        return last, code, found[-1].payload[8:].decode()


# -- without a socket --------------------------------------------------------------------------------------------------


class Owner:
    """An owner that records the calls of its links."""

    def __init__(self, methods: Mapping[str, Method] = METHODS) -> None:
        self.methods = methods
        self.unsent_bytes_max = UNSENT_BYTES_MAX
        self.message_bytes_max = GRPC_MESSAGE_BYTES_MAX
        self.streams_max = HTTP2_STREAMS_MAX
        self.said: list[str] = []
        self.closed = 0
        self.held = 0

    def on_open(self, link: Http2Link) -> None:
        pass

    def on_close(self, link: Http2Link) -> None:
        self.closed += 1

    def on_over(self) -> None:
        pass

    def on_held(self, link: Http2Link, size: int) -> None:
        self.held += size

    def report(self, link: Http2Link, reason: str) -> None:
        self.said.append(reason)


class Wire(Client):
    """A client and a link, without anything in between."""

    def __init__(self, owner: Owner | None = None, *, says_hello: bool = True) -> None:
        super().__init__()
        self.owner = owner or Owner()
        self.link = Http2Link(self.owner)
        self.transport = RecordingTransport()
        self.link.connection_made(self.transport)
        if says_hello:
            self.link.data_received(HELLO)

    def feed(self, *frames: bytes) -> None:
        """Send frames in one read, and read what was written."""
        self.link.data_received(b"".join(frames))
        self.read_written()

    def read_written(self) -> None:
        """Read what was written."""
        written = b"".join(self.transport.writes)
        self.transport.writes.clear()
        self.take(written)

    async def settle(self) -> None:
        """Let handlers do what they can do now."""
        for _ in range(10):
            await asyncio.sleep(0)
        self.read_written()

    async def ask(self, *frames: bytes) -> None:
        """Send frames, and let handlers do what they can do now."""
        self.feed(*frames)
        await self.settle()


# -- on a socket -------------------------------------------------------------------------------------------------------


class SocketClient(Client):
    """A client on a loopback socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self.writer = writer
        self.has_ended = False

    def write(self, *frames: bytes) -> None:
        """Send frames in one write."""
        self.writer.write(b"".join(frames))

    async def read_some(self) -> None:
        """Read once."""
        try:
            received = await self._reader.read(65_536)
        except ConnectionError:
            received = b""
        self.has_ended = not received
        self.take(received)

    async def wait_for_answer(self, stream: int) -> Answer:
        """Wait for the trailers of a call."""
        async with asyncio.timeout(PATIENCE_S):
            while (answer := self.read(stream)).status is None:
                assert not self.has_ended, "the connection ended"
                await self.read_some()
        return answer

    async def wait_for_end(self) -> None:
        """Wait until the server has closed the connection."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.has_ended:
                await self.read_some()


@asynccontextmanager
async def open_client(port: int, **options: Any) -> AsyncIterator[SocketClient]:
    """A connection to a port on loopback, with preface and settings."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    client = SocketClient(reader, writer)
    client.write(HELLO)
    try:
        yield client
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def run_port(methods: Mapping[str, Method] = METHODS, **settings: Any) -> AsyncIterator[GrpcPort]:
    """A port on loopback chosen by the system, with frequent scans."""
    port = GrpcPort(methods, GrpcSettings(**{"scan_seconds": 0.01, "drain_seconds": 0.1, **settings}))
    await port.open()
    try:
        yield port
    finally:
        await port.close()
