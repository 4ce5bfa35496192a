"""The slave's side of replication: one machine for all its connections to masters, classic or fenced.

The machine does not read the socket or write the log. It receives events (what the master sent, how far its own log is)
and returns actions: what to append, what to report, when to close a connection and when to reconnect.

    waiting ---- Connected ----> following ---- Close, then Lost ----> waiting (Reconnect)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, TypeAlias

import msgspec

from eruca._wire.replication import Chunk, FencedFrame, Hello, LogChunk, Refusal, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Timeouts of a slave, and what it reports."""

    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    reconnect_s: float = 1.0
    # Report what is on the disk (only on a fenced link); otherwise what is received.
    report_flushed: bool = False


# --- events -------------------------------------------------------------------------------------------------------


class Connected(msgspec.Struct, frozen=True, gc=False):
    """A connection to a master is open; fenced if the master sent its epoch, otherwise classic.

    Our log ends at `tail`, and equals the master's up to there as far as both know; `flushed` of it is on the disk.
    """

    tail: int
    flushed: int
    epoch: int | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Our log ends at `tail`, and is on the disk up to `flushed`."""

    tail: int
    flushed: int


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone (also after Close), or could not be made."""

    reason: str


# The messages from a master.
Frame: TypeAlias = FencedFrame | LogChunk
Event: TypeAlias = Frame | Connected | Appended | Tick | Lost


# --- actions ------------------------------------------------------------------------------------------------------


class SendHello(msgspec.Struct, frozen=True, gc=False):
    """Open a fenced link: request the log from a position on."""

    epoch: int
    position: int


class SendReport(msgspec.Struct, frozen=True, gc=False):
    """Tell the master what this slave has."""

    position: int


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append bytes at a position; Appended reports the end of the log after that."""

    position: int
    data: bytes


class Close(msgspec.Struct, frozen=True, gc=False):
    """End the connection; followed by Lost."""

    reason: str


class Reconnect(msgspec.Struct, frozen=True, gc=False):
    """Look for the master again at this time."""

    at: float


Action: TypeAlias = SendHello | SendReport | Append | Close | Reconnect


class FollowerState(Enum):
    """The state of a slave's connection."""

    WAITING = "not connected"
    FOLLOWING = "copying the log"
    CLOSING = "closing the connection"


_FOLLOWING: Final = FollowerState.FOLLOWING


