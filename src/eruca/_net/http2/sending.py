"""What one connection sends: responses, as far as both windows allow, and streams that wait for a window in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from eruca._ground.limits import HTTP2_QUANTUM_BYTES, HTTP2_TURN_BYTES
from eruca._net.http2.answers import HEADERS, PREFIX, TRAILERS_OK
from eruca._net.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    WINDOW_DEFAULT,
    ErrorCode,
    FrameType,
    Http2Error,
    StreamError,
    encode_frame,
)
from eruca._net.outbox import Outbox
from eruca._net.turns import find_turns

_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_END: Final = END_HEADERS | END_STREAM
_HEADERS_HEAD: Final = len(HEADERS) << 8 | _HEADERS
_TRAILERS_HEAD: Final = len(TRAILERS_OK) << 8 | _HEADERS
# Larger responses do not fit into one frame of data.
_SHORT_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - PREFIX.size


class Sender(Protocol):
    """A stream, as far as sending needs to know it."""

    outgoing: Outgoing

    def on_sent(self) -> None:
        """Some of what waited was sent."""

    def on_ended(self) -> None:
        """Everything was sent, trailers included."""


class Outgoing:
    """What one stream sends."""

    __slots__ = ("bytes", "has_headers", "number", "pieces", "sent", "trailers", "window")

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        #: What the peer lets us send; less than 0 after it has reduced the window of all streams.
        self.window = window
        self.has_headers = False
        #: Data that waits for a window, and its size.
        self.pieces: deque[memoryview] = deque()
        self.bytes = 0
        #: How much was sent.
        self.sent = 0
        #: Sent after all data; None: there may be more data.
        self.trailers: bytes | None = None

    def clear(self) -> None:
        """Drop what waits."""
        self.pieces.clear()
        self.bytes = 0


class Sending:
    """The sending side of a connection."""

    def __init__(
        self,
        outbox: Outbox,
        loop: asyncio.AbstractEventLoop,
        on_data: Callable[[], None],
        on_queued: Callable[[int, int], None],
    ) -> None:
        """`on_data` is called for data that is sent, `on_queued` with what waits in all and what was added."""
        self._outbox = outbox
        self._on_data = on_data
        self._on_queued = on_queued
        self._turns = find_turns(loop)
        #: What the peer lets us send on all streams together, and on a new one.
        self.window = WINDOW_DEFAULT
        self.stream_window = WINDOW_DEFAULT
        #: Bytes of all messages that wait for windows.
        self.queued = 0
        # Streams with data and a window, in turn.
        self._waiting: dict[Sender, None] = {}
        self._is_queued = False

    def put(self, frame: bytes) -> None:
        """Send a frame that no window limits."""
        outbox = self._outbox
        if outbox.is_gathering:
            outbox.frames.append(frame)
        else:
            outbox.send(frame)

    # -- streams -----------------------------------------------------------------------------------------------------

    def answer(self, stream: Sender, message: bytes) -> bool:
        """Send a whole response at once: headers, one message, trailers; return False if it needs several steps."""
        outgoing = stream.outgoing
        size = len(message) + PREFIX.size
        if (
            size > _SHORT_BYTES_MAX
            or size > self.window
            or size > outgoing.window
            or outgoing.has_headers
            or self._outbox.is_full
        ):
            return False
        self.window -= size
        number = outgoing.number
        self.put(
            b"".join(
                (
                    HEAD.pack(_HEADERS_HEAD, END_HEADERS, number),
                    HEADERS,
                    HEAD.pack(size << 8, 0, number),
                    PREFIX.pack(0, len(message)),
                    message,
                    HEAD.pack(_TRAILERS_HEAD, _END, number),
                    TRAILERS_OK,
                )
            )
        )
        return True

    def send(self, stream: Sender, message: bytes) -> None:
        """Send a message, or as much of it as the windows allow; the rest waits."""
        outgoing = stream.outgoing
        if not outgoing.has_headers:
            outgoing.has_headers = True
            self.put(encode_frame(_HEADERS, END_HEADERS, outgoing.number, HEADERS))
        size = len(message) + PREFIX.size
        prefix = PREFIX.pack(0, len(message))
        if (
            not outgoing.bytes
            and size <= _SHORT_BYTES_MAX
            and size <= self.window
            and size <= outgoing.window
            and not self._outbox.is_full
        ):
            self.window -= size
            outgoing.window -= size
            outgoing.sent += size
            self._on_data()
            self.put(b"".join((HEAD.pack(size << 8, 0, outgoing.number), prefix, message)))
            return
        outgoing.pieces.append(memoryview(prefix + message if len(message) <= _SHORT_BYTES_MAX else prefix))
        if len(message) > _SHORT_BYTES_MAX:
            outgoing.pieces.append(memoryview(message))
        outgoing.bytes += size
        self.queued += size
        self._wait(stream)
        if outgoing.bytes:
            self._on_queued(self.queued, outgoing.bytes)

    def end(self, stream: Sender, trailers: bytes) -> None:
        """Send the trailers after everything that waits."""
        outgoing = stream.outgoing
        outgoing.trailers = trailers
        if not outgoing.bytes:
            self._end(stream)

    def _end(self, stream: Sender) -> None:
        outgoing = stream.outgoing
        assert outgoing.trailers is not None
        self.put(encode_frame(_HEADERS, _END, outgoing.number, outgoing.trailers))
        stream.on_ended()

    def forget(self, stream: Sender) -> None:
        """Send nothing more of a stream."""
        self._waiting.pop(stream, None)
        self.queued -= stream.outgoing.bytes
        stream.outgoing.clear()

    def release(self) -> None:
        """Refer to the connection no more."""
        self._on_queued = _ignore

    # -- windows -----------------------------------------------------------------------------------------------------

    def widen(self, size: int) -> None:
        """The peer lets us send more on all streams together. Raises Http2Error."""
        self.window += size
        if self.window > NUMBER_MAX:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the window of the connection is too large")
        self.pump()

    def widen_stream(self, stream: Sender, size: int) -> None:
        """The peer lets us send more on one stream. Raises StreamError."""
        outgoing = stream.outgoing
        outgoing.window += size
        if outgoing.window > NUMBER_MAX:
            raise StreamError(outgoing.number, ErrorCode.FLOW_CONTROL_ERROR)
        if outgoing.bytes:
            self._wait(stream)

    def set_stream_window(self, size: int, streams: list[Sender]) -> None:
        """The peer has changed the initial window of all streams. Raises Http2Error."""
        change = size - self.stream_window
        self.stream_window = size
        for stream in streams:
            stream.outgoing.window += change
            if stream.outgoing.window > NUMBER_MAX:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the window of a stream is too large")
            if stream.outgoing.bytes:
                self._wait(stream)

    # -- data that waits ---------------------------------------------------------------------------------------------

    def _wait(self, stream: Sender) -> None:
        if stream.outgoing.window > 0:
            self._waiting[stream] = None
            self.pump()

    def pump(self) -> None:
        """Send what the windows allow, a part of each stream in turn, until it is the turn of another connection."""
        if self._is_queued or not self._waiting:
            return
        self._pump()

    def _pump(self) -> None:
        self._is_queued = False
        waiting, sent = self._waiting, 0
        while waiting and self.window > 0 and not self._outbox.is_full:
            if sent >= HTTP2_TURN_BYTES:
                self._is_queued = True
                self._turns.call(self._pump)
                return
            stream = next(iter(waiting))
            del waiting[stream]
            sent += self._send_part(stream)

    def _send_part(self, stream: Sender) -> int:
        """Send some of what a stream has; return how much. It waits again if there is more and the window allows it."""
        outgoing = stream.outgoing
        sent = 0
        while outgoing.bytes and sent < HTTP2_QUANTUM_BYTES:
            size = min(PAYLOAD_BYTES_MAX, outgoing.window, self.window, outgoing.bytes)
            if size <= 0:
                break
            self._outbox.send(b"".join((HEAD.pack(size << 8, 0, outgoing.number), *_take(outgoing.pieces, size))))
            self._on_data()
            self.window -= size
            outgoing.window -= size
            outgoing.bytes -= size
            self.queued -= size
            sent += size
        outgoing.sent += sent
        if outgoing.bytes:
            if outgoing.window > 0:
                self._waiting[stream] = None
        elif outgoing.trailers is not None:
            self._end(stream)
            return sent
        stream.on_sent()
        return sent


def _take(pieces: deque[memoryview], size: int) -> list[memoryview]:
    """Take exactly this many bytes from the front."""
    taken = []
    while size:
        piece = pieces[0]
        if len(piece) <= size:
            taken.append(pieces.popleft())
        else:
            taken.append(piece[:size])
            pieces[0] = piece[size:]
        size -= len(taken[-1])
    return taken


def _ignore(queued: int, added: int) -> None:
    """The connection is gone."""
