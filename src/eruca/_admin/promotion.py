"""Decides whether a member may become master without losing acknowledged messages. No I/O.

The rule, for a master that does not answer. A message is acknowledged when r members have it: `inSyncReplicas` of a
SYNC_MASTER, 1 of an ASYNC_MASTER, which does not wait. Of n members, m answer. If n - m < r, that is m >= n - r + 1,
then those that do not answer are too few to have acknowledged anything among themselves: every acknowledged message is
on at least one that answers. All logs of a name are identical up to where they end or diverge, and of two that diverge
the one with the higher epoch is right. So of those that answer, the one with the highest (epoch of its end, end) has
every acknowledged message, and no other may be promoted. The same bound stops a master that is alive but unreachable
from acknowledging more: the m members learn the new epoch before the new master starts, follow no lower one from then
on, and so leave it fewer than r copies.

An ASYNC_MASTER has r = 1, so all n must answer: a dead one may have acknowledged messages that no other member has, and
there is no way to know. A pair with two copies (n = 2, r = 2) needs one answer, that of its slave; three members with
two copies need two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eruca._wire.bodies import ReplicationState
from eruca._wire.names import FENCED, MASTER, SLAVE


class Standing(NamedTuple):
    """How much of the log a member has, in the order in which that counts."""

    epoch: int
    end: int


def measure(state: ReplicationState) -> Standing:
    """Return the epoch a log ends in, and where it ends."""
    epochs = [each.epoch for each in state.epochs if each.start <= state.tail]
    return Standing(max(epochs, default=0), state.tail)


def find_highest_epoch(states: Mapping[str, ReplicationState]) -> int:
    """Return the highest epoch that any of these members has heard of."""
    heard = [0]
    for state in states.values():
        heard += [state.epoch, *[each.epoch for each in state.epochs]]
        if state.master is not None:
            heard.append(state.master.epoch)
    return max(heard)


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about the members of one broker name when one of them is to become the master."""

    name: str
    # The members that answer, by their address.
    states: Mapping[str, ReplicationState]
    # Addresses of all members that name servers or members know of, whether they answer or not.
    known: frozenset[str]
    # Those that answered that they are Java brokers.
    java: frozenset[str] = frozenset()
    # How many members there are, if the operator has specified it.
    told_count: int | None = None

    @property
    def master(self) -> ReplicationState | None:
        """The master that answers; the newest if there are two. A fenced one waits for its successor."""
        leading = [state for state in self.states.values() if state.role in (MASTER, FENCED)]
        return max(leading, key=lambda state: (state.epoch, state.role == MASTER), default=None)

    @property
    def java_master(self) -> str | None:
        """A Java broker that a member follows, and that answers."""
        followed = [state.master.address for state in self.states.values() if state.master is not None]
        return next((address for address in followed if address in self.java), None)

    @property
    def count(self) -> int | None:
        """How many members there are; None if unknown."""
        if self.told_count is not None:
            return max(self.told_count, len(self.states))
        if any(_knows_its_members(state) for state in self.states.values()):
            return len(self.known | self.states.keys())
        return None

    @property
    def mode(self) -> tuple[bool, int] | None:
        """Whether the last master waited for slaves, and for how many copies; None if no member knows it."""
        heard: list[tuple[int, bool, int]] = []
        for state in self.states.values():
            followed = state.master
            if followed is not None and followed.required:
                heard.append((followed.epoch, followed.sync, followed.required))
            if state.role in (MASTER, FENCED):
                heard.append((measure(state).epoch, state.sync, max(1, state.required)))
        if not heard:
            return None
        newest = [each for each in heard if each[0] == max(heard)[0]]
        return all(sync for _, sync, _ in newest), min(required for _, _, required in newest)

    @property
    def copies(self) -> int:
        """How many members certainly have an acknowledged message: the r of the rule."""
        mode = self.mode
        return mode[1] if mode is not None and mode[0] else 1

    @property
    def best(self) -> ReplicationState:
        """The member with the most data among those that answer."""
        return max(self.states.values(), key=measure)


