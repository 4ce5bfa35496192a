"""Topics: list, show, create, change, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import LIMIT, Changed, Listed, Problem
from eruca._wire.bodies import MessageQueue
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic


class TopicKind(StrEnum):
    """What a topic is for."""

    NORMAL = "normal"
    # Messages that a group will get again, and those it gave up on.
    RETRY = "retry"
    DLQ = "dlq"
    # Brokers use it themselves, or it is the name of a broker or a cluster.
    SYSTEM = "system"


class TopicName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a topic and what it is for."""

    name: str
    kind: TopicKind


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic on one broker."""

    read_queues: int
    write_queues: int
    # `RW`, `R` (no new messages), `W` or `-`; an `X` after it: topics created automatically are like this one.
    permission: str = "RW"
    # Name servers report queues of brokers that are away too, so that the order of messages is kept.
    ordered: bool = False
    filter_type: str = "SINGLE_TAG"
    # 1: of a unit, 2: subscribed by a unit.
    system_flag: int = 0


class TopicOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A topic on one broker."""

    broker: str
    address: str
    settings: TopicSettings


class QueueEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of one queue."""

    topic: str
    broker: str
    queue: int
    # The offset of the first message, and the offset that the next message gets.
    begin: int
    end: int
    # When the first message was stored (only `show` reads it), and the last; None if there is none.
    first_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def count(self) -> int:
        """How many messages the queue has."""
        return max(0, self.end - self.begin)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """All about one topic."""

    name: str
    kind: TopicKind
    brokers: list[TopicOnBroker]
    queues: list[QueueEnds]
    # The groups that are connected or have offsets.
    groups: list[str]
    # `broker-a:4;broker-b:4` if it is ordered across brokers.
    order: str = ""
    # Whether there are more queues than the limit.
    cut: bool = False
    problems: list[Problem] = []

    @property
    def count(self) -> int:
        """How many messages the listed queues have."""
        return sum(queue.count for queue in self.queues)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A counter of one broker: sums and rates over the last minute, hour and day."""

    broker: str
    # A counter of Java's, for example TOPIC_PUT_NUMS, and its key, for example the topic.
    name: str
    key: str
    minute_sum: int
    minute_rate: float
    # The mean of a single event, for example its bytes or milliseconds.
    minute_mean: float
    hour_sum: int
    hour_rate: float
    hour_mean: float
    day_sum: int
    day_rate: float
    day_mean: float


class TopicTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a topic and out of it: messages and bytes, by broker and by group."""

    topic: str
    stored: list[Rate]
    stored_bytes: list[Rate]
    # By group, the key is `topic@group`.
    consumed: list[Rate]
    problems: list[Problem] = []


class Topics:
    """`admin.topics`"""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(
        self,
        prefix: str = "",
        *,
        kind: TopicKind | str = TopicKind.NORMAL,
        cluster: str | None = None,
        limit: int = LIMIT,
    ) -> Listed[TopicName]:
        """Return the topics of a kind (`normal`, `retry`, `dlq`, `system` or `all`), in the order of their names."""
        raise NotImplementedError

    async def show(self, topic: str, *, limit: int = LIMIT) -> Topic:
        """Return settings, queues and groups of a topic. Raises NoRoute if no broker has it."""
        raise NotImplementedError

    async def queues(self, topic: str, *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the ends of a topic's queues. Raises NoRoute if no broker has it."""
        raise NotImplementedError

    async def groups(self, topic: str, *, limit: int = LIMIT) -> Listed[str]:
        """Return the groups that are subscribed to a topic now or have offsets in it."""
        raise NotImplementedError

    async def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedSettings]:
        """Return the settings of topics on each broker, as the brokers have them."""
        raise NotImplementedError

    async def traffic(self, topic: str) -> TopicTraffic:
        """Return the rates at which a topic is written and read."""
        raise NotImplementedError

    async def unused(self, *, limit: int = LIMIT) -> Listed[TopicName]:
        """Return normal topics that have no message and that no group is subscribed to or has offsets in."""
        raise NotImplementedError

    # -- changing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str = "RW",
        ordered: bool = False,
        system_flag: int = 0,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Create a topic on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        raise NotImplementedError

    async def update(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str | None = None,
        ordered: bool | None = None,
        system_flag: int | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Change settings of a topic on the brokers that have it; those that are None stay. Raises NoRoute."""
        raise NotImplementedError

    async def set_permission(
        self,
        topic: str,
        permission: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Set who may use a topic: `RW`, `R` (consumers go on, producers are refused), `W` or `-`."""
        raise NotImplementedError

    async def delete(
        self,
        topic: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Delete a topic with its messages, on all brokers, on those of a cluster, or on the named ones.

        Creating it again does not bring the messages back. Raises NoRoute if no broker has it.
        """
        raise NotImplementedError


class NamedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one topic on one broker."""

    topic: str
    broker: str
    settings: TopicSettings


def find_kind(topic: str) -> TopicKind:
    """Return what a topic is for, by its name."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    return TopicKind.SYSTEM if is_system_topic(topic) else TopicKind.NORMAL


def name_queue(row: QueueEnds) -> MessageQueue:
    """Return the queue of a row."""
    return MessageQueue(row.broker, row.queue, row.topic)
