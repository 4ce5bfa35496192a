"""A world for the failover machine: three members, an etcd, networks that delay, lose and part, clocks that differ.

Everything random comes from one seed, and time is a number. The machine and the condition on acknowledgements are the
real ones; logs, links and etcd are models of what they promise.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from eruca._core.failover.machine import Failover
from eruca._core.failover.rules import Identity, Rules
from eruca._core.failover.view import (
    Acknowledge,
    Action,
    Call,
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
    RoleChange,
    RoleDone,
    Seen,
    SetChanged,
    SetRefused,
    StateEntry,
    StepDown,
    Tell,
    Tick,
    View,
)
from eruca._core.replication.synced import SyncCondition

CALL_TIMEOUT_S = 0.5
LEASE_S = 3.0
TICK_S = 0.1
RESYNC_S = 1.0


@dataclass
class Faults:
    """What goes wrong in a world: how slow it is, how clocks differ, and what happens to members."""

    slow: float = 0.03
    drift: float = 0.05
    crashes: bool = True
    etcd_parts: bool = True
    member_parts: bool = True
    pauses: bool = True
    step_downs: bool = True
    etcd_outages: bool = True
    # etcd loses everything it holds, now and then.
    etcd_losses: bool = False
    # The part of what is written to etcd that is damaged on its way.
    damage: float = 0.0
    # Sequences that are unlikely by chance: the master is cut off while it changes the set, and the member that has
    # everything vanishes with it.
    spite: bool = True


class Etcd:
    """Keys, revisions and leases."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.view = View(1)
        self.leases: dict[int, tuple[float, float]] = {}
        self._next_lease = itertools.count(100)
        self.is_down = False
        # How often it was another etcd than before, as far as revisions show it.
        self.life = 0

    def lose(self) -> None:
        """Lose all data. Revisions start over, or (another tenant made many of them since) seem to continue."""
        self.leases.clear()
        self.world.losses += 1
        self.world.forget_owners()
        if self.world.random.random() < 0.7:
            self.life += 1
            self._write(View(self.world.random.randint(1, 3)))
        else:
            self._write(View(self.view.revision + self.world.random.randint(1, 5)))

    def serve(self, member: Member, call: Call, entry: MemberEntry | None) -> Event | None:
        """Do a call at this moment; None where etcd answers with an error."""
        now = self.world.now
        match call:
            case Grant():
                lease = next(self._next_lease)
                self._renew(lease, LEASE_S)
                return LeaseGranted(lease, LEASE_S, 0.0)
            case Keep(lease):
                if lease in self.leases:
                    self._renew(lease, self.leases[lease][1])
                return LeaseKept(lease, LEASE_S if lease in self.leases else 0.0, 0.0)
            case Revoke(lease):
                self._end(lease)
                return Revoked(lease)
            case Publish(lease, _, _, revision):
                assert entry is not None
                if self._revision_of(entry.member) == revision and lease in self.leases:
                    changed = self.view.revision + 1
                    self.world.published_at[changed] = now
                    put = replace(entry, revision=changed)
                    if self._damages():
                        put = MemberEntry(entry.member, "", "", 0, 0, 0, 0, False, lease, changed)
                    self._write(replace(self.view, revision=changed, members={**self.view.members, put.member: put}))
                return Published(self.view.revision)
            case Claim():
                return self._claim(member, call)
            case ChangeSet():
                return self._change(call)

    def _claim(self, member: Member, call: Claim) -> Event:
        view = self.view
        state_revision = view.state.revision if view.state is not None else 0
        master_revision = view.master.revision if view.master is not None else 0
        holds = (master_revision, state_revision) == (call.master_revision, call.state_revision)
        holds = holds and all(self._revision_of(other) == revision for other, revision in call.seen)
        if not holds or call.lease not in self.leases:
            return ClaimRefused(view.revision)
        self.world.check_election(member, view, call)
        revision = view.revision + 1
        name = f"m{member.id}"
        master = MasterEntry(call.epoch, member.id, name, name, call.lease, revision)
        state = self._write_state(call.epoch, call.in_sync, revision)
        if self._damages():
            master = MasterEntry(0, -1, "", "", call.lease, revision)
        self._write(replace(view, revision=revision, master=master, state=state))
        if not master.is_readable or not state.is_readable:
            # It leads when it has repeated its claim.
            del self.world.owners[call.epoch]
            return ClaimRefused(revision)
        return Claimed(call.epoch, revision)

    def _change(self, call: ChangeSet) -> Event:
        view = self.view
        master_revision = view.master.revision if view.master is not None else 0
        if view.state is None or (master_revision, view.state.revision) != (call.master_revision, call.state_revision):
            return SetRefused(view.revision)
        revision = view.revision + 1
        state = self._write_state(call.epoch, call.members, revision)
        self._write(replace(view, revision=revision, state=state))
        return SetChanged(call.members, revision) if state.is_readable else SetRefused(revision)

    def _write_state(self, epoch: int, members: frozenset[int], revision: int) -> StateEntry:
        version = self.view.state.version + 1 if self.view.state is not None else 1
        if self._damages():
            return StateEntry(0, frozenset(), revision, version, is_damaged=True)
        return StateEntry(epoch, members, revision, version)

    def _damages(self) -> bool:
        damages = self.world.faults.damage > 0 and self.world.random.random() < self.world.faults.damage
        self.world.damaged += damages
        return damages

    def _revision_of(self, member: int) -> int:
        entry = self.view.members.get(member)
        return entry.revision if entry is not None else 0

    def _write(self, view: View) -> None:
        self.view = view
        for member in self.world.members:
            self.world.show(member)

    def _renew(self, lease: int, seconds: float) -> None:
        until = self.world.now + seconds
        self.leases[lease] = (until, seconds)
        self.world.at(until + self.world.random.uniform(0, 0.5), lambda: self._expire(lease))

    def _expire(self, lease: int) -> None:
        if lease in self.leases and self.leases[lease][0] <= self.world.now:
            if self.is_down:
                # A new leader of etcd grants every lease its whole time again.
                self._renew(lease, self.leases[lease][1])
            else:
                self._end(lease)

    def _end(self, lease: int) -> None:
        if self.leases.pop(lease, None) is None:
            return
        view = self.view
        members = {key: entry for key, entry in view.members.items() if entry.lease != lease}
        master = None if view.master is not None and view.master.lease == lease else view.master
        if len(members) != len(view.members) or master != view.master:
            self._write(replace(view, revision=view.revision + 1, master=master, members=members))


