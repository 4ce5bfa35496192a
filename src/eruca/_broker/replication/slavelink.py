"""One slave's connection to its master: the socket, and the state machine of `core.replication.primary` behind it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never, cast

from eruca._broker.replication.alarm import Alarm
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.readlimit import ReadLimit
from eruca._core.replication import handshake
from eruca._core.replication.primary import (
    Action,
    Blocked,
    CheckAnswered,
    CheckPrefix,
    Close,
    Confirm,
    Drained,
    Event,
    HelloReceived,
    LinkLimits,
    LinkState,
    LogGrew,
    PrimaryLink,
    ReportReceived,
    SendChunk,
    SendHeartbeat,
    Tick,
)
from eruca._ground.clock import Clock
from eruca._net.certificates import read_fingerprint
from eruca._store.log.commitlog import CommitLog
from eruca._wire.handshake import Introduction, Proof
from eruca._wire.replication import (
    Hello,
    LogReport,
    Refusal,
    Report,
    SlaveDecoder,
    SlaveFrame,
    encode_chunk_head,
    encode_fenced,
    encode_fenced_head,
)
from eruca.errors import WireError

if TYPE_CHECKING:
    from eruca._broker.replication.primary import ReplicationServer

# Links log under the name of their server.
log = logging.getLogger("eruca._broker.replication.primary")

# Bytes buffered in a socket before its link pauses; the window of the link bounds what is in flight beyond that.
_UNSENT_BYTES_MAX: Final = 1024 * 1024
# Up to this size, data is joined into one write: two pieces cost the loop more.
_JOINED_BYTES_MAX: Final = 16 * 1024
# For a slave that is far behind, a thread reads ahead from disk: a page fault would block the loop for senders.
_PREFETCH_BYTES: Final = 4 * 1024 * 1024
# How long a slave may take to read why it was refused.
_GOODBYE_SECONDS: Final = 1.0


class SlaveLink(asyncio.Protocol):
    """One connection of a slave."""

    def __init__(
        self,
        server: ReplicationServer,
        number: int,
        commitlog: CommitLog,
        reads: ReadLimit,
        clock: Clock,
        membership: Membership,
        *,
        epoch: int,
        limits: LinkLimits,
    ) -> None:
        """`epoch` is the current mastership, and `limits` what it grants this link."""
        self._server = server
        self._commitlog = commitlog
        self._reads = reads
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = SlaveDecoder()
        self._alarm = Alarm(self._tick)
        self._membership = membership
        self._handshake = membership.expect_slave(self._loop.time())
        # Nothing that the slave sends counts before.
        self._is_admitted = False
        self._epoch = epoch
        # Links are numbered: a slave that reconnects is another link.
        self.number = number
        self.peer = "?"
        self.peer_host = "?"
        #: SHA-256 fingerprint of the slave's certificate, in lower-case hex; None without TLS or a certificate.
        self.certificate: str | None = None
        self.limits = limits
        self.machine = PrimaryLink(
            self.limits,
            self._loop.time(),
            epoch=self._epoch,
            start=self._commitlog.start,
            tail=self._commitlog.readable_end,
        )
        #: The slave's first message was accepted.
        self.is_joined = False
        self._is_behind = False
        self._prefetched = 0
        # The confirmed position this slave was told last.
        self._told = 0
        self._ended = ""

    # -- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, if slaves are accepted."""
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer_host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
        self.certificate = read_fingerprint(transport)
        if self.certificate is not None:
            self._handshake = self._membership.expect_slave(self._loop.time(), self.certificate)
        if refusal := self._server.refuse_link(self.peer_host):
            self._server.reporter.report_peer(self.peer_host, f"{self.peer} may not copy the log: {refusal}")
            self._ended = refusal
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)
        self._server.add(self)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Handle reports of the slave; of several reports only the last counts, as in Java."""
        if self._ended:
            return
        try:
            frames = self._decoder.feed(data)
        except WireError as error:
            self.end(f"it sent invalid data: {error}")
            return
        if not self._is_admitted:
            frames = self._authenticate(frames)
        if len(frames) == 1:
            self._take(frames[0])
            return
        for frame, following in itertools.zip_longest(frames, frames[1:]):
            if following is not None and type(frame) is type(following) and not isinstance(frame, Hello):
                continue
            self._take(frame)

    def _take(self, frame: SlaveFrame) -> None:
        match frame:
            case LogReport(position):
                self.handle(ReportReceived(position))
            case Report(epoch, position):
                self.handle(ReportReceived(position, epoch))
            case Hello():
                self.handle(HelloReceived(frame))
            case Introduction() | Proof():
                self._shake(frame)

    def pause_writing(self) -> None:
        """The slave reads too slowly."""
        self.handle(Blocked())

    def resume_writing(self) -> None:
        """The slave has read enough to get more."""
        self.handle(Drained())

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the slave."""
        self._forget(str(exc) if exc else "it closed the connection")

    # -- the handshake -----------------------------------------------------------------------------------------------

    def _authenticate(self, frames: list[SlaveFrame]) -> list[SlaveFrame]:
        """Take the messages of the handshake, and return those that come after it."""
        for number, frame in enumerate(frames):
            is_handshake = isinstance(frame, Introduction | Proof)
            self._shake(frame)
            if self._is_admitted:
                return frames[number + is_handshake :]
        return []

    def _shake(self, frame: SlaveFrame) -> None:
        event: handshake.MasterEvent
        match frame:
            case Introduction(_, account):
                event = handshake.Introduced(frame, self._membership.find_secret(account, self.certificate))
            case Proof():
                event = frame
            case _:
                event = handshake.Unproven()
        self._do_handshake(event)

    def _do_handshake(self, event: handshake.MasterEvent) -> None:
        if self._ended or self._transport is None:
            return
        for action in self._handshake.handle(event, self._loop.time()):
            match action:
                case handshake.Send(frame):
                    self._transport.write(encode_fenced(frame))
                case handshake.Open():
                    self._is_admitted = True
                case handshake.Close(reason):
                    self.end(reason)
        self._arm()

    # -- the state machine -------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Pass an event to the state machine, and execute its actions."""
        if self._ended:
            return
        if not self.is_joined:
            # Until it joins, the link is not notified when the log grows.
            self.machine.handle(LogGrew(self._commitlog.start, self._commitlog.readable_end), self._loop.time())
        actions = self.machine.handle(event, self._loop.time())
        if not self.is_joined and self.machine.state is LinkState.STREAMING:
            self.is_joined = True
            # The stream starts with a heartbeat that has the start position.
            begin = next((action.position for action in actions if isinstance(action, SendHeartbeat)), 0)
            if refusal := self._server.refuse_member(self):
                self.is_joined = False
                self.end(refusal)
                return
            self._server.on_join(self, begin)
        if actions:
            self._do(actions)
        self._arm()

    def _do(self, actions: Sequence[Action]) -> None:
        pieces: list[bytes | memoryview] = []
        reason: str | None = None
        confirmed: int | None = None
        for action in actions:
            match action:
                case SendChunk(position, size):
                    view = self._commitlog.view(position, size)
                    if view is None:
                        reason = f"the log has no bytes at {position} any more"
                        break
                    pieces += (self._encode_head(position, view), view)
                    if position + size + self.limits.live_bytes < self._commitlog.readable_end:
                        self._prefetch(position + size)
                case SendHeartbeat(position):
                    pieces.append(self._encode_head(position, b""))
                case Confirm(position):
                    confirmed = position
                case CheckPrefix(position, begin, crc):
                    found = self._commitlog.read_bytes(begin, position)
                    self.handle(CheckAnswered(found is not None and zlib.crc32(found) == crc))
                case Close(why):
                    reason = why
                case _:
                    assert_never(action)
        if pieces and self._transport is not None and not self._ended:
            if sum(map(len, pieces)) <= _JOINED_BYTES_MAX:
                self._transport.write(b"".join(pieces))
            else:
                self._transport.writelines(pieces)
        # Sent before the confirmation, so that the slave works on new data while senders are answered.
        if confirmed is not None:
            self._server.on_confirm(self, confirmed)
        if reason is not None:
            self.end(reason)

    def _prefetch(self, position: int) -> None:
        """Read ahead what follows a position, so that it is in memory when it is sent."""
        begin = max(position, self._prefetched)
        if begin - position > _PREFETCH_BYTES // 2:
            return
        found = self._commitlog.prefetch(begin, _PREFETCH_BYTES)
        if found is not None:
            self._prefetched, fetch = found
            self._loop.run_in_executor(None, fetch)

    def _encode_head(self, position: int, data: bytes | memoryview) -> bytes:
        if not self.machine.is_fenced:
            return encode_chunk_head(position, len(data))
        # `certain` may be beyond the end of this log.
        tail = self._commitlog.readable_end
        self._told = confirmed = min(self._reads.certain, tail)
        return encode_fenced_head(self._epoch, position, confirmed, tail, self._clock.now_ms(), data)

    def tell_confirmed(self) -> None:
        """Tell the slave what is confirmed, unless a chunk already did."""
        if self._ended or not self.is_joined or not self.machine.is_fenced or self._transport is None:
            return
        if min(self._reads.certain, self._commitlog.readable_end) > self._told:
            self._transport.write(self._encode_head(self.machine.position, b""))

    def _arm(self) -> None:
        """Set the timer for the state machine; firing too early does no harm."""
        if not self._ended:
            self._alarm.set(min(self.machine.wake_at, self._handshake.wake_at))

    def _tick(self) -> None:
        self._do_handshake(handshake.Tick())
        self.handle(Tick())

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Close the link; an Eruca is told why."""
        if self._ended or self._transport is None:
            return
        if self._decoder.is_fenced:
            self._transport.write(encode_fenced(Refusal(self._epoch, reason)))
            self._transport.close()
            # A slave that does not read would keep the connection open forever.
            self._loop.call_later(_GOODBYE_SECONDS, self._transport.abort)
        else:
            self._transport.abort()
        self._forget(reason)

    def _forget(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        self._alarm.clear()
        self._server.on_end(self, reason)

    # -- reporting ---------------------------------------------------------------------------------------------------

    @property
    def member(self) -> int | None:
        """The configured id of the slave; a classic slave does not send it."""
        return self.machine.hello.broker_id if self.machine.hello is not None else None

    @property
    def name(self) -> str:
        """The name of the slave in logs."""
        hello = self.machine.hello
        return self.peer if hello is None else f"{hello.address or self.peer} (configured id {hello.broker_id})"

    @property
    def address(self) -> str:
        """The service address that the slave reported; otherwise the address it connected from."""
        hello = self.machine.hello
        return hello.address if hello is not None and hello.address else self.peer

    @property
    def account(self) -> str | None:
        """The account with which the slave has authenticated; None if it has not."""
        return self._handshake.account

    @property
    def position(self) -> int:
        """The position that the slave has reached."""
        return max(0, self.machine.confirmed)

    def note_lag(self, lag_bytes: int, near_bytes: int, behind_max: int) -> None:
        """Log when the slave falls behind, and when it has caught up."""
        if self._is_behind and lag_bytes <= near_bytes:
            self._is_behind = False
            log.info("slave %s has caught up", self.name)
        elif not self._is_behind and lag_bytes >= max(behind_max, near_bytes):
            self._is_behind = True
            log.warning("slave %s fell behind by %d bytes", self.name, lag_bytes)

    def begin_behind(self) -> None:
        """The slave starts with much to copy."""
        self._is_behind = True
