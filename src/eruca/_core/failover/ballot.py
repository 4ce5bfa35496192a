"""Counting an election: who takes part, in which order they may claim, and what the winner writes."""

from __future__ import annotations

from dataclasses import replace

from eruca._core.failover.view import FOUNDING, MemberEntry, StateEntry, View
from eruca._core.replication.numbering import count_promotion

_FOUNDING_TROUBLE = (
    "etcd has no state, but there were masters before: did etcd lose its data? %s; `eruca cluster promote --force`"
    " takes the member of your choice as it is, best the one with the longest log"
)


def carry_state(view: View, before: View | None) -> View:
    """A view in which a damaged state says what it said before, when no other change came in between.

    The change that was damaged does not count as made: whoever wanted it acknowledges nothing without those who had to
    have everything before, until it has read in etcd what it wrote.
    """
    state, last = view.state, before.state if before is not None else None
    if state is None or last is None or not state.is_damaged:
        return view
    if last.version not in (state.version, state.version - 1):
        return view
    return replace(view, state=replace(state, epoch=last.epoch, in_sync=last.in_sync))


def list_published(view: View, state: StateEntry) -> list[MemberEntry]:
    """The members of the set that have said for this election where their log ends."""
    return [m for m in view.members.values() if m.member in state.in_sync and m.round == state.revision]


def is_outdated(own: MemberEntry, round_now: int) -> bool:
    """Whether a member's key is for another round; one for a founding must not be there when etcd is founded again."""
    return own.round != round_now and (round_now != 0 or own.round == FOUNDING)


def has_log(entry: MemberEntry, state: StateEntry) -> bool:
    """Whether a member of the set has a log that the set can mean: one that was written in some epoch.

    Whoever got into the set had an epoch in its log, but for the very first master before it wrote down its first.
    """
    is_first = state.epoch == count_promotion(0, entry.member) and state.in_sync == {entry.member}
    return entry.epoch > 0 or is_first


def rank(published: list[MemberEntry], state: StateEntry) -> list[int]:
    """The ids of the candidates, the best first: the latest epoch, in it the most data, in that the lowest id."""
    candidates = [member for member in published if has_log(member, state)]
    return [m.member for m in sorted(candidates, key=lambda m: (-m.epoch, -m.position, m.member))]


def choose_epoch(view: View, winner: int) -> int:
    """An epoch that is later than any that a living member has heard of.

    It is numbered as a promotion, so that a member that is started without the election by mistake, and counts on from
    what it knows, does not come to the same number.
    """
    heard = [epoch for member in view.members.values() for epoch in (member.epoch, member.seen)]
    return count_promotion(max(view.state.epoch if view.state is not None else 0, *heard), winner)


def keep_living(view: View, state: StateEntry, winner: int, required: int) -> frozenset[int]:
    """The set of the new epoch: without those who have no living key, unless too few would be left."""
    living = frozenset({winner}) | (state.in_sync & view.members.keys())
    return living if len(living) >= required else state.in_sync


def judge_founding(view: View) -> tuple[MemberEntry | None, str]:
    """Who makes the state anew when etcd has none, though members have logs: etcd lost its data.

    Nobody can be asked who had everything. But whoever was the master had everything that was acknowledged in its
    epoch, so when all are here that any of them ever met, the one with the latest epoch has it, unless an epoch was
    heard of that none of the logs has. Returns that one, or None and why there is none.
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
        return None, _FOUNDING_TROUBLE % f"epoch {highest} was heard of, and no member has its log"
    return best, ""


def find_revisions(view: View, state: StateEntry) -> tuple[tuple[int, int], ...]:
    """When the members of the set were last heard of; 0: they have no key."""
    members = view.members
    return tuple((number, members[number].revision if number in members else 0) for number in sorted(state.in_sync))
