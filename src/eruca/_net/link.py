"""One connection: frames in, frames out, calls and answers in both directions.

The frames of one read are answered in few writes; answers that come later (a held pull, a synced append) are gathered
and written once a turn of the loop. Numbers of calls (`opaque`) are each side's own, so both sides may call.

A connection gets a slice of time in each turn of the loop. What is left of a read then waits in the backlog, in order,
and nothing more is read until it is done. The same holds while the peer does not read its answers, and while too many
of its requests wait for theirs, and while a long answer is on its way: it is written in pieces, one in each turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias, cast

from eruca._ground.limits import SLICE_SECONDS, UNANSWERED_BYTES_MAX
from eruca._net.answers import InOrder, LongAnswer, NotNow, encode_refusal
from eruca._net.calls import Calls
from eruca._net.outbox import GATHERED_FRAME_BYTES_MAX, GATHERED_FRAMES_MAX, Outbox
from eruca._net.turns import find_turns
from eruca._wire.codes import FLAG_ONEWAY, FLAG_RESPONSE
from eruca._wire.frame import Command, FrameBuffer, FrameError, encode_command
from eruca.errors import ConnectionLost

log = logging.getLogger(__name__)

# A handler returns the encoded answer, None for none (or later, by `Link.send`), or something to wait for.
ShortAnswer: TypeAlias = bytes | Awaitable[bytes | None] | None
Later: TypeAlias = Awaitable[bytes | LongAnswer | None]
Answer: TypeAlias = ShortAnswer | LongAnswer | Later
Handler: TypeAlias = Callable[["Link", Command], Answer]

# What a request in the backlog, or one whose answer comes later, takes besides its body.
_REQUEST_BYTES: Final = 4096

# How many frames are cut out of a read at a time: that takes some microseconds each.
_FRAMES_AT_ONCE: Final = 64
# A bit mask: a quick request is a hundred times cheaper than the slice is long, and the clock is not free.
_REQUESTS_BETWEEN_LOOKS: Final = 7
# What a request that is answered later does first is done behind the slice, and so it is taken off before.
_TASK_SECONDS: Final = SLICE_SECONDS / 20
# A request with a larger body takes its time from that of the turn, even when it comes alone.
_QUICK_BODY_BYTES_MAX: Final = 64 * 1024

# Why a connection takes no more requests: its outbox is full, too many of its requests are unanswered, or one of them
# is to be done first.
_FULL: Final = 1
_UNANSWERED: Final = 2
_ORDER: Final = 4


class Owner(Protocol):
    """Who made a link: a server or a caller."""

    handlers: Mapping[int, Handler]
    handle_unknown: Handler

    def on_open(self, link: Link) -> None:
        """A connection stands."""

    def on_close(self, link: Link) -> None:
        """A connection ended."""

    def on_held(self, link: Link, size: int) -> None:
        """A connection holds this many more bytes: of an unfinished frame, of answers not sent, of requests."""

    def report(self, link: Link, reason: str) -> None:
        """A peer misbehaved; say so once, not a million times."""


class Link(asyncio.Protocol):
    """One connection to a peer."""

    def __init__(self, owner: Owner, *, serves: bool = False) -> None:
        self._owner = owner
        # A server stops reading from a peer that does not read. A client never does: were both to stop, neither would
        # ever go on; what it asks for is bounded by its own windows.
        self._serves = serves
        self._handlers = owner.handlers
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._calls = Calls(self._loop)
        self._outbox = Outbox(self, self._loop)
        # Requests that came with others and wait for their turn.
        self._backlog: list[Command] = []
        self._turns = find_turns(self._loop)
        self._is_queued = False
        # When the slice of a turn is over, by `perf_counter`. A client takes the answers it asked for at once: there is
        # nobody else to be fair to.
        self._slice_end = 0.0 if serves else inf
        #: Look at the clock behind this request: it may have taken long. Otherwise that is done at every eighth.
        self.looks_at_clock = False
        self._has_turn = False
        # Bad bytes came behind the requests of the backlog.
        self._ends = False
        # Answers on their way, with what their requests hold. The loop itself holds tasks weakly, so one could vanish
        # before it is done.
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._unanswered_bytes = 0
        # Why no more requests are taken now; 0 for no reason.
        self._waits = 0
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
        self._outbox.open(self._transport, to_client=self._serves)
        self.is_open = True
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle the whole frames of one read and answer them in few writes."""
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
            self._calls.finish(commands[0])  # what a client reads nearly always
            return
        if self._backlog or self._waits:
            self._backlog += commands
        else:
            self._handle_all(commands)
            if self._ends and not self._backlog:
                self.close()

    def _may_begin(self, commands: list[Command], size: int) -> bool:
        """See how much time of this turn there is for what was read; False when it waits for another."""
        if not commands:
            self._owner.on_held(self, size)
            if not self._waits and not self._turns.begin():
                self._pause_for_turn()  # a large body comes in many reads
            return True
        self._slice_end = self._turns.begin()
        if self._slice_end or self._backlog or self._waits:
            return True
        # Others have had the time of this turn already: whoever has much to do waits for another.
        self._backlog = commands
        self._pause_for_turn()
        return False

    def _cut_more(self) -> list[Command]:
        """The next commands of what was read before."""
        try:
            return self._frames.feed(b"", _FRAMES_AT_ONCE)
        except FrameError as bad:
            return self._note_bad(bad)

    def _note_bad(self, error: FrameError) -> list[Command]:
        """Bad bytes end the connection when the commands before them, which this returns, are done."""
        self._owner.report(self, f"sent a bad frame: {error}")
        self._ends = True
        return error.commands

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls that wait for an answer and tell the owner."""
        self._end()
        self._outbox.clear()
        self._backlog.clear()
        self._frames = FrameBuffer()
        self._owner.on_close(self)

    def _end(self) -> None:
        """Nothing is read any more: no call gets an answer, and nobody needs to wait for room."""
        self.is_open = False
        self._calls.fail_all(self.peer)
        self._outbox.let_go()

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self._outbox.pause()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._outbox.resume()

    def on_full(self) -> None:
        """The outbox is full: take no more requests."""
        if self._serves:
            self._wait_for(_FULL)

    def on_room(self) -> None:
        """The outbox has room again."""
        if self._serves:
            self._wait_no_more(_FULL)

    def on_unsent(self, size: int) -> None:
        """This many bytes more wait in the outbox."""
        self._owner.on_held(self, size)

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

    # -- requests from the peer --------------------------------------------------------------------------------------

    def _handle_all(self, commands: list[Command]) -> None:
        """Handle commands in their order; what is left when the slice is over, or the peer has to wait, waits."""
        outbox = self._outbox
        outbox.is_gathering = True
        handlers, is_over = self._handlers, False
        while not is_over:
            last = len(commands)
            for number, command in enumerate(commands, 1):
                flag = command.flag
                if flag & FLAG_RESPONSE:
                    self._calls.finish(command)
                    continue
                try:
                    answer = handlers.get(command.code, self._owner.handle_unknown)(self, command)
                except Exception as error:
                    answer = encode_refusal(command, error, self.peer)
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
        """Read no more, and go on with the backlog when it is this connection's turn."""
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
            data = encode_refusal(command, error, self.peer)
        if data is not None and not command.flag & FLAG_ONEWAY:
            self.send(data)

    async def _answer_first(self, command: Command, answer: Later) -> None:
        try:
            await self._answer_later(command, answer)
        finally:
            self._wait_no_more(_ORDER)

    def need_time(self) -> None:
        """For a handler that is about to do something long and has changed nothing yet.

        When this turn of the loop has no time left, it does not return: the handler is called again in a turn of this
        connection.
        """
        self.looks_at_clock = True
        if self._has_turn or not self._outbox.is_gathering:
            return
        if self._slice_end <= 0:
            self._slice_end = self._turns.begin()
        if perf_counter() >= self._slice_end:
            raise NotNow

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, data: bytes | LongAnswer) -> None:
        """Write a frame with all others of this turn of the loop, or a long one piece by piece.

        No request is taken and no held pull is answered until a long one is written.
        """
        if not self.is_open:
            return
        if isinstance(data, LongAnswer):
            self._outbox.send_long(data)
        else:
            self._outbox.send(data)

    async def drain(self) -> None:
        """Wait while the peer reads too slowly; for those who send much that is never answered."""
        await self._outbox.drain()

    @property
    def is_writable(self) -> bool:
        """Does the peer read what it gets? Whoever has large answers for it waits while it does not."""
        return not self._outbox.is_full

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Have a function called once, when the peer has read what it has; not at all when the connection ends."""
        self._outbox.when_writable(callback)

    # -- calls to the peer -------------------------------------------------------------------------------------------

    def call(self, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request; the future gets the answer, or an error of ours. The owner's scan ends it when it is late."""
        if not self.is_open:
            return self._fail_call()
        command.opaque, future = self._calls.begin(timeout_s)
        self._outbox.send(encode_command(command))
        return future

    def call_frame(self, build: Callable[[int], bytes], timeout_s: float) -> asyncio.Future[Command]:
        """Like `call`, for a request that is so frequent that `build` makes its frame by hand, given its number."""
        if not self.is_open:
            return self._fail_call()
        opaque, future = self._calls.begin(timeout_s)
        self._outbox.send(build(opaque))
        return future

    def _fail_call(self) -> asyncio.Future[Command]:
        future: asyncio.Future[Command] = self._loop.create_future()
        future.set_exception(ConnectionLost(f"no connection to {self.peer}"))
        return future

    def notify(self, command: Command) -> None:
        """Send a request that is not answered."""
        command.flag |= FLAG_ONEWAY
        command.opaque = self._calls.count_up()
        self.send(encode_command(command))

    def expire_calls(self, now: float) -> bool:
        """Fail the calls whose time is over. Says whether there were any."""
        return self._calls.expire(now, self.peer)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for an answer."""
        return len(self._calls)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._frames.buffered_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the system has not taken yet."""
        return self._outbox.unsent_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this connection takes now."""
        waiting = sum([_REQUEST_BYTES + len(command.body) for command in self._backlog]) if self._backlog else 0
        return self.unsent_bytes + self._frames.buffered_bytes + self._unanswered_bytes + waiting

    def complain(self, reason: str) -> None:
        """Say in the log what the peer did."""
        self._owner.report(self, reason)

    def close(self) -> None:
        """Write what is left and end the connection."""
        if self._transport is not None:
            self._outbox.write_rest()
            self._transport.close()
            self._end()

    def abort(self) -> None:
        """End the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


def _name(address: Any) -> tuple[str, tuple[str, int]]:
    """An address as text, the way RocketMQ writes it, and as host and port."""
    if not isinstance(address, tuple):
        return str(address or "?"), ("", 0)
    host, port = str(address[0]), int(address[1])
    return f"{host}:{port}", (host, port)
