"""What the overview shows: rates, backlog, disks, alarms, and what was changed lately."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from eruca._console.alarms.pages import may_see as may_see_alarm
from eruca._console.brokers.reading import BrokerRowShown, read_brokers
from eruca._console.identity.audit import AuditFilter, AuditRow
from eruca._console.identity.rights import Need
from eruca._console.pages.charts import Series
from eruca._console.pages.visit import Visit
from eruca._console.topics.reading import read_topics
from eruca._console.watching.alarms import Alarm
from eruca._console.watching.history import BROKER, GROUP, Point
from eruca._console.watching.samples import GroupSample

#: The spans of time that the charts can show, by their name in the query.
SPANS = {"1h": timedelta(hours=1), "3h": timedelta(hours=3), "24h": timedelta(days=1), "7d": timedelta(days=7)}
_GROUPS_SHOWN = 8
_ALARMS_SHOWN = 6
_CHANGES_SHOWN = 8


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A group that is behind, and how its lag has been."""

    sample: GroupSample
    history: list[float]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster on one page."""

    brokers: list[BrokerRowShown]
    topics: int
    groups: int
    # Messages that wait, of all groups, and in how many groups.
    backlog: int
    behind_count: int
    # How long the message that has been waiting longest has been there, in seconds.
    oldest: float | None
    behind: list[Behind]
    alarms: list[Alarm]
    alarm_count: int
    changes: list[AuditRow]
    rate_in: float
    rate_out: float
    # The fullest disk.
    disk: float | None
    # When the last look was; None before the first.
    looked_at: datetime | None
    problems: list[str]


async def read_overview(visit: Visit) -> Overview:
    """Return the state of a cluster, of what the user may see."""
    cluster, watching = visit.cluster, visit.parts.watching
    sample = watching.find_last(cluster.name)
    groups = [] if sample is None else [each for each in sample.groups.values() if may_see(visit, each.group)]
    late = sorted((each for each in groups if each.lag), key=lambda each: (-each.trend.rank, -each.lag))
    now = datetime.now(UTC)
    names = [each.group for each in late[:_GROUPS_SHOWN]]
    brokers, topics, history, changes = await asyncio.gather(
        read_brokers(cluster),
        read_topics(cluster, "normal"),
        watching.history.read_many(cluster.name, GROUP, names, now - SPANS["1h"], now),
        _read_changes(visit),
    )
    alarms = [alarm for alarm in watching.list_open(cluster.name) if may_see_alarm(visit, alarm)]
    disks = [each.disk for each in brokers.rows if each.disk is not None]
    masters = [each for each in brokers.rows if each.role != "slave"]
    return Overview(
        brokers=brokers.rows,
        topics=sum(1 for row in topics.rows if visit.user.may(Need.VIEW, topic=row.name)),
        groups=len(groups),
        backlog=sum(each.lag for each in groups),
        behind_count=len(late),
        oldest=max((each.age for each in groups if each.age is not None), default=None),
        behind=[
            Behind(sample=each, history=[point.lag for point in history.get(each.group, [])])
            for each in late[:_GROUPS_SHOWN]
        ],
        alarms=alarms[:_ALARMS_SHOWN],
        alarm_count=len(alarms),
        changes=changes,
        rate_in=sum(each.rate_in or 0.0 for each in masters),
        rate_out=sum(each.rate_out or 0.0 for each in brokers.rows),
        disk=max(disks, default=None),
        looked_at=None if sample is None else sample.at,
        problems=[] if sample is None else sample.problems,
    )


def may_see(visit: Visit, group: str) -> bool:
    """Return whether the user may see a group."""
    return visit.user.may(Need.VIEW, group=group)


async def _read_changes(visit: Visit) -> list[AuditRow]:
    """Return what was changed in the cluster lately; names of others are not for users with rights to some only.

    Commands and values are for administrators, in the audit log: the command of a message that was sent has its body.
    """
    if not visit.user.may(Need.OPERATE) or visit.user.grants:
        return []
    rows = await visit.parts.identity.audit.list(AuditFilter(cluster=visit.cluster.name), limit=_CHANGES_SHOWN)
    return [replace(row, command="", before="", after="", reason="") for row in rows]


async def read_rates(visit: Visit, span: timedelta) -> tuple[list[Series], list[Series]]:
    """Return the rates of all brokers together, and how full the disk of each is."""
    now, watching = datetime.now(UTC), visit.parts.watching
    sample = watching.find_last(visit.cluster.name)
    names = [] if sample is None else [each.broker for each in sample.brokers]
    found = await watching.history.read_many(visit.cluster.name, BROKER, names, now - span, now)
    rates = [
        Series(visit.text("overview.in"), _sum(found, "incoming")),
        Series(visit.text("overview.out"), _sum(found, "outgoing")),
    ]
    disks = [
        Series(name, [(point.at.timestamp(), point.lag / 100) for point in points]) for name, points in found.items()
    ]
    return rates, disks


def _sum(found: Mapping[str, Sequence[Point]], name: str) -> list[tuple[float, float | None]]:
    sums: dict[float, float] = defaultdict(float)
    for points in found.values():
        for point in points:
            sums[point.at.timestamp()] += getattr(point, name)
    return sorted(sums.items())
