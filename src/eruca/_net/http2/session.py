"""The state of one connection of HTTP/2: frames in, streams, and what they send. It does not touch the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from eruca._ground.limits import (
    HTTP2_CONTINUATIONS_MAX,
    HTTP2_HEADER_BLOCK_BYTES_MAX,
    HTTP2_HEADER_LIST_BYTES_MAX,
    HTTP2_STREAM_WINDOW,
    HTTP2_WINDOW,
    UNANSWERED_BYTES_MAX,
)
from eruca._net.http2.answers import encode_refusal
from eruca._net.http2.calls import Connection, GrpcError, GrpcStatus, Method
from eruca._net.http2.floods import ANSWERED, PLAIN, RESET, Floods
from eruca._net.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY_FIELDS,
    SETTINGS_ACK,
    WINDOW_DEFAULT,
    ErrorCode,
    FrameType,
    Http2Error,
    Setting,
    StreamError,
    check_priority,
    encode_frame,
    encode_goaway,
    encode_reset,
    encode_settings,
    encode_window_update,
    read_settings,
    read_word,
    strip_padding,
)
from eruca._net.http2.hpacktables import CompressionError
from eruca._net.http2.kernel.hpack import HeaderDecoder
from eruca._net.http2.numbers import StreamNumbers
from eruca._net.http2.requests import Head, Malformed, Refused
from eruca._net.http2.sending import Sending
from eruca._net.http2.stream import Stream
from eruca._net.meters import count_refused
from eruca._net.outbox import Outbox

_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_CONTINUATION: Final = int(FrameType.CONTINUATION)
_WINDOW_HALF: Final = HTTP2_WINDOW // 2


class Session:
    """The streams of a connection."""

    def __init__(
        self,
        link: Connection,
        outbox: Outbox,
        loop: asyncio.AbstractEventLoop,
        methods: Mapping[str, Method],
        *,
        message_bytes_max: int,
        streams_max: int,
        on_queued: Callable[[int, int], None],
    ) -> None:
        """`on_queued` is called with the bytes of all messages that wait for windows, and those that were added."""
        self.link = link
        self.over_tls = False
        self.message_bytes_max = message_bytes_max
        self._loop = loop
        self._methods = methods
        self._streams_max = streams_max
        self._headers = HeaderDecoder()
        self._floods = Floods(loop.time())
        self.sending = Sending(outbox, loop, self._floods.grant, on_queued)
        self.streams: dict[int, Stream] = {}
        self.numbers = StreamNumbers()
        self._has_settings = False
        # The header block that is not complete: its stream, the flags of its first frame, and its fragments.
        self._block_of = self._block_flags = self._block_bytes = 0
        self._block: list[bytes] = []
        # What the peer may still send, and what requests hold that are at work.
        self._window = HTTP2_WINDOW
        self.pending_bytes = 0
        #: Streams after this one are not handled any more; None: all are.
        self.last_handled: int | None = None
        #: Called when the peer answers a ping of ours, and when a stream ends.
        self.on_pong: Callable[[], None] = _do_nothing
        self.on_over: Callable[[], None] = _do_nothing

    @property
    def holds_back(self) -> bool:
        """Whether the peer has to wait for its requests to be done before it may send more."""
        return self.pending_bytes > UNANSWERED_BYTES_MAX

    @property
    def is_within_headers(self) -> bool:
        """Whether the headers of a request are not complete."""
        return self._block_of != 0

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of unfinished messages and headers."""
        return self._block_bytes + sum([stream.unfinished_bytes for stream in self.streams.values()])

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of all streams."""
        return self._block_bytes + sum([stream.held_bytes for stream in self.streams.values()])

    def greet(self) -> None:
        """Send our settings."""
        settings = {
            Setting.MAX_CONCURRENT_STREAMS: self._streams_max,
            Setting.INITIAL_WINDOW_SIZE: HTTP2_STREAM_WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: HTTP2_HEADER_LIST_BYTES_MAX,
        }
        self.sending.put(encode_settings(settings) + encode_window_update(0, HTTP2_WINDOW - WINDOW_DEFAULT))

    # -- frames ------------------------------------------------------------------------------------------------------

    def handle(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Handle a frame. Raises Http2Error if the connection has to end."""
        if not self._has_settings:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        if self._block_of and (kind != _CONTINUATION or number != self._block_of):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "headers are interrupted by another frame")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._count(PLAIN, "frames of unknown types")
            return
        try:
            handler(self, flags, number, payload)
        except StreamError as error:
            self._count(RESET, "frames for streams that are closed")
            stream = self.streams.get(error.stream)
            self.reset(error.stream, error.code)
            if stream is not None:
                stream.drop()

    def _count(self, cost: int, what: str) -> None:
        self._floods.count(cost, self._loop.time(), what)

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        if not number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "DATA without a stream")
        self._window -= size
        if self._window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "the peer has sent more than the window allows")
        if self._window < _WINDOW_HALF:
            self._widen()
        if flags & PADDED:
            payload = strip_padding(flags, payload, number)
        stream = self.streams.get(number)
        if stream is None:
            if self.numbers.is_idle(number):
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"DATA for stream {number}, which is idle")
            if not self.numbers.was_reset(number):
                raise StreamError(number, ErrorCode.STREAM_CLOSED)
            self._count(PLAIN, "DATA for calls that are over")
            return
        if not payload and not flags & END_STREAM:
            self._count(PLAIN, "empty DATA")
        stream.on_data(payload, size, is_end=flags & END_STREAM != 0)

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & (PADDED | PRIORITY_FIELDS):
            payload = strip_padding(flags, payload, number, has_priority=True)
        if flags & END_HEADERS:
            self._take_block(number, flags, payload)
            return
        self._block_of, self._block_flags = number, flags
        self._add_fragment(payload)

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_of:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._add_fragment(payload)
        if not flags & END_HEADERS:
            return
        block, flags = b"".join(self._block), self._block_flags
        self._block_of = self._block_flags = self._block_bytes = 0
        self._block.clear()
        self._take_block(number, flags, block)

    def _add_fragment(self, payload: bytes) -> None:
        self._block.append(payload)
        self._block_bytes += len(payload)
        if self._block_bytes > HTTP2_HEADER_BLOCK_BYTES_MAX or len(self._block) > HTTP2_CONTINUATIONS_MAX:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "the headers of a request are too long")

    def _on_priority(self, flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        self._count(PLAIN, "PRIORITY")
        check_priority(payload, number)

    def _on_reset(self, flags: int, number: int, payload: bytes) -> None:
        read_word(payload, "RST_STREAM")
        self._check_not_idle(number, "RST_STREAM")
        self._count(RESET, "cancelled calls")
        stream = self.streams.get(number)
        if stream is not None:
            stream.drop()

    def _on_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & ACK:
            if payload:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS with ACK are not empty")
            self._count(PLAIN, "SETTINGS")
            return
        self._count(ANSWERED, "SETTINGS")
        settings = read_settings(payload)
        self.sending.put(SETTINGS_ACK)
        window = settings.get(Setting.INITIAL_WINDOW_SIZE)
        if window is not None and window != self.sending.stream_window:
            self._count(len(self.streams) // 4, "SETTINGS with other windows")
            self.sending.set_stream_window(window, list(self.streams.values()))

    def _on_push_promise(self, flags: int, number: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a client sent PUSH_PROMISE")

    def _on_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING does not have 8 bytes")
        if flags & ACK:
            self._count(PLAIN, "PING")
            self.on_pong()
            return
        self._count(ANSWERED, "PING")
        self.sending.put(encode_frame(FrameType.PING, ACK, 0, payload))

    def _on_goaway(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY does not have 8 bytes")
        # It opens no more streams, and closes the connection when the others are done.
        self._count(PLAIN, "GOAWAY")

    def _on_window_update(self, flags: int, number: int, payload: bytes) -> None:
        size = read_word(payload, "WINDOW_UPDATE") & 0x7FFFFFFF
        self._count(PLAIN, "WINDOW_UPDATE")
        if not number:
            if not size:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self.sending.widen(size)
            return
        self._check_not_idle(number, "WINDOW_UPDATE")
        stream = self.streams.get(number)
        if stream is None:
            return
        if not size:
            raise StreamError(number, ErrorCode.PROTOCOL_ERROR)
        self.sending.widen_stream(stream, size)

    def _check_not_idle(self, number: int, what: str) -> None:
        if self.numbers.is_idle(number):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"{what} for stream {number}, which is idle")

    # -- calls -------------------------------------------------------------------------------------------------------

    def _take_block(self, number: int, flags: int, block: bytes) -> None:
        """Take the headers of a new stream, or the trailers of one."""
        try:
            fields, problem = self._headers.decode(block, HTTP2_HEADER_LIST_BYTES_MAX)
        except CompressionError as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, f"headers cannot be decoded: {error}") from None
        stream = self.streams.get(number)
        if stream is not None:
            if stream.is_complete:
                raise StreamError(number, ErrorCode.STREAM_CLOSED)
            if not flags & END_STREAM or problem or any(name[0] == ":" for name in fields):
                raise StreamError(number, ErrorCode.PROTOCOL_ERROR)
            stream.on_end()
            return
        if self.numbers.was_reset(number):
            self._count(PLAIN, "HEADERS for calls that are over")
            return
        self.numbers.open(number)
        is_late = self.last_handled is not None and number > self.last_handled
        if len(self.streams) >= self._streams_max:
            count_refused("grpcMaxCallsPerConnection")
            is_late = True
        if is_late:
            raise StreamError(number, ErrorCode.REFUSED_STREAM)
        self._open(number, fields, problem, is_end=flags & END_STREAM != 0)

    def _open(self, number: int, fields: dict[str, str], problem: str, *, is_end: bool) -> None:
        """Begin a call."""
        try:
            head = Head(fields, problem)
            method = self._methods.get(head.path)
            if method is None:
                text = f"there is no method {head.path:.200}"
                raise Refused(encode_refusal(GrpcStatus.UNIMPLEMENTED, text))
        except Malformed:
            raise StreamError(number, ErrorCode.PROTOCOL_ERROR) from None
        except Refused as refused:
            self.sending.put(encode_frame(_HEADERS, END_HEADERS | END_STREAM, number, refused.args[0]))
            if not is_end:
                self.reset(number, ErrorCode.NO_ERROR)
            self._count(PLAIN, "calls that are refused")
            return
        stream = self.streams[number] = Stream(self, self._loop, number, head, method)
        try:
            stream.start(head)
        except GrpcError as error:
            stream.finish(error.status, error.text)
        if is_end:
            stream.on_end()

    def reset(self, number: int, code: ErrorCode) -> None:
        """Send RST_STREAM; what the peer has sent already is ignored."""
        self.numbers.reset(number)
        self.sending.put(encode_reset(number, code))

    def on_message(self) -> None:
        """A message arrived."""
        self._floods.grant()

    def on_pending(self, size: int) -> None:
        """Requests that are at work hold this many more bytes, or less."""
        self.pending_bytes += size
        if size < 0 and self._window < _WINDOW_HALF:
            self._widen()

    def on_stream_over(self, stream: Stream) -> None:
        """A stream is closed."""
        if self.streams.pop(stream.number, None) is not None:
            self.on_over()

    def widen(self, number: int, size: int) -> None:
        """Let the peer send more on a stream."""
        self.sending.put(encode_window_update(number, size))

    def _widen(self) -> None:
        """Let the peer send more on all streams together, unless it has to wait for its requests to be done."""
        if not self.holds_back:
            self.sending.put(encode_window_update(0, HTTP2_WINDOW - self._window))
            self._window = HTTP2_WINDOW

    # -- the end -----------------------------------------------------------------------------------------------------

    def say_goodbye(self, last: int, code: ErrorCode, reason: str) -> None:
        """Send GOAWAY: streams after `last` are not handled."""
        self.sending.put(encode_goaway(last, code, reason))

    def drop_all(self) -> None:
        """The connection is gone."""
        for stream in list(self.streams.values()):
            stream.drop()
        self._block.clear()
        self._block_bytes = 0
        self.on_pong = self.on_over = _do_nothing

    def release(self) -> None:
        """Refer to the connection no more: together they would wait for the garbage collector."""
        del self.link
        self.sending.release()


_HANDLERS: Final[dict[int, Callable[[Session, int, int, bytes], None]]] = {
    _DATA: Session._on_data,
    _HEADERS: Session._on_headers,
    _CONTINUATION: Session._on_continuation,
    FrameType.PRIORITY: Session._on_priority,
    FrameType.RST_STREAM: Session._on_reset,
    FrameType.SETTINGS: Session._on_settings,
    FrameType.PUSH_PROMISE: Session._on_push_promise,
    FrameType.PING: Session._on_ping,
    FrameType.GOAWAY: Session._on_goaway,
    FrameType.WINDOW_UPDATE: Session._on_window_update,
}


def _do_nothing() -> None:
    """Nobody waits for it."""
