"""Samples of a cluster: lines about groups, topics and brokers, with rates from the difference of two samples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from eruca._admin.admin import Admin
from eruca._admin.brokers import GroupProgress
from eruca._admin.lag import QueueLag
from eruca._admin.members import Lag, Member
from eruca._admin.results import Listed
from eruca._admin.runtime import Runtime
from eruca._admin.topics import TopicKind, find_kind
from eruca._wire.names import DLQ_PREFIX, RETRY_PREFIX
from eruca.errors import ErucaError

Item = TypeVar("Item")
Key = TypeVar("Key")

# Rates are means over this time: most clients commit their offsets every few seconds.
_WINDOW_S = 10.0
# Queues of all groups in one sample. A broker refuses to list more than 100,000.
_QUEUES_MAX = 200_000
# Topics that no group has offsets in: the ends of their queues are requested one by one.
_QUIET_TOPICS_MAX = 200
# Of a gap in the samples (a broker that was away), no rate is computed.
_GAP_S = 60.0


class Queue(NamedTuple):
    """One queue."""

    topic: str
    broker: str
    number: int


class BrokerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One broker."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    # MASTER, SLAVE, FENCED, JAVA, or empty if it does not answer.
    role: str
    # Messages per second over the last ten seconds.
    stored_rate: float | None = None
    fetched_rate: float | None = None
    # 0 to 1.
    disk: float | None = None
    log_bytes: int | None = None
    # How far this slave is behind its master.
    behind_bytes: int | None = None
    behind_seconds: float | None = None
    version: str = ""
    problem: str = ""


class GroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group."""

    group: str
    topics: int
    queues: int
    lag: int
    # Messages per second that arrive in its topics, and that it consumes; None in the first sample.
    arriving_rate: float | None = None
    consumed_rate: float | None = None
    # How much the lag grows per second; negative if it shrinks.
    growth: float | None = None
    # How long the next message of its slowest queue has been waiting, and its members; only for visible groups.
    lag_seconds: float | None = None
    members: int | None = None

    @property
    def seconds_left(self) -> float | None:
        """When it will have caught up at the present rates; None if never, or unknown."""
        return None if not self.lag or self.growth is None or self.growth >= 0 else self.lag / -self.growth


