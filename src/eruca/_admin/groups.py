"""Groups: list, show with members, owners and lag, create, change, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.messages import StoredMessage
from eruca._admin.results import LIMIT, Changed, Listed, Problem


class GroupName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a group."""

    name: str
    # Whether a broker has settings of it, and whether one has offsets of it.
    has_settings: bool
    has_offsets: bool


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group on one broker."""

    consume: bool = True
    consume_from_min: bool = True
    broadcast: bool = True
    retry_queues: int = 1
    # How many times a message is delivered again before it becomes a dead letter.
    retries: int = 16
    # The broker to read from, and the one for members that are far behind.
    broker_id: int = 0
    slow_broker_id: int = 1
    # Whether members hear at once that others come and go.
    notify: bool = True


class GroupOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A group on one broker."""

    broker: str
    address: str
    settings: GroupSettings


class Subscribed(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription of a group or of one member."""

    topic: str
    # The expression, and its kind: TAG or SQL92.
    expression: str
    kind: str = "TAG"


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A connected member of a group."""

    client_id: str
    # Its address as a broker sees it.
    address: str
    language: str
    # `4.9.7`.
    version: str
    # The brokers it is connected to.
    brokers: list[str]


class GroupQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in one queue, and who works on it."""

    topic: str
    broker: str
    queue: int
    # None: the group has no offset here.
    offset: int | None
    end: int
    lag: int
    # How long the next message to consume has been waiting; None if there is none, or if it is unknown.
    lag_time: timedelta | None = None
    # When the last message it consumed was stored.
    consumed_at: datetime | None = None
    # The client id of the member that has the queue; empty if no member has it, or if members do not tell.
    owner: str = ""
    # The message the group is stuck on: the next to consume, if it has not been consumed.
    stuck_on: StoredMessage | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that is not the same in all members of a group; messages are lost or wait because of it."""

    topic: str
    # The subscription of each member by client id; None: the member is not subscribed.
    by_member: dict[str, Subscribed | None]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All about one group."""

    name: str
    brokers: list[GroupOnBroker]
    members: list[GroupMember]
    subscriptions: list[Subscribed]
    queues: list[GroupQueue]
    differences: list[Difference]
    # `clustering` or `broadcasting`, `push` or `pull`, and where it starts without offsets; empty without members.
    model: str = ""
    kind: str = ""
    start: str = ""
    lag: int = 0
    # The longest wait of all queues.
    lag_time: timedelta | None = None
    # How many dead letters it has.
    dead_letters: int = 0
    # Messages per second that its members got in the last minute.
    rate: float = 0.0
    # Whether there are more queues or members than the limit.
    cut: bool = False
    problems: list[Problem] = []


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The age of the messages of one queue, and how late a group is in it."""

    topic: str
    broker: str
    queue: int
    first_at: datetime | None
    last_at: datetime | None
    consumed_at: datetime | None
    delay: timedelta


class Groups:
    """`admin.groups`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(
        self, prefix: str = "", *, topic: str | None = None, system: bool = False, limit: int = LIMIT
    ) -> Listed[GroupName]:
        """Return the groups that brokers know or hold offsets of, in the order of their names.

        With `topic`, those that are subscribed to it or have offsets in it. With `system`, the brokers' own too.
        """
        raise NotImplementedError

    async def show(self, group: str, *, topic: str | None = None, limit: int = LIMIT) -> Group:
        """Return members, subscriptions and progress of a group: in all topics, or in one.

        Raises NoRoute if no broker knows it.
        """
        raise NotImplementedError

    async def members(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a group."""
        raise NotImplementedError

    async def subscriptions(self, group: str, *, limit: int = LIMIT) -> Listed[Subscribed]:
        """Return the subscriptions of a group, as its members last reported them."""
        raise NotImplementedError

    async def differences(self, group: str) -> Listed[Difference]:
        """Return the subscriptions in which members of a group differ. Each member is asked for its own."""
        raise NotImplementedError

    async def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedGroupSettings]:
        """Return the settings of groups on each broker."""
        raise NotImplementedError

    async def time_spans(self, group: str, topic: str, *, limit: int = LIMIT) -> Listed[TimeSpan]:
        """Return the age of the messages of a topic, and how late a group is in each queue."""
        raise NotImplementedError

    # -- changing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        group: str,
        *,
        consume: bool = True,
        consume_from_min: bool = True,
        broadcast: bool = True,
        retry_queues: int = 1,
        retries: int = 16,
        broker_id: int = 0,
        slow_broker_id: int = 1,
        notify: bool = True,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Create a group on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        raise NotImplementedError

    async def update(
        self,
        group: str,
        *,
        consume: bool | None = None,
        consume_from_min: bool | None = None,
        broadcast: bool | None = None,
        retry_queues: int | None = None,
        retries: int | None = None,
        broker_id: int | None = None,
        slow_broker_id: int | None = None,
        notify: bool | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Change settings of a group on the brokers that have it; those that are None stay. Raises NoRoute."""
        raise NotImplementedError

    async def delete(
        self,
        group: str,
        *,
        offsets: bool = True,
        topics: bool = True,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Delete a group, by default with its offsets, its retry topic and its dead letters.

        Raises ConfigError while members are connected, and NoRoute if no broker has it.
        """
        raise NotImplementedError


class NamedGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one group on one broker."""

    group: str
    broker: str
    settings: GroupSettings
