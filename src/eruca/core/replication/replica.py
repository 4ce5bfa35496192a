"""The slave's side of replication: one machine over all its connections to masters, classic or fenced.

The machine reads no socket and writes no log. It is told what the master sent and how far the own log is; it says what
to append, what to report, when to give a connection up and when to try again.

    waiting ---- Connected ----> following ---- Close, then Lost ----> waiting (Reconnect)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeAlias

import msgspec


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


class ChunkReceived(msgspec.Struct, frozen=True, gc=False):
    """The master sent bytes of its log, or (size 0) a heartbeat, and how far its log is and what is confirmed.

    A classic chunk has no epoch, and its `tail` is its own end.
    """

    position: int
    size: int
    epoch: int | None
    confirmed: int
    tail: int


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The own log ends at `tail`, and `flushed` of it is on the disk."""

    tail: int
    flushed: int


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The master says why it will close."""

    reason: str


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The connection is gone (after Close as well), or could not be made."""

    reason: str


Event: TypeAlias = Connected | ChunkReceived | Appended | Refused | Tick | Lost


# --- what to do ---------------------------------------------------------------------------------------------------


class SendHello(msgspec.Struct, frozen=True, gc=False):
    """Open a fenced link: ask for the log from a position on."""

    epoch: int
    position: int


class SendReport(msgspec.Struct, frozen=True, gc=False):
    """Tell the master what this slave has."""

    position: int


class Append(msgspec.Struct, frozen=True, gc=False):
    """Append what was received; tell with Appended how far the log is then."""

    position: int
    size: int


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
        if self.state is not FollowerState.FOLLOWING:
            return inf
        return min(self._heard_at + self._limits.silence_s, self._reported_at + self._limits.heartbeat_s)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take note of what happened; give what is to be done, in this order."""
        match event:
            case Connected():
                return self._connect(event, now)
            case Lost():
                self.state = FollowerState.WAITING
                self.epoch = None
                return [Reconnect(now + self._limits.reconnect_s)]
        # What comes after Close, or before a connection, is from one that does not count.
        if self.state is not FollowerState.FOLLOWING:
            return []
        match event:
            case ChunkReceived():
                return self._take_chunk(event, now)
            case Appended(tail, flushed):
                return self._grow(tail, flushed, now)
            case Refused(reason):
                return self._close(f"the master refuses: {reason}")
            case Tick():
                return self._pass_time(now)

    # The two things that happen for every chunk have a short way, without events and actions: `handle` goes it too.

    def take_next(self, epoch: int | None, position: int, size: int, confirmed: int, tail: int, now: float) -> bool:
        """Take a chunk if it is the next one, whose bytes are to be appended; if not, `handle` says what is wrong."""
        if self.state is not FollowerState.FOLLOWING or epoch != self.epoch or self._expected not in (0, position):
            return False
        self._heard_at = now
        self.master_tail, self.master_confirmed = tail, confirmed
        if size:
            self._expected = position + size
        return True

    def grow(self, tail: int, flushed: int, now: float) -> int:
        """Take note that the own log has grown; gives what is to be reported, -1 when there is nothing.

        It is -1 as well when the log cannot be so long: `handle` closes the connection.
        """
        if self.state is not FollowerState.FOLLOWING or not self.tail <= tail <= self._expected:
            return -1
        self.tail, self._flushed = tail, flushed
        own = self._measure_own()
        if own <= self._reported:
            return -1
        self._reported, self._reported_at = own, now
        return own

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

    def _take_chunk(self, chunk: ChunkReceived, now: float) -> list[Action]:
        if self.take_next(chunk.epoch, chunk.position, chunk.size, chunk.confirmed, chunk.tail, now):
            return [Append(chunk.position, chunk.size)] if chunk.size else []
        self._heard_at = now
        if (chunk.epoch is None) is not (self.epoch is None):
            return self._close("a fenced chunk on a link that is classic, or the other way round")
        if chunk.epoch != self.epoch:
            return self._close(f"a chunk of mastership {chunk.epoch} on a link of {self.epoch}")
        return self._close(f"the master sends from {chunk.position} on, and the log ends at {self._expected}")

    def _grow(self, tail: int, flushed: int, now: float) -> list[Action]:
        if not self.tail <= tail <= self._expected:
            return self._close(f"the log went from {self.tail} to {tail}, and {self._expected} was received")
        position = self.grow(tail, flushed, now)
        return [] if position < 0 else [SendReport(position)]

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
