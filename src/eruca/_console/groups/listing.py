"""The list of groups, the worst first, from the last look at the cluster: showing it asks the cluster nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from eruca._console.identity.rights import Need
from eruca._console.pages.charts import draw_spark
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.history import GROUP
from eruca._console.watching.samples import GroupSample, Sample, Trend

#: The tone of each trend.
TONES: Final = {
    Trend.QUIET: "muted",
    Trend.CURRENT: "ok",
    Trend.CATCHING_UP: "accent",
    Trend.FALLING_BEHIND: "warning",
    Trend.STUCK: "error",
    Trend.ABSENT: "error",
}
#: The groups that a tab shows.
_TABS: Final = {
    "all": frozenset(Trend),
    "behind": frozenset({Trend.CATCHING_UP, Trend.FALLING_BEHIND, Trend.STUCK, Trend.ABSENT}),
    "stuck": frozenset({Trend.STUCK, Trend.ABSENT}),
}
_SPARK: Final = timedelta(hours=1)


class GroupRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One group of the list."""

    group: str
    state: Trend
    lag: int
    lag_time: timedelta | None
    incoming: float | None
    outgoing: float | None
    behind: int
    queues: int
    topics: list[str]
    # Only pages have it.
    spark: Markup | None = None


COLUMNS: Final[Sequence[Column[GroupRow]]] = (
    Column("group", "groups.group", lambda row: row.group, link=lambda visit, row: visit.url("groups", row.group)),
    Column(
        "state",
        "groups.state",
        lambda row: row.state.value,
        kind="tag",
        texts="groups.state",
        tone=lambda row: TONES[row.state],
    ),
    Column("lag", "groups.lag", lambda row: row.lag, kind="number"),
    Column("lag_time", "groups.lag_time", lambda row: row.lag_time, kind="duration"),
    Column("spark", "groups.last_hour", lambda row: row.spark, kind="html", can_sort=False),
    Column("incoming", "groups.incoming", lambda row: row.incoming, kind="rate"),
    Column("outgoing", "groups.outgoing", lambda row: row.outgoing, kind="rate"),
    Column("queues", "groups.queues_behind", lambda row: row.behind, kind="number", is_minor=True),
    Column("topics", "groups.topics", lambda row: row.topics, is_minor=True),
)


def make_row(sample: GroupSample) -> GroupRow:
    """Return a group as a row of the list."""
    return GroupRow(
        group=sample.group,
        state=sample.trend,
        lag=sample.lag,
        lag_time=None if sample.age is None else timedelta(seconds=sample.age),
        incoming=sample.incoming,
        outgoing=sample.outgoing,
        behind=sample.behind,
        queues=sample.queues,
        topics=list(sample.topics),
    )


def sort_groups(samples: Sequence[GroupSample]) -> list[GroupSample]:
    """Return groups with the worst first: stuck ones, then by how long messages have been waiting."""

    def weigh(each: GroupSample) -> tuple[bool, float, int, str]:
        return each.trend not in _TABS["stuck"], -(each.age or 0.0), -each.lag, each.group

    return sorted(samples, key=weigh)


def list_visible(visit: Visit, sample: Sample | None) -> list[GroupSample]:
    """Return the groups of a look that the user may see."""
    found = [] if sample is None else sample.groups.values()
    return [each for each in found if visit.user.may(Need.VIEW, group=each.group)]


async def list_groups(visit: Visit) -> Shown | Response:
    """Show all groups."""
    watching = visit.parts.watching
    sample = watching.find_last(visit.cluster.name)
    visible = list_visible(visit, sample)
    tab = visit.query.get("show", "all")
    tab = tab if tab in _TABS else "all"
    rows = [make_row(each) for each in sort_groups(visible) if each.trend in _TABS[tab]]
    cut = sample is not None and sample.groups_known and not sample.groups_complete
    table = make_table(visit, "groups", COLUMNS, rows, cut=cut, search=lambda row: f"{row.group} {row.topics}")
    if not table.format and not visit.is_api:
        table.rows = await _add_sparks(visit, table.rows)
    return show_table(
        visit,
        "groups/list.html",
        table,
        tab=tab,
        tabs=[
            (name, visit.text(f"groups.show.{name}"), visit.url("groups", show=None if name == "all" else name))
            for name in _TABS
        ],
        sample=sample,
        figures=sum_up(visible),
        command=visit.command("lag"),
    )


async def _add_sparks(visit: Visit, rows: Sequence[GroupRow]) -> list[GroupRow]:
    now = datetime.now(UTC)
    names = [row.group for row in rows]
    found = await visit.parts.watching.history.read_many(visit.cluster.name, GROUP, names, now - _SPARK, now)
    return [
        msgspec.structs.replace(
            row,
            spark=draw_spark([point.lag for point in found[row.group]], visit.text("groups.spark", group=row.group)),
        )
        for row in rows
    ]


def sum_up(groups: Sequence[GroupSample]) -> dict[str, object]:
    """Return the figures above the list."""
    return {
        "groups": len(groups),
        "behind": sum(1 for each in groups if each.trend in _TABS["behind"]),
        "stuck": sum(1 for each in groups if each.trend in _TABS["stuck"]),
        "lag": sum(each.lag for each in groups),
        "age": max((each.age for each in groups if each.age is not None), default=None),
    }


ROUTES: Final = (
    Route(
        "/c/{cluster}/groups",
        list_groups,
        Need.VIEW,
        nav=Nav("data", 20, "nav.groups", "groups", "g"),
        summary="List consumer groups with their lag, the worst first.",
        fields={"show": "all, behind or stuck"},
    ),
)
