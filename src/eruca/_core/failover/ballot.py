"""Evaluating an election: who takes part, in which order they may claim, and what the winner writes."""

from __future__ import annotations

from dataclasses import replace

from eruca._core.failover.view import FOUNDING, MemberEntry, StateEntry, View
from eruca._core.replication.numbering import count_promotion

_FOUNDING_TROUBLE = (
    "etcd has no state, but there were masters before: did etcd lose its data? %s; `eruca cluster promote --force`"
    " promotes the member of your choice as it is, ideally the one with the longest log"
)


def carry_state(view: View, before: View | None) -> View:
    """A view in which a damaged state is replaced by its previous value, when no other change came in between.

    The damaged change does not count as made: the member that made it acknowledges nothing without those that had to
    have everything before, until it has read back from etcd what it wrote.
    """
    state, last = view.state, before.state if before is not None else None
    if state is None or last is None or not state.is_damaged:
        return view
    if last.version not in (state.version, state.version - 1):
        return view
    return replace(view, state=replace(state, epoch=last.epoch, in_sync=last.in_sync))


def list_published(view: View, state: StateEntry) -> list[MemberEntry]:
    """The members of the set that have published the end of their log for this election."""
    return [m for m in view.members.values() if m.member in state.in_sync and m.round == state.revision]


def is_outdated(own: MemberEntry, round_now: int) -> bool:
    """Is a member's key for another round? A key for a founding must not exist when etcd is founded again."""
    return own.round != round_now and (round_now != 0 or own.round == FOUNDING)


def has_log(entry: MemberEntry, state: StateEntry) -> bool:
    """Does a member of the set have a log that belongs to the set: one that was written in some epoch?

    Every member of the set had an epoch in its log, except the very first master before it recorded its first.
    """
    is_first = state.epoch == count_promotion(0, entry.member) and state.in_sync == {entry.member}
    return entry.epoch > 0 or is_first


def rank(published: list[MemberEntry], state: StateEntry) -> list[int]:
    """The ids of the candidates, best first: by the latest epoch, then the most data, then the lowest id."""
    candidates = [member for member in published if has_log(member, state)]
    return [m.member for m in sorted(candidates, key=lambda m: (-m.epoch, -m.position, m.member))]


def choose_epoch(view: View, winner: int) -> int:
    """An epoch later than any that a living member has heard of.

    It is numbered as a promotion, so that a member started by mistake without the election, which counts up from
    the epoch it knows, does not get the same number.
    """
    heard = [epoch for member in view.members.values() for epoch in (member.epoch, member.seen)]
    return count_promotion(max(view.state.epoch if view.state is not None else 0, *heard), winner)


def keep_living(view: View, state: StateEntry, winner: int, required: int) -> frozenset[int]:
    """The set of the new epoch: without members that have no living key, unless too few would be left."""
    living = frozenset({winner}) | (state.in_sync & view.members.keys())
    return living if len(living) >= required else state.in_sync


def judge_founding(view: View) -> tuple[MemberEntry | None, str]:
    """Choose the member that creates the state again when etcd has none although members have logs: etcd lost its data.

    No one can be asked who had everything. But a master had everything that was acknowledged in its epoch. So when all
    members that any of them ever met are present, the one with the latest epoch has it all, unless some member has
    heard of an epoch that is in no log. Returns that member, or None and the reason there is none.
    """
    members = view.members.values()
    missing = frozenset().union(*(m.known for m in members)) - {m.address for m in members}
    if missing:
        return None, _FOUNDING_TROUBLE % f"waiting for the members at {', '.join(sorted(missing))}, which may have more"
    if len({m.store for m in members if m.store}) > 1:
        named = ", ".join(f"{m.address} ({m.store[:8]})" for m in members if m.store)
        return None, _FOUNDING_TROUBLE % f"the members have different stores: {named}"
    best = max(members, key=lambda m: (m.epoch, m.position, -m.member))
    if max(m.seen for m in members) > best.epoch:
        highest = max(m.seen for m in members)
        return None, _FOUNDING_TROUBLE % f"epoch {highest} has existed, but no member has its log"
    return best, ""


def find_revisions(view: View, state: StateEntry) -> tuple[tuple[int, int], ...]:
    """The revisions of the keys of the set's members; 0 for a member without a key."""
    members = view.members
    return tuple((number, members[number].revision if number in members else 0) for number in sorted(state.in_sync))
