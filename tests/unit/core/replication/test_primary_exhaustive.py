"""Every state of a master's link with every event, breadth first over small numbers; rules that hold in all of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest

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
from eruca._wire.replication import Hello
from tests.figures import note_figures
from tests.unit.core.replication import exploring

EPOCH = 7
SEGMENT = 4
TAIL_MAX = 6
# How much time passes: a little, enough for a heartbeat, enough for the end.
PAUSES = (1.0, 5.0, 20.0)

EVENTS: tuple[Event, ...] = (
    *(
        HelloReceived(Hello(epoch, 1, position, begin, 0, ""))
        for epoch in (EPOCH - 1, EPOCH)
        for position, begin in ((0, 0), (1, 0), (3, 2), (5, 5), (7, 6))
    ),
    *(ReportReceived(position, epoch) for epoch in (None, EPOCH - 1, EPOCH) for position in range(TAIL_MAX + 2)),
    *(CheckAnswered(ok) for ok in (False, True)),
    *(LogGrew(start, tail) for start in (0, 4) for tail in (3, 4, TAIL_MAX) if start <= tail),
    Blocked(),
    Drained(),
    Tick(),
)
# (time before it, event): heartbeats and the end come with a Tick.
STEPS = (*((0.0, event) for event in EVENTS), *((pause, Tick()) for pause in PAUSES))


@dataclass
class Seen(exploring.Reached[PrimaryLink, Event]):
    """A state that was reached: the machine, what happened before, and what the slave reported on the way."""

    tail: int = 3
    reported: int = -1

    def note(self, event: Event) -> None:
        if isinstance(event, ReportReceived):
            self.reported = max(self.reported, event.position)
        if isinstance(event, LogGrew):
            self.tail = event.tail

    def fingerprint(self) -> tuple[object, ...]:
        if self.link.state is LinkState.CLOSED:
            return ("closed",)
        ages = {"_heard_at", "_sent_at", "_allowance_at", "_resume_at"}
        values = []
        for name, value in sorted(vars(self.link).items()):
            if name == "_allowance_at" or (name == "_uncounted" and not self.link.limits.catch_up_bytes_per_second):
                continue
            values.append(None if value is None else min(self.now - value, 20.0) if name in ages else value)
        return (*values, self.tail, self.reported)


def check_step(before: Seen, event: Event, actions: list[Action], after: Seen) -> None:
    old, link = before.link, after.link
    limits = link.limits
    # Nothing after Close, and Close is the end.
    closes = [action for action in actions if isinstance(action, Close)]
    if old.state is LinkState.CLOSED:
        assert actions == []
        assert link.state is LinkState.CLOSED
    assert (link.state is LinkState.CLOSED) == (old.state is LinkState.CLOSED or bool(closes))
    if closes:
        assert closes == [actions[-1]]
        assert closes[0].reason
    # Nothing is sent before the slave was heard, nor to one whose log is not compared.
    sends = [action for action in actions if isinstance(action, SendChunk)]
    if old.state is not LinkState.STREAMING and link.state is not LinkState.STREAMING:
        assert not [action for action in actions if isinstance(action, SendChunk | SendHeartbeat | Confirm)]
    if old.state is LinkState.AWAITING and link.state is LinkState.STREAMING:
        assert isinstance(actions[0], SendHeartbeat)
    # Chunks follow one another, within the log, within a segment, within the window, and not into a full socket.
    position = old.position if old.state is LinkState.STREAMING else sends[0].position if sends else link.position
    for chunk in sends:
        assert chunk.position == position
        assert 0 < chunk.size <= (limits.fenced_transfer_bytes if link.is_fenced else limits.transfer_bytes)
        position += chunk.size
        assert chunk.position // SEGMENT == (position - 1) // SEGMENT
        assert position <= after.tail
    assert link.position == position
    if sends:
        assert not link._is_blocked
        first = sends[0].position
        assert position - max(link.confirmed, min(first, position)) <= limits.window_bytes or len(sends) == 1
        assert len(sends) == 1 or sum(chunk.size for chunk in sends) <= limits.turn_bytes
    # The confirmed position never decreases, and is what the slave reported, never more than it was sent.
    assert link.confirmed >= old.confirmed
    confirms = [action.position for action in actions if isinstance(action, Confirm)]
    if confirms:
        assert confirms == [link.confirmed]
        assert old.confirmed < link.confirmed <= min(after.reported, after.tail)
        assert link.confirmed <= link.position or not link.is_fenced
    else:
        assert link.confirmed == old.confirmed
    # A fenced link continues only in its own epoch, and only when both logs were found to be the same.
    if link.is_fenced and link.state is LinkState.STREAMING:
        assert link.hello is not None
        assert link.hello.epoch == EPOCH
        if link.hello.check_begin < link.hello.position:
            assert old.state in (LinkState.STREAMING, LinkState.CHECKING)
    if isinstance(event, ReportReceived) and event.epoch == EPOCH - 1:
        assert link.state is LinkState.CLOSED
    if any(isinstance(action, CheckPrefix) for action in actions):
        assert link.state is LinkState.CHECKING
        assert len(actions) == 1


def check_time(after: Seen) -> None:
    """A link without events ends, and wakes its driver in time for it."""
    link = copy.copy(after.link)
    now = after.now
    for _ in range(100):
        if link.state is LinkState.CLOSED:
            return
        wake_at = max(now, link.wake_at)
        assert wake_at <= now + link.limits.silence_s
        now = wake_at
        link.handle(Tick(), now)
    raise AssertionError(f"the link goes on without a word: {after.path}")


LIMITS = [
    LinkLimits(segment_bytes=SEGMENT, transfer_bytes=2, fenced_transfer_bytes=3, window_bytes=4, turn_bytes=3),
    LinkLimits(segment_bytes=SEGMENT, transfer_bytes=3, fenced_transfer_bytes=5, window_bytes=2, copy_oldest=False),
    LinkLimits(
        segment_bytes=SEGMENT, transfer_bytes=2, fenced_transfer_bytes=2, live_bytes=1, catch_up_bytes_per_second=1
    ),
]


def check_all(limits: LinkLimits, depth: int) -> int:
    """Check every step of every state; returns the number of states."""
    first = Seen(PrimaryLink(limits, 0.0, epoch=EPOCH, start=0, tail=3))
    walk = exploring.check_all(first, STEPS, depth, check_step=check_step, check_time=check_time)
    # Every state was met with every kind of event.
    assert walk.met == {(state, type(event)) for state in LinkState for event in EVENTS}
    note_figures(
        f"replication, master's side: {walk.states} states, {walk.transitions} transitions, {depth} events deep"
    )
    return walk.states


@pytest.mark.parametrize("limits", LIMITS, ids=["turns", "window", "throttled"])
def test_all_states_and_events(limits: LinkLimits) -> None:
    assert check_all(limits, depth=5) > 5000


@pytest.mark.whole
@pytest.mark.parametrize("limits", LIMITS, ids=["turns", "window", "throttled"])
def test_all_states_and_events_deeper(limits: LinkLimits) -> None:
    assert check_all(limits, depth=7) > 20_000