class ReplicaLink:
    """A slave's successive connections."""

    def __init__(self, limits: ReplicaLimits, now: float, *, seen_epoch: int = 0) -> None:
        """`seen_epoch` is the highest mastership this slave has heard of; it follows none below it."""
        self._limits = limits
        self.state = FollowerState.WAITING
        #: The highest mastership heard of.
        self.seen_epoch = seen_epoch
        #: The epoch of the link; None when it is classic or there is none.
        self.epoch: int | None = None
        #: How far the master's log is, and how far it is confirmed, according to its last message.
        self.master_tail = 0
        self.master_confirmed = 0
        #: The end of our log, as last reported.
        self.tail = 0
        # Where the next chunk must start: after everything received. 0: the log is empty, it may start anywhere.
        self._expected = 0
        #: Does this connection report what is on the disk, not what is received?
        self.reports_flushed = False
        self._flushed = 0
        self._reported = 0
        self._heard_at = now
        self._reported_at = now

    @property
    def wake_at(self) -> float:
        """When a Tick is due, if nothing else happens before; infinite while there is no connection."""
        if self.state is not _FOLLOWING:
            return inf
        return min(self._heard_at + self._limits.silence_s, self._reported_at + self._limits.heartbeat_s)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Process an event; returns the actions to take, in order."""
        # Nearly all events are of these two kinds, and a busy master causes thousands per second.
        if isinstance(event, Chunk):
            return self._take_chunk(event, now)
        if isinstance(event, Appended):
            return self._grow(event.tail, event.flushed, now)
        match event:
            case Connected():
                return self._connect(event, now)
            case Lost():
                self.state = FollowerState.WAITING
                self.epoch = None
                return [Reconnect(now + self._limits.reconnect_s)]
        # Whatever arrives after Close, or before a connection, belongs to an old one and is ignored.
        if self.state is not _FOLLOWING:
            return []
        match event:
            case LogChunk(position, data):
                return self._take_classic(position, data, now)
            case Refusal(_, reason):
                return self._close(f"the master refused the link: {reason}")
            case Tick():
                return self._pass_time(now)
            case Hello() | Report():
                return self._close("the master sent a message that only a slave sends")
            case _:
                return self._close("the master sent a message of the handshake in the middle of a link")

    def _connect(self, event: Connected, now: float) -> list[Action]:
        self.state = FollowerState.FOLLOWING
        self.epoch = event.epoch
        self._heard_at = self._reported_at = now
        self.tail = self._expected = event.tail
        self.reports_flushed = event.epoch is not None and self._limits.report_flushed
        self._flushed = event.flushed
        self._reported = self._measure_own()
        self.master_tail = self.master_confirmed = 0
        if event.epoch is None:
            return [SendReport(self._reported)]
        if event.epoch < self.seen_epoch:
            return self._close(f"the master's epoch is {event.epoch}, but {self.seen_epoch} has already begun")
        self.seen_epoch = event.epoch
        return [SendHello(event.epoch, event.tail), SendReport(self._reported)]

    def _take_chunk(self, chunk: Chunk, now: float) -> list[Action]:
        if self.state is not _FOLLOWING:
            return []
        position, data = chunk.position, chunk.data
        if chunk.epoch != self.epoch or (self._expected != position and self._expected):
            return self._refuse_chunk(chunk.epoch, position)
        self._heard_at = now
        self.master_tail, self.master_confirmed = chunk.tail, chunk.confirmed
        if not data:
            return []
        self._expected = position + len(data)
        return [Append(position, data)]

    def _take_classic(self, position: int, data: bytes, now: float) -> list[Action]:
        """Take a chunk without epoch and confirmed position: the end of the chunk is taken as the end of that log."""
        if self.epoch is not None or self._expected not in (0, position):
            return self._refuse_chunk(None, position)
        self._heard_at = now
        self.master_tail, self.master_confirmed = position + len(data), 0
        if not data:
            return []
        self._expected = position + len(data)
        return [Append(position, data)]

    def _refuse_chunk(self, epoch: int | None, position: int) -> list[Action]:
        if (epoch is None) is not (self.epoch is None):
            return self._close("a fenced chunk on a classic link, or a classic one on a fenced link")
        if epoch != self.epoch:
            return self._close(f"a chunk of mastership {epoch} on a link of {self.epoch}")
        return self._close(f"the master sends from {position} on, but the log ends at {self._expected}")

    def _grow(self, tail: int, flushed: int, now: float) -> list[Action]:
        if self.state is not _FOLLOWING:
            return []
        if not self.tail <= tail <= self._expected:
            return self._close(f"the log went from {self.tail} to {tail}, but {self._expected} was received")
        self.tail, self._flushed = tail, flushed
        own = self._measure_own() if self.reports_flushed else tail
        if own <= self._reported:
            return []
        self._reported, self._reported_at = own, now
        return [SendReport(own)]

    def _pass_time(self, now: float) -> list[Action]:
        # Compared the way `wake_at` computes it: a difference would be rounded, and the Tick would come too early.
        if now >= self._heard_at + self._limits.silence_s:
            return self._close(f"no data received from the master for {now - self._heard_at:.1f} s")
        if now >= self._reported_at + self._limits.heartbeat_s:
            return self._report(now)
        return []

    def _report(self, now: float) -> list[Action]:
        self._reported = max(self._reported, self._measure_own())
        self._reported_at = now
        return [SendReport(self._reported)]

    def _measure_own(self) -> int:
        """What may be reported: what is received, or what is on the disk."""
        return min(self.tail, self._flushed) if self.reports_flushed else self.tail

    def _close(self, reason: str) -> list[Action]:
        self.state = FollowerState.CLOSING
        return [Close(reason)]
