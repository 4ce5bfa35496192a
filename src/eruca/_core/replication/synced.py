"""Whether there are enough copies of the log: the condition for a SYNC_MASTER's acknowledgements.

It works on positions, never on messages: a message is replicated when `confirmed` is at or after its end.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# Beyond any log: the confirmed position when no copy is required.
EVERYTHING: Final = (1 << 63) - 1


class SyncCondition:
    """What the slaves of a master have reported, and what that confirms."""

    def __init__(self, required: int, behind_max: int) -> None:
        """`required` counts copies, including the master's own. A slave further behind than `behind_max` is ignored."""
        self._required = required
        self.behind_max = behind_max
        self._reported: dict[Hashable, int] = {}
        # The member at the other end of a link, for links that know it; a member has one link at a time.
        self._link_of: dict[Hashable, Hashable] = {}
        self._members: frozenset[Hashable] | None = None
        self._confirmed = 0
        self._safe = 0
        # What the slowest of the required slaves has; -1 when there are too few.
        self._nearest = -1
        self._advance()

    @property
    def confirmed(self) -> int:
        """The position before which there are enough copies of everything. It never decreases, even if slaves leave."""
        return EVERYTHING if self._required <= 1 and not self._members else self._confirmed

    @property
    def safe(self) -> int:
        """The position before which no change of master can take anything back.

        Where there is a set of members, only these may be the next master, however few they are: if it is empty,
        nothing can be taken back. Without such a set it is `confirmed`.
        """
        if self._members is None:
            return self.confirmed
        return self._safe if self._members else EVERYTHING

    @property
    def required(self) -> int:
        """Copies that a message needs, including the master's own."""
        return self._required

    @required.setter
    def required(self, required: int) -> None:
        if required != self._required:
            self._required = required
            self._advance()

    @property
    def members(self) -> frozenset[Hashable] | None:
        """The members that must all have a message, in addition to the count; None: there is no such set."""
        return self._members

    def set_members(self, members: frozenset[Hashable] | None) -> None:
        """Set which members must all have a message (without this broker); None or empty: only the count decides."""
        self._members = members
        self._advance()

    def add(self, link_id: Hashable, member: Hashable | None = None) -> None:
        """Add a slave; it counts from its first report on. A previous link of its member no longer counts."""
        if member is not None:
            before = self._link_of.get(member)
            if before is not None:
                self._reported.pop(before, None)
            self._link_of[member] = link_id
        self._reported[link_id] = -1
        self._advance()

    def remove(self, link_id: Hashable) -> None:
        """Remove a slave whose link ended."""
        self._reported.pop(link_id, None)
        self._link_of = {member: link for member, link in self._link_of.items() if link != link_id}
        self._advance()

    def report(self, link_id: Hashable, position: int) -> None:
        """A slave has everything before a position. Reports of unknown or replaced links are ignored."""
        if position > self._reported.get(link_id, EVERYTHING):
            self._reported[link_id] = position
            self._advance()

    def is_available(self, tail: int) -> bool:
        """Are enough slaves near enough that waiting for them makes sense? Called for every message."""
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
            # Too few members that may replace this master; waiting for other copies does not help.
            self._nearest = -1
        if self._members:
            reached = min(map(self._find_position, self._members))
            self._safe = max(self._safe, reached)
            enough = min(enough, reached)
        # Without a condition nothing was proven, and a condition may come back.
        if enough != EVERYTHING:
            self._confirmed = max(self._confirmed, enough)
