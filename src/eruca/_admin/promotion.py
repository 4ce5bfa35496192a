"""May a member become the master of its broker name, and would acknowledged messages be lost by it? No I/O.

The rule, for a master that does not answer. A message is acknowledged when r members have it: `inSyncReplicas` of a
SYNC_MASTER, 1 of an ASYNC_MASTER, which does not wait. Of n members, m answer. If n - m < r, that is m >= n - r + 1,
then those that do not answer are too few to have acknowledged anything among themselves: whatever was acknowledged
is on at least one that answers. All logs of a name are the same log up to where they end or part, and of two that part
the one with the higher epoch is right; so the one with the highest (epoch of its end, end) of those that answer has all
of it, and no other may be promoted. The same bound keeps a master that is alive but out of reach from acknowledging any
more: the m members are told the new epoch before the new master begins, follow no lower one from then on, and leave it
less than r copies.

An ASYNC_MASTER has r = 1, so all n must answer: one that is dead may have acknowledged what nobody else has, and nobody
can know. A pair with two copies (n = 2, r = 2) needs one answer, that of its slave; three members with two copies need
two.
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
    """The epoch a log ends in, and where it ends."""
    epochs = [each.epoch for each in state.epochs if each.start <= state.tail]
    return Standing(max(epochs, default=0), state.tail)


def find_highest_epoch(states: Mapping[str, ReplicationState]) -> int:
    """The highest epoch that any of some members has heard of."""
    heard = [0]
    for state in states.values():
        heard += [state.epoch, *[each.epoch for each in state.epochs]]
        if state.master is not None:
            heard.append(state.master.epoch)
    return max(heard)


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of the members of one broker name when one of them is to become the master."""

    name: str
    # Of those that answer, by their address.
    states: Mapping[str, ReplicationState]
    # Addresses of all members that name servers or members know of, whether they answer or not.
    known: frozenset[str]
    # Those that answered that they are Java brokers.
    java: frozenset[str] = frozenset()
    # What the operator says: how many members there are.
    told_count: int | None = None

    @property
    def master(self) -> ReplicationState | None:
        """The master that answers; the newest, should there be two. One that is fenced waits for its successor."""
        leading = [state for state in self.states.values() if state.role in (MASTER, FENCED)]
        return max(leading, key=lambda state: (state.epoch, state.role == MASTER), default=None)

    @property
    def java_master(self) -> str | None:
        """A Java broker that a member follows, and that answers."""
        followed = [state.master.address for state in self.states.values() if state.master is not None]
        return next((address for address in followed if address in self.java), None)

    @property
    def count(self) -> int | None:
        """How many members there are; None when nobody knows."""
        if self.told_count is not None:
            return max(self.told_count, len(self.states))
        if any(_knows_its_members(state) for state in self.states.values()):
            return len(self.known | self.states.keys())
        return None

    @property
    def mode(self) -> tuple[bool, int] | None:
        """Did the last master wait for slaves, and for how many copies in all? None when nobody has heard of it."""
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
        """How many members surely have what was acknowledged: the r of the rule."""
        mode = self.mode
        return mode[1] if mode is not None and mode[0] else 1

    @property
    def best(self) -> ReplicationState:
        """The member with the most data of those that answer."""
        return max(self.states.values(), key=measure)


def _knows_its_members(state: ReplicationState) -> bool:
    if any(address != state.address for address in state.members):
        return True
    # One that was configured as the master, knows nobody and has heard of no other master never had a slave; a slave
    # that knows nobody has forgotten, and so has a master that was replaced.
    return state.configured_id == 0 and state.epoch <= measure(state).epoch


def find_objections(situation: Situation, target: str) -> list[str]:
    """Why a member should not become the master; each says what may be lost or cannot be known."""
    chosen = situation.states[target]
    master = situation.master
    if chosen.claimed_epoch > find_highest_epoch(situation.states):
        return [
            f"a name server has heard of a master of epoch {chosen.claimed_epoch}, and no member that answers knows it:"
            " if there is one, what it has would be lost"
        ]
    if master is not None and master.address != target:
        return _object_to_orderly(chosen, master)
    if master is not None and find_highest_epoch(situation.states) <= measure(chosen).epoch:
        return []  # it was the last one to acknowledge anything
    found = _find_live_master(situation)
    found += _find_silent(situation)
    best = situation.best
    if measure(best) > measure(chosen):
        found.append(_compare(best, chosen))
    return found


def _object_to_orderly(chosen: ReplicationState, master: ReplicationState) -> list[str]:
    """The master is here and steps down; only a slave that copies from it can have all it has."""
    followed = chosen.master
    if followed is None or not followed.connected or followed.address != master.address:
        behind = master.tail - chosen.tail
        return [
            f"{chosen.address} does not copy from the master {master.address} now, and lacks {max(behind, 0)} bytes:"
            " what it lacks would be lost"
        ]
    return []


def _find_live_master(situation: Situation) -> list[str]:
    """A master that a slave still hears is alive, though we cannot reach it."""
    java = situation.java_master
    if java is not None:
        return [
            f"the master {java} is a Java broker and cannot be told to step down: it would go on taking messages, which"
            " would be lost; stop it first"
        ]
    return [
        f"the master {state.master.address} does not answer here, but {state.address} still hears from it: it is alive"
        for state in situation.states.values()
        if state.master is not None and state.master.connected and state.master.address not in situation.states
    ][:1]


def _find_silent(situation: Situation) -> list[str]:
    """Are those that do not answer enough to have acknowledged something among themselves?"""
    answer, count, copies = len(situation.states), situation.count, situation.copies
    if count is None:
        return ["nobody knows how many members there are, so what those that do not answer have cannot be known"]
    needed = count - copies + 1
    if answer >= needed:
        return []
    mode = situation.mode
    silent = sorted(situation.known - situation.states.keys())
    who = f" ({', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not)" if silent else ""
    if mode is None:
        how = "nobody has heard of the last master, so whether it waited for slaves cannot be known"
    elif not mode[0]:
        how = "the master does not wait for its slaves (ASYNC_MASTER), so what it acknowledged last only it may have"
    else:
        how = f"a message is acknowledged when {copies} members have it"
    return [f"{answer} of {count} members answer{who}, and at least {needed} must: {how}"]


def _compare(best: ReplicationState, chosen: ReplicationState) -> str:
    more, less = measure(best), measure(chosen)
    what = f"{more.end - less.end} bytes" if more.epoch == less.epoch else f"all since epoch {less.epoch} ended"
    return (
        f"{best.address} has more of the log (epoch {more.epoch}, up to {more.end}) than {chosen.address} (epoch"
        f" {less.epoch}, up to {less.end}): {what} would be lost; promote {best.address} instead"
    )


def find_successor(situation: Situation, master: ReplicationState) -> ReplicationState | None:
    """The slave that takes over from a master with the least to wait for: the one that has the most."""
    following = [
        state
        for state in situation.states.values()
        if state.role == SLAVE
        and state.master is not None
        and state.master.connected
        and state.master.address == master.address
    ]
    return max(following, key=measure, default=None)
