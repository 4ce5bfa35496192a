"""What one connection sends: frames are gathered and written once per loop iteration, long responses piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from eruca._ground.limits import UNSENT_BYTES_MAX, UNSENT_BYTES_PAUSE
from eruca._net.answers import LongAnswer
from eruca._net.turns import find_turns

# At most this many frames are gathered before they are written, so that the peer works on the first of them while we
# work on the next. Measured with 64 sends in flight between two processes: 38,000/s when all 64 go in one write,
# 70,000/s from 8 to 32, where a write for every 32 costs no more CPU than one for all.
GATHERED_FRAMES_MAX = 32
# A larger frame is written at once, together with those before it. Otherwise one read full of small pulls for large
# messages would build gigabytes before the first check whether the peer reads any of it.
GATHERED_FRAME_BYTES_MAX = 32 * 1024
# The connection is notified of writes from this size on, and of all while the peer does not read; a scan does the rest.
_UNSENT_BYTES_TOLD = 64 * 1024
# `drain` yields to the loop after this many gathered bytes, so that they are written.
_DRAIN_BYTES = 64 * 1024


class Connection(Protocol):
    """The connection of an outbox: what the outbox calls."""

    is_open: bool
    last_active: float

    def on_unsent(self, size: int) -> None:
        """This many more bytes wait for the peer."""

    def on_full(self) -> None:
        """The peer does not read, or a long response is being written."""

    def on_room(self) -> None:
        """The outbox has room again."""

    def on_unread(self, size: int) -> None:
        """The peer left more unread than it may."""

    def complain(self, reason: str) -> None:
        """Report misbehaviour of the peer, or a response that could not be completed."""

    def abort(self) -> None:
        """Close the connection at once."""


class _Gone:
    """A connection that was closed. What refers to a connection would wait with it for the garbage collector."""

    is_open = False
    last_active = 0.0

    def on_unsent(self, size: int) -> None:
        """Nothing waits any more."""

    def on_full(self) -> None:
        """Nothing is full any more."""

    def on_room(self) -> None:
        """Nothing has to wait any more."""

    def on_unread(self, size: int) -> None:
        """Nobody reads any more."""

    def complain(self, reason: str) -> None:
        """Nothing is reported any more."""

    def abort(self) -> None:
        """It is closed already."""


_GONE: Final = _Gone()


class Outbox:
    """The outgoing frames of one connection."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection: Connection = connection
        self._loop = loop
        self._turns = find_turns(loop)
        self._transport: asyncio.Transport | None = None
        self._unsent_bytes_max = UNSENT_BYTES_MAX
        #: Gathered frames. Code that handles a read appends here and calls `flush`: calling `send` each time takes
        #: longer.
        self.frames: list[bytes] = []
        #: Set while a read is handled: the connection flushes after it, and until then frames are gathered.
        self.is_gathering = False
        # Long responses whose pieces are being written; all frames wait behind them.
        self._long: deque[Iterator[bytes]] = deque()
        self._is_queued = False
        self._is_unread = False
        # Callbacks of senders that continue when the peer has read its pending data.
        self._drained: asyncio.Event | None = None
        self._on_writable: list[Callable[[], None]] = []

    def open(self, transport: asyncio.Transport, unsent_bytes_max: int, *, to_client: bool) -> None:
        """Write to this transport from now on; a client has to wait much sooner than a server."""
        self._transport = transport
        self._unsent_bytes_max = unsent_bytes_max
        transport.set_write_buffer_limits(high=UNSENT_BYTES_PAUSE if to_client else unsent_bytes_max // 4)

    def send(self, data: bytes) -> None:
        """Write a frame together with all others of this loop iteration."""
        frames = self.frames
        if not frames and not self.is_gathering:
            self._loop.call_soon(self.flush)
            self._connection.last_active = self._loop.time()
        frames.append(data)
        if len(frames) >= GATHERED_FRAMES_MAX or len(data) > GATHERED_FRAME_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the gathered frames."""
        frames, transport = self.frames, self._transport
        if not frames or self._long or transport is None:
            return
        self.frames = []
        if transport.is_closing():
            return
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        transport.write(data)
        if self._is_unread or len(data) > _UNSENT_BYTES_TOLD:
            self._count_unsent(transport.get_write_buffer_size(), len(data))

    def _count_unsent(self, unsent: int, added: int) -> None:
        if self._is_unread and unsent > self._unsent_bytes_max:
            self._connection.on_unread(unsent)
        elif unsent > _UNSENT_BYTES_TOLD:
            self._connection.on_unsent(added)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the system has not accepted yet."""
        gathered = sum(map(len, self.frames))
        return gathered + (0 if self._transport is None else self._transport.get_write_buffer_size())

    # -- long responses ----------------------------------------------------------------------------------------------

    def send_long(self, answer: LongAnswer) -> None:
        """Write a frame piece by piece, after everything that was sent before it."""
        if not self._long:
            self.flush()
            self._add_long(answer.pieces)
            self._queue_piece()
            self._connection.on_full()
            return
        if self.frames:  # frames between two long responses
            self._add_long(self.frames)
            self.frames = []
        self._add_long(answer.pieces)

    def _add_long(self, pieces: Iterable[bytes]) -> None:
        self._long.append(iter(pieces))

    def _queue_piece(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._turns.call(self._write_piece)

    def _write_piece(self) -> None:
        """Write one piece in a turn of this connection; if the peer does not read, continue when it has."""
        self._is_queued = False
        transport = self._transport
        if not self._long or self._is_unread or transport is None or transport.is_closing():
            return
        piece = self._take_piece()
        if piece is not None:
            transport.write(piece)
            self._connection.last_active = self._loop.time()
            self._count_unsent(transport.get_write_buffer_size(), len(piece))
            if not self._is_unread:
                self._queue_piece()
        elif self._connection.is_open:
            self.flush()
            self._tell_room()

    def _take_piece(self) -> bytes | None:
        """Return the next piece; None if there are no more, or if it could not be read and the connection is closed."""
        try:
            while self._long:
                piece = next(self._long[0], None)
                if piece is not None:
                    return piece
                self._long.popleft()
        except Exception as error:
            self._long.clear()
            self._connection.complain(f"was closed in the middle of a response: {error}")
            self._connection.abort()
        return None

    # -- peers that do not read --------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether more is pending than the peer reads, or a long response is under way."""
        return self._is_unread or bool(self._long)

    def pause(self) -> None:
        """The peer reads too slowly."""
        self._is_unread = True
        self._connection.on_full()

    def resume(self) -> None:
        """The peer caught up."""
        self._is_unread = False
        if self._drained is not None:
            self._drained.set()
        if self._long:
            self._queue_piece()
        else:
            self._tell_room()

    def _tell_room(self) -> None:
        callbacks, self._on_writable = self._on_writable, []
        for callback in callbacks:
            callback()
        # One of the callbacks may have filled it again.
        if not self.is_full:
            self._connection.on_room()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call a function once when there is room; never if the connection is closed before."""
        self._on_writable.append(callback)

    async def drain(self) -> None:
        """Wait while the peer reads too slowly; for callers that send many oneway requests."""
        # Yields to the loop at least once in a while: otherwise a pure sender never lets it write.
        if sum(map(len, self.frames)) > _DRAIN_BYTES:
            await asyncio.sleep(0)
        while self._is_unread and self._connection.is_open:
            if self._drained is None or self._drained.is_set():
                self._drained = asyncio.Event()
            await self._drained.wait()

    # -- the end -----------------------------------------------------------------------------------------------------

    def write_rest(self) -> None:
        """Write everything that is left."""
        while self._transport is not None and (piece := self._take_piece()) is not None:
            self._transport.write(piece)
        self.flush()

    def let_go(self) -> None:
        """Wake everything that waits for room."""
        if self._drained is not None:
            self._drained.set()

    def clear(self) -> None:
        """Drop what is left: the connection was closed."""
        self._transport = None
        self._connection = _GONE
        self.frames.clear()
        self._long.clear()
        self._on_writable.clear()
