"""Clients: the producers and consumers connected to the brokers, and what they are doing."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.groupmembers import GroupMember, Subscribed
from eruca._admin.results import LIMIT, Listed


class ProducerClient(msgspec.Struct, frozen=True, kw_only=True):
    """One connected producer."""

    group: str
    client_id: str
    # Its address as the broker sees it.
    address: str
    language: str
    version: str
    broker: str
    # When the broker last heard of it; None if it does not tell.
    seen_at: datetime | None = None


class HeldQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer holds of one queue."""

    topic: str
    broker: str
    queue: int
    # The next offset it will commit.
    committed: int
    # Messages it has fetched and not finished, with the first and last offset.
    cached: int
    cached_from: int
    cached_to: int
    cached_mib: int
    # Ordered consumers: whether it holds the lock of the queue.
    locked: bool
    dropped: bool
    pulled_at: datetime | None
    consumed_at: datetime | None
    locked_at: datetime | None = None


class TopicPace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a consumer works on one topic."""

    topic: str
    # Messages per second, over the last minute.
    done_rate: float
    failed_rate: float
    failed_hour: int
    pull_rate: float
    # Mean time of handling and of pulling.
    handling_time: timedelta
    pull_time: timedelta


class RunningInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer is doing, as it reports it."""

    group: str
    client_id: str
    queues: list[HeldQueue]
    subscriptions: list[Subscribed]
    paces: list[TopicPace]
    # `PROP_CONSUME_TYPE` and others, as its client library names them.
    properties: dict[str, str]
    started_at: datetime | None = None
    # The stacks of its threads, if asked for.
    stack: str = ""


class ClientOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The offset that a member holds for one queue."""

    client_id: str
    topic: str
    broker: str
    queue: int
    offset: int


class Clients:
    """`admin.clients`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def producers(
        self, group: str | None = None, *, broker: str | None = None, limit: int = LIMIT
    ) -> Listed[ProducerClient]:
        """Return the connected producers: of all groups, or of one."""
        raise NotImplementedError

    async def consumers(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a consumer group."""
        raise NotImplementedError

    async def running(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """Return what a member of a group is doing. Raises RequestRefused if it is not connected or does not answer."""
        raise NotImplementedError

    async def stack(self, group: str, client_id: str) -> str:
        """Return the stacks of the threads of a member."""
        raise NotImplementedError

    async def offsets(
        self, group: str, topic: str, *, client_id: str | None = None, limit: int = LIMIT
    ) -> Listed[ClientOffset]:
        """Return the offsets that the members of a group hold, which they may not have committed yet."""
        raise NotImplementedError
