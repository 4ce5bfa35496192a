"""One look at a cluster: how far each group is behind, how fast it is, and how the brokers are."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class Trend(StrEnum):
    """What a group is doing, from two looks."""

    # Nothing waits and nothing happens.
    QUIET = "quiet"
    # Messages wait for a moment at most.
    CURRENT = "current"
    # It is behind, and gets closer.
    CATCHING_UP = "catching-up"
    # It is behind, and does not get closer.
    FALLING_BEHIND = "falling-behind"
    # Messages wait in a queue, and its offset does not move.
    STUCK = "stuck"
    # Messages wait, and no member is connected.
    ABSENT = "absent"

    @property
    def rank(self) -> int:
        """0 for the mildest; for sorting."""
        return list(Trend).index(self)


class Still(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose offset does not move although messages wait."""

    topic: str
    broker: str
    queue: int
    # For how many seconds; it may be longer, if the watch began in this state.
    seconds: float
    is_minimum: bool = False

    @property
    def name(self) -> str:
        """Topic, broker and queue as one word."""
        return f"{self.topic} {self.broker}:{self.queue}"


class GroupSample(msgspec.Struct, frozen=True, kw_only=True):
    """A group at one moment."""

    group: str
    lag: int
    # How long the message that has been waiting longest has been there, in seconds; None if nothing waits, or unknown.
    age: float | None = None
    # Messages per second that were stored for it and that it consumed since the last look; None at the first look.
    incoming: float | None = None
    outgoing: float | None = None
    queues: int = 0
    behind: int = 0
    topics: tuple[str, ...] = ()
    trend: Trend = Trend.QUIET
    # The queue that has not moved for longest.
    still: Still | None = None
    # How many members are connected; None if not asked: only groups that do not move are asked for their members.
    members: int | None = None


class BrokerSample(msgspec.Struct, frozen=True, kw_only=True):
    """A broker at one moment."""

    broker: str
    # Messages per second in and out.
    incoming: float | None = None
    outgoing: float | None = None
    # How full the fuller of its disks is, 0 to 1.
    disk: float | None = None
    # Since when it has not answered; None if it does.
    gone_since: datetime | None = None


class SlaveSample(msgspec.Struct, frozen=True, kw_only=True):
    """A slave at one moment."""

    # Name and id: `broker-a:1`.
    slave: str
    connected: bool
    lag_bytes: int
    lag_seconds: float | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment."""

    cluster: str
    at: datetime
    # How long the look took, and the time until the next one, in seconds.
    took: float = 0.0
    next_in: float = 0.0
    groups: dict[str, GroupSample] = {}
    brokers: list[BrokerSample] = []
    slaves: list[SlaveSample] = []
    # No broker was silent; and, for `complete`, no row was cut either.
    groups_known: bool = True
    groups_complete: bool = True
    brokers_complete: bool = True
    slaves_complete: bool = True
    problems: list[str] = []
