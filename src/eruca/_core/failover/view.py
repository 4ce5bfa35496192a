"""What etcd holds about one broker name, what the failover machine is told, and what it wants done.

Under `<prefix>/<cluster>/<broker name>/`:

    master          epoch, configured id, addresses; lives on the lease of the master
    state           epoch, the in-sync set (configured ids); lives forever
    members/<id>    addresses, the end of the log and the epoch that wrote it, the election it is published for, whom
                    it has ever met; lives on the lease of the member

Nothing here is trusted to be new: every change is a transaction that compares revisions, so whoever decided on an old
view fails. Nor is it trusted to be what was written: a value that was damaged on its way to etcd is there and says
nothing (`is_readable`), but for what etcd itself knows: lease, revision, version. Who wrote it makes it good.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

#: The round of members that have stopped following and find no state in etcd.
FOUNDING: Final = -1

# --- what etcd holds ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterEntry:
    """Who is the master; gone when its lease is."""

    epoch: int
    member: int
    address: str
    ha_address: str
    lease: int
    revision: int

    @property
    def is_readable(self) -> bool:
        """Does it say who is the master?"""
        return bool(self.address)


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The last epoch, and who has everything that was acknowledged in it and before."""

    epoch: int
    in_sync: frozenset[int]
    revision: int
    # How often it was written.
    version: int = 0
    # Is this what the key held before it was damaged? Empty when that is not known either.
    is_damaged: bool = False

    @property
    def is_readable(self) -> bool:
        """Does the key say what stands here?"""
        return not self.is_damaged


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A living member, and its log as it was when it published itself."""

    member: int
    address: str
    ha_address: str
    # The end of the log, and the mastership that wrote there: positions of different masterships do not compare.
    position: int
    epoch: int
    # The highest epoch it has heard of.
    seen: int
    # The election the position is meant for (the revision of `state`); 0: for none, FOUNDING: there is no state.
    round: int
    # Has it seen no master since its start?
    is_cold: bool
    lease: int
    revision: int
    # The addresses of all members it has ever met, which outlast etcd.
    known: frozenset[str] = frozenset()
    # The identity of its store; empty when it has none.
    store: str = ""

    @property
    def is_readable(self) -> bool:
        """Does it say where this member is and what it has?"""
        return bool(self.address)


@dataclass(frozen=True, slots=True)
class View:
    """All of it at one revision."""

    revision: int
    master: MasterEntry | None = None
    state: StateEntry | None = None
    members: Mapping[int, MemberEntry] = field(default_factory=dict)


# --- what a member does -------------------------------------------------------------------------------------------


class Phase(enum.Enum):
    """What a member is doing."""

    DETACHING = "detaching"  # on the way to WAITING: the log does not stand still yet
    WAITING = "waiting"  # a slave without a master
    FOLLOWING = "following"
    RISING = "rising"  # the master in etcd, not yet in the broker
    LEADING = "leading"
    FENCED = "fenced"  # was the master; its lease is not given back yet


# --- what happens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """etcd holds this."""

    view: View


@dataclass(frozen=True, slots=True)
class Replaced:
    """etcd went back: it lost its data, or was restored from a backup. This is what it holds now."""

    view: View


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A new lease; it lives for this many seconds after `sent`, when it was asked for."""

    lease: int
    seconds: float
    sent: float


@dataclass(frozen=True, slots=True)
class LeaseKept:
    """The lease lives for this many seconds after `sent`; 0 seconds: it is over."""

    lease: int
    seconds: float
    sent: float


@dataclass(frozen=True, slots=True)
class Revoked:
    """The lease is over and its keys are gone."""

    lease: int


@dataclass(frozen=True, slots=True)
class Published:
    """The member's own key is written (or was not: another view is at this revision)."""

    revision: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """This member is the master of an epoch since a revision."""

    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Something had changed; etcd is at this revision at least."""

    revision: int


@dataclass(frozen=True, slots=True)
class SetChanged:
    """The in-sync set in etcd is this one since a revision."""

    members: frozenset[int]
    revision: int


@dataclass(frozen=True, slots=True)
class SetRefused:
    """The master or the set is another than was thought; etcd is at this revision at least."""

    revision: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A call to etcd has no answer: it may have been done, or may be done later."""

    call: Call


@dataclass(frozen=True, slots=True)
class RoleDone:
    """The broker is what it was told to be; its log ends here."""

    ticket: int
    position: int


@dataclass(frozen=True, slots=True)
class RoleFailed:
    """The broker could not become what it was told to be."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the master and its connected slaves are, in the epoch of this mastership.

    `confirmed` is at or beyond everything acknowledged; `required` copies make an acknowledgement.
    """

    tail: int
    confirmed: int
    required: int
    reports: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Forced:
    """An operator wants this member to be the master, whatever it lacks, and waits for it this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StepDown:
    """An operator wants another master; this member does not stand again for this many seconds."""

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

# --- what to do ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """Get a lease: LeaseGranted."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the lease alive: LeaseKept."""

    lease: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give the lease back: Revoked."""

    lease: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the own member key with the log as it is now, when the key is still at this revision: Published."""

    lease: int
    round: int
    is_cold: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Become the master when there is none and state and members are at these revisions: Claimed or ClaimRefused.

    A claim of ours that came true and was damaged on its way is made again over the key it left, at that revision.
    """

    epoch: int
    in_sync: frozenset[int]
    lease: int
    state_revision: int
    seen: tuple[tuple[int, int], ...]
    master_revision: int = 0


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Write the in-sync set when master and state are at these revisions: SetChanged or SetRefused."""

    epoch: int
    members: frozenset[int]
    master_revision: int
    state_revision: int


Call: TypeAlias = Grant | Keep | Revoke | Publish | Claim | ChangeSet


@dataclass(frozen=True, slots=True)
class Lead:
    """Become the master of an epoch: RoleDone with the position it begins at."""

    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Become a slave of this master: RoleDone."""

    ticket: int
    master: MasterEntry


@dataclass(frozen=True, slots=True)
class Detach:
    """Become a slave without a master; RoleDone when the log stands still and nothing is reported any more."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Take no more messages."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Messages may be acknowledged before this time, and not at or after it."""

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