@dataclass(eq=False)
class Link:
    """A connection from a slave to a master, in one epoch."""

    slave: Member
    master: Member
    epoch: int
    is_open: bool = True
    silent_since: float | None = None


@dataclass(eq=False)
class Member:
    """A broker: its log survives a crash, the rest does not."""

    id: int
    world: World
    rate: float
    offset: float
    log: list[int] = field(default_factory=list)
    # (epoch, start), as the store keeps them.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    is_alive: bool = False
    life: int = 0
    paused_until: float = 0.0
    machine: Failover = field(init=False)
    condition: SyncCondition = field(init=False)
    role: RoleChange | None = None
    role_queue: list[RoleChange] = field(default_factory=list)
    role_busy: bool = False
    master_epoch: int | None = None
    until: float = -math.inf
    links: dict[int, Link] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    link: Link | None = None
    # How much readers were shown since it started.
    shown: int = 0
    # All members it ever met; this survives a crash too.
    known: set[str] = field(default_factory=set)
    # Which etcd it has seen last.
    etcd_life: int = 0

    def local(self) -> float:
        """The time of its clock."""
        return self.offset + self.world.now * self.rate

    def is_open(self) -> bool:
        """May it acknowledge now, by its own clock?"""
        return self.is_alive and self.master_epoch is not None and self.local() < self.until

    @property
    def log_epoch(self) -> int:
        known = [epoch for epoch, start in self.epochs if start <= len(self.log)]
        return known[-1] if known else 0

    def start(self) -> None:
        self.is_alive = True
        self.life += 1
        self.machine = Failover(Identity(self.id, f"m{self.id}", self.id == 0), self.world.rules)
        self.condition = SyncCondition(2, 1 << 40)
        self.role, self.role_queue, self.role_busy = None, [], False
        self.master_epoch, self.until = None, -math.inf
        self.links, self.positions, self.link, self.shown = {}, {}, None, 0
        self.etcd_life = -1
        self.known.add(f"m{self.id}")
        self.world.every(TICK_S, self, self.tick)
        self.world.every(RESYNC_S, self, lambda: self.world.show(self))

    def crash(self) -> None:
        self.is_alive = False
        self.drop_links()

    def see(self, view: View, life: int) -> None:
        """Read etcd; reads are in order, so one that is of another etcd is noticed."""
        if life < self.etcd_life:
            return
        is_other, self.etcd_life = life > self.etcd_life >= 0, life
        self.known.update(entry.address for entry in view.members.values() if entry.is_readable)
        self.tell(Replaced(view) if is_other else Seen(view))

    def drop_links(self) -> None:
        for link in [*self.links.values(), *([self.link] if self.link is not None else [])]:
            link.is_open = False

    # -- the machine -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        if self.master_epoch is not None:
            self.watch_links()
            tail = len(self.log)
            reports = {key: self.positions[key] for key, link in self.links.items() if link.is_open}
            reports = {key: position for key, position in reports.items() if position >= 0}
            self.show_readers()
            confirmed = min(max(self.condition.confirmed, self.shown), tail)
            self.tell(Progress(tail, confirmed, 2, reports))
        self.tell(Tick())

    def tell(self, event: Event) -> None:
        actions = self.machine.handle(event, self.local())
        if self.world.trace is not None and (actions or not isinstance(event, Tick | Progress)):
            self.world.trace.append(f"{self.world.now:.3f} m{self.id} {self.machine.phase.value}: {event} -> {actions}")
        for action in actions:
            self.do(action)

    def do(self, action: Action) -> None:
        match action:
            case Acknowledge(until):
                self.until = until
                self.world.check_gates()
                self.acknowledge()
            case Require(members):
                self.condition.set_members(members)
                self.acknowledge()
            case Lead() | Follow() | Detach() | Fence():
                self.role_queue = [action]
                if isinstance(action, Fence):
                    assert not self.is_open(), "it fences itself only after it stopped acknowledging"
                    self.master_epoch = None
                if not self.role_busy:
                    self.change_role()
            case Tell():
                pass
            case _:
                self.world.call(self, action)

    # -- the role ----------------------------------------------------------------------------------------------------

    def change_role(self) -> None:
        self.role_busy = True
        self.world.later(self, self.world.random.uniform(0, self.world.faults.slow * 3), self.finish_role)

    def finish_role(self) -> None:
        self.role_busy = False
        if not self.role_queue:
            return
        action = self.role_queue.pop()
        self.role = action
        self.drop_links()
        self.links, self.positions, self.link = {}, {}, None
        self.condition = SyncCondition(2, 1 << 40)
        self.master_epoch = None
        match action:
            case Lead(_, epoch):
                assert epoch > max((known for known, _ in self.epochs), default=0)
                self.epochs = [*(known for known in self.epochs if known[1] <= len(self.log)), (epoch, len(self.log))]
                self.master_epoch = epoch
                claimed = self.machine._needed or frozenset()
                self.condition.set_members(claimed)
            case Follow():
                self.world.connect(self, action.master)
        self.tell(RoleDone(action.ticket, len(self.log)))

    def watch_links(self) -> None:
        for key, link in list(self.links.items()):
            if not link.is_open:
                self.condition.remove(link)
                del self.links[key]

    def append(self) -> None:
        """A producer sends; whether it hears of it is another matter."""
        if self.master_epoch is None:
            return
        for _ in range(self.world.random.randint(1, 5)):
            self.log.append(next(self.world.serial))
        for link in self.links.values():
            self.world.feed(link)
        self.acknowledge()

    def show_readers(self) -> None:
        """Let readers have what cannot be taken back; a replaced master that does not know it yet does so too."""
        if self.is_alive and self.master_epoch is not None:
            position = min(self.condition.safe, len(self.log))
            self.shown = max(self.shown, position)
            self.world.show_readers(self, position)

    def acknowledge(self) -> None:
        self.show_readers()
        if self.is_open():
            self.world.acknowledge(self, min(self.condition.confirmed, len(self.log)))


