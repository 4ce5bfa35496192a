"""One call: the messages of a request to a handler, its responses and the status to the client."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Final, Protocol, cast

from eruca._ground.limits import (
    FRAME_BYTES_MAX,
    GRPC_INFLATED_AT_ONCE_BYTES,
    HTTP2_STREAM_WINDOW,
    HTTP2_UNSENT_BYTES_PAUSE,
)
from eruca._net.http2.answers import encode_refusal, encode_trailers
from eruca._net.http2.calls import Connection, GrpcError, GrpcStatus, Kind, Method
from eruca._net.http2.frames import ErrorCode, StreamError
from eruca._net.http2.messages import Inflating, Message, MessageReader
from eruca._net.http2.requests import Head
from eruca._net.http2.sending import Outgoing, Sending
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

# Memory of a call besides its messages.
STREAM_BYTES: Final = 4096
_WINDOW_HALF: Final = HTTP2_STREAM_WINDOW // 2


class Owner(Protocol):
    """The session of a connection, as its streams need it."""

    link: Connection
    sending: Sending
    message_bytes_max: int
    over_tls: bool

    def on_stream_over(self, stream: Stream) -> None:
        """A stream is closed in both directions, or it was reset."""

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream."""

    def widen(self, number: int, size: int) -> None:
        """Let the peer send more on a stream."""

    def on_message(self) -> None:
        """A message arrived."""

    def on_pending(self, size: int) -> None:
        """Requests that wait for their handlers hold this many more bytes, or less."""


