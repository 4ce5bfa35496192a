"""Which half messages are undecided, and what happens to them: one pass over the half queue.

A half message is decided when the op queue has a record with its offset. A pass walks the half queue from where
the last one stopped. A decided half is skipped. One that is too young ends the pass. An undecided one is
written again at the end of the queue (so that the walk can move past it) and its producer is asked; after too many
checks it is given up instead.

The machine reads and writes nothing. `handle` processes an event and returns the one thing to do next. The caller must
not let a decision in between reading the op queue to its end and carrying out the next action; otherwise a half that
was just decided would be checked once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

# A pass stops after this long and the next one continues, so that its results are not lost in a crash.
PASS_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Rules:
    """When halves are checked and when they are given up."""

    timeout_ms: int
    checks_max: int
    # Halves older than this are given up: their records may be deleted at any time.
    age_ms_max: int


@dataclass(frozen=True, slots=True)
class Half:
    """The facts about a half message that decisions need."""

    offset: int
    position: int
    born_ms: int
    checks: int = 0
    # How long its producer wants no checks, when that differs from the broker's timeout.
    immunity_ms: int | None = None
    # The offset of the half it is a copy of: deciding that one, or any copy of it, decides them all.
    origin: int | None = None

    @property
    def root(self) -> int:
        """The offset of the half as its producer sent it."""
        return self.offset if self.origin is None else self.origin


@dataclass(frozen=True, slots=True)
class Op:
    """A record of the op queue: this half is decided. `half_offset` is None when it is unreadable."""

    offset: int
    position: int
    half_offset: int | None


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassStarted:
    """Start from here: the first half that is not done, and the first op record that is still needed.

    What is beyond `log_end` was stored after the start: mainly the copies that the pass itself writes.
    """

    half_offset: int
    op_offset: int
    log_end: int


@dataclass(frozen=True, slots=True)
class OpsRead:
    """Op records in order, where to continue reading, and whether that is the end of the queue."""

    ops: Sequence[Op]
    next_offset: int
    ended: bool


@dataclass(frozen=True, slots=True)
class HalfRead:
    """The requested half."""

    half: Half


@dataclass(frozen=True, slots=True)
class HalfMissing:
    """There is no half at the offset (deleted, or lost to damage); the next one may be here."""

    next_offset: int


@dataclass(frozen=True, slots=True)
class HalvesEnded:
    """The half queue ends here."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The write succeeded."""


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """The write failed for now."""


Event: TypeAlias = PassStarted | OpsRead | HalfRead | HalfMissing | HalvesEnded | Stored | StoreRefused


# --- actions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadHalf:
    """Read the half at an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class ReadOps:
    """Read op records from an offset on."""

    offset: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """Write the half again, marked as a copy of its root: it is still immune."""

    half: Half


@dataclass(frozen=True, slots=True)
class CheckBack:
    """Write the half again, marked as a copy of its root, with this count of checks; check the copy with a producer."""

    half: Half
    checks: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Write the half to the topic of halves that were checked too often."""

    half: Half


@dataclass(frozen=True, slots=True)
class Finish:
    """The pass is over; the next one starts here."""

    half_offset: int
    op_offset: int


Action: TypeAlias = ReadHalf | ReadOps | PutBack | CheckBack | GiveUp | Finish


class CheckPass:
    """One pass over the half queue."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._started_ms = 0
        self._log_end = 0
        self._walk_from = 0
        self._cursor = 0
        self._op_cursor = 0
        self._ops_ended = False
        self._pending: Half | None = None
        # Ops of halves that are not walked yet, by half offset.
        self._decided: dict[int, Op] = {}
        # Ops of halves before the walk: they may decide a copy that is still ahead.
        self._late: dict[int, Op] = {}

    def handle(self, event: Event, now_ms: int) -> Action:
        """Process an event; returns the next thing to do."""
        match event:
            case PassStarted(half_offset, op_offset, log_end):
                self._started_ms = now_ms
                self._log_end = log_end
                self._walk_from = self._cursor = half_offset
                self._op_cursor = op_offset
            case OpsRead():
                return self._learn(event, now_ms)
            case HalfRead(half):
                return self._meet(half, now_ms)
            case HalfMissing(next_offset):
                self._cursor = next_offset
            case HalvesEnded():
                return self._finish(None)
            case Stored():
                self._cursor += 1
            case StoreRefused():
                return self._finish(self._pending)
        return self._walk(now_ms)

    def _walk(self, now_ms: int) -> Action:
        """Skip what is decided, up to the next half that must be examined."""
        self._pending = None
        while self._decided.pop(self._cursor, None) is not None:
            self._cursor += 1
        if now_ms - self._started_ms > PASS_MS_MAX:
            return self._finish_unseen()
        return ReadHalf(self._cursor)

    def _meet(self, half: Half, now_ms: int) -> Action:
        age_ms = now_ms - half.born_ms
        is_young = half.immunity_ms is None and 0 <= age_ms < self._rules.timeout_ms
        if half.position >= self._log_end or is_young:
            return self._finish(half)
        self._pending = half
        # Decisions made since the last half was walked count as well.
        self._ops_ended = False
        return ReadOps(self._op_cursor)

    def _learn(self, event: OpsRead, now_ms: int) -> Action:
        for op in event.ops:
            if op.half_offset is not None:
                known = self._late if op.half_offset < self._walk_from else self._decided
                known[op.half_offset] = op
        self._op_cursor = event.next_offset
        self._ops_ended = event.ended
        half = self._pending
        if half is None or self._is_decided(half):
            self._cursor += half is not None
            return self._walk(now_ms)
        return self._decide(half, now_ms) if self._ops_ended else ReadOps(self._op_cursor)

    def _is_decided(self, half: Half) -> bool:
        if self._decided.pop(half.offset, None) is not None:
            return True
        return half.origin is not None and (half.origin in self._late or half.origin in self._decided)

    def _decide(self, half: Half, now_ms: int) -> Action:
        """What to do with an undecided half."""
        rules = self._rules
        age_ms = now_ms - half.born_ms
        if half.checks >= rules.checks_max or age_ms > rules.age_ms_max:
            return GiveUp(half)
        if half.immunity_ms is not None and age_ms < half.immunity_ms:
            return PutBack(half)
        return CheckBack(half, half.checks + 1)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _finish_unseen(self) -> Finish:
        """Stop before a half that was not examined: every op that was read is kept."""
        return self._end({op.offset for op in self._late.values()})

    def _finish(self, stopped_at: Half | None) -> Finish:
        """Stop at a half, or (None) at the end of the queue.

        Copies that an op of an earlier half can decide were written before it. When the walk has passed the op's place
        in the log, it has passed them, and the op is no longer needed.
        """
        if stopped_at is None:
            return self._end(set())
        return self._end({op.offset for op in self._late.values() if op.position > stopped_at.position})

    def _end(self, needed: set[int]) -> Finish:
        needed |= {op.offset for op in self._decided.values()}
        return Finish(self._cursor, min(needed, default=self._op_cursor))
