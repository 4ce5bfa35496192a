"""What a page needs, and what a user may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Need(IntEnum):
    """What a visitor has to be for a page; each includes those before it."""

    # Anyone, without log-in.
    PUBLIC = 0
    LOGGED_IN = 1
    VIEW = 2
    OPERATE = 3
    ADMIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Someone who is logged in."""

    name: str
    role: Need

    def may(self, need: Need, *, topic: str = "", group: str = "") -> bool:
        """Return whether the user may do this, to this topic or group if one is named."""
        return self.role >= need