class TopicLine(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    queues: int
    groups: int
    # The longest lag of its groups.
    lag: int
    arriving_rate: float | None = None
    consumed_rate: float | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at one moment."""

    at: datetime
    # How long it took to take the sample.
    seconds: float
    brokers: list[BrokerLine]
    groups: list[GroupLine]
    topics: list[TopicLine]
    # Servers that did not answer, and what is not shown.
    problems: list[str]

    @property
    def stored_rate(self) -> float:
        """Messages per second that all brokers store."""
        return sum(line.stored_rate or 0.0 for line in self.brokers)

    @property
    def fetched_rate(self) -> float:
        """Messages per second that all brokers deliver."""
        return sum(line.fetched_rate or 0.0 for line in self.brokers)

    @property
    def lag(self) -> int:
        """How many messages wait for all groups."""
        return sum(line.lag for line in self.groups)


class _Reading(NamedTuple):
    """The offsets of one moment, for rates."""

    at: float
    ends: dict[Queue, int]
    offsets: dict[tuple[str, Queue], int]


class _Span(NamedTuple):
    """Two readings, between which rates are computed."""

    now: _Reading
    before: _Reading | None

    def rate_ends(self, queues: Iterable[Queue]) -> float | None:
        """Return how many messages per second arrive in some queues; None without an earlier reading."""
        return None if self.before is None else self._rate(self.now.ends, self.before.ends, queues)

    def rate_offsets(self, pairs: Iterable[tuple[str, Queue]]) -> float | None:
        """Return how many messages per second groups consume from some queues; None without an earlier reading."""
        return None if self.before is None else self._rate(self.now.offsets, self.before.offsets, pairs)

    def _rate(self, new: dict[Key, int], old: dict[Key, int], keys: Iterable[Key]) -> float | None:
        seconds = self.now.at - (self.before or self.now).at
        # An offset that was moved back is not a negative rate.
        return sum(max(0, new[key] - old[key]) for key in keys if key in old) / seconds if seconds > 0 else None


class Sampler:
    """Takes samples; remembers the offsets of the last seconds for rates."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._readings: deque[_Reading] = deque()
        self._problems: list[str] = []

    async def take(self, visible: Iterable[str] = ()) -> Sample:
        """Take a sample. Members and waiting times are added for the visible groups."""
        loop, begun, admin = asyncio.get_running_loop(), asyncio.get_running_loop().time(), self._admin
        self._problems = []
        names = list(visible)
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task
            runtime = start(self._list(admin.brokers.runtime()))
            members = start(self._list(admin.cluster.members()))
            slaves = start(self._list(admin.cluster.lag()))
            reading_groups = start(self._list(admin.brokers.consume_stats(limit=_QUEUES_MAX)))
            settings = start(self._list(admin.topics.settings(limit=_QUEUES_MAX)))
            lags = start(self._list(admin.offsets.lag(names) if names else _nothing()))
            connections = start(self._list(admin.groups.connections(names)))
        progress = reading_groups.result()
        queues: dict[str, int] = {}
        own = {name for row in members.result() for name in (row.broker, row.cluster)}
        for row in settings.result():
            if find_kind(row.topic, own) is not TopicKind.SYSTEM:
                queues[row.topic] = queues.get(row.topic, 0) + row.settings.read_queues
        reading = _Reading(
            loop.time(),
            {Queue(row.topic, row.broker, row.queue): row.end for row in progress},
            {(row.group, Queue(row.topic, row.broker, row.queue)): row.offset for row in progress},
        )
        await self._add_quiet_topics(reading, list(queues))
        span = _Span(reading, self._remember(reading))
        waits = _find_waits(lags.result())
        counts = {row.group: len({c.client_id for c in row.connections}) for row in connections.result()}
        asked = set(names)
        return Sample(
            at=datetime.now(UTC),
            seconds=loop.time() - begun,
            brokers=list_brokers(members.result(), runtime.result(), slaves.result()),
            groups=[
                msgspec.structs.replace(
                    line,
                    lag_seconds=waits.get(line.group, 0.0) if line.group in asked else None,
                    members=counts.get(line.group, 0) if line.group in asked else None,
                )
                for line in list_groups(progress, span)
            ],
            topics=list_topics(queues, progress, span),
            problems=sorted(set(self._problems)),
        )

    def _remember(self, reading: _Reading) -> _Reading | None:
        """Keep a reading; return the one to compare it with."""
        readings = self._readings
        if readings and reading.at - readings[-1].at > _GAP_S:
            readings.clear()
        while len(readings) > 1 and reading.at - readings[1].at >= _WINDOW_S:
            readings.popleft()
        before = readings[0] if readings else None
        readings.append(reading)
        return before

    async def _add_quiet_topics(self, reading: _Reading, topics: list[str]) -> None:
        """Request the ends of topics that no group consumes."""
        consumed = {queue.topic for queue in reading.ends}
        quiet = [name for name in topics if name not in consumed and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
        if len(quiet) > _QUIET_TOPICS_MAX:
            self._problems.append(f"no rates for {len(quiet) - _QUIET_TOPICS_MAX} topics without groups")
        rows = await self._list(self._admin.topics.ends(quiet[:_QUIET_TOPICS_MAX], limit=_QUEUES_MAX))
        reading.ends.update({Queue(row.topic, row.broker, row.queue): row.end for row in rows})

    async def _list(self, work: Coroutine[Any, Any, Listed[Item]]) -> list[Item]:
        """Return the rows of a part; what fails is a problem, and the rest is shown all the same."""
        try:
            listed = await work
        except ErucaError as error:
            self._problems.append(str(error))
            return []
        self._problems += [f"{problem.where}: {problem.error}" for problem in listed.problems]
        return listed.items


async def _nothing() -> Listed[QueueLag]:
    return Listed(items=[])


# --- lines ------------------------------------------------------------------------------------------------------------


def list_brokers(members: list[Member], runtime: list[Runtime], slaves: list[Lag]) -> list[BrokerLine]:
    """Return a line for each member of each broker name."""
    figures = {row.address: row for row in runtime}
    behind = {row.address: row for row in slaves}
    lines = []
    for member in members:
        row, lag = figures.get(member.address), behind.get(member.address)
        line = BrokerLine(
            cluster=member.cluster,
            broker=member.broker,
            broker_id=member.broker_id,
            address=member.address,
            role=member.role,
            behind_bytes=None if lag is None else lag.lag_bytes,
            behind_seconds=None if lag is None else lag.lag_seconds,
            problem=member.problem or ("" if lag is None or lag.connected else "not connected to its master"),
        )
        if row is not None:
            sizes = None if row.log_end is None or row.log_begin is None else row.log_end - row.log_begin
            line = msgspec.structs.replace(
                line,
                stored_rate=row.put_rates[0] if row.put_rates else None,
                fetched_rate=row.transferred_rates[0] if row.transferred_rates else None,
                disk=row.log_disk_ratio,
                log_bytes=sizes,
                version=row.version or "",
            )
        lines.append(line)
    return lines


def list_groups(progress: list[GroupProgress], span: _Span) -> list[GroupLine]:
    """Return a line for each group that has offsets."""
    found: dict[str, list[GroupProgress]] = {}
    for row in progress:
        found.setdefault(row.group, []).append(row)
    lines = []
    for name, rows in sorted(found.items()):
        queues = [Queue(row.topic, row.broker, row.queue) for row in rows]
        consumed, arriving = span.rate_offsets([(name, queue) for queue in queues]), span.rate_ends(queues)
        lines.append(
            GroupLine(
                group=name,
                topics=len({row.topic for row in rows if not row.topic.startswith(RETRY_PREFIX)}),
                queues=len(rows),
                lag=sum(row.lag for row in rows),
                arriving_rate=arriving,
                consumed_rate=consumed,
                growth=None if arriving is None or consumed is None else arriving - consumed,
            )
        )
    return lines


def list_topics(queues: dict[str, int], progress: list[GroupProgress], span: _Span) -> list[TopicLine]:
    """Return a line for each topic."""
    groups: dict[str, dict[str, list[GroupProgress]]] = {}
    for row in progress:
        groups.setdefault(row.topic, {}).setdefault(row.group, []).append(row)
    ends: dict[str, list[Queue]] = {}
    for queue in span.now.ends:
        ends.setdefault(queue.topic, []).append(queue)
    lines = []
    for topic in sorted(queues.keys() | groups.keys()):
        its = groups.get(topic, {})
        pairs = [(name, Queue(row.topic, row.broker, row.queue)) for name, rows in its.items() for row in rows]
        lines.append(
            TopicLine(
                topic=topic,
                queues=queues.get(topic, len(ends.get(topic, ()))),
                groups=len(its),
                lag=max((sum(row.lag for row in rows) for rows in its.values()), default=0),
                arriving_rate=span.rate_ends(ends.get(topic, ())),
                consumed_rate=span.rate_offsets(pairs),
            )
        )
    return lines


def _find_waits(lags: list[QueueLag]) -> dict[str, float]:
    """Return how long the next message of the slowest queue of each group has been waiting."""
    found: dict[str, float] = {}
    for row in lags:
        found[row.group] = max(found.get(row.group, 0.0), (row.lag_time or timedelta()).total_seconds())
    return found
