"""The machine: what one member does, and when. The package docstring explains why it is safe.

DETACHING --> WAITING --> RISING --> LEADING       a master that vanished is replaced
    ^ ^          |           |          |
    | |          v           v          v
    | +----- FOLLOWING     FENCED <-----+           a master in doubt stops first
    +------------------------+
"""

from __future__ import annotations

import math

from eruca._core.failover.ballot import (
    carry_state,
    choose_epoch,
    find_revisions,
    has_log,
    is_outdated,
    judge_founding,
    keep_living,
)
from eruca._core.failover.insync import InSync
from eruca._core.failover.rules import Identity, Rules
from eruca._core.failover.turn import Turn
from eruca._core.failover.view import (
    FOUNDING,
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

_NEVER = -math.inf
_DAMAGED = "the key of the master in etcd is damaged"


class Failover:
    """One member's part in choosing the master."""

    def __init__(self, identity: Identity, rules: Rules, *, required: int = 2) -> None:
        self._me = identity
        self._rules = rules
        # Copies needed for an acknowledgement; Progress updates it.
        self._required = required
        self.phase = Phase.DETACHING
        self.view: View | None = None
        self.epoch = 0
        self.sync: InSync | None = None
        self._lease: int | None = None
        # How long it was granted for: no answer extends it beyond that.
        self._lease_s = 0.0
        self._deadline = _NEVER
        self._keep_at = _NEVER
        self._busy: set[type[Call]] = set()
        self._retry_at: dict[type[Call], float] = {}
        self._published = 0
        self._ticket = 0
        self._role_retry_at = _NEVER
        self._is_started = False
        self._is_cold = True
        self._forced_until = _NEVER
        self._hold_until = _NEVER
        self._following: tuple[int, str, str] | None = None
        # While this member is the master: the revision of `master`, and the set its claim wrote.
        self._master_revision = 0
        self._claimed: StateEntry | None = None
        self._turn = Turn(identity.member, rules)
        self._needed: frozenset[int] | None = None
        # Messages logged since the last real change of phase.
        self._told: set[str] = set()
        self._out: list[Action] = []
        self._now = 0.0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Process an event; returns the actions to take, in order."""
        self._now = now
        if not self._is_started and now >= self._role_retry_at:
            self._is_started = True
            self._detach()
        self._learn(event)
        self._advance()
        out, self._out = self._out, []
        return out

    @property
    def deadline(self) -> float:
        """Until when this member may acknowledge; a time long past when it may not."""
        return self._deadline if self.phase is Phase.LEADING else _NEVER

    @property
    def lease(self) -> int | None:
        """The lease to return at the end."""
        return self._lease

    # -- events ------------------------------------------------------------------------------------------------------

    def _learn(self, event: Event) -> None:
        match event:
            case Seen(view):
                if self.view is None or view.revision >= self.view.revision:
                    self.view = carry_state(view, self.view)
            case Replaced(view):
                self._lose_etcd(view)
            case LeaseGranted(lease, seconds, sent):
                self._busy.discard(Grant)
                if self._lease is None:
                    self._lease, self._lease_s = lease, seconds
                    self._extend(seconds, sent)
            case LeaseKept(lease, seconds, sent):
                self._busy.discard(Keep)
                if lease == self._lease:
                    self._extend(min(seconds, self._lease_s), sent) if seconds > 0 else self._lose_lease()
            case Revoked(lease):
                self._busy.discard(Revoke)
                if lease == self._lease:
                    self._lose_lease()
            case Published(revision):
                self._busy.discard(Publish)
                self._published = revision
            case Failed(call):
                self._busy.discard(type(call))
                self._retry_at[type(call)] = self._now + self._rules.retry_s
            case Claimed() | ClaimRefused():
                self._learn_claim(event)
            case SetChanged() | SetRefused():
                self._learn_set(event)
            case RoleDone(ticket, position):
                self._learn_role(ticket, position)
            case RoleFailed(ticket, why):
                self._learn_role_failure(ticket, why)
            case Progress():
                self._required = event.required
                if self.sync is not None and self.phase is Phase.LEADING:
                    known = self.view.members.keys() if self.view is not None else frozenset()
                    self.sync.observe(event, self._now, known)
            case Forced(seconds):
                if self.phase in (Phase.DETACHING, Phase.WAITING):
                    self._forced_until = self._now + seconds
            case StepDown(seconds):
                self._hold_until = self._now + seconds
                if self.phase in (Phase.RISING, Phase.LEADING):
                    self._fence("an operator requested another master")
            case Tick():
                pass

    def _learn_claim(self, event: Claimed | ClaimRefused) -> None:
        self._busy.discard(Claim)
        if isinstance(event, ClaimRefused):
            # The next view shows why; until then the same claim would fail the same way.
            self._retry_at[Claim] = self._now + self._rules.retry_s
        elif self.phase is not Phase.WAITING or self._claimed is None:
            return
        elif self.view is not None and self.view.revision < event.revision:
            # A newer view shows whether that is still the case.
            self._rise(event.epoch, event.revision, self._claimed.in_sync, event.revision)

    def _learn_set(self, event: SetChanged | SetRefused) -> None:
        self._busy.discard(ChangeSet)
        if isinstance(event, SetRefused):
            self._retry_at[ChangeSet] = self._now + self._rules.retry_s
        elif self.sync is not None and event.revision > self.sync.revision:
            self.sync.adopt(event.members, event.revision)

    def _learn_role(self, ticket: int, position: int) -> None:
        if ticket != self._ticket:
            return
        if self.phase is Phase.DETACHING:
            self.phase = Phase.WAITING
        elif self.phase is Phase.RISING:
            assert self._claimed is not None
            self.phase = Phase.LEADING
            self.sync = InSync(
                self._me.member,
                self._claimed.in_sync,
                self._claimed.revision,
                position,
                self._now,
                timeout_s=self._rules.slave_timeout_s,
                alone_s=self._rules.alone_s,
            )
            self._out.append(Acknowledge(self._deadline))

    def _learn_role_failure(self, ticket: int, why: str) -> None:
        if ticket != self._ticket:
            return
        self._tell(f"the broker could not change its role: {why}", is_warning=True)
        self._role_retry_at = self._now + self._rules.retry_s
        if self.phase is Phase.RISING:
            self._hold_until = self._now + self._rules.hold_s
            self._fence("this broker could not become the master")
        elif self.phase is Phase.FOLLOWING:
            self._following = None
        elif self.phase is Phase.DETACHING:
            self._is_started = False

    def _extend(self, seconds: float, sent: float) -> None:
        self._deadline = max(self._deadline, sent + seconds * (1 - self._rules.margin))
        self._keep_at = self._now + seconds / self._rules.keeps
        if self.phase is Phase.LEADING:
            self._out.append(Acknowledge(self._deadline))

    def _lose_lease(self) -> None:
        self._lease, self._deadline = None, _NEVER
        if self.phase in (Phase.RISING, Phase.LEADING):
            self._fence("the lease has expired")

    def _lose_etcd(self, view: View) -> None:
        """Start over with an etcd that lost its data: its leases are gone too, and no revision is valid anymore."""
        self._tell("etcd has lost its data", is_warning=True)
        if self.phase in (Phase.RISING, Phase.LEADING):
            self._fence("etcd has lost its data")
        self.view, self._published = view, 0
        self._turn.end()
        self._lose_lease()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if self.phase in (Phase.RISING, Phase.LEADING):
            self._check_mastership()
        if self.phase is Phase.FENCED:
            if self._lease is not None:
                # It is no longer kept alive; no other is requested until it is known to have expired.
                self._call(Revoke(self._lease))
                return
            self._detach()
        self._keep_lease()
        if self.view is None:
            return
        self._keep_published(self.view)
        if self.phase is Phase.LEADING:
            self._keep_set(self.view)
        elif self.phase is not Phase.RISING:
            self._find_role(self.view)

    def _check_mastership(self) -> None:
        master = self.view.master if self.view is not None else None
        if self._now >= self._deadline:
            self._fence("the lease could not be renewed in time")
        elif self.view is None or self.view.revision < self._master_revision:
            return
        elif master is None or master.revision != self._master_revision:
            self._fence("this broker is no longer the master in etcd")
        elif not master.is_readable:
            self._fence(_DAMAGED)

    def _keep_lease(self) -> None:
        if self._lease is None:
            self._call(Grant())
        elif self._now >= self._keep_at:
            self._call(Keep(self._lease))

    def _keep_published(self, view: View) -> None:
        """Keep a member key on the lease, tagged for the election if there is one to take part in."""
        if self._lease is None or view.revision < self._published:
            return
        own = view.members.get(self._me.member)
        round_now = 0
        if self._stands(view):
            round_now = view.state.revision if view.state is not None else FOUNDING
        if own is None:
            self._call(Publish(self._lease, round_now, self._is_cold, 0))
        elif own.is_readable and own.lease != self._lease and own.address != self._me.address:
            # Only this broker listens on its address: a key with that address is from its previous run.
            self._tell_once(f"a broker at {own.address} has the same brokerId {own.member}", is_warning=True)
        elif own.lease != self._lease or not own.is_readable or is_outdated(own, round_now):
            self._call(Publish(self._lease, round_now, self._is_cold, own.revision))

    def _find_role(self, view: View) -> None:
        master = view.master
        if master is None:
            if self.phase is Phase.FOLLOWING:
                self._detach()
            elif self.phase is Phase.WAITING:
                self._elect(view)
            return
        self._turn.end()
        self._forced_until = _NEVER
        if master.member == self._me.member or (not master.is_readable and master.lease == self._lease):
            self._meet_self(view, master)
            return
        if not master.is_readable:
            self._tell_once(f"{_DAMAGED}: waiting for its owner to repair it, or for its lease to expire")
            return
        self._is_cold = False
        here = (master.epoch, master.address, master.ha_address)
        if here != self._following and self._now >= self._role_retry_at:
            self.phase = Phase.FOLLOWING
            self._told.clear()
            self._following = here
            self._ticket += 1
            self._out.append(Follow(self._ticket, master))

    def _meet_self(self, view: View, master: MasterEntry) -> None:
        if self.phase is Phase.FOLLOWING:
            self._detach()
        elif master.lease != self._lease:
            self._tell_once(f"epoch {master.epoch} of this broker's previous run has not ended: waiting for its lease")
        elif view.state is not None and self.phase is Phase.WAITING:
            state, claimed = view.state, self._claimed
            if master.is_readable and state.is_readable:
                # The claim succeeded, only its answer was lost.
                self._rise(master.epoch, master.revision, state.in_sync, state.revision)
            elif claimed is not None:
                # It succeeded but was damaged on its way. No other member can have claimed since, so it is repeated.
                self._call(Claim(claimed.epoch, claimed.in_sync, master.lease, state.revision, (), master.revision))
            else:
                self._fence(_DAMAGED)

    # -- electing ----------------------------------------------------------------------------------------------------

    def _stands(self, view: View) -> bool:
        """Does this member take part in an election now?"""
        if view.master is not None or self.phase is not Phase.WAITING:
            return False
        return view.state is None or self._me.member in view.state.in_sync

    def _elect(self, view: View) -> None:
        own = view.members.get(self._me.member)
        if self._lease is None or own is None or own.lease != self._lease or self._now >= self._deadline:
            return
        state = view.state
        if self._now < self._forced_until:
            self._tell_once("forced to be the master: data that only other members have is lost", is_warning=True)
            self._claim(view, frozenset({self._me.member}), ())
        elif state is None:
            self._found(view, own)
        elif not state.in_sync:
            self._tell_once(
                "there is no master, and the key of the state in etcd is damaged, so it is not known who has all "
                "messages: `eruca cluster promote --force` promotes the member of your choice, ideally the last master",
                is_warning=True,
            )
        elif self._me.member not in state.in_sync:
            self._tell_once(
                f"there is no master, and this broker may lack acknowledged messages: waiting for one of the members "
                f"{sorted(state.in_sync)}; `eruca cluster promote --force` promotes this one as it is",
                is_warning=True,
            )
        elif own.round != state.revision:
            return  # its key is being published
        elif not has_log(own, state):
            self._tell_once(
                "there is no master, and this broker should have all messages but its log is new: was its disk "
                "replaced? Waiting for another member; `eruca cluster promote --force` promotes this one as it is",
                is_warning=True,
            )
        elif self._turn.is_mine(view, state, self._now) and self._now >= self._hold_until:
            kept = keep_living(view, state, self._me.member, self._required)
            self._claim(view, kept, find_revisions(view, state))

    def _found(self, view: View, own: MemberEntry) -> None:
        """There is no state: no master was ever elected, or etcd lost its data."""
        members = view.members.values()
        if not any(m.seen or m.epoch for m in members) and not self._me.is_founder:
            self._tell_once("there was no master yet: waiting for the member that is configured as the master")
            return
        began = self._turn.begin(0, self._now)
        # Positions are only comparable when no log grows anymore.
        if self._now < began + self._rules.election_s or any(m.round != FOUNDING for m in members):
            return
        if not any(m.seen or m.epoch for m in members):
            self._claim(view, frozenset({self._me.member}), ())
            return
        best, trouble = judge_founding(view)
        if best is None:
            self._tell_once(trouble, is_warning=True)
        elif best.member == own.member and self._now >= self._hold_until:
            revisions = tuple((number, entry.revision) for number, entry in sorted(view.members.items()))
            self._tell_once("etcd has no state; all members are present, and this one has everything any of them has")
            self._claim(view, frozenset({own.member}), revisions)

    def _claim(self, view: View, in_sync: frozenset[int], seen: tuple[tuple[int, int], ...]) -> None:
        assert self._lease is not None
        epoch = choose_epoch(view, self._me.member)
        revision = view.state.revision if view.state is not None else 0
        if self._call(Claim(epoch, in_sync, self._lease, revision, seen)):
            self._claimed = StateEntry(epoch, in_sync, 0)

    # -- changing ----------------------------------------------------------------------------------------------------

    def _rise(self, epoch: int, revision: int, in_sync: frozenset[int], state_revision: int) -> None:
        self.phase = Phase.RISING
        self._told.clear()
        self.epoch = epoch
        self._is_cold, self._forced_until = False, _NEVER
        self._following = None
        self._turn.end()
        self._master_revision = revision
        self._claimed = StateEntry(epoch, in_sync, state_revision)
        self._ticket += 1
        self._require(in_sync - {self._me.member})
        self._out.append(Lead(self._ticket, epoch))

    def _keep_set(self, view: View) -> None:
        sync, state = self.sync, view.state
        assert sync is not None
        if state is not None and not state.is_readable and state.revision >= sync.revision:
            sync.rewrite(state.revision)
        elif state is not None and state.epoch == self.epoch and state.revision > sync.revision:
            sync.adopt(state.in_sync, state.revision)
        self._require(sync.needed)
        if sync.pending is not None:
            self._call(ChangeSet(self.epoch, sync.pending, self._master_revision, sync.revision))

    def _require(self, members: frozenset[int]) -> None:
        if members != self._needed:
            self._needed = members
            self._out.append(Require(members))

    def _fence(self, why: str) -> None:
        self.phase = Phase.FENCED
        self.sync = self._needed = self._claimed = None
        self._tell(f"this broker is no longer the master of epoch {self.epoch}: {why}", is_warning=True)
        self._ticket += 1
        self._out += [Acknowledge(_NEVER), Fence(self._ticket, why)]

    def _detach(self) -> None:
        self.phase = Phase.DETACHING
        self._following = None
        self._ticket += 1
        self._out.append(Detach(self._ticket))

    def _call(self, call: Call) -> bool:
        """Make a call unless one of its kind is in progress or failed a moment ago."""
        kind = type(call)
        if kind in self._busy or self._now < self._retry_at.get(kind, _NEVER):
            return False
        self._busy.add(kind)
        self._out.append(call)
        return True

    def _tell(self, text: str, *, is_warning: bool = False) -> None:
        self._told.add(text)
        self._out.append(Tell(text, is_warning))

    def _tell_once(self, text: str, *, is_warning: bool = False) -> None:
        if text not in self._told:
            self._tell(text, is_warning=is_warning)
