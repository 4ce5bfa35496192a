"""One connection: frames in, frames out, calls and answers in both directions.

The frames of one read are answered in few writes; answers that come later (a held pull, a synced append) are gathered
and written once a turn of the loop. Numbers of calls (`opaque`) are each side's own, so both sides may call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

from eruca.errors import CallTimeout, ConnectionLost, ErucaError, RequestRefused
from eruca.limits import UNSENT_BYTES_MAX
from eruca.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, ResponseCode
from eruca.wire.frame import Command, FrameBuffer, FrameError, encode_command

log = logging.getLogger(__name__)

# A handler gives the encoded answer, None for none (or later, by `Link.send`), or something to wait for.
Answer: TypeAlias = bytes | Awaitable[bytes | None] | None
Handler: TypeAlias = Callable[["Link", Command], Answer]

_INT32_MAX = 2**31 - 1
# A remark quotes what the peer sent; without a bound, a name of a megabyte makes an answer that is no frame.
_REMARK_CHARS_MAX = 4096
# Answers are gathered up to this many bytes before they are written. Without a bound, one read full of small pulls for
# large messages would build gigabytes before the first look at whether the peer reads any of it.
_GATHERED_BYTES_MAX = 1024 * 1024
# And up to this many frames, so that the peer works on the first of them while we work on the next. Measured with 64
# sends in flight between two processes: 38,000/s when all 64 go in one write, 70,000/s from 8 to 32, where a write for
# every 32 costs no more CPU than one for all.
_GATHERED_FRAMES_MAX = 32


class Owner(Protocol):
    """Who made a link: a server or a caller."""

    handlers: Mapping[int, Handler]
    handle_unknown: Handler

    def on_open(self, link: Link) -> None:
        """A connection stands."""

    def on_close(self, link: Link) -> None:
        """A connection ended."""

    def on_unfinished(self, link: Link, size: int) -> None:
        """A read of this many bytes did not complete a frame."""

    def report(self, link: Link, reason: str) -> None:
        """A peer misbehaved; say so once, not a million times."""


class Link(asyncio.Protocol):
    """One connection to a peer."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._handlers = owner.handlers
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, tuple[asyncio.Future[Command], float]] = {}
        self._opaque = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        # Requests that came with others whose answers the peer does not read; handled when it does.
        self._backlog: list[Command] = []
        # Answers on their way. The loop itself holds tasks weakly, so one could vanish before it is done.
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = False
        self._paused = False
        # Who wants to send more when the peer has read what it has.
        self._drained: asyncio.Event | None = None
        self.peer = "?"
        self.local = "?"
        self.peer_host = ("", 0)
        self.is_open = False
        # Loop time of the last byte in either direction.
        self.last_active = self._loop.time()
        # Loop time of the last byte that came.
        self.last_heard = self.last_active
        # What rooms above keep with a connection, by a name of their own.
        self.notes: dict[str, Any] = {}

    # -- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer, self.peer_host = _name(transport.get_extra_info("peername"))
        self.local, _ = _name(transport.get_extra_info("sockname"))
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX // 4)
        self.is_open = True
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle every whole frame of one read and answer them in one write."""
        self.last_active = self.last_heard = self._loop.time()
        error: FrameError | None = None
        try:
            commands = self._frames.feed(data)
        except FrameError as bad:
            commands, error = bad.commands, bad
        if not commands:
            self._owner.on_unfinished(self, len(data))
        if self._backlog:
            self._backlog += commands
        else:
            self._handle_all(commands)
        if error is not None:
            self._owner.report(self, f"sent a bad frame: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls that wait for an answer and tell the owner."""
        self._end()
        self._outbox.clear()
        self._backlog.clear()
        self._owner.on_close(self)

    def _end(self) -> None:
        """Nothing is read any more: no call gets an answer, and nobody needs to wait for room."""
        self.is_open = False
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"the connection to {self.peer} ended"))
                future.exception()  # nobody may be waiting any more
        if self._drained is not None:
            self._drained.set()

    def pause_writing(self) -> None:
        """The peer reads too slowly: take no more requests from it."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._paused = False
        if self._drained is not None:
            self._drained.set()
        if self._backlog:
            backlog, self._backlog = self._backlog, []
            self._handle_all(backlog)
        if self._transport is not None and not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- requests from the peer --------------------------------------------------------------------------------------

    def _handle_all(self, commands: list[Command]) -> None:
        """Handle commands in their order; what is left when the peer reads too slowly waits until it does."""
        self._reading = True
        for number, command in enumerate(commands, 1):
            flag = command.flag
            if flag & FLAG_RESPONSE:
                self._finish_call(command)
                continue
            answer = self._handle(command)
            if answer is not None and not flag & FLAG_ONEWAY:
                self._outbox.append(answer)
                self._outbox_bytes += len(answer)
                if len(self._outbox) >= _GATHERED_FRAMES_MAX or self._outbox_bytes > _GATHERED_BYTES_MAX:
                    self._flush()
                    if self._paused:
                        self._backlog = commands[number:]
                        break
        self._reading = False
        self._flush()

    def _handle(self, command: Command) -> bytes | None:
        handler = self._handlers.get(command.code, self._owner.handle_unknown)
        try:
            answer = handler(self, command)
        except Exception as error:
            return encode_refusal(command, error, self)
        if answer is None or isinstance(answer, bytes):
            return answer
        task = self._loop.create_task(self._answer_later(command, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _answer_later(self, command: Command, answer: Awaitable[bytes | None]) -> None:
        try:
            data = await answer
        except Exception as error:
            data = encode_refusal(command, error, self)
        if data is not None and not command.flag & FLAG_ONEWAY:
            self.send(data)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write a frame with all others of this turn of the loop."""
        if not self.is_open:
            return
        if not self._outbox and not self._reading:
            self._loop.call_soon(self._flush)
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if len(self._outbox) >= _GATHERED_FRAMES_MAX or self._outbox_bytes > _GATHERED_BYTES_MAX:
            self._flush()

    async def drain(self) -> None:
        """Wait while the peer reads too slowly; for who sends much that is never answered."""
        # One turn of the loop at least now and then: what only sends never lets the loop write.
        if self._outbox_bytes > _GATHERED_BYTES_MAX // 16:
            await asyncio.sleep(0)
        while self._paused and self.is_open:
            if self._drained is None or self._drained.is_set():
                self._drained = asyncio.Event()
            await self._drained.wait()

    def _flush(self) -> None:
        outbox = self._outbox
        transport = self._transport
        if not outbox or transport is None:
            return
        self._outbox = []
        self._outbox_bytes = 0
        if transport.is_closing():
            return
        transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))
        self.last_active = self._loop.time()
        if self._paused and transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._owner.report(self, f"reads too slowly: {transport.get_write_buffer_size()} bytes wait for it")
            self.abort()

    # -- calls to the peer -------------------------------------------------------------------------------------------

    def call(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request; the future gets the answer, or an error of ours. The owner's scan ends it when it is late."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(ConnectionLost(f"no connection to {self.peer}"))
            return future
        self._opaque = opaque = (self._opaque + 1) & _INT32_MAX
        command.opaque = opaque
        self._calls[opaque] = (future, self._loop.time() + timeout_s)
        self.send(encode_command(command))
        return future

    def call_frame(self, build: Callable[[int], bytes], timeout_s: float) -> asyncio.Future[Command]:
        """Like `call`, for a request that is so frequent that `build` makes its frame by hand, given its number."""
        future: asyncio.Future[Command] = self._loop.create_future()
        if not self.is_open:
            future.set_exception(ConnectionLost(f"no connection to {self.peer}"))
            return future
        self._opaque = opaque = (self._opaque + 1) & _INT32_MAX
        self._calls[opaque] = (future, self._loop.time() + timeout_s)
        self.send(build(opaque))
        return future

    def notify(self, command: Command) -> None:
        """Send a request that is not answered."""
        command.flag |= FLAG_ONEWAY
        self._opaque = command.opaque = (self._opaque + 1) & _INT32_MAX
        self.send(encode_command(command))

    def _finish_call(self, command: Command) -> None:
        waiting = self._calls.pop(command.opaque, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(command)

    def expire_calls(self, now: float) -> bool:
        """Fail the calls whose time is over; one scan finds them all. Says whether there were any."""
        late = [opaque for opaque, (_, deadline) in self._calls.items() if deadline <= now]
        for opaque in late:
            future, _ = self._calls.pop(opaque)
            if not future.done():
                future.set_exception(CallTimeout(f"{self.peer} did not answer in time"))
                future.exception()  # nobody may be waiting any more
        return bool(late)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for an answer."""
        return len(self._calls)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._frames.buffered_bytes

    def close(self) -> None:
        """Write what is left and end the connection."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
            self._end()

    def abort(self) -> None:
        """End the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


def encode_refusal(command: Command, error: Exception, link: Link) -> bytes | None:
    """The answer to a request that could not be done: its code and why; one of our own mistakes is logged whole."""
    if isinstance(error, RequestRefused):
        code, remark = error.code, error.remark
    elif isinstance(error, ErucaError):
        code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
    else:
        log.error("request %d of %s failed", command.code, link.peer, exc_info=error)
        code, remark = int(ResponseCode.SYSTEM_ERROR), f"{error.__class__.__name__}: {error}"
    if command.flag & FLAG_ONEWAY:
        return None
    return encode_command(command.answer(code, remark=remark[:_REMARK_CHARS_MAX]))


def _name(address: Any) -> tuple[str, tuple[str, int]]:
    """An address as text, the way RocketMQ writes it, and as host and port."""
    if not isinstance(address, tuple):
        return str(address or "?"), ("", 0)
    host, port = str(address[0]), int(address[1])
    return f"{host}:{port}", (host, port)
