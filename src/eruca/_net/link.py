"""One connection: frames in, frames out, calls and responses in both directions.

The frames of one read are answered in few writes; later responses (to a held pull, a synced append) are gathered and
written once per loop iteration. Each side numbers its own calls (`opaque`), so both sides may call.

A connection gets a slice of time in each loop iteration. The rest of a read then waits in the backlog, in order, and
nothing more is read until it is done. The same applies while the peer does not read its responses, while too many of
its requests are unanswered, and while a long response is under way: it is written in pieces, one per iteration.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias, cast

from eruca._ground.limits import GOODBYE_SECONDS, SLICE_SECONDS, UNANSWERED_BYTES_MAX
from eruca._net.answers import InOrder, LongAnswer, NotNow, encode_farewell, encode_refusal
from eruca._net.calls import Calls
from eruca._net.certificates import read_fingerprint
from eruca._net.encrypted import EncryptedTransport
from eruca._net.meters import count_refused
from eruca._net.networks import name_peer
from eruca._net.outbox import GATHERED_FRAME_BYTES_MAX, GATHERED_FRAMES_MAX, Outbox
from eruca._net.tls import explain_failure
from eruca._net.turns import find_turns
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE
from eruca._wire.frame import Command, FrameBuffer, FrameError, encode_command
from eruca.errors import ConnectionLost

log = logging.getLogger(__name__)

# A handler returns the encoded response, None for none (or one sent later with `Link.send`), or an awaitable.
ShortAnswer: TypeAlias = bytes | Awaitable[bytes | None] | None
Later: TypeAlias = Awaitable[bytes | LongAnswer | None]
Answer: TypeAlias = ShortAnswer | LongAnswer | Later
Handler: TypeAlias = Callable[["Link", Command], Answer]

# Memory of a request in the backlog, or of one that is answered later, besides its body.
_REQUEST_BYTES: Final = 4096

# How many frames are cut out of a read at a time: each takes a few microseconds.
_FRAMES_AT_ONCE: Final = 64
# A bit mask: a quick request is a hundred times shorter than the slice, and reading the clock is not free.
_REQUESTS_BETWEEN_LOOKS: Final = 7
# The first step of a request that is answered later runs after the slice, so its time is deducted in advance.
_TASK_SECONDS: Final = SLICE_SECONDS / 20
# The time of a request with a larger body is deducted from the slice, even if it comes alone.
_QUICK_BODY_BYTES_MAX: Final = 64 * 1024

# Why a connection handles no more requests: its outbox is full, too many of its requests are unanswered, one of them
# must be completed first, or it sent too many.
_FULL: Final = 1
_UNANSWERED: Final = 2
_ORDER: Final = 4
_TOO_MANY: Final = 8


class Owner(Protocol):
    """The owner of a link: a server or a caller."""

    handlers: Mapping[int, Handler]
    handle_unknown: Handler
    #: How many unsent bytes a connection may have while its peer does not read.
    unsent_bytes_max: int

    def on_open(self, link: Link) -> None:
        """A connection was opened."""

    def on_close(self, link: Link) -> None:
        """A connection was closed."""

    def on_held(self, link: Link, size: int) -> None:
        """A connection holds this many more bytes: of an unfinished frame, of unsent responses, of requests."""

    def on_refused(self, link: Link, error: Exception) -> Exception:
        """A request is answered with this error; return it, or another one in its place."""

    def on_stray(self, link: Link) -> None:
        """A connection without an account sent a response to no call."""

    def report(self, link: Link, reason: str) -> None:
        """A peer misbehaved; log it with a rate limit."""


class Link(asyncio.Protocol):
    """One connection to a peer."""

    def __init__(self, owner: Owner, *, serves: bool = False) -> None:
        self._owner = owner
        # A server stops reading from a peer that does not read. A client never does: if both stopped, neither would
        # ever continue; its own windows limit what it requests.
        self._serves = serves
        self._handlers = owner.handlers
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.calls = Calls(self._loop)
        #: Frames for an open connection may be sent here directly.
        self.outbox = Outbox(self, self._loop)
        # Requests that arrived together with others and wait for their turn.
        self._backlog: list[Command] = []
        self._turns = find_turns(self._loop)
        self._is_queued = False
        # When the slice of this turn ends, by `perf_counter`. A client handles the responses it requested at once:
        # there are no other connections to be fair to.
        self._slice_end = 0.0 if serves else inf
        #: Check the clock after this request, because it may have taken long. Otherwise every eighth request does.
        self.looks_at_clock = False
        self._has_turn = False
        # Bad bytes followed the requests of the backlog.
        self._ends = False
        # Pending responses, with what their requests hold. The loop has only weak references to tasks, so one could be
        # garbage collected before it is done.
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._unanswered_bytes = 0
        # Why no more requests are handled now; 0 for no reason.
        self._waits = 0
        self.peer = "?"
        self.local = "?"
        self.peer_host = ("", 0)
        #: SHA-256 fingerprint of the peer's certificate, in lower-case hex; None without TLS or without a certificate.
        self.certificate: str | None = None
        self.is_open = False
        #: The account of the last request that was accepted; None: none was, or there are no accounts.
        self.account: str | None = None
        # Loop time of the last byte in either direction.
        self.last_active = self._loop.time()
        # Loop time of the last byte received.
        self.last_heard = self.last_active
        # The incomplete frame that the last scan saw, and since when scans have seen it.
        self._unfinished = 0
        self._unfinished_since = self.last_active
        # Data that other packages attach to a connection, each under its own name.
        self.notes: dict[str, Any] = {}

    # -- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and notify the owner."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer, self.peer_host = name_peer(transport.get_extra_info("peername"))
        self.local, _ = name_peer(transport.get_extra_info("sockname"))
        self.certificate = read_fingerprint(transport)
        self.outbox.open(self._transport, self._owner.unsent_bytes_max, to_client=self._serves)
        self.is_open = True
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle the complete frames of one read and answer them in few writes."""
        self.last_active = self.last_heard = self._loop.time()
        try:
            commands = self._frames.feed(data, _FRAMES_AT_ONCE)
        except FrameError as bad:
            commands = self._note_bad(bad)
        if self._serves:
            self._slice_end = 0.0
            is_quick = len(commands) == 1 and len(commands[0].body) <= _QUICK_BODY_BYTES_MAX
            if not is_quick and not self._may_begin(commands, len(data)):
                return
        elif len(commands) == 1 and commands[0].flag & FLAG_RESPONSE and not self._backlog and not self._ends:
            self.calls.finish(commands[0])  # the usual case for a client
            return
        if self._backlog or self._waits:
            self._backlog += commands
        else:
            self._handle_all(commands)
            if self._ends and not self._backlog:
                self.close()

    def _may_begin(self, commands: list[Command], size: int) -> bool:
        """Check how much time of this turn is left for what was read; return False if it must wait for another."""
        if not commands:
            self._owner.on_held(self, size)
            if not self._waits and not self._turns.begin():
                self._pause_for_turn()  # a large body arrives in many reads
            return True
        self._slice_end = self._turns.begin()
        if self._slice_end or self._backlog or self._waits:
            return True
        # Other connections have used the time of this turn: larger work waits for the next one.
        self._backlog = commands
        self._pause_for_turn()
        return False

    def _cut_more(self) -> list[Command]:
        """Cut the next commands out of what was read before."""
        try:
            return self._frames.feed(b"", _FRAMES_AT_ONCE)
        except FrameError as bad:
            return self._note_bad(bad)

    def _note_bad(self, error: FrameError) -> list[Command]:
        """Report bad bytes; the connection closes after the commands before them, which this returns, are done."""
        self._owner.report(self, f"sent a bad frame: {error}")
        self._ends = True
        return error.commands

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending calls and notify the owner."""
        self._end(self._explain_loss(exc))
        self.outbox.clear()
        self._backlog.clear()
        self._frames = FrameBuffer()
        # It has buffers of TLS, which must not wait for the garbage collector.
        self._transport = None
        self._owner.on_close(self)

    def _explain_loss(self, exc: Exception | None) -> str:
        """Return what is known about the reason why the connection was lost."""
        if isinstance(exc, ssl.SSLError):
            # A server that does not accept our certificate reports it only after the handshake.
            return explain_failure(exc)
        transport = self._transport
        is_plain = transport is not None and transport.get_extra_info("sslcontext") is None
        if is_plain and not self._serves and self.calls.are_all_waiting:
            return "no request was answered; does the port require TLS?"
        return ""

    def _end(self, why: str = "") -> None:
        """Nothing is read any more: no call gets a response, and nothing has to wait for room."""
        self.is_open = False
        self.calls.fail_all(self.peer, why)
        self.outbox.let_go()

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.outbox.pause()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self.outbox.resume()

    def on_full(self) -> None:
        """The outbox is full: handle no more requests."""
        if self._serves:
            self._wait_for(_FULL)

    def on_room(self) -> None:
        """The outbox has room again."""
        if self._serves:
            self._wait_no_more(_FULL)

    def on_unsent(self, size: int) -> None:
        """This many more bytes wait in the outbox."""
        self._owner.on_held(self, size)

    def on_unread(self, size: int) -> None:
        """The peer left more unread than it may: close the connection."""
        if self._serves:
            count_refused("serverMaxUnreadBytes")
        limit = f" (serverMaxUnreadBytes={self._owner.unsent_bytes_max})" if self._serves else ""
        self.complain(f"reads too slowly: {size} bytes are pending{limit}")
        self.abort()

    def _wait_for(self, reason: int) -> None:
        self._waits |= reason
        self.looks_at_clock = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _wait_no_more(self, reason: int) -> None:
        self._waits &= ~reason
        if self._waits:
            return
        if self._backlog or self._frames.has_more:
            self._queue_up()
        elif self._ends:
            self.close()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_for(self, seconds: float) -> None:
        """Handle no more requests, and read nothing, for a time."""
        if not self._waits & _TOO_MANY:
            self._wait_for(_TOO_MANY)
            self._loop.call_later(seconds, self._wait_no_more, _TOO_MANY)

    def measure_unfinished(self, now: float) -> float:
        """Return for how many seconds one frame has been incomplete, as far as earlier calls have seen it."""
        frames = self._frames
        if not frames.is_unfinished or frames.cut_short != self._unfinished or self._waits or self._is_queued:
            self._unfinished, self._unfinished_since = frames.cut_short, now
        return now - self._unfinished_since

    # -- requests from the peer --------------------------------------------------------------------------------------

    def _handle_all(self, commands: list[Command]) -> None:
        """Handle commands in order; the rest waits when the slice is over or the peer has to wait."""
        outbox = self.outbox
        outbox.is_gathering = True
        handlers, is_over = self._handlers, False
        while not is_over:
            last = len(commands)
            for number, command in enumerate(commands, 1):
                flag = command.flag
                if flag & FLAG_RESPONSE:
                    if not self.calls.finish(command) and self.account is None and self._serves:
                        self._owner.on_stray(self)
                    continue
                try:
                    answer = handlers.get(command.code, self._owner.handle_unknown)(self, command)
                except Exception as error:
                    answer = encode_refusal(command, self._owner.on_refused(self, error), self.peer)
                except NotNow:
                    self._backlog = commands[number - 1 :]
                    break
                if answer is not None:
                    if not isinstance(answer, bytes):
                        self._take_answer(command, answer)
                    elif not flag & FLAG_ONEWAY:
                        outbox.frames.append(answer)
                        if len(answer) > GATHERED_FRAME_BYTES_MAX:
                            outbox.flush()
                if self.looks_at_clock or not number & _REQUESTS_BETWEEN_LOOKS:
                    self.looks_at_clock = False
                    if len(outbox.frames) >= GATHERED_FRAMES_MAX:
                        outbox.flush()
                    if number < last and (self._waits or perf_counter() >= self._slice_end):
                        self._backlog = commands[number:]
                        break
            if self._backlog or not self._frames.has_more:
                break
            is_over = self._waits != 0 or perf_counter() >= self._slice_end
            if not is_over:
                commands = self._cut_more()
        outbox.is_gathering = False
        outbox.flush()
        if (self._backlog or self._frames.has_more) and not self._waits:
            self._pause_for_turn()

    def _pause_for_turn(self) -> None:
        """Stop reading, and continue with the backlog when it is this connection's turn."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._queue_up()

    def _queue_up(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            backlog = self._backlog
            is_short = len(backlog) == 1 and len(backlog[0].body) <= _QUICK_BODY_BYTES_MAX
            self._turns.call(self._go_on, is_short=is_short and not self._frames.has_more)

    def _go_on(self) -> None:
        self._is_queued = False
        if self._waits or not self.is_open:
            return
        if self._serves:
            self._slice_end = perf_counter() + SLICE_SECONDS
        backlog, self._backlog = self._backlog, []
        self._has_turn = True
        self._handle_all(backlog or self._cut_more())
        self._has_turn = False
        self._wait_no_more(0)

    def _take_answer(self, command: Command, answer: LongAnswer | Later) -> None:
        if isinstance(answer, LongAnswer):
            if not command.flag & FLAG_ONEWAY:
                self.send(answer)
            return
        if isinstance(answer, InOrder):
            self._wait_for(_ORDER)
            task = self._loop.create_task(self._answer_first(command, answer))
        else:
            task = self._loop.create_task(self._answer_later(command, answer))
        self._slice_end -= _TASK_SECONDS
        self.looks_at_clock = True
        size = self._tasks[task] = _REQUEST_BYTES + len(command.body)
        task.add_done_callback(self._on_answered)
        self._unanswered_bytes += size
        self._owner.on_held(self, size)
        if self._unanswered_bytes > UNANSWERED_BYTES_MAX and self._serves:
            self._wait_for(_UNANSWERED)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._unanswered_bytes -= self._tasks.pop(task)
        if self._waits & _UNANSWERED and self._unanswered_bytes <= UNANSWERED_BYTES_MAX // 2:
            self._wait_no_more(_UNANSWERED)

    async def _answer_later(self, command: Command, answer: Later) -> None:
        try:
            data = await answer
        except Exception as error:
            data = encode_refusal(command, self._owner.on_refused(self, error), self.peer)
        if data is not None and not command.flag & FLAG_ONEWAY:
            self.send(data)

    async def _answer_first(self, command: Command, answer: Later) -> None:
        try:
            await self._answer_later(command, answer)
        finally:
            self._wait_no_more(_ORDER)

    def need_time(self) -> None:
        """Call this in a handler that is about to do something long and has changed nothing yet.

        If this loop iteration has no time left, it raises: the handler is called again in a turn of this connection.
        """
        self.looks_at_clock = True
        if self._has_turn or not self.outbox.is_gathering:
            return
        if self._slice_end <= 0:
            self._slice_end = self._turns.begin()
        if perf_counter() >= self._slice_end:
            raise NotNow

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, data: bytes | LongAnswer) -> None:
        """Write a frame together with all others of this loop iteration, or a long one piece by piece.

        No request is handled and no held pull is answered until a long one is written.
        """
        if not self.is_open:
            return
        if isinstance(data, LongAnswer):
            self.outbox.send_long(data)
        else:
            self.outbox.send(data)

    async def drain(self) -> None:
        """Wait while the peer reads too slowly; for callers that send many oneway requests."""
        await self.outbox.drain()

    @property
    def is_writable(self) -> bool:
        """Whether the peer reads what it gets. Large responses wait while it does not."""
        return not self.outbox.is_full

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call a function once when the peer has read its pending data; never if the connection is closed before."""
        self.outbox.when_writable(callback)

    # -- calls to the peer -------------------------------------------------------------------------------------------

    def call(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request; the future gets the response or an error. The owner's scan fails it when it times out."""
        if not self.is_open:
            lost: asyncio.Future[Command] = self._loop.create_future()
            lost.set_exception(ConnectionLost(f"no connection to {self.peer}"))
            return lost
        command.opaque, future = self.calls.begin(timeout_s)
        self.outbox.send(encode_command(command))
        return future

    def notify(self, command: Command) -> None:
        """Send a oneway request."""
        command.flag |= FLAG_ONEWAY
        command.opaque = self.calls.count_up()
        self.send(encode_command(command))

    def expire_calls(self, now: float) -> bool:
        """Fail the calls that timed out; return whether there were any."""
        return self.calls.expire(now, self.peer)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of an incomplete frame, and of what is not decrypted yet."""
        transport = self._transport
        encrypted = transport.get_read_buffer_size() if isinstance(transport, EncryptedTransport) else 0
        return self._frames.buffered_bytes + encrypted

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the system has not accepted yet."""
        return self.outbox.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this connection holds now."""
        waiting = sum([_REQUEST_BYTES + len(command.body) for command in self._backlog]) if self._backlog else 0
        return self.unsent_bytes + self.unfinished_bytes + self._unanswered_bytes + waiting

    def complain(self, reason: str) -> None:
        """Log the misbehaviour of the peer."""
        self._owner.report(self, reason)

    def dismiss(self, reason: str) -> None:
        """Tell the peer why there is no place for it, and close the connection."""
        self.send(encode_farewell(reason))
        self.close()
        self._loop.call_later(GOODBYE_SECONDS, self.abort)

    def close(self) -> None:
        """Write what is left and close the connection."""
        if self._transport is not None:
            self.outbox.write_rest()
            self._transport.close()
            self._end()

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