def _knows_its_members(state: ReplicationState) -> bool:
    if any(address != state.address for address in state.members):
        return True
    # A member configured as the master that knows no others and has heard of no other master never had a slave. A slave
    # that knows no others has lost its list, and so has a master that was replaced.
    return state.configured_id == 0 and state.epoch <= measure(state).epoch


class Objection(NamedTuple):
    """Why a member should not become the master: what may be lost, or what cannot be known."""

    reason: str
    # Specifying the number of members may settle it.
    is_about_count: bool = False


def find_objections(situation: Situation, target: str) -> list[Objection]:
    """Return the reasons why a member should not become the master; none when no acknowledged message can be lost."""
    chosen = situation.states[target]
    master = situation.master
    if chosen.claimed_epoch > find_highest_epoch(situation.states):
        return [
            Objection(
                f"a name server has heard of a master of epoch {chosen.claimed_epoch}, and no member that answers"
                " knows it: if there is one, its messages would be lost"
            )
        ]
    if master is not None and master.address != target:
        return _object_to_orderly(chosen, master)
    if master is not None and find_highest_epoch(situation.states) <= measure(chosen).epoch:
        return []  # it was the last one to acknowledge anything
    found = _find_live_master(situation)
    found += _find_silent(situation)
    best = situation.best
    if measure(best) > measure(chosen):
        found.append(Objection(_compare(best, chosen)))
    return found


def _object_to_orderly(chosen: ReplicationState, master: ReplicationState) -> list[Objection]:
    """The master answers and steps down. Only a slave that copies from it can have everything the master has."""
    followed = chosen.master
    if followed is None or not followed.connected or followed.address != master.address:
        behind = master.tail - chosen.tail
        return [
            Objection(
                f"{chosen.address} does not copy from the master {master.address} now, and lacks {max(behind, 0)}"
                " bytes, which would be lost"
            )
        ]
    return []


def _find_live_master(situation: Situation) -> list[Objection]:
    """A master that a slave is still connected to is alive, even if we cannot reach it."""
    java = situation.java_master
    if java is not None:
        return [
            Objection(
                f"the master {java} is a Java broker and cannot be told to step down: it would continue to accept "
                "messages, which would be lost; stop it first"
            )
        ]
    return [
        Objection(
            f"the master {state.master.address} does not answer here, but {state.address} still hears from it:"
            " it is alive"
        )
        for state in situation.states.values()
        if state.master is not None and state.master.connected and state.master.address not in situation.states
    ][:1]


def _find_silent(situation: Situation) -> list[Objection]:
    """Object if the members that do not answer are enough to have acknowledged a message among themselves."""
    answer, count, copies = len(situation.states), situation.count, situation.copies
    if count is None:
        reason = "the number of members is unknown, so some that do not answer may have acknowledged messages"
        return [Objection(reason, is_about_count=True)]
    needed = count - copies + 1
    if answer >= needed:
        return []
    mode = situation.mode
    silent = sorted(situation.known - situation.states.keys())
    who = f" ({', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not)" if silent else ""
    if mode is None:
        how = "no member knows the last master, so whether it waited for slaves is unknown"
    elif not mode[0]:
        how = "the master does not wait for slaves (ASYNC_MASTER), so only it may have the last acknowledged messages"
    else:
        how = f"a message is acknowledged when {copies} members have it"
    reason = f"{answer} of {count} members answer{who}, and at least {needed} must: {how}"
    return [Objection(reason, is_about_count=True)]


def _compare(best: ReplicationState, chosen: ReplicationState) -> str:
    more, less = measure(best), measure(chosen)
    what = f"{more.end - less.end} bytes" if more.epoch == less.epoch else f"all since epoch {less.epoch} ended"
    return (
        f"{best.address} has more of the log (epoch {more.epoch}, up to {more.end}) than {chosen.address} (epoch"
        f" {less.epoch}, up to {less.end}): {what} would be lost; promote {best.address} instead"
    )


def find_successor(situation: Situation, master: ReplicationState) -> ReplicationState | None:
    """Return the connected slave with the most data, which takes over from a master with the least delay."""
    following = [
        state
        for state in situation.states.values()
        if state.role == SLAVE
        and state.master is not None
        and state.master.connected
        and state.master.address == master.address
    ]
    return max(following, key=measure, default=None)
