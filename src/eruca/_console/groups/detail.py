"""One group: what the watch knows at once, and what a look at it finds a moment later, as a part of the same page.

The members are asked through their brokers, and one that hangs takes seconds to not answer. So the page does not wait
for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec
from starlette.responses import Response

from eruca._admin.clients import RunningInfo
from eruca._admin.doctor.findings import Examination, Finding, Limits
from eruca._admin.groupmembers import GroupMember, Subscribed
from eruca._admin.groupqueues import GroupQueue
from eruca._admin.groups import Group
from eruca._console.doctor.pages import add_cluster
from eruca._console.groups.diagnosis import (
    Diagnosis,
    count_versions,
    diagnose,
    find_worst,
    list_owned,
    list_twice,
)
from eruca._console.groups.listing import TONES
from eruca._console.groups.writing import write_sentence
from eruca._console.identity.rights import Need
from eruca._console.pages.charts import SECONDS, Series, draw_legend, draw_line
from eruca._console.pages.routing import Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.times import show_duration
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.history import GROUP, Point
from eruca.errors import ErucaError

#: The spans that the charts offer.
SPANS: Final = {"1h": timedelta(hours=1), "3h": timedelta(hours=3), "2d": timedelta(days=2), "30d": timedelta(days=30)}
# The watch knows for how long queues have not moved, so the two looks need not be far apart.
_LIMITS: Final = Limits(sample=0.3, patience=10.0)
# The owner of the worst queue is asked once more, for what it holds.
_ASK_OWNER_S: Final = 3.0
_QUEUES_MAX: Final = 10_000
# Findings that the diagnosis is about.
_DIAGNOSED: Final = frozenset({"group-stuck", "group-absent"})
_GAP_INTERVALS: Final = 4
# A busy machine looks a little late, which is not a gap.
_GAP_S_MIN: Final = 15.0


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One member with what it works on."""

    client_id: str
    address: str
    language: str
    version: str
    queues: int
    lag: int
    brokers: list[str]


QUEUE_COLUMNS: Final[Sequence[Column[GroupQueue]]] = (
    Column("topic", "groups.topic", lambda row: row.topic, link=lambda visit, row: visit.url("topics", row.topic)),
    Column("queue", "groups.queue", lambda row: f"{row.broker}:{row.queue}", kind="place"),
    Column("offset", "groups.offset", lambda row: row.offset, kind="number"),
    Column("end", "groups.end", lambda row: row.end, kind="number", is_minor=True),
    Column("lag", "groups.lag", lambda row: row.lag, kind="number", tone=lambda row: "warning" if row.lag else "muted"),
    Column("lag_time", "groups.lag_time", lambda row: row.lag_time, kind="duration"),
    Column("owner", "groups.owner", lambda row: row.owner, kind="code"),
    Column("consumed_at", "groups.consumed_at", lambda row: row.consumed_at, kind="time", is_minor=True),
)


def _link_client(visit: Visit, row: MemberRow) -> str:
    return visit.url("groups", visit.path["group"], "client", id=row.client_id)


MEMBER_COLUMNS: Final[Sequence[Column[MemberRow]]] = (
    Column("client_id", "groups.client", lambda row: row.client_id, link=_link_client),
    Column("address", "groups.address", lambda row: row.address, is_minor=True),
    Column("version", "groups.version", lambda row: f"{row.language} {row.version}".strip()),
    Column("queues", "groups.queues", lambda row: row.queues, kind="number"),
    Column("lag", "groups.lag", lambda row: row.lag, kind="number"),
    Column("brokers", "groups.brokers", lambda row: row.brokers, is_minor=True),
)


async def show_group(visit: Visit) -> Shown | Response:
    """Show a group: what the watch knows."""
    name = visit.path["group"]
    watching = visit.parts.watching
    last = watching.find_last(visit.cluster.name)
    sample = None if last is None else last.groups.get(name)
    if visit.is_api:
        group = await visit.admin.groups.show(name, limit=_QUEUES_MAX)
        return Shown("groups/detail.html", {"group": group, "watched": sample})
    if sample is None:
        # Not seen yet, or there is no such group, which raises NoRoute.
        await visit.admin.groups.show(name, limit=1)
    return visit.show(
        "groups/detail.html",
        group=name,
        sample=sample,
        last=last,
        tones=TONES,
        alarms=[alarm for alarm in watching.list_open(visit.cluster.name) if alarm.target == name],
        **await _draw_charts(visit, name),
    )


async def show_charts(visit: Visit) -> Shown:
    """Show the figures and charts of a group again."""
    name = visit.path["group"]
    last = visit.parts.watching.find_last(visit.cluster.name)
    sample = None if last is None else last.groups.get(name)
    context = await _draw_charts(visit, name)
    return visit.show("groups/charts.html", group=name, sample=sample, last=last, tones=TONES, **context)


async def _draw_charts(visit: Visit, name: str) -> dict[str, Any]:
    span = visit.query.get("span", "1h")
    span = span if span in SPANS else "1h"
    now = datetime.now(UTC)
    points = await visit.parts.watching.history.read(visit.cluster.name, GROUP, name, now - SPANS[span], now)
    gap = find_gap(points)
    rates = [
        Series(visit.text("groups.incoming"), make_line(points, "incoming", gap)),
        Series(visit.text("groups.outgoing"), make_line(points, "outgoing", gap)),
    ]
    return {
        "span": span,
        "spans": list(SPANS),
        "lag_chart": draw_line([Series("", make_line(points, "lag", gap))], visit.text("groups.chart.lag", group=name)),
        "age_chart": draw_line(
            [Series("", make_line(points, "age", gap))],
            visit.text("groups.chart.age", group=name),
            show=lambda seconds: show_duration(visit.texts, seconds),
            steps=SECONDS,
        ),
        "rate_chart": draw_line(rates, visit.text("groups.chart.rate", group=name)),
        "rate_legend": draw_legend(rates),
        "has_points": len(points) > 1,
    }