class World:
    """Time, networks, and what must hold."""

    def __init__(self, seed: int, faults: Faults | None = None, rules: Rules | None = None) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.rules = rules or Rules()
        self.now = 0.0
        self.serial = itertools.count(1)
        self.acknowledged: list[int] = []
        self.shown: list[int] = []
        # What happened, for debugging a failed seed.
        self.trace: list[str] | None = None
        self.elections = 0
        self.damaged = 0
        self.forced = 0
        self.losses = 0
        self.not_the_best = 0
        self.published_at: dict[int, float] = {}
        self.owners: dict[int, int] = {}
        # Epochs that were claimed in an etcd that lost its data.
        self.orphans: set[int] = set()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        # Pairs (and "etcd" for etcd) that cannot reach each other: from, to.
        self.cut: set[tuple[object, object]] = set()
        self.etcd = Etcd(self)
        drift = self.faults.drift
        self.members = [
            Member(number, self, 1 + self.random.uniform(-drift, drift), self.random.uniform(0, 1000))
            for number in range(3)
        ]

    # -- time --------------------------------------------------------------------------------------------------------

    def at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (max(when, self.now), next(self._count), work))

    def later(self, member: Member, seconds: float, work: Callable[[], None]) -> None:
        """Do something in a member's process, unless it crashed meanwhile; when it is paused, afterwards."""
        life = member.life

        def run() -> None:
            if not member.is_alive or member.life != life:
                return
            if self.now < member.paused_until:
                self.at(member.paused_until, run)
            else:
                work()

        self.at(self.now + seconds, run)

    def every(self, seconds: float, member: Member, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self.later(member, seconds, run)

        self.later(member, self.random.uniform(0, seconds), run)

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, work = heapq.heappop(self._heap)
            work()
        self.now = until

    def delay(self) -> float:
        slow = self.faults.slow
        return self.random.expovariate(1 / slow) if self.random.random() < 0.95 else self.random.uniform(0, slow * 30)

    def reaches(self, one: object, other: object) -> bool:
        return (one, other) not in self.cut

    # -- etcd --------------------------------------------------------------------------------------------------------

    def call(self, member: Member, call: Call) -> None:
        sent = member.local()
        entry = None
        if isinstance(call, Publish):
            name = f"m{member.id}"
            seen = max((known for known, _ in member.epochs), default=0)
            place = (len(member.log), member.log_epoch, seen)
            known = frozenset(member.known)
            entry = MemberEntry(member.id, name, name, *place, call.round, call.is_cold, call.lease, 0, known)
        is_over = False

        def answer(event: Event) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                member.tell(event)

        def serve() -> None:
            if self.etcd.is_down or not self.reaches(member.id, "etcd"):
                return
            event = self.etcd.serve(member, call, entry)
            if event is None or not self.reaches("etcd", member.id):
                return
            if isinstance(event, LeaseGranted | LeaseKept):
                event = replace(event, sent=sent)
            view, life = self.etcd.view, self.etcd.life
            self.later(member, self.delay(), lambda: hear(event, view, life))

        def hear(event: Event, view: View, life: int) -> None:
            # What a call did is what is read after it, so an answer never comes before a sign that etcd is another.
            if life > member.etcd_life >= 0:
                member.see(view, life)
            answer(event if life >= member.etcd_life else Failed(call))

        # A request in the network arrives even when its sender is dead by then.
        self.at(self.now + self.delay(), serve)
        self.later(member, CALL_TIMEOUT_S, lambda: answer(Failed(call)))

    def show(self, member: Member) -> None:
        """Bring what etcd holds to a member, late and perhaps never."""
        if self.etcd.is_down or not member.is_alive:
            return
        if self.reaches("etcd", member.id) and self.reaches(member.id, "etcd"):
            view, life = self.etcd.view, self.etcd.life
            self.later(member, self.delay(), lambda: member.see(view, life))

    # -- links -------------------------------------------------------------------------------------------------------

    def connect(self, slave: Member, entry: MasterEntry) -> None:
        """Follow a master: find where the logs diverge, cut, copy; repeatedly until something else is requested."""
        role = slave.role
        master = self.members[entry.member]

        def attempt() -> None:
            if slave.role is not role or slave.role_queue:
                return
            is_ready = master.is_alive and master.master_epoch == entry.epoch and self.now >= master.paused_until
            if not is_ready or not self.reaches(slave.id, master.id) or not self.reaches(master.id, slave.id):
                self.later(slave, 0.3, attempt)
                return
            common = 0
            while common < min(len(slave.log), len(master.log)) and slave.log[common] == master.log[common]:
                common += 1
            del slave.log[common:]
            slave.epochs = [known for known in master.epochs if known[1] <= common or known[0] == entry.epoch]
            link = slave.link = Link(slave, master, entry.epoch)
            before = master.links.get(slave.id)
            if before is not None:
                before.is_open = False
                master.condition.remove(before)
            master.links[slave.id] = link
            master.positions[slave.id] = -1
            master.condition.add(link, slave.id)
            self.report(link)
            self.later(slave, 0.3, watch)

        def watch() -> None:
            if slave.role is not role:
                return
            link = slave.link
            if link is None or not link.is_open:
                attempt()
                return
            if not self.reaches(slave.id, master.id) or not self.reaches(master.id, slave.id):
                link.silent_since = link.silent_since or self.now
                if self.now - link.silent_since > 1.0:
                    link.is_open = False
            else:
                link.silent_since = None
                self.feed(link)
            self.later(slave, 0.3, watch)

        self.later(slave, self.delay(), attempt)

    def feed(self, link: Link) -> None:
        """Send a slave what it lacks."""
        master, slave = link.master, link.slave
        start = len(slave.log)
        data = master.log[start : start + 10]
        if not data or not self.reaches(master.id, slave.id):
            return

        def receive() -> None:
            if link.is_open and slave.link is link and start == len(slave.log):
                slave.log.extend(data)
                self.report(link)

        self.later(slave, self.delay(), receive)

    def report(self, link: Link) -> None:
        """Report to a master how much a slave has."""
        master, slave = link.master, link.slave
        position = len(slave.log)
        if not self.reaches(slave.id, master.id):
            return

        def hear() -> None:
            if link.is_open and master.links.get(slave.id) is link and master.master_epoch == link.epoch:
                master.positions[slave.id] = max(master.positions[slave.id], position)
                master.condition.report(link, position)
                master.acknowledge()
                self.feed(link)

        self.later(master, self.delay(), hear)

    # -- what must hold ----------------------------------------------------------------------------------------------

    def check_gates(self) -> None:
        """Never two that may acknowledge at the same time."""
        opened = [member.id for member in self.members if member.is_open()]
        assert len(opened) <= 1, f"{opened} may all acknowledge at {self.now}"

    def check_master(self, acknowledging: Member | None) -> None:
        """A member that acknowledges is the master in etcd."""
        if acknowledging is None:
            assert not [member.id for member in self.members if member.is_open()], "there is one that acknowledges"
        else:
            master = self.etcd.view.master
            if master is None and acknowledging.master_epoch in self.orphans:
                return  # etcd lost its data, which it does not know yet; no other can be the master before it does
            assert master is not None, "it acknowledges after etcd ended its lease"
            assert master.member == acknowledging.id, "it acknowledges after etcd let another in"

    def forget_owners(self) -> None:
        """etcd lost its data: an epoch that was claimed and never begun may be claimed again."""
        self.orphans.update(self.owners)
        begun = {epoch for member in self.members for epoch, _ in member.epochs}
        self.owners = {epoch: owner for epoch, owner in self.owners.items() if epoch in begun}

    def check_election(self, winner: Member, view: View, call: Claim) -> None:
        """Nothing acknowledged is lost, epochs are new, and no member with more data is passed over at once."""
        self.elections += not call.master_revision
        assert call.epoch not in self.owners, f"epoch {call.epoch} has two masters"
        assert all(call.epoch > epoch for epoch in self.owners)
        self.owners[call.epoch] = winner.id
        assert winner.log[: len(self.acknowledged)] == self.acknowledged, (
            f"member {winner.id} lacks what was acknowledged"
        )
        assert winner.log[: len(self.shown)] == self.shown, f"member {winner.id} lacks what readers have seen"
        self.check_master(None)
        if view.state is None or view.state.is_damaged or call.master_revision:
            return  # founded, or decided before something was damaged
        self.check_standing(winner, view.members[winner.id], view)

    def check_standing(self, winner: Member, own: MemberEntry, view: View) -> None:
        """The winner has what it published, and is the best of those that published something or had time to."""
        assert view.state is not None
        assert (own.epoch, own.position) == (winner.log_epoch, len(winner.log)), "its log did not stand still"
        published = [m for m in view.members.values() if m.member in view.state.in_sync and m.round == own.round]
        better = [m for m in published if (m.epoch, m.position, -m.member) > (own.epoch, own.position, -own.member)]
        self.not_the_best += any(self.members[m.member].is_alive for m in better)
        for member in better:
            waited = self.now - self.published_at[member.revision]
            assert waited >= 0.9 * self.rules.takeover_s, f"{member} had only {waited} s to claim"

    def show_readers(self, member: Member, position: int) -> None:
        """Readers of a member that is the master, or thinks so, see its log up to a position."""
        known = len(self.shown)
        assert member.log[: min(known, position)] == self.shown[: min(known, position)], "readers saw something else"
        if position > known:
            self.shown.extend(member.log[known:position])
            master = self.etcd.view.master
            if master is not None:
                assert self.members[master.member].log[:position] == self.shown, "the master lacks what readers see"

    def acknowledge(self, master: Member, position: int) -> None:
        """A master answers its producers."""
        self.check_gates()
        assert master.master_epoch is not None
        known = len(self.acknowledged)
        assert master.log[: min(known, position)] == self.acknowledged[: min(known, position)]
        assert position <= len(self.shown), "readers do not see what is acknowledged"
        if position > known:
            self.acknowledged.extend(master.log[known:position])
            self.check_master(master)

    # -- faults ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for member in self.members:
            self.at(self.random.uniform(0, 1.0), member.start)
        self._produce()

    def _produce(self) -> None:
        for member in self.members:
            if member.is_alive and self.now >= member.paused_until:
                member.append()
        self.at(self.now + self.random.uniform(0.02, 0.2), self._produce)

    def trouble(self, until: float) -> None:
        """Let something go wrong now and then."""
        faults: Mapping[str, Callable[[], None]] = {
            "crashes": self._crash,
            "etcd_parts": self._part_from_etcd,
            "member_parts": self._part_members,
            "pauses": self._pause,
            "step_downs": self._step_down,
            "etcd_outages": self._stop_etcd,
            "etcd_losses": self._lose_etcd,
            "spite": self._corner,
        }
        chosen = [work for name, work in faults.items() if getattr(self.faults, name)]

        def happen() -> None:
            if self.now < until:
                self.random.choice(chosen)()
                self.at(self.now + self.random.uniform(0.5, 6), happen)

        self.at(self.now + self.random.uniform(0.5, 6), happen)

    def _choose(self) -> Member:
        """Any member, but most often the master: that is where it hurts."""
        masters = [member for member in self.members if member.is_alive and member.master_epoch is not None]
        return self.random.choice(masters if masters and self.random.random() < 0.6 else self.members)

    def _crash(self) -> None:
        self._end(self._choose(), self.random.uniform(0.2, 8))

    def _part(self, *cuts: tuple[object, object]) -> None:
        self.cut.update(cuts)
        self.at(self.now + self.random.uniform(0.3, 8), lambda: self.cut.difference_update(cuts))

    def _part_from_etcd(self) -> None:
        name = self._choose().id
        both: list[tuple[object, object]] = [(name, "etcd"), ("etcd", name)]
        self._part(*self.random.choice([both, both[:1], both[1:]]))

    def _part_members(self) -> None:
        one, other = self._choose().id, self.random.choice(self.members).id
        both: list[tuple[object, object]] = [(one, other), (other, one)]
        self._part(*self.random.choice([both, both, both[:1], both[1:]]))

    def _pause(self) -> None:
        self._choose().paused_until = self.now + self.random.uniform(0.3, 6)

    def _step_down(self) -> None:
        member = self._choose()
        if member.is_alive and self.now >= member.paused_until:
            member.tell(StepDown(2.0))

    def _stop_etcd(self) -> None:
        self.etcd.is_down = True
        self.at(self.now + self.random.uniform(0.3, 8), self._start_etcd)

    def _lose_etcd(self) -> None:
        """Empty etcd; often while no member runs, and then the one with the least data starts alone."""
        if self.random.random() < 0.5:
            self.at(self.now + self.random.uniform(0, 1), self.etcd.lose)
            return
        late, *others = self.random.sample(self.members, 3)

        def end_others() -> None:
            for member in others:
                self._end(member, self.random.uniform(6, 10))
            self.at(self.now + 0.5, self.etcd.lose)

        self._end(late, 5.0)
        self.at(self.now + 4.0, end_others)

    def _corner(self) -> None:
        """Cut a master off from one slave and then from etcd, and end the other slave; or leave only the newest."""
        masters = [member for member in self.members if member.is_alive and member.master_epoch is not None]
        if len(masters) != 1:
            return
        (master,) = masters
        one, other = self.random.sample([member for member in self.members if member is not master], 2)
        if self.random.random() < 0.5:
            self._part((one.id, master.id), (master.id, one.id))
            self.at(
                self.now + self.random.uniform(0, 1.2), lambda: self._part((master.id, "etcd"), ("etcd", master.id))
            )
            self.at(self.now + self.random.uniform(0.5, 3), lambda: self._end(other))
            return

        def end_both() -> None:
            self._end(master, 10)
            self._end(other, 10)

        self._end(one, self.random.uniform(0.2, 4))
        self.at(self.now + self.random.uniform(0.5, 6), end_both)

    def _end(self, member: Member, seconds: float = 8.0) -> None:
        if member.is_alive:
            member.crash()
            self.at(self.now + seconds, lambda: None if member.is_alive else member.start())

    def _start_etcd(self) -> None:
        self.etcd.is_down = False

    def heal(self) -> None:
        """Make everything well again."""
        self.faults = replace(self.faults, slow=min(self.faults.slow, 0.01), damage=0.0)
        self.cut.clear()
        self.etcd.is_down = False
        for member in self.members:
            member.paused_until = 0.0
            if not member.is_alive:
                member.start()

    def force_when_nobody_knows(self) -> None:
        """What an operator does when the state is damaged, and no member of the set has seen its previous value."""
        state = self.etcd.view.state
        if state is not None and state.is_damaged and self.etcd.view.master is None:
            best = max(self.members, key=lambda member: (member.log_epoch, len(member.log)))
            best.tell(Forced(3.0))
            self.forced += 1
            self.at(self.now + 5.0, self.force_when_nobody_knows)

    def find_leaders(self) -> list[Member]:
        return [m for m in self.members if m.is_alive and m.machine.phase is Phase.LEADING and m.is_open()]
