"""One topic: queues, groups, traffic, routes, producers, and for how long its messages are kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from eruca._admin.clients import ProducerClient
from eruca._admin.queueends import QueueEnds
from eruca._admin.rates import Rate
from eruca._admin.results import Problem
from eruca._admin.routes import ServerRoute
from eruca._admin.topics import Topic, TopicTraffic
from eruca._console.clusters import Cluster
from eruca._ground.digits import read_digits

QUEUES_MAX = 2_000
GROUPS_MAX = 100
PRODUCERS_MAX = 1_000
# With fewer messages an uneven distribution means nothing.
_SKEWED_MIN = 1_000
_HOURS_KEY, _WHEN_KEY = "fileReservedTime", "deleteWhen"


class TopicGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that reads a topic."""

    group: str
    lag: int
    lag_time: timedelta | None
    queues: int
    consumed_at: datetime | None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a broker keeps messages, and the oldest it has of a topic."""

    broker: str
    hours: int | None
    delete_when: str


class TopicDetail(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page of a topic shows."""

    topic: Topic
    traffic: TopicTraffic
    retention: list[Retention]
    first_at: datetime | None
    last_at: datetime | None
    problems: list[Problem]

    @property
    def rate_in(self) -> float:
        """Messages per second that were stored in the last minute."""
        return sum(each.minute_rate for each in self.traffic.stored)

    @property
    def rate_out(self) -> float:
        """Messages per second that all groups got in the last minute."""
        return sum(each.minute_rate for each in self.traffic.consumed)

    @property
    def bytes_in(self) -> float:
        """Bytes per second that were stored in the last minute."""
        return sum(each.minute_rate for each in self.traffic.stored_bytes)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What was stored, or what one group got: sums and rates of all brokers."""

    who: str
    is_group: bool
    minute: int
    minute_rate: float
    hour: int
    hour_rate: float
    day: int
    day_rate: float


async def read_detail(cluster: Cluster, topic: str) -> TopicDetail:
    """Return all about a topic. Raises NoRoute if no broker has it."""
    admin = cluster.admin
    found, traffic, retention = await asyncio.gather(
        admin.topics.show(topic, limit=QUEUES_MAX), admin.topics.traffic(topic), read_retention(cluster)
    )
    brokers = {each.broker for each in found.brokers}
    first = [queue.first_at for queue in found.queues if queue.first_at is not None]
    last = [queue.last_at for queue in found.queues if queue.last_at is not None]
    problems = {(each.where, each.error): each for each in [*found.problems, *traffic.problems]}
    return TopicDetail(
        topic=found,
        traffic=traffic,
        retention=[each for each in retention if each.broker in brokers],
        first_at=min(first, default=None),
        last_at=max(last, default=None),
        problems=list(problems.values()),
    )


async def read_retention(cluster: Cluster) -> list[Retention]:
    """Return how long each broker keeps messages."""
    configs = await cluster.recent.ask("brokers.config", cluster.admin.brokers.config, fresh_s=10.0)
    return [
        Retention(
            broker=each.where,
            hours=read_digits(each.options.get(_HOURS_KEY)),
            delete_when=each.options.get(_WHEN_KEY, ""),
        )
        for each in configs.items
    ]


async def read_groups(
    cluster: Cluster, topic: str, groups: Sequence[str]
) -> tuple[list[TopicGroup], bool, list[Problem]]:
    """Return how far each group of a topic is behind in it, and whether some of them, or of their queues, were cut.

    Groups without offsets have none.
    """
    names = list(groups[:GROUPS_MAX])
    if not names:
        return [], False, []
    lags = await cluster.admin.offsets.lag(names, [topic], limit=QUEUES_MAX * 4)
    rows: dict[str, list[TopicGroup]] = defaultdict(list)
    for each in lags.items:
        rows[each.group].append(
            TopicGroup(group=each.group, lag=each.lag, lag_time=each.lag_time, queues=1, consumed_at=each.consumed_at)
        )
    return [_join(name, rows.get(name, [])) for name in names], lags.cut or len(groups) > len(names), lags.problems


def _join(group: str, rows: Sequence[TopicGroup]) -> TopicGroup:
    waits = [row.lag_time for row in rows if row.lag_time is not None]
    times = [row.consumed_at for row in rows if row.consumed_at is not None]
    return TopicGroup(
        group=group,
        lag=sum(row.lag for row in rows),
        lag_time=max(waits, default=None),
        queues=len(rows),
        consumed_at=max(times, default=None),
    )


def list_traffic(traffic: TopicTraffic) -> list[Traffic]:
    """Return one row for what was stored, and one for each group."""
    by_group: dict[str, list[Rate]] = defaultdict(list)
    for each in traffic.consumed:
        by_group[each.key.partition("@")[2]].append(each)
    return [
        _sum("", traffic.stored),
        *(_sum(group, rates) for group, rates in sorted(by_group.items())),
    ]


def _sum(who: str, rates: Sequence[Rate]) -> Traffic:
    return Traffic(
        who=who,
        is_group=bool(who),
        minute=sum(each.minute_sum for each in rates),
        minute_rate=sum(each.minute_rate for each in rates),
        hour=sum(each.hour_sum for each in rates),
        hour_rate=sum(each.hour_rate for each in rates),
        day=sum(each.day_sum for each in rates),
        day_rate=sum(each.day_rate for each in rates),
    )


async def read_routes(cluster: Cluster, topic: str) -> tuple[list[ServerRoute], bool, list[Problem]]:
    """Return the route that each name server has, and whether all have the same."""
    found = await cluster.admin.routes.compare(topic)
    is_same = all(each.route == found.items[0].route for each in found.items[1:])
    return found.items, is_same, found.problems


async def read_producers(cluster: Cluster) -> tuple[list[ProducerClient], bool, list[Problem]]:
    """Return the connected producers of all topics: brokers do not know which topics a producer sends to."""
    found = await cluster.recent.ask("producers", lambda: cluster.admin.clients.producers(limit=PRODUCERS_MAX))
    return found.items, found.cut, found.problems


def find_skew(queues: Sequence[QueueEnds]) -> float:
    """Return how many times the mean the fullest queue has; 1.0 is even, and so are a few messages."""
    counts = [queue.count for queue in queues]
    if sum(counts) < _SKEWED_MIN:
        return 1.0
    return max(counts) * len(counts) / sum(counts)
