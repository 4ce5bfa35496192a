"""The current election as one member sees it: since when it runs, and when it is this member's turn to claim."""

from __future__ import annotations

from eruca._core.failover.ballot import list_published, rank
from eruca._core.failover.rules import Rules
from eruca._core.failover.view import StateEntry, View


class Turn:
    """Waits for members that may still publish, and then for those that rank before this one."""

    def __init__(self, member: int, rules: Rules) -> None:
        self._member = member
        self._rules = rules
        # The revision of `state`, and when its election began for us.
        self._revision: int | None = None
        self._began = 0.0
        # When every member had published, and the revisions of the keys that rank before ours.
        self._ready_at: float | None = None
        self._ahead: frozenset[int] = frozenset()

    def end(self) -> None:
        """Forget the election: it is over."""
        self._revision = None

    def begin(self, revision: int, now: float) -> float:
        """Return when the election of a state's revision began; it begins now if it is another one."""
        if self._revision != revision:
            self._revision, self._began = revision, now
            self._ready_at, self._ahead = None, frozenset()
        return self._began

    def is_mine(self, view: View, state: StateEntry, now: float) -> bool:
        """Return whether this member, which has published, may claim now."""
        began = self.begin(state.revision, now)
        published = list_published(view, state)
        if self._ready_at is None:
            missing = state.in_sync - {member.member for member in published}
            # Members that saw the last master vanish know who is alive; members that all just started do not.
            are_cold = all(member.is_cold for member in published)
            waits_for = missing if are_cold else missing & view.members.keys()
            patience = self._rules.cold_s if are_cold else self._rules.election_s
            if waits_for and now < began + patience:
                return False
            self._ready_at = now
        candidates = rank(published, state)
        before = candidates[: candidates.index(self._member)]
        ahead = frozenset(view.members[member].revision for member in before)
        if ahead - self._ahead:
            # A member that published late, or again because its lease had expired, gets the same time to claim.
            self._ready_at = now
        self._ahead = ahead
        return now >= self._ready_at + len(before) * self._rules.takeover_s
