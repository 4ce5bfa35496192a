"""When enough copies of the log are there: the condition on a SYNC_MASTER's acknowledgements.

It works on positions, never on messages: a message is replicated when `confirmed` is at or behind its end.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# Further than any log: what is confirmed when no copy is asked for.
EVERYTHING: Final = (1 << 63) - 1


class SyncCondition:
    """What the slaves of a master have reported, and what follows from it."""

    def __init__(self, required: int, behind_max: int) -> None:
        """`required` counts copies, the master's own too. A slave further behind than `behind_max` is no slave."""
        self._required = required
        self.behind_max = behind_max
        self._reported: dict[Hashable, int] = {}
        # Which member is at the other end of a link, for links that know; a member has one link at a time.
        self._link_of: dict[Hashable, Hashable] = {}
        self._members: frozenset[Hashable] | None = None
        self._confirmed = 0
        self._safe = 0
        # What the last of those slaves has that are needed; -1 when they are too few.
        self._nearest = -1
        self._advance()

    @property
    def confirmed(self) -> int:
        """The position before which everything is on enough copies. It never falls, whoever leaves."""
        return EVERYTHING if self._required <= 1 and not self._members else self._confirmed

    @property
    def safe(self) -> int:
        """The position before which no change of the master takes anything back.

        Where members are named, only these may be the next master, however few they are: with nobody named nothing can
        be taken back. Without such a set it is `confirmed`.
        """
        if self._members is None:
            return self.confirmed
        return self._safe if self._members else EVERYTHING

    @property
    def required(self) -> int:
        """Copies that a message needs, the master's own included."""
        return self._required

    @required.setter
    def required(self, required: int) -> None:
        if required != self._required:
            self._required = required
            self._advance()

    @property
    def members(self) -> frozenset[Hashable] | None:
        """The members that must all have a message, beside the count; None: there is no such set."""
        return self._members

    def set_members(self, members: frozenset[Hashable] | None) -> None:
        """Say which members must all have a message (without this broker); None or nobody: the count alone decides."""
        self._members = members
        self._advance()

    def add(self, link_id: Hashable, member: Hashable | None = None) -> None:
        """Take a slave in; it counts from its first report on. A link that its member had before counts no more."""
        if member is not None:
            before = self._link_of.get(member)
            if before is not None:
                self._reported.pop(before, None)
            self._link_of[member] = link_id
        self._reported[link_id] = -1
        self._advance()

    def remove(self, link_id: Hashable) -> None:
        """Forget a slave whose link ended."""
        self._reported.pop(link_id, None)
        self._link_of = {member: link for member, link in self._link_of.items() if link != link_id}
        self._advance()

    def report(self, link_id: Hashable, position: int) -> None:
        """A slave has everything before a position. Links that were not added, or are replaced, are not believed."""
        if position > self._reported.get(link_id, EVERYTHING):
            self._reported[link_id] = position
            self._advance()

    def is_available(self, tail: int) -> bool:
        """Say whether enough slaves are near enough that waiting for them makes sense. Every message asks this."""
        return self._nearest >= 0 and tail - self._nearest < self.behind_max

    def _find_position(self, member: Hashable) -> int:
        return self._reported.get(self._link_of.get(member), -1)

    def _advance(self) -> None:
        enough = EVERYTHING
        copies = self._required - 1
        if copies > 0:
            ranked = sorted(self._reported.values(), reverse=True)
            enough = ranked[copies - 1] if len(ranked) >= copies else -1
        self._nearest = enough
        if self._members is not None and len(self._members) < copies:
            # Too few that may replace this master; what others copy is no reason to wait.
            self._nearest = -1
        if self._members:
            reached = min(map(self._find_position, self._members))
            self._safe = max(self._safe, reached)
            enough = min(enough, reached)
        # Without any condition nothing was proven, and a condition may come back.
        if enough != EVERYTHING:
            self._confirmed = max(self._confirmed, enough)
