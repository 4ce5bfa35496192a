"""What etcd holds about one broker name, and the events and actions of the failover machine.

Under `<prefix>/<cluster>/<broker name>/`:

    master          epoch, configured id, addresses; lives on the lease of the master
    state           epoch, the in-sync set (configured ids); lives forever
    members/<id>    addresses, the end of the log and the epoch that wrote it, the election it is published for, all
                    members it has ever met; lives on the lease of the member

Nothing here is assumed to be current: every change is a transaction that compares revisions, so a decision based on an
old view fails. Nor is it assumed to be intact: a value damaged on its way to etcd is present but unreadable
(`is_readable`), except for what etcd itself knows: lease, revision, version. Its writer repairs it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

#: The round of members that have stopped following and found no state in etcd.
FOUNDING: Final = -1

# --- what etcd holds ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterEntry:
    """The master; gone when its lease is."""

    epoch: int
    member: int
    address: str
    ha_address: str
    lease: int
    revision: int

    @property
    def is_readable(self) -> bool:
        """Does it name the master?"""
        return bool(self.address)


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The last epoch, and the members that have everything acknowledged in it and before."""

    epoch: int
    in_sync: frozenset[int]
    revision: int
    # How many times it was written.
    version: int = 0
    # Is this the value of the key before it was damaged? Empty when that is unknown too.
    is_damaged: bool = False

    @property
    def is_readable(self) -> bool:
        """Is the key's value intact?"""
        return not self.is_damaged


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A living member, and its log at the time it published itself."""

    member: int
    address: str
    ha_address: str
    # The end of the log, and the mastership that wrote there: positions of different masterships are not comparable.
    position: int
    epoch: int
    # The highest epoch it has heard of.
    seen: int
    # The election the position is meant for (the revision of `state`); 0: none, FOUNDING: there is no state.
    round: int
    # Has it seen no master since its start?
    is_cold: bool
    lease: int
    revision: int
    # The addresses of all members it has ever met, which survive a loss of etcd.
    known: frozenset[str] = frozenset()
    # The identity of its store; empty when it has none.
    store: str = ""

    @property
    def is_readable(self) -> bool:
        """Does it contain this member's address and log end?"""
        return bool(self.address)


@dataclass(frozen=True, slots=True)
class View:
    """Everything under the prefix at one revision."""

    revision: int
    master: MasterEntry | None = None
    state: StateEntry | None = None
    members: Mapping[int, MemberEntry] = field(default_factory=dict)


# --- phases of a member -------------------------------------------------------------------------------------------


class Phase(enum.Enum):
    """What a member is doing."""

    DETACHING = "detaching"  # on the way to WAITING: the log may still grow
    WAITING = "waiting"  # a slave without a master
    FOLLOWING = "following"
    RISING = "rising"  # the master in etcd, not yet in the broker
    LEADING = "leading"
    FENCED = "fenced"  # was the master; its lease is not returned yet


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The current content of etcd."""

    view: View


@dataclass(frozen=True, slots=True)
class Replaced:
    """etcd went back: it lost its data, or was restored from a backup. This is its content now."""

    view: View


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A new lease; it is valid for this many seconds after `sent`, when it was requested."""

    lease: int
    seconds: float
    sent: float


@dataclass(frozen=True, slots=True)
class LeaseKept:
    """The lease is valid for this many seconds after `sent`; 0 seconds: it has expired."""

    lease: int
    seconds: float
    sent: float


@dataclass(frozen=True, slots=True)
class Revoked:
    """The lease has ended and its keys are gone."""

    lease: int


@dataclass(frozen=True, slots=True)
class Published:
    """The member's own key was written (or was not: there is another view at this revision)."""

    revision: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """This member has been the master of an epoch since a revision."""

    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim failed because something had changed; etcd is at this revision at least."""

    revision: int


@dataclass(frozen=True, slots=True)
class SetChanged:
    """The in-sync set in etcd has been this one since a revision."""

    members: frozenset[int]
    revision: int


@dataclass(frozen=True, slots=True)
class SetRefused:
    """The master or the set is not the expected one; etcd is at this revision at least."""

    revision: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A call to etcd got no answer: it may have been executed, or may be executed later."""

    call: Call


@dataclass(frozen=True, slots=True)
class RoleDone:
    """The broker has the requested role; its log ends here."""

    ticket: int
    position: int


@dataclass(frozen=True, slots=True)
class RoleFailed:
    """The broker could not take the requested role."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the master and its connected slaves are, in the epoch of this mastership.

    `confirmed` is at or beyond everything acknowledged; an acknowledgement needs `required` copies.
    """

    tail: int
    confirmed: int
    required: int
    reports: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Forced:
    """An operator requested that this member become the master, whatever it lacks, and waits this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StepDown:
    """An operator requested another master; this member is not a candidate for this many seconds."""

    seconds: float


Event: TypeAlias = (
    Tick
    | Seen
    | Replaced
    | LeaseGranted
    | LeaseKept
    | Revoked
    | Published
    | Claimed
    | ClaimRefused
    | SetChanged
    | SetRefused
    | Failed
    | RoleDone
    | RoleFailed
    | Progress
    | Forced
    | StepDown
)

# --- actions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """Request a lease: LeaseGranted."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the lease alive: LeaseKept."""

    lease: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Return the lease: Revoked."""

    lease: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the own member key with the current state of the log, if the key is still at this revision: Published."""

    lease: int
    round: int
    is_cold: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Become the master if there is none and state and members are at these revisions: Claimed or ClaimRefused.

    A claim of ours that succeeded but was damaged is repeated over the key it left, at that revision.
    """

    epoch: int
    in_sync: frozenset[int]
    lease: int
    state_revision: int
    seen: tuple[tuple[int, int], ...]
    master_revision: int = 0


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Write the in-sync set if master and state are at these revisions: SetChanged or SetRefused."""

    epoch: int
    members: frozenset[int]
    master_revision: int
    state_revision: int


Call: TypeAlias = Grant | Keep | Revoke | Publish | Claim | ChangeSet


@dataclass(frozen=True, slots=True)
class Lead:
    """Become the master of an epoch: RoleDone with its start position."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Become a slave of this master: RoleDone."""

    ticket: int
    master: MasterEntry


@dataclass(frozen=True, slots=True)
class Detach:
    """Become a slave without a master; RoleDone when the log no longer grows and nothing more is reported."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Accept no more messages."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Messages may be acknowledged before this time, but not at or after it."""

    until: float


@dataclass(frozen=True, slots=True)
class Require:
    """From this moment on an acknowledgement needs all of these members."""

    members: frozenset[int]


@dataclass(frozen=True, slots=True)
class Tell:
    """Write a line to the log."""

    text: str
    is_warning: bool = False


RoleChange: TypeAlias = Lead | Follow | Detach | Fence
Action: TypeAlias = Call | RoleChange | Acknowledge | Require | Tell
