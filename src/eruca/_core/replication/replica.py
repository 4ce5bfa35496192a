"""The slave's side of replication: one machine over all its connections to masters, classic or fenced.

The machine reads no socket and writes no log. It is told what the master sent and how far the own log is; it says what
to append, what to report, when to give a connection up and when to try again.

    waiting ---- Connected ----> following ---- Close, then Lost ----> waiting (Reconnect)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, TypeAlias

import msgspec

from eruca._wire.replication import Chunk, Hello, LogChunk, Refusal, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """How patient a slave is, and what it reports."""

    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    reconnect_s: float = 1.0
    # Report what is on the disk (a fenced link only); otherwise what is received.
    report_flushed: bool = False


# --- what happens -------------------------------------------------------------------------------------------------


class Connected(msgspec.Struct, frozen=True, gc=False):
    """A connection to a master is open; with the epoch it told it is fenced, without it is classic.

    The own log ends at `tail`, and is the master's up to there as far as both know; `flushed` of it is on the disk.
    """

    tail: int
    flushed: int
    epoch: int | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The own log ends at `tail`, and `flushed` of it is on the disk."""

    tail: int
    flushed: int


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone (after Close as well), or could not be made."""

    reason: str


# What a connection to a master brings, as it came.
Frame: TypeAlias = Chunk | LogChunk | Refusal | Hello | Report
Event: TypeAlias = Frame | Connected | Appended | Tick | Lost


# --- what to do ---------------------------------------------------------------------------------------------------


class SendHello(msgspec.Struct, frozen=True, gc=False):
    """Open a fenced link: ask for the log from a position on."""

    epoch: int
    position: int


class SendReport(msgspec.Struct, frozen=True, gc=False):
    """Tell the master what this slave has."""

    position: int


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append bytes at a position; tell with Appended how far the log is then."""

    position: int
    data: bytes


class Close(msgspec.Struct, frozen=True, gc=False):
    """End the connection, then say Lost."""

    reason: str


class Reconnect(msgspec.Struct, frozen=True, gc=False):
    """Look for the master again at this time."""

    at: float


Action: TypeAlias = SendHello | SendReport | Append | Close | Reconnect


class FollowerState(Enum):
    """How a slave stands to its master."""

    WAITING = "has no connection"
    FOLLOWING = "copies the log"
    CLOSING = "has given the connection up"


_FOLLOWING: Final = FollowerState.FOLLOWING


class ReplicaLink:
    """A slave's connections, one after the other."""

    def __init__(self, limits: ReplicaLimits, now: float, *, seen_epoch: int = 0) -> None:
        """`seen_epoch` is the highest mastership this slave has heard of; it follows none below."""
        self._limits = limits
        self.state = FollowerState.WAITING
        #: The highest mastership heard of.
        self.seen_epoch = seen_epoch
        #: The epoch of the link; None when it is classic or there is none.
        self.epoch: int | None = None
        #: How far the master's log is, and what of it is confirmed, by its last word.
        self.master_tail = 0
        self.master_confirmed = 0
        #: How far the own log is, as it was last told.
        self.tail = 0
        # Where the next chunk must start: behind all that was received. 0: the log is empty, it may start anywhere.
        self._expected = 0
        #: Does this connection report what the disk has, and not what is received?
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
        """Take note of what happened; give what is to be done, in this order."""
        # Nearly all events are of these two kinds, and a busy master causes thousands a second.
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
        # What comes after Close, or before a connection, is from one that does not count.
        if self.state is not _FOLLOWING:
            return []
        match event:
            case LogChunk(position, data):
                return self._take_classic(position, data, now)
            case Refusal(_, reason):
                return self._close(f"the master refuses: {reason}")
            case Tick():
                return self._pass_time(now)
            case Hello() | Report():
                return self._close("the master sends what only a slave does")

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
            return self._close(f"the master's epoch is {event.epoch}, and {self.seen_epoch} has begun")
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
        """Take a chunk that says neither whose it is nor what is confirmed: its own end is the end of that log."""
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
            return self._close("a fenced chunk on a link that is classic, or the other way round")
        if epoch != self.epoch:
            return self._close(f"a chunk of mastership {epoch} on a link of {self.epoch}")
        return self._close(f"the master sends from {position} on, and the log ends at {self._expected}")

    def _grow(self, tail: int, flushed: int, now: float) -> list[Action]:
        if self.state is not _FOLLOWING:
            return []
        if not self.tail <= tail <= self._expected:
            return self._close(f"the log went from {self.tail} to {tail}, and {self._expected} was received")
        self.tail, self._flushed = tail, flushed
        own = self._measure_own() if self.reports_flushed else tail
        if own <= self._reported:
            return []
        self._reported, self._reported_at = own, now
        return [SendReport(own)]

    def _pass_time(self, now: float) -> list[Action]:
        # Compared as `wake_at` computes it: a difference would be rounded, and the Tick come in vain.
        if now >= self._heard_at + self._limits.silence_s:
            return self._close(f"the master said nothing for {now - self._heard_at:.1f} s")
        if now >= self._reported_at + self._limits.heartbeat_s:
            return self._report(now)
        return []

    def _report(self, now: float) -> list[Action]:
        self._reported = max(self._reported, self._measure_own())
        self._reported_at = now
        return [SendReport(self._reported)]

    def _measure_own(self) -> int:
        """Give what may be reported: what is received, or what the disk has."""
        return min(self.tail, self._flushed) if self.reports_flushed else self.tail

    def _close(self, reason: str) -> list[Action]:
        self.state = FollowerState.CLOSING
        return [Close(reason)]