def find_gap(points: Sequence[Point]) -> float:
    """Return from how many seconds between two points on nobody was watching."""
    pauses = sorted((b.at - a.at).total_seconds() for a, b in pairwise(points))
    return max(pauses[len(pauses) // 2] * _GAP_INTERVALS, _GAP_S_MIN) if pauses else 0.0


def make_line(points: Sequence[Point], what: str, gap: float) -> list[tuple[float, float | None]]:
    """Return one value of points as a line of a chart, interrupted where nobody was watching."""
    line: list[tuple[float, float | None]] = []
    for point in points:
        at = point.at.timestamp()
        if line and at - line[-1][0] > gap:
            line.append(((line[-1][0] + at) / 2, None))
        value = getattr(point, what)
        line.append((at, 0.0 if value is None and not point.lag else value))
    return line


# --- the look ---------------------------------------------------------------------------------------------------------


async def examine(visit: Visit) -> Shown | Response:
    """Look at a group now: why it is behind, its queues and its members."""
    name = visit.path["group"]
    examination, group = await visit.cluster.recent.ask(
        f"group {name}", lambda: visit.admin.doctor.examine_group(name, limits=_LIMITS), fresh_s=2.0
    )
    last = visit.parts.watching.find_last(visit.cluster.name)
    sample = None if last is None else last.groups.get(name)
    now = datetime.now(UTC)
    diagnosis = diagnose(group, sample, await _ask_owner(visit, group), now)
    queues = make_table(
        visit,
        "queues",
        QUEUE_COLUMNS,
        group.queues,
        cut=group.cut,
        prefix="queues.",
        sort="-lag",
        search=lambda row: f"{row.topic} {row.broker}:{row.queue} {row.owner}",
    )
    if queues.format:
        return show_table(visit, "groups/inside.html", queues)
    members = make_table(
        visit, "members", MEMBER_COLUMNS, list_members(group), cut=group.cut, prefix="members.", sort="client_id"
    )
    return show_table(
        visit,
        "groups/inside.html",
        members,
        problems=group.problems,
        group=group,
        queues=queues,
        members=members,
        diagnosis=diagnosis,
        with_cluster=lambda command: add_cluster(visit, command),
        phrase=lambda each: write_sentence(visit, each),
        parts_of=lambda each: [(name, _show_subscribed(visit, found)) for name, found in each.by_member.items()],
        tone=find_tone(diagnosis),
        findings=list_others(examination),
        twice=list_twice(group),
        versions=count_versions(group),
        settings=group.brokers[0].settings if group.brokers else None,
        examined_at=examination.at,
    )


def _show_subscribed(visit: Visit, found: Subscribed | None) -> str:
    return visit.text("groups.not_subscribed") if found is None else f"{found.kind} {found.expression}"


async def _ask_owner(visit: Visit, group: Group) -> RunningInfo | None:
    """Ask the owner of the worst queue what it is doing; None if there is none or it does not answer soon."""
    worst = find_worst(group)
    if worst is None or not worst.owner:
        return None
    try:
        async with asyncio.timeout(_ASK_OWNER_S):
            return await visit.admin.clients.running(group.name, worst.owner)
    except (ErucaError, TimeoutError):
        return None


def list_members(group: Group) -> list[MemberRow]:
    """Return the members with how many queues and messages each has."""
    return [_describe(group, member) for member in group.members]


def _describe(group: Group, member: GroupMember) -> MemberRow:
    owned = list_owned(group, member.client_id)
    return MemberRow(
        client_id=member.client_id,
        address=member.address,
        language=member.language,
        version=member.version,
        queues=len(owned),
        lag=sum(row.lag for row in owned),
        brokers=member.brokers,
    )


def find_tone(diagnosis: Diagnosis) -> str:
    """Return the tone of a diagnosis."""
    return {"muted": "info"}.get(diagnosis.headline.tone, diagnosis.headline.tone)


def list_others(examination: Examination) -> list[Finding]:
    """Return the findings that the diagnosis does not state already, and better: it knows more than two looks."""
    return [each for each in examination.findings if each.id not in _DIAGNOSED]


# --- a member ---------------------------------------------------------------------------------------------------------


async def show_client(visit: Visit) -> Shown:
    """Show what a member is doing, and its stacks if they are asked for."""
    group, client_id = visit.path["group"], visit.query.get("id", "")
    wants_stack = visit.query.get("stack") == "1"
    running = await visit.admin.clients.running(group, client_id, stack=wants_stack)
    words = ["client", "stack" if wants_stack else "show", group, client_id]
    return visit.show(
        "groups/client.html",
        running,
        group=group,
        client_id=client_id,
        running=running,
        wants_stack=wants_stack,
        command=visit.command(*words),
    )


_NAMES: Final = {"group": "group"}
ROUTES: Final = (
    Route(
        "/c/{cluster}/groups/{group}",
        show_group,
        Need.VIEW,
        names=_NAMES,
        summary="Show a group: members, owners of queues, lag in messages and in time.",
    ),
    Route("/c/{cluster}/groups/{group}/charts", show_charts, Need.VIEW, names=_NAMES, in_api=False),
    Route("/c/{cluster}/groups/{group}/inside", examine, Need.VIEW, names=_NAMES, in_api=False),
    Route(
        "/c/{cluster}/groups/{group}/client",
        show_client,
        Need.VIEW,
        names=_NAMES,
        summary="Show what a member is doing, and its stacks.",
        fields={"id": "the client id", "stack": "1: with the stacks of its threads"},
    ),
)
