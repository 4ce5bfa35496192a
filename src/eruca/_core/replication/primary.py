"""The master's side of one replication link, classic or fenced.

The machine does not read the log or write to the socket. It receives events (what the slave sent, the state of the log
and of the socket) and returns actions: which part of the log to send, when to keep the link alive, what the slave has,
and when to close.

    awaiting ---- first report, classic ------------------------------> streaming ---> closed
        |                                                                   ^
        +-------- hello, fenced ------> checking ---- prefix is the same ---+
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, TypeAlias

import msgspec

from eruca._ground.limits import HA_FENCED_DATA_BYTES_MAX
from eruca._wire.replication import Hello

# How much a slave that is far behind may get at once before it waits, as a fraction of what it gets in a second.
_BURST_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """The limits of a link."""

    segment_bytes: int
    # The largest chunk in bytes; for a classic slave as configured, because Java's buffer is small.
    transfer_bytes: int = 32_768
    fenced_transfer_bytes: int = HA_FENCED_DATA_BYTES_MAX
    # Bytes sent but not reported yet.
    window_bytes: int = 16 * 1024 * 1024
    # Bytes sent by one call: the loop does nothing else in that time.
    turn_bytes: int = 512 * 1024
    # A slave that starts further behind than this catches up at this rate, not counting what is written meanwhile,
    # until it is that near; 0 per second: as fast as it can take it.
    live_bytes: int = 4 * 1024 * 1024
    catch_up_bytes_per_second: int = 0
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    # An empty slave gets the whole log, not only its last segment.
    copy_oldest: bool = True


# --- events -------------------------------------------------------------------------------------------------------


class HelloReceived(msgspec.Struct, frozen=True, gc=False):
    """A slave opens a fenced link."""

    hello: Hello


class ReportReceived(msgspec.Struct, frozen=True, gc=False):
    """The slave has everything before a position. Without an epoch it is a classic report."""

    position: int
    epoch: int | None = None


class CheckAnswered(msgspec.Struct, frozen=True, gc=False):
    """Whether the bytes before the slave's position are the same as the master's."""

    ok: bool


class LogGrew(msgspec.Struct, frozen=True, gc=False):
    """The master's log now has this start and end."""

    start: int
    tail: int


class Blocked(msgspec.Struct, frozen=True, gc=False):
    """The socket accepts no more for now."""


