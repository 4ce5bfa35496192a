"""One connection of HTTP/2: reads in slices, writes gathered, and the limits of both.

A connection gets a slice of time in each loop iteration, as a `net.link.Link` does. The rest of a read waits, and
nothing more is read until it is done. The same applies while the peer does not read its responses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import inf
from time import perf_counter
from typing import Any, Final, Protocol, cast

from eruca._ground.limits import GOODBYE_SECONDS, HTTP2_PING_SECONDS_MAX, SLICE_SECONDS
from eruca._net.certificates import read_fingerprint
from eruca._net.encrypted import EncryptedTransport
from eruca._net.http2.calls import GrpcStatus, Kind, Method
from eruca._net.http2.frames import (
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    PREFACE,
    ErrorCode,
    FrameType,
    Http2Error,
    encode_frame,
)
from eruca._net.http2.kernel.cutting import cut_frames
from eruca._net.http2.session import Session
from eruca._net.meters import count_refused
from eruca._net.networks import name_peer
from eruca._net.outbox import GATHERED_FRAMES_MAX, Outbox
from eruca._net.turns import find_turns

log = logging.getLogger(__name__)

# How many frames are handled before the clock is read: those of two calls.
_FRAMES_AT_ONCE: Final = 4
# A read of this size is handled even if this loop iteration has no time left.
_QUICK_BYTES_MAX: Final = 2048
# The first bytes of requests of HTTP/1.
_HTTP1: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE")
_HTTP1_ANSWER: Final = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 31\r\n\r\nThis port speaks gRPC (HTTP/2).\n"
)
_PING: Final = encode_frame(FrameType.PING, 0, 0, b"eruca...")

# Why nothing is read now: the outbox is full, or the peer sent too many requests.
_FULL: Final = 1
_TOO_MANY: Final = 2


class Owner(Protocol):
    """The port of a connection."""

    methods: Mapping[str, Method]
    #: How many unsent bytes a connection may have while its peer does not read.
    unsent_bytes_max: int
    message_bytes_max: int
    streams_max: int

    def on_open(self, link: Http2Link) -> None:
        """A connection was opened."""

    def on_close(self, link: Http2Link) -> None:
        """A connection was closed."""

    def on_over(self) -> None:
        """A call of a connection that is closing has ended."""

    def on_held(self, link: Http2Link, size: int) -> None:
        """A connection holds this many more bytes."""

    def report(self, link: Http2Link, reason: str) -> None:
        """A peer misbehaved; log it with a rate limit."""


class Http2Link(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._turns = find_turns(self._loop)
        self._transport: asyncio.Transport | None = None
        self._outbox = Outbox(self, self._loop)
        self.session = Session(
            self,
            self._outbox,
            self._loop,
            owner.methods,
            message_bytes_max=owner.message_bytes_max,
            streams_max=owner.streams_max,
            on_queued=self._on_queued,
        )
        # What was received and not handled yet.
        self._received = b""
        self._has_preface = False
        self._is_queued = False
        self._waits = 0
        # An incomplete frame, as the last scan saw it, and since when scans have seen it.
        self._unfinished = (0, 0)
        self._unfinished_since = self._loop.time()
        self._frames_seen = 0
        # When a ping was sent that is not answered.
        self._pinged_at = inf
        self._is_leaving = False
        self.peer = self.local = "?"
        self.peer_host = ("", 0)
        self.certificate: str | None = None
        self.account: str | None = None
        self.is_open = False
        self.last_active = self.last_heard = self._loop.time()
        self.notes: dict[str, Any] = {}

    # -- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Notify the owner and send our settings."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer, self.peer_host = name_peer(transport.get_extra_info("peername"))
        self.local, _ = name_peer(transport.get_extra_info("sockname"))
        self.session.over_tls = transport.get_extra_info("sslcontext") is not None
        self.certificate = read_fingerprint(transport)
        self._outbox.open(self._transport, self._owner.unsent_bytes_max, to_client=True)
        self.is_open = True
        self.session.greet()
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle the complete frames of one read."""
        self.last_active = self.last_heard = self._loop.time()
        self._pinged_at = inf
        self._received = self._received + data if self._received else data
        size = len(data)
        if size > _QUICK_BYTES_MAX:
            self._owner.on_held(self, size)
        if self._is_queued or self._waits:
            return
        end = self._turns.begin()
        if end or size <= _QUICK_BYTES_MAX:
            self._handle_received(end)
        else:
            self._pause_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all calls and notify the owner."""
        self.is_open = False
        self.session.drop_all()
        self.session.release()
        self._outbox.let_go()
        self._outbox.clear()
        self._received = b""
        self._transport = None
        self._owner.on_close(self)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self._outbox.pause()

    def resume_writing(self) -> None:
        """The peer caught up."""
        self._outbox.resume()

    # -- called by the outbox ----------------------------------------------------------------------------------------

    def on_full(self) -> None:
        """The outbox is full: handle no more frames."""
        self._wait_for(_FULL)

    def on_room(self) -> None:
        """The outbox has room again."""
        self.session.sending.pump()
        self._wait_no_more(_FULL)

    def on_unsent(self, size: int) -> None:
        """This many more bytes wait in the outbox."""
        self._owner.on_held(self, size)

    def on_unread(self, size: int) -> None:
        """The peer left more unread than it may: close the connection."""
        count_refused("serverMaxUnreadBytes")
        limit = self._owner.unsent_bytes_max
        self.complain(f"reads too slowly: {size} bytes are pending (serverMaxUnreadBytes={limit})")
        self.abort()

    def _on_queued(self, queued: int, added: int) -> None:
        """`queued` bytes of messages wait for windows, and `added` of them are new."""
        self._owner.on_held(self, added)
        if queued > self._owner.unsent_bytes_max:
            self.on_unread(queued)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _wait_for(self, reason: int) -> None:
        self._waits |= reason
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _wait_no_more(self, reason: int) -> None:
        self._waits &= ~reason
        if self._received and not (self._waits or self._is_queued):
            self._pause_for_turn()
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Read again, if nothing prevents it."""
        if not (self._waits or self._is_queued or self._transport is None or self._transport.is_closing()):
            self._transport.resume_reading()

    def pause_for(self, seconds: float) -> None:
        """Read nothing for a time."""
        if not self._waits & _TOO_MANY:
            self._wait_for(_TOO_MANY)
            self._loop.call_later(seconds, self._wait_no_more, _TOO_MANY)

    def _pause_for_turn(self) -> None:
        """Continue in a turn of this connection, and read nothing before."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.pause_reading()
        self._is_queued = True
        self._turns.call(self._take_turn)

    def _take_turn(self) -> None:
        self._is_queued = False
        if self._waits or self._transport is None or self._transport.is_closing():
            return
        self._handle_received(perf_counter() + SLICE_SECONDS)
        self._read_on()

    def _handle_received(self, slice_end: float) -> None:
        """Handle what was received, until the slice of this turn is over."""
        outbox = self._outbox
        outbox.is_gathering = True
        try:
            if self._has_preface or self._read_preface():
                self._handle_frames(slice_end)
        except Http2Error as error:
            self._fail(error)
        except Exception as error:
            log.error("the connection of %s failed", self.peer, exc_info=error)
            self._fail(Http2Error(ErrorCode.INTERNAL_ERROR, "internal error"))
        finally:
            outbox.is_gathering = False
            outbox.flush()

    def _read_preface(self) -> bool:
        """Check the first bytes of the connection; return whether they are complete."""
        received = self._received
        if received.startswith(PREFACE):
            self._received = received[len(PREFACE) :]
            self._has_preface = True
            return True
        if PREFACE.startswith(received):
            return False
        what = "no preface of HTTP/2"
        if received.startswith(_HTTP1):
            what = "a request of HTTP/1"
            self._outbox.send(_HTTP1_ANSWER)
        elif received[0] == 0:
            what = "what looks like a request of RocketMQ 4, which has another port"
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"the connection starts with {what}")

    def _handle_frames(self, slice_end: float) -> None:
        received, at, outbox, handle = self._received, 0, self._outbox, self.session.handle
        try:
            while self.is_open:
                frames, at = cut_frames(received, at, _FRAMES_AT_ONCE, PAYLOAD_BYTES_MAX)
                for kind, flags, stream, payload in frames:
                    handle(kind, flags, stream, payload)
                self._frames_seen += len(frames)
                if len(outbox.frames) >= GATHERED_FRAMES_MAX:
                    outbox.flush()
                if len(frames) < _FRAMES_AT_ONCE:
                    if len(received) - at >= 3 and int.from_bytes(received[at : at + 3], "big") > PAYLOAD_BYTES_MAX:
                        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a frame is longer than allowed")
                    return
                if self._waits:
                    return
                if perf_counter() >= slice_end:
                    self._pause_for_turn()
                    return
        finally:
            self._received = received[at:]

    def _fail(self, error: Http2Error) -> None:
        """The peer broke the protocol: say so, and close the connection."""
        if error.code is ErrorCode.ENHANCE_YOUR_CALM:
            self.complain(f"was closed: {error}")
        else:
            self.complain(f"broke the protocol: {error}")
        self.session.say_goodbye(self.session.numbers.last, error.code, str(error))
        self.close()

    # -- scans -------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether the client has no open call."""
        return not self.session.streams

    def measure_stalled(self, now: float) -> float:
        """Return for how many seconds the peer left something unfinished or unread, as far as scans have seen it."""
        unfinished = self._frames_seen, len(self._received)
        has_part = self._received or self.session.is_within_headers
        if not has_part or self._waits or self._is_queued or unfinished != self._unfinished:
            self._unfinished, self._unfinished_since = unfinished, now
        stalled = now - self._unfinished_since
        may_send = not self.session.holds_back
        for stream in self.session.streams.values():
            stalled = max(stalled, stream.measure_stalled(now, may_send=may_send))
        return stalled

    def check_alive(self, now: float, silent_s: float) -> bool:
        """Ping a peer with open calls that was silent for this time; return False if it does not answer."""
        if self.last_heard < now - silent_s and self._pinged_at == inf and not self._waits:
            self._pinged_at = now
            self._outbox.send(_PING)
        return now < self._pinged_at + HTTP2_PING_SECONDS_MAX or self._waits != 0

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of unfinished frames and messages, and of what is not decrypted yet."""
        transport = self._transport
        encrypted = transport.get_read_buffer_size() if isinstance(transport, EncryptedTransport) else 0
        return len(self._received) + encrypted + self.session.unfinished_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the system has not accepted yet."""
        return self._outbox.unsent_bytes + self.session.sending.queued

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this connection holds now."""
        transport = self._transport
        encrypted = transport.get_read_buffer_size() if isinstance(transport, EncryptedTransport) else 0
        return len(self._received) + encrypted + self._outbox.unsent_bytes + self.session.held_bytes

    # -- the end -----------------------------------------------------------------------------------------------------

    def complain(self, reason: str) -> None:
        """Log the misbehaviour of the peer."""
        self._owner.report(self, reason)

    def leave(self, reason: str) -> None:
        """Ask the client to open no more calls here, and end the connection when the last one is over.

        A call that is under way to us is still handled, until the client has seen the request: it answers our ping.
        """
        if self._is_leaving or self._transport is None:
            return
        self._is_leaving = True
        session = self.session
        session.on_over = self._on_over
        if not self._has_preface:
            self.close()
            return
        session.say_goodbye(NUMBER_MAX, ErrorCode.NO_ERROR, reason)
        self._outbox.send(_PING)
        session.on_pong = self.close_door
        self._loop.call_later(GOODBYE_SECONDS, self.close_door)

    def close_door(self) -> None:
        """Handle no more calls than have arrived."""
        session = self.session
        if session.last_handled is None and self.is_open:
            session.last_handled = session.numbers.last
            session.say_goodbye(session.last_handled, ErrorCode.NO_ERROR, "")
            session.on_over = self._on_over
            self._on_over()

    def _on_over(self) -> None:
        """A call has ended while the connection is closing."""
        self._owner.on_over()
        if self.is_idle and self.session.last_handled is not None:
            self.close()

    @property
    def is_busy(self) -> bool:
        """Whether there are calls that end without the client's help."""
        return any(stream.kind is not Kind.BIDI for stream in self.session.streams.values())

    def end_calls(self, text: str) -> None:
        """End all calls as unavailable, and the connection after them."""
        self.close_door()
        for stream in list(self.session.streams.values()):
            stream.finish(GrpcStatus.UNAVAILABLE, text)

    def dismiss(self, reason: str) -> None:
        """Tell the client why there is no place for it, and close the connection."""
        self.session.say_goodbye(0, ErrorCode.ENHANCE_YOUR_CALM, reason)
        self.close()

    def close(self) -> None:
        """Write what is left and close the connection."""
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._outbox.is_gathering = False
            self._outbox.write_rest()
            self._transport.close()
            self.session.drop_all()
            self._received = b""
            # The peer may not read what is left.
            self._loop.call_later(GOODBYE_SECONDS, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
