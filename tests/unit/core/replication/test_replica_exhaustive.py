"""Every state of a slave with every event, breadth first over small numbers; rules that hold in all of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import inf

import pytest

from eruca._core.replication.replica import (
    Action,
    Append,
    Appended,
    Close,
    Connected,
    Event,
    FollowerState,
    Lost,
    Reconnect,
    ReplicaLimits,
    ReplicaLink,
    SendHello,
    SendReport,
    Tick,
)
from eruca._wire.handshake import Challenge, Introduction, Proof
from eruca._wire.replication import Chunk, Hello, LogChunk, Refusal, Report
from tests.figures import note_figures
from tests.unit.core.replication.chunks import make_chunk
from tests.unit.core.replication.exploring import Reached, check_all

EPOCHS = (None, 6, 7)
POSITIONS = range(4)
PAUSES = (1.0, 5.0, 20.0)

EVENTS: tuple[Event, ...] = (
    *(Connected(tail, flushed, epoch) for tail in POSITIONS for flushed in range(tail + 1) for epoch in EPOCHS),
    *(make_chunk(at, b"x" * size, epoch) for at in POSITIONS for size in (0, 1, 2) for epoch in EPOCHS),
    *(Appended(tail, flushed) for tail in range(6) for flushed in range(tail + 1)),
    Refusal(7, "no"),
    Hello(7, 1, 0, 0, 0, ""),
    Report(7, 0),
    Introduction(bytes(32), "members"),
    Challenge(bytes(32)),
    Proof(bytes(32)),
    Lost("gone"),
    Tick(),
)
STEPS = (*((0.0, event) for event in EVENTS), *((pause, Tick()) for pause in PAUSES))


@dataclass
class Seen(Reached[ReplicaLink, Event]):
    """A state that was reached, what the log is like in it, and how that happened."""

    tail: int = 0
    flushed: int = 0

    def note(self, event: Event) -> None:
        if isinstance(event, Connected | Appended):
            self.tail, self.flushed = event.tail, event.flushed

    def fingerprint(self) -> tuple[object, ...]:
        link = self.link
        # Times count only on a link.
        if link.state is not FollowerState.FOLLOWING:
            return link.state, link.seen_epoch
        ages = {"_heard_at", "_reported_at"}
        values = [min(self.now - value, 20.0) if name in ages else value for name, value in sorted(vars(link).items())]
        return (*values, self.tail, self.flushed)


def check_step(before: Seen, event: Event, actions: list[Action], after: Seen) -> None:
    old, link = before.link, after.link
    # A slave without a connection sends nothing, and only Connected changes that.
    if old.state is not FollowerState.FOLLOWING and not isinstance(event, Connected | Lost):
        assert actions == []
        assert link.state is old.state
    # Close is the last action on a connection; Lost follows, which returns the time of the next try.
    closes = [action for action in actions if isinstance(action, Close)]
    assert len(closes) == (link.state is FollowerState.CLOSING and old.state is not FollowerState.CLOSING) or (
        isinstance(event, Connected) and len(closes) == 1
    )
    if closes:
        assert actions == closes
        assert closes[0].reason
    if isinstance(event, Lost):
        assert actions == [Reconnect(after.now + link._limits.reconnect_s)]
        assert link.state is FollowerState.WAITING
        assert link.wake_at == inf
    else:
        assert not [action for action in actions if isinstance(action, Reconnect)]
    # It never follows a mastership below one it has heard of.
    assert link.seen_epoch >= old.seen_epoch
    if link.state is FollowerState.FOLLOWING and link.epoch is not None:
        assert link.epoch == link.seen_epoch
    # A fenced link opens with a hello and the first report; a classic one with the report.
    if isinstance(event, Connected) and not closes:
        first, *others = actions
        if event.epoch is not None:
            assert first == SendHello(event.epoch, event.tail)
            first, *others = others
        assert isinstance(first, SendReport)
        assert others == []
    # Never is more reported than the log has, nor, where that is asked for, than the disk has; reports never fall.
    for report in (action for action in actions if isinstance(action, SendReport)):
        own = after.tail
        if link._limits.report_flushed and link.epoch is not None:
            own = min(own, after.flushed)
        assert report.position <= own or report.position <= old._reported
        assert isinstance(event, Connected) or report.position >= old._reported
    # Only what continues the log is appended, and only from the link's own mastership.
    for append in (action for action in actions if isinstance(action, Append)):
        assert isinstance(event, Chunk | LogChunk)
        assert (append.position, append.data) == (event.position, event.data)
        assert append.data
    if isinstance(event, Chunk | LogChunk) and old.state is FollowerState.FOLLOWING and not closes:
        assert (event.epoch if isinstance(event, Chunk) else None) == link.epoch
        assert old._expected in (0, event.position)
        assert len(actions) == bool(event.data)
    if isinstance(event, Tick) and old.state is FollowerState.FOLLOWING:
        assert bool(closes) == (after.now - old._heard_at >= link._limits.silence_s)


def check_time(after: Seen) -> None:
    """A link that hears nothing ends, and its driver is woken in time for every report before."""
    link = copy.copy(after.link)
    now = after.now
    reports = 0
    for _ in range(20):
        if link.state is not FollowerState.FOLLOWING:
            assert link.wake_at == inf
            assert reports >= 1 or after.link.state is not FollowerState.FOLLOWING or now == after.now
            return
        assert link.wake_at <= now + link._limits.heartbeat_s
        now = max(now, link.wake_at)
        actions = link.handle(Tick(), now)
        reports += len(actions)
    raise AssertionError(f"the link goes on without a word: {after.path}")


@pytest.mark.parametrize("report_flushed", [False, True])
def test_all_states_and_events(report_flushed: bool) -> None:
    first = Seen(ReplicaLink(ReplicaLimits(report_flushed=report_flushed), 0.0, seen_epoch=6))
    walk = check_all(first, STEPS, depth=4, check_step=check_step, check_time=check_time)
    # Every state was met with every kind of event.
    assert walk.met == {(state, type(event)) for state in FollowerState for event in EVENTS}
    note_figures(f"replication, slave's side: {walk.states} states, {walk.transitions} transitions, 4 events deep")
    assert walk.states > 500