class Drained(msgspec.Struct, frozen=True, gc=False):
    """The socket accepts more."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""


Event: TypeAlias = HelloReceived | ReportReceived | CheckAnswered | LogGrew | Blocked | Drained | Tick


# --- actions ------------------------------------------------------------------------------------------------------


class CheckPrefix(msgspec.Struct, frozen=True, gc=False):
    """Compare the CRC of the log from `begin` to `position`; answered by CheckAnswered."""

    position: int
    begin: int
    crc: int


class SendChunk(msgspec.Struct, frozen=True, gc=False):
    """Send this many bytes of the log."""

    position: int
    size: int


class SendHeartbeat(msgspec.Struct, frozen=True, gc=False):
    """Announce where the next chunk will start."""

    position: int


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """The slave has everything before a position."""

    position: int


class Close(msgspec.Struct, frozen=True, gc=False):
    """End the link; a fenced slave is told why. No action follows it."""

    reason: str


Action: TypeAlias = CheckPrefix | SendChunk | SendHeartbeat | Confirm | Close


class LinkState(Enum):
    """The state of a link."""

    AWAITING = "waiting for the slave's first message"
    CHECKING = "comparing both logs"
    STREAMING = "sending the log"
    CLOSED = "is over"


class PrimaryLink:
    """One slave's link, from its first byte to its end."""

    def __init__(self, limits: LinkLimits, now: float, *, epoch: int, start: int, tail: int) -> None:
        """`epoch` is this mastership's; the log reaches from `start` to `tail`."""
        #: May be replaced while the link runs.
        self.limits = limits
        self._epoch = epoch
        self._start = start
        self._tail = tail
        self.state = LinkState.AWAITING
        #: The opening of a fenced link; None on a classic one.
        self.hello: Hello | None = None
        #: Where the next chunk starts.
        self.position = 0
        #: What the slave has, as far as known; -1 before its first message.
        self.confirmed = -1
        # The position from which bytes in flight are counted.
        self._acknowledged = 0
        self._early_report = -1
        self._is_blocked = False
        self._is_catching_up = True
        self._heard_at = now
        self._sent_at = now
        self._uncounted = 0
        self._allowance = 0.0
        self._allowance_at = now
        self._resume_at: float | None = None

    @property
    def is_fenced(self) -> bool:
        """Is the slave an Eruca that opened with a hello?"""
        return self.hello is not None

    @property
    def wake_at(self) -> float:
        """When a Tick is due, if nothing else happens before; infinite when the link has ended."""
        if self.state is LinkState.CLOSED:
            return inf
        wake_at = self._heard_at + self.limits.silence_s
        if self.state is LinkState.STREAMING and not self._is_blocked:
            wake_at = min(wake_at, self._sent_at + self.limits.heartbeat_s)
            if self._resume_at is not None:
                wake_at = min(wake_at, self._resume_at)
        return wake_at

    def handle(self, event: Event, now: float) -> list[Action]:
        """Process an event; returns the actions to take, in order."""
        if self.state is LinkState.CLOSED:
            return []
        match event:
            case HelloReceived(hello):
                return self._open(hello, now)
            case ReportReceived(position, epoch):
                self._heard_at = now
                return self._take_report(position, epoch, now)
            case CheckAnswered(ok):
                return self._take_check(ok, now)
            case LogGrew(start, tail):
                if tail < self._tail:
                    return self._close(f"the log ended at {self._tail} and ends at {tail} now")
                if self.state is LinkState.STREAMING:
                    # The rate of catching up is that at which the distance shrinks: new data is not counted.
                    self._uncounted += tail - self._tail
                self._start, self._tail = start, tail
            case Blocked():
                self._is_blocked = True
            case Drained():
                self._is_blocked = False
            case Tick():
                return self._pass_time(now)
        return self._send(now)

    # -- messages of the slave -----------------------------------------------------------------------------------------

    def _open(self, hello: Hello, now: float) -> list[Action]:
        self._heard_at = now
        if self.state is not LinkState.AWAITING:
            return self._close("hello received in the middle of a link")
        self.hello = hello
        if hello.epoch != self._epoch:
            return self._close(f"the slave expects mastership {hello.epoch}, this is {self._epoch}")
        if refusal := self._refuse_start(hello.position):
            return self._close(refusal)
        # A slave with an empty log has nothing to compare, nor does one whose log begins right here.
        if hello.check_begin == hello.position:
            return self._accept(hello.position, now)
        if hello.check_begin < self._start:
            return self._close(f"the slave asks to compare its log from {hello.check_begin} on, {self._name_start()}")
        self.state = LinkState.CHECKING
        return [CheckPrefix(hello.position, hello.check_begin, hello.check_crc)]

    def _take_check(self, ok: bool, now: float) -> list[Action]:
        if self.state is not LinkState.CHECKING or self.hello is None:
            return self._close("a check result that was not requested")
        if not ok:
            return self._close(f"the slave's log before {self.hello.position} is not this master's")
        if refusal := self._refuse_start(self.hello.position):  # deleted in the meantime
            return self._close(refusal)
        return self._accept(self.hello.position, now)

    def _take_report(self, position: int, epoch: int | None, now: float) -> list[Action]:
        if self.state is LinkState.AWAITING and epoch is None:
            if refusal := self._refuse_start(position):
                return self._close(refusal)
            self._early_report = position
            return self._accept(position, now)
        if self.is_fenced is not (epoch is not None):
            return self._close("a fenced report on a classic link, or a classic one on a fenced link")
        if epoch is not None and epoch != self._epoch:
            return self._close(f"a report of mastership {epoch}, this is {self._epoch}")
        sent = self.hello.position if self.state is LinkState.CHECKING and self.hello else self.position
        if position > sent:
            return self._close(f"the slave reports {position} but was sent nothing after {sent}")
        if self.state is LinkState.CHECKING:
            # This slave is not verified yet; its report counts when the check has passed.
            self._early_report = max(self._early_report, position)
            return []
        return [*self._confirm(position), *self._send(now)]

    def _refuse_start(self, position: int) -> str:
        """Why a slave cannot continue from a position; empty when it can."""
        if position > self._tail:
            return f"the slave is at {position} but this log ends at {self._tail}"
        # A classic slave that is too far behind gets heartbeats and nothing else, as from Java.
        if self.is_fenced and 0 < position < self._start:
            return f"the slave is at {position}, {self._name_start()}: it has to start with an empty store"
        return ""

    def _accept(self, position: int, now: float) -> list[Action]:
        self.state = LinkState.STREAMING
        if position == 0:
            last_segment = self._tail - self._tail % self.limits.segment_bytes
            position = self._start if self.limits.copy_oldest else max(self._start, last_segment)
        self.position = self._acknowledged = position
        # At once, so that the slave knows that it is accepted.
        self._sent_at = now
        actions: list[Action] = [SendHeartbeat(position)]
        if self._early_report >= 0:
            actions += self._confirm(self._early_report)
        return actions + self._send(now)

    def _confirm(self, position: int) -> list[Action]:
        self._acknowledged = max(self._acknowledged, position)
        if position <= self.confirmed:
            return []
        self.confirmed = position
        return [Confirm(position)]

    # -- sending the log -----------------------------------------------------------------------------------------------

    def _send(self, now: float) -> list[Action]:
        """Return the chunks of the log that may be sent now."""
        self._resume_at = None
        actions: list[Action] = []
        if self.state is not LinkState.STREAMING or self._is_blocked:
            return actions
        if self.position < self._start:
            if not self.is_fenced:
                return actions
            return self._close(f"the slave is at {self.position}, {self._name_start()}: it was too slow")
        limits = self.limits
        given = 0
        while size := self._measure_chunk():
            in_flight = self.position - self._acknowledged
            if in_flight and in_flight + size > limits.window_bytes:
                break
            if given and given + size > limits.turn_bytes:
                self._resume_at = now
                break
            if not self._spend_allowance(size, now):
                break
            actions.append(SendChunk(self.position, size))
            self.position += size
            self._sent_at = now
            given += size
        return actions

    def _measure_chunk(self) -> int:
        segment_bytes = self.limits.segment_bytes
        segment_rest = segment_bytes - self.position % segment_bytes
        return min(self._transfer_bytes, segment_rest, self._tail - self.position)

    @property
    def _transfer_bytes(self) -> int:
        return self.limits.fenced_transfer_bytes if self.is_fenced else self.limits.transfer_bytes

    def _spend_allowance(self, size: int, now: float) -> bool:
        """May a chunk be sent now? If not, note when it may."""
        rate = self.limits.catch_up_bytes_per_second
        if self._is_catching_up and self._tail - self.position <= self.limits.live_bytes:
            # Once near, a slave is not throttled again: producers wait for it now.
            self._is_catching_up = False
        if not rate or not self._is_catching_up:
            return True
        saved = self._allowance + (now - self._allowance_at) * rate
        self._allowance, self._allowance_at = min(saved, max(rate * _BURST_SECONDS, self._transfer_bytes)), now
        missing = size - self._uncounted - self._allowance
        if missing >= 1:  # less than a byte is only rounding
            self._resume_at = now + missing / rate
            return False
        counted = max(0, size - self._uncounted)
        self._uncounted -= size - counted
        self._allowance -= counted
        return True

    # -- time and closing ----------------------------------------------------------------------------------------------

    def _pass_time(self, now: float) -> list[Action]:
        # Compared the way `wake_at` computes it: a difference would be rounded, and the Tick would come too early.
        if now >= self._heard_at + self.limits.silence_s:
            return self._close(f"no data received from the slave for {now - self._heard_at:.1f} s")
        actions = self._send(now)
        streams = self.state is LinkState.STREAMING and not self._is_blocked
        if streams and now >= self._sent_at + self.limits.heartbeat_s:
            self._sent_at = now
            actions.append(SendHeartbeat(self.position))
        return actions

    def _name_start(self) -> str:
        return f"and this log begins at {self._start}"

    def _close(self, reason: str) -> list[Action]:
        self.state = LinkState.CLOSED
        return [Close(reason)]