class Stream:
    """A call of a client."""

    __slots__ = (
        "_answer",
        "_inbox",
        "_inbox_bytes",
        "_is_finished",
        "_left",
        "_listeners",
        "_loop",
        "_method",
        "_owner",
        "_pending_bytes",
        "_reader",
        "_received",
        "_timer",
        "_wakers",
        "_window",
        "authority",
        "connection",
        "deadline",
        "is_complete",
        "is_over",
        "metadata",
        "number",
        "outgoing",
        "over_tls",
        "path",
        "peer",
        "progress",
        "progress_at",
    )

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, number: int, head: Head, method: Method) -> None:
        """Raises GrpcError if the call cannot be handled."""
        self._owner = owner
        self._loop = loop
        self._method = method
        self.number = number
        self.path = head.path
        self.metadata = head.metadata
        self.authority = head.authority
        self.peer = owner.link.peer
        self.over_tls = owner.over_tls
        self.connection = owner.link
        self.deadline = None if head.seconds == inf else loop.time() + head.seconds
        self.outgoing = Outgoing(number, owner.sending.stream_window)
        self._reader = MessageReader(head.encoding, owner.message_bytes_max)
        # What the peer may still send, and how much it announced to send.
        self._window = HTTP2_STREAM_WINDOW
        self._left = head.content_length
        self._received = 0
        # The client sends no more. We send no more, apart from what waits. Both, or it was reset.
        self.is_complete = False
        self._is_finished = False
        self.is_over = False
        # Messages that wait for their handler, and their size, or that of the request at work.
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._pending_bytes = 0
        # The task or the future of the handler.
        self._answer: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakers: list[asyncio.Future[None]] = []
        self._listeners: list[Callable[[], None]] = []
        # What a scan saw, and since when scans have seen it.
        self.progress = (-1, -1)
        self.progress_at = 0.0

    @property
    def kind(self) -> Kind:
        """How many messages go in each direction."""
        return self._method.kind

    @property
    def is_open(self) -> bool:
        """Whether the client still waits for something."""
        return not self._is_finished

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this call holds."""
        reader = self._reader
        return STREAM_BYTES + reader.buffered_bytes + self._inbox_bytes + self._pending_bytes + self.outgoing.bytes

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of an unfinished message."""
        return self._reader.buffered_bytes

    # -- what the client sends ---------------------------------------------------------------------------------------

    def start(self, head: Head) -> None:
        """Begin the call; its data is still to come."""
        if head.seconds <= 0:
            raise GrpcError(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        if self._method.kind is Kind.BIDI:
            self._work(self._method.handler(self))

    def on_data(self, data: bytes, size: int, *, is_end: bool) -> None:
        """Take data; `size` is what it takes of the window. Raises StreamError."""
        if self.is_complete:
            raise StreamError(self.number, ErrorCode.STREAM_CLOSED)
        self._window -= size
        if self._window < 0:
            raise StreamError(self.number, ErrorCode.FLOW_CONTROL_ERROR)
        self._received += len(data)
        if self._left >= 0 and (self._received > self._left or (is_end and self._received != self._left)):
            raise StreamError(self.number, ErrorCode.PROTOCOL_ERROR)
        self.is_complete = is_end
        if self._is_finished:
            # Whatever the client still sends is ignored; it was told to stop.
            if is_end:
                self._close_if_done()
            return
        try:
            for message in self._reader.feed(data) if data else ():
                self._owner.on_message()
                self._take(message)
            if is_end:
                self._complete()
            else:
                self._widen()
        except GrpcError as error:
            self.finish(error.status, error.text)

    def on_end(self) -> None:
        """The client sends no more. Raises StreamError."""
        self.on_data(b"", 0, is_end=True)

    def _take(self, message: Message) -> None:
        """Take a message."""
        if self._method.kind is not Kind.BIDI and self._inbox:
            raise GrpcError(GrpcStatus.INTERNAL, "there is more than one request message")
        self._inbox.append(message)
        self._hold_inbox(len(message[0]))
        if self._method.kind is Kind.BIDI:
            self._wake()

    def _hold_inbox(self, size: int) -> None:
        self._inbox_bytes += size
        if self._method.kind is Kind.BIDI:
            self._owner.on_pending(size)

    def _widen(self) -> None:
        """Let the peer send more, apart from what the handler has to take first. A message may exceed the window."""
        size = HTTP2_STREAM_WINDOW - self._window
        if self._method.kind is Kind.BIDI:
            size -= self._inbox_bytes
        if size >= _WINDOW_HALF:
            self._window += size
            self._owner.widen(self.number, size)

    def _complete(self) -> None:
        """The request is complete."""
        if self._reader.buffered_bytes:
            raise GrpcError(GrpcStatus.INTERNAL, "the last message is cut off")
        if self._method.kind is Kind.BIDI:
            self._wake()
            return
        if not self._inbox:
            raise GrpcError(GrpcStatus.INTERNAL, "there is no request message")
        message, is_compressed = self._inbox.popleft()
        self._inbox_bytes = 0
        if is_compressed:
            inflating = Inflating(message, self._reader.bytes_max)
            inflated = None
            if len(message) <= GRPC_INFLATED_AT_ONCE_BYTES:
                inflated = inflating.inflate(GRPC_INFLATED_AT_ONCE_BYTES)
            if inflated is None:
                self._work(self._handle_later(inflating), len(message))
                return
            message = inflated
        self._handle(message)

    def _handle(self, request: bytes) -> None:
        """Call the handler of a request. Raises GrpcError."""
        try:
            answer = self._method.handler(self, request)
        except Exception as error:
            self._fail(error)
            return
        if isinstance(answer, bytes):
            self._finish_with(answer)
        elif answer is None:
            self.finish()
        else:
            self._work(answer, len(request))

    async def _handle_later(self, inflating: Inflating) -> bytes | None:
        """Inflate a large request and call its handler."""
        request = await asyncio.to_thread(inflating.inflate, self._reader.bytes_max + 1)
        assert request is not None
        self._hold_pending(len(request))
        answer = self._method.handler(self, request)
        if answer is None or isinstance(answer, bytes):
            return answer
        return await cast(Awaitable[bytes | None], answer)

    # -- the handler -------------------------------------------------------------------------------------------------

    def _work(self, answer: Awaitable[Any], size: int = 0) -> None:
        """Wait for a handler that works on a request of this size."""
        self._hold_pending(size)
        if asyncio.isfuture(answer):
            future: asyncio.Future[Any] = answer
        else:
            future = self._loop.create_task(cast(Coroutine[Any, Any, Any], answer))
        self._answer = future
        if self.deadline is not None:
            self._timer = self._loop.call_at(self.deadline, self._expire)
        future.add_done_callback(self._on_answer)

    def _hold_pending(self, size: int) -> None:
        self._owner.on_pending(size - self._pending_bytes)
        self._pending_bytes = size

    def _on_answer(self, future: asyncio.Future[Any]) -> None:
        """The handler has returned."""
        self._answer = None
        if self._is_finished:
            if not future.cancelled() and (error := future.exception()) is not None:
                log.debug("call %s of %s failed after its end", self.path, self.peer, exc_info=error)
            return
        if future.cancelled():
            self.finish(GrpcStatus.CANCELLED, "the call was cancelled by the server")
        elif (error := future.exception()) is not None:
            self._fail(error)
        elif isinstance(answer := future.result(), bytes):
            self._finish_with(answer)
        else:
            self.finish()

    def _expire(self) -> None:
        self._timer = None
        self.finish(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed")

    def _fail(self, error: BaseException) -> None:
        """End the call because its handler has raised an exception."""
        if isinstance(error, GrpcError):
            self.finish(error.status, error.text)
        elif isinstance(error, ErucaError):
            self.finish(GrpcStatus.INTERNAL, str(error))
        else:
            log.error("call %s of %s failed", self.path, self.peer, exc_info=error)
            self.finish(GrpcStatus.INTERNAL, f"{error.__class__.__name__}: {error}")

    async def receive(self) -> bytes | None:
        """Return the next message; None when the client sends no more."""
        while not self._inbox:
            if self.is_complete or self._is_finished:
                return None
            await self._wait()
        message, is_compressed = self._inbox.popleft()
        self._hold_inbox(-len(message))
        if not self.is_complete and not self._is_finished:
            self._widen()
        if not is_compressed:
            return message
        inflating = Inflating(message, self._reader.bytes_max)
        inflated = None
        if len(message) <= GRPC_INFLATED_AT_ONCE_BYTES:
            inflated = inflating.inflate(GRPC_INFLATED_AT_ONCE_BYTES)
        if inflated is None:
            inflated = await asyncio.to_thread(inflating.inflate, self._reader.bytes_max + 1)
        return inflated

    async def _wait(self) -> None:
        waker = self._loop.create_future()
        self._wakers.append(waker)
        await waker

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)

    # -- what the client gets ----------------------------------------------------------------------------------------

    async def send(self, message: bytes) -> None:
        """Send a message, after waiting until the client has read most of those before."""
        while self.outgoing.bytes > HTTP2_UNSENT_BYTES_PAUSE and not self._is_finished:
            await self._wait()
        if self._is_finished:
            raise GrpcError(GrpcStatus.CANCELLED, "the call is over")
        self._owner.sending.send(self, message)

    def push(self, message: bytes) -> None:
        """Send a message without waiting."""
        if not self._is_finished:
            self._owner.sending.send(self, message)

    def _finish_with(self, message: bytes) -> None:
        """End the call with a message and OK."""
        if self.is_complete and self._owner.sending.answer(self, message):
            self._is_finished = True
            self._close()
            return
        self._owner.sending.send(self, message)
        self.finish()

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call, after everything that was sent."""
        if self._is_finished:
            return
        self._is_finished = True
        has_headers = self.outgoing.has_headers
        self._owner.sending.end(self, (encode_trailers if has_headers else encode_refusal)(status, text))
        self._let_go()

    def _close_if_done(self) -> None:
        outgoing = self.outgoing
        if outgoing.trailers is not None and not outgoing.bytes and not self.is_over:
            if not self.is_complete:
                self._owner.reset(self.number, ErrorCode.NO_ERROR)
            self._close()

    def on_sent(self) -> None:
        """Some of what waited was sent."""
        if self._wakers and self.outgoing.bytes <= HTTP2_UNSENT_BYTES_PAUSE:
            self._wake()

    def on_ended(self) -> None:
        """Everything was sent, trailers included."""
        self._close_if_done()

    # -- the end -----------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """The client has reset the call, or the connection is gone: nothing more is sent."""
        self._is_finished = self.is_complete = True
        self._owner.sending.forget(self)
        self._close()

    def _close(self) -> None:
        """The stream is over in both directions."""
        self.is_over = True
        self._let_go()
        self._owner.on_stream_over(self)

    def _let_go(self) -> None:
        """Nothing is worked on any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending_bytes:
            self._hold_pending(0)
        if self._inbox:
            self._hold_inbox(-self._inbox_bytes)
            self._inbox.clear()
        self._reader.clear()
        if self._answer is not None:
            self._answer.cancel()
        if self._wakers:
            self._wake()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def when_closed(self, listener: Callable[[], None]) -> None:
        """Call a function once when the call is over."""
        if self._is_finished:
            listener()
        else:
            self._listeners.append(listener)

    def measure_stalled(self, now: float, *, may_send: bool = True) -> float:
        """Return for how many seconds the client has kept us from sending or receiving, as far as earlier calls saw it.

        A long message may take longer than a short one. `may_send` is whether the window of the connection is open;
        that of a conversation is not while its messages wait for the handler.
        """
        outgoing, reader = self.outgoing, self._reader
        receives = may_send and not self.is_complete and not self._is_finished
        if self._method.kind is Kind.BIDI:
            receives = receives and reader.buffered_bytes > 0 and not self._inbox
        progress = (outgoing.sent if outgoing.bytes else -1, reader.count if receives else -1)
        if progress == (-1, -1) or progress != self.progress:
            self.progress, self.progress_at = progress, now
        return (now - self.progress_at) / (max(1, reader.announced_bytes / FRAME_BYTES_MAX) if receives else 1)
