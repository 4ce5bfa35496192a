"""Starting a broker that is configured as the master: was it replaced while it was down?

Before it accepts its first message, it asks the name servers for the members of its name, and each member for its state
(`claims`). It leads only if none of them knows a newer mastership. A member that knows one but is not a master itself
is enough to hold it back: the newer master may just be unreachable, and may have acknowledged messages that this broker
does not have.

Only members that prove to have the same store count. A broker of another store with the same name, mostly by accident,
is not a successor: if it was there first, this one refuses to start, and reports why.

A master that is told by a name server that it was replaced asks the same questions: a name server trusts any broker
that registers with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eruca._broker.replication.proving import Proof
from eruca._core.replication.epochs import drop_unwritten, last_epoch
from eruca._core.replication.kinship import Kinship
from eruca._wire.bodies import ReplicationState
from eruca._wire.epoch import Epoch
from eruca._wire.names import MASTER
from eruca.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NewerMaster:
    """Why a broker does not lead, and which broker it follows instead; without addresses that is unknown."""

    epoch: int
    address: str
    ha_address: str
    reason: str

    @property
    def place(self) -> tuple[str, str] | None:
        """The service and HA address, or None."""
        return (self.address, self.ha_address) if self.address else None


@dataclass(frozen=True, slots=True)
class Returning:
    """The starting broker: the masterships it knows, and how much of the log it has."""

    address: str
    seen_epoch: int
    # The last epoch in which it was the master itself.
    led_epoch: int
    epochs: Sequence[Epoch]
    tail: int
    # Whether it guarantees that slaves have what it acknowledged.
    sync: bool


def judge_return(own: Returning, states: Iterable[ReplicationState]) -> NewerMaster | None:
    """Return the broker that leads instead of the configured master; None if the configured one leads."""
    others = [state for state in states if state.address != own.address]
    seen = max(own.seen_epoch, last_epoch(own.epochs))
    newer = [state for state in others if state.epoch > seen]
    # A master whose epoch is already known has replaced it too, unless that epoch was its own.
    masters = [
        state for state in others if state.role == MASTER and state.epoch >= seen and state.epoch > own.led_epoch
    ]
    highest = max(newer, key=lambda state: state.epoch, default=None)
    if masters:
        master = max(masters, key=lambda state: state.epoch)
        if highest is not None and highest.epoch > master.epoch:
            return _follow_unknown(highest, own)
        reason = f"{master.address} is the master of epoch {master.epoch}; this broker knows epoch {seen}"
        return NewerMaster(master.epoch, master.address, master.ha_address, reason)
    if highest is not None:
        return _follow_unknown(highest, own)
    return _find_ahead(own, others) if own.sync else None


def _follow_unknown(state: ReplicationState, own: Returning) -> NewerMaster:
    followed = state.master
    if followed is not None and followed.address not in ("", own.address) and followed.epoch >= state.epoch:
        place = (followed.address, followed.ha_address)
    else:
        place = ("", "")
    reason = (
        f"{state.address} knows a master of epoch {state.epoch}, which does not respond; if it is gone for"
        f" good: eruca cluster promote {state.address}"
    )
    return NewerMaster(state.epoch, *place, reason)


def _find_ahead(own: Returning, others: Iterable[ReplicationState]) -> NewerMaster | None:
    """Find a slave with more of our masterships than we have: a power loss cost us acknowledged messages."""
    epoch = last_epoch(drop_unwritten(own.epochs, own.tail))
    for state in others:
        # Only masterships that wrote something: one that has just started acknowledged nothing.
        theirs = max([each.epoch for each in state.epochs if each.start < state.tail], default=0)
        if theirs > epoch:
            lost = f"what epoch {theirs} wrote"
        elif epoch and theirs == epoch and state.tail > own.tail:
            lost = f"{state.tail - own.tail} bytes of epoch {epoch}"
        else:
            continue
        reason = (
            f"{state.address} has {lost}, which this broker has lost and would discard if it led:"
            f" eruca cluster promote {state.address}, or this one with --force"
        )
        return NewerMaster(theirs, "", "", reason)
    return None


def is_member(proof: Proof, own_address: str) -> bool:
    """Whether another broker is a member of the same store: its answers count, and its log may be copied.

    A broker without a log has no store yet. If it knows our address, it is a member that lost its disk.
    """
    if proof.kinship is Kinship.EMPTY:
        return own_address in proof.state.members
    return proof.kinship is not Kinship.STRANGER


def refuse_taken_name(name: str, own_address: str, registered: Iterable[Proof]) -> None:
    """Raise ConfigError if a broker of another store has the name of one that is about to lead."""
    for proof in registered:
        state = proof.state
        is_in_use = state.role == MASTER or (proof.kinship is Kinship.EMPTY and state.tail > 0)
        if is_in_use and not is_member(proof, own_address):
            raise ConfigError(
                f"another broker is already named {name}: {state.address} ({state.role}), and its messages are"
                " not those of this store; refusing to start, so that neither harms the other",
                hint="give this broker another brokerName; or, to make it a copy of the other broker, set brokerRole ="
                " SLAVE and a brokerId that no other member has; if that broker is not yours, use other name servers",
            )
