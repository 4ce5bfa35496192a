"""Every phase of the failover machine with every event, and with every two: where it goes, and what it never does."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eruca._core.failover.machine import Failover
from eruca._core.failover.rules import Identity, Rules
from eruca._core.failover.view import (
    Acknowledge,
    Action,
    ChangeSet,
    Claim,
    Claimed,
    ClaimRefused,
    Detach,
    Event,
    Failed,
    Fence,
    Follow,
    Forced,
    Grant,
    Keep,
    Lead,
    LeaseGranted,
    LeaseKept,
    MasterEntry,
    MemberEntry,
    Phase,
    Progress,
    Publish,
    Published,
    Replaced,
    Require,
    Revoke,
    Revoked,
    RoleDone,
    RoleFailed,
    Seen,
    SetChanged,
    SetRefused,
    StateEntry,
    StepDown,
    Tell,
    Tick,
    View,
)
from tests.figures import note_figures

ME, LEASE = 1, 71
STATE = StateEntry(4, frozenset({0, 1, 2}), 8, 2)
DAMAGED = StateEntry(0, frozenset(), 20, 3, is_damaged=True)
OTHER = MasterEntry(4, 0, "m0", "m0", 70, 5)
MINE = MasterEntry(5, ME, "m1", "m1", LEASE, 20)
LATER = MasterEntry(6, 2, "m2", "m2", 72, 30)
MINE_DAMAGED = MasterEntry(0, -1, "", "", LEASE, 20)
ANOTHERS_DAMAGED = MasterEntry(0, -1, "", "", 72, 30)


def member(number: int, *, published: bool, revision: int) -> MemberEntry:
    lease = 70 + number
    return MemberEntry(number, f"m{number}", f"m{number}", 100, 4, 4, 8 if published else 0, False, lease, revision)


def view(revision: int, master: MasterEntry | None, *, published: bool = False) -> View:
    members = {number: member(number, published=published, revision=10 + number) for number in (1, 2)}
    state = STATE
    if master is MINE:
        state = StateEntry(5, frozenset({1, 2}), 20)
    elif master is LATER:
        state = StateEntry(6, frozenset({1, 2}), 30)
    return View(revision, master, state, members)


CLAIM = Claim(5, frozenset({1, 2}), LEASE, 8, ())
CHANGE = ChangeSet(5, frozenset({1}), 20, 20)
# By the name of the event: what happens, and how many seconds after the last.
EVENTS: dict[str, tuple[Event, float]] = {
    "tick": (Tick(), 0.1),
    "tick after long": (Tick(), 60.0),
    "seen another master": (Seen(view(9, OTHER)), 0.01),
    "seen no master": (Seen(view(12, None)), 0.01),
    "seen all published": (Seen(view(13, None, published=True)), 0.01),
    "seen itself": (Seen(view(20, MINE)), 0.01),
    "seen a later master": (Seen(view(30, LATER)), 0.01),
    "seen nothing at all": (Seen(View(31)), 0.01),
    "seen its damaged claim": (Seen(view(20, MINE_DAMAGED)), 0.01),
    "seen its claim with a damaged state": (Seen(replace(view(20, MINE), state=DAMAGED)), 0.01),
    "seen a damaged claim": (Seen(view(30, ANOTHERS_DAMAGED)), 0.01),
    "seen a damaged state": (Seen(replace(view(20, None), state=DAMAGED)), 0.01),
    "etcd is empty": (Replaced(View(1)), 0.01),
    "granted": (LeaseGranted(LEASE, 3.0, 0.0), 0.0),
    "kept": (LeaseKept(LEASE, 3.0, 0.0), 0.01),
    "lease over": (LeaseKept(LEASE, 0.0, 0.0), 0.01),
    "another lease over": (LeaseKept(99, 0.0, 0.0), 0.01),
    "revoked": (Revoked(LEASE), 0.01),
    "published": (Published(13), 0.01),
    "claimed": (Claimed(5, 20), 0.01),
    "claim refused": (ClaimRefused(20), 0.01),
    "set changed": (SetChanged(frozenset({1}), 21), 0.01),
    "set refused": (SetRefused(21), 0.01),
    "grant failed": (Failed(Grant()), 0.01),
    "keep failed": (Failed(Keep(LEASE)), 0.01),
    "revoke failed": (Failed(Revoke(LEASE)), 0.01),
    "publish failed": (Failed(Publish(LEASE, 8, False, 11)), 0.01),
    "claim failed": (Failed(CLAIM), 0.01),
    "change failed": (Failed(CHANGE), 0.01),
    "role done": (RoleDone(0, 100), 0.01),
    "role failed": (RoleFailed(0, "the disk is full"), 0.01),
    "old role done": (RoleDone(-1, 100), 0.01),
    "old role failed": (RoleFailed(-1, "the disk is full"), 0.01),
    "progress": (Progress(200, 150, 2, {2: 180}), 0.1),
    "progress alone": (Progress(200, 150, 1, {}), 0.1),
    "forced": (Forced(5.0), 0.01),
    "step down": (StepDown(5.0), 0.01),
}

# Where an event leads; what is not here leaves the phase as it is.
FENCING = (
    *("tick after long", "lease over", "revoked", "step down", "seen a later master", "seen nothing at all"),
    *("seen its damaged claim", "seen a damaged claim", "seen a damaged state"),
)
NEXT: dict[tuple[Phase, str], Phase] = {
    (Phase.DETACHING, "role done"): Phase.WAITING,
    (Phase.DETACHING, "seen another master"): Phase.FOLLOWING,
    (Phase.DETACHING, "seen a later master"): Phase.FOLLOWING,
    (Phase.WAITING, "seen a later master"): Phase.FOLLOWING,
    (Phase.WAITING, "seen itself"): Phase.RISING,
    (Phase.WAITING, "claimed"): Phase.RISING,
    (Phase.FOLLOWING, "seen no master"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen all published"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen itself"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen nothing at all"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen a damaged state"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen its damaged claim"): Phase.DETACHING,
    (Phase.FOLLOWING, "seen its claim with a damaged state"): Phase.DETACHING,
    (Phase.RISING, "role done"): Phase.LEADING,
    (Phase.RISING, "role failed"): Phase.FENCED,
    **{(phase, name): Phase.FENCED for phase in (Phase.RISING, Phase.LEADING) for name in FENCING},
    # Without a lease to return, a fenced broker is a slave at once.
    **{(phase, name): Phase.DETACHING for phase in (Phase.RISING, Phase.LEADING) for name in ("lease over", "revoked")},
    (Phase.FENCED, "lease over"): Phase.DETACHING,
    (Phase.FENCED, "revoked"): Phase.DETACHING,
    # Its leases are gone too.
    **{(phase, "etcd is empty"): Phase.DETACHING for phase in Phase if phase is not Phase.WAITING},
}


class Walk:
    """A machine during a run, and its last actions."""

    def __init__(self) -> None:
        self.machine = Failover(Identity(ME, "m1", False), Rules())
        self.now = 0.0
        self.ticket = 0
        self.until = -math.inf

    def step(self, name: str) -> list[Action]:
        """Let an event happen and check what must hold whatever it is."""
        event, seconds = EVENTS[name]
        self.now += seconds
        match event:
            case LeaseGranted(lease, length, _):
                event = LeaseGranted(lease, length, self.now)
            case LeaseKept(lease, length, _):
                event = LeaseKept(lease, length, self.now)
            case RoleDone(0, position):
                event = RoleDone(self.ticket, position)
            case RoleFailed(0, why):
                event = RoleFailed(self.ticket, why)
        before = self.machine.phase
        actions = self.machine.handle(event, self.now)
        for action in actions:
            self.check(action, before, actions, event)
        assert self.machine.phase is Phase.LEADING or self.until <= self.now, "the gate is open without mastership"
        assert self.until <= self.machine.deadline or self.until == -math.inf
        return actions

    def check(self, action: Action, before: Phase, actions: list[Action], event: Event) -> None:
        phase = self.machine.phase
        match action:
            case Acknowledge(until):
                self.until = until
                # It closes before anything else is done, and opens at the end of becoming the master only.
                assert until < self.now or phase is Phase.LEADING
            case Lead(ticket, _):
                # Or its lease was over before it heard that it was elected.
                assert phase is Phase.RISING or any(isinstance(other, Fence) for other in actions)
                self.ticket = ticket
            case Fence(ticket, _):
                # Or it never claimed what is damaged, and was on the way to WAITING until now.
                assert before in (Phase.WAITING, Phase.RISING, Phase.LEADING) or isinstance(event, RoleDone)
                closed = next(i for i, a in enumerate(actions) if isinstance(a, Acknowledge) and a.until < self.now)
                assert closed < actions.index(action), "fenced before the gate was closed"
                self.ticket = ticket
            case Follow(ticket, _) | Detach(ticket):
                self.ticket = ticket
            case Claim():
                assert phase is Phase.WAITING
                assert action.lease == self.machine.lease
            case ChangeSet():
                assert phase is Phase.LEADING
            case Keep() | Publish():
                assert phase is not Phase.FENCED, "a lease that is to end is not kept alive"
            case Revoke():
                assert phase is Phase.FENCED
            case Grant():
                assert self.machine.lease is None
            case Require(members):
                assert ME not in members
            case Tell(text, _):
                assert text


WAYS: dict[Phase, list[str]] = {
    Phase.DETACHING: ["tick", "granted"],
    Phase.WAITING: ["tick", "granted", "role done", "seen no master", "published", "seen all published"],
    Phase.FOLLOWING: ["tick", "granted", "seen another master", "role done"],
}
WAYS[Phase.RISING] = [*WAYS[Phase.WAITING], "claimed"]
WAYS[Phase.LEADING] = [*WAYS[Phase.RISING], "role done"]
WAYS[Phase.FENCED] = [*WAYS[Phase.LEADING], "step down"]


def walk_to(phase: Phase) -> Walk:
    walk = Walk()
    for name in WAYS[phase]:
        walk.step(name)
    assert walk.machine.phase is phase
    return walk


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.value)
@pytest.mark.parametrize("name", EVENTS)
def test_every_phase_with_every_event(phase: Phase, name: str) -> None:
    walk = walk_to(phase)
    walk.step(name)
    assert walk.machine.phase is NEXT.get((phase, name), phase)


def test_table_names_only_what_there_is() -> None:
    assert {name for _, name in NEXT} <= EVENTS.keys()
    assert WAYS.keys() == set(Phase)


def test_every_kind_of_event_is_in_the_table() -> None:
    kinds = {type(event) for event, _ in EVENTS.values()}
    assert kinds == set(Event.__args__)


def test_every_two_events_after_every_phase() -> None:
    count = 0
    reached: set[tuple[Phase, Phase]] = set()
    for phase in Phase:
        start = walk_to(phase)
        for first in EVENTS:
            middle = copy.deepcopy(start)
            middle.step(first)
            for second in EVENTS:
                walk = copy.deepcopy(middle)
                walk.step(second)
                reached.add((phase, walk.machine.phase))
                count += 1
    assert count == len(Phase) * len(EVENTS) ** 2
    assert {end for _, end in reached} == set(Phase)
    note_figures(f"failover machine: {count} ways of two events from every phase")


def explore(depth: int, nodes_max: int) -> Iterator[int]:
    """Everything that can happen from the start on, breadth first, each state once."""
    seen: set[str] = set()
    level = [Walk()]
    for _ in range(depth):
        following: list[Walk] = []
        for walk in level:
            for name in EVENTS:
                after = copy.deepcopy(walk)
                after.step(name)
                if describe(after) not in seen and len(seen) < nodes_max:
                    seen.add(describe(after))
                    following.append(after)
                yield 1
        level = following


def describe(walk: Walk) -> str:
    """A state without fields that only depend on the time."""
    machine = walk.machine
    busy = sorted(kind.__name__ for kind in machine._busy)
    facts = (machine.phase, machine.view and machine.view.revision, machine.lease, machine.deadline > walk.now)
    sets = (machine.sync and (machine.sync.members, machine.sync.pending, machine.sync.needed), busy)
    return repr((facts, sets, machine._published, walk.until > walk.now))


def test_breadth_first_from_the_start() -> None:
    steps = sum(explore(depth=9, nodes_max=1000))
    assert steps > 10_000
    note_figures(f"failover machine: {steps} transitions breadth first from the start")
