"""Alarms: what fires, what is pending, what was; acknowledging; rules; channels and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._console.alarms import channels, rules
from eruca._console.alarms.showing import go_to, show_value
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field, read_fields
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, export_table, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.alarms import Alarm, AlarmState
from eruca._console.watching.rules import OF_GROUPS

TONES: Final = {
    AlarmState.PENDING: "muted",
    AlarmState.FIRING: "error",
    AlarmState.ACKNOWLEDGED: "warning",
    AlarmState.RESOLVED: "ok",
}
_PAST_MAX: Final = 1_000
_NOTE: Final = (Field("note", "alarms.note", chars_max=200),)


class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm of a list."""

    id: int
    state: AlarmState
    rule: str
    kind: str
    target: str
    value: str
    peak: str
    threshold: str
    detail: str
    since: datetime
    fired_at: datetime | None
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    resolved_at: datetime | None
    lasted: timedelta | None


def make_row(visit: Visit, alarm: Alarm) -> AlarmRow:
    """Return an alarm as a row."""
    ended = alarm.resolved_at
    return AlarmRow(
        id=alarm.id,
        state=alarm.state,
        rule=alarm.rule_name,
        kind=alarm.kind.value,
        target=alarm.target,
        value=show_value(visit, alarm.kind, alarm.value),
        peak=show_value(visit, alarm.kind, alarm.peak),
        threshold=show_value(visit, alarm.kind, alarm.threshold),
        detail=alarm.detail,
        since=alarm.since,
        fired_at=alarm.fired_at,
        acknowledged_by=alarm.acknowledged_by,
        acknowledged_at=alarm.acknowledged_at,
        note=alarm.note,
        resolved_at=ended,
        lasted=None if ended is None or alarm.fired_at is None else ended - alarm.fired_at,
    )


def _link_target(visit: Visit, row: AlarmRow) -> str:
    return visit.url(*(("groups", row.target) if row.kind in OF_GROUPS else ("brokers",)))


PAST_COLUMNS: Final[Sequence[Column[AlarmRow]]] = (
    Column("target", "alarms.target", lambda row: row.target, link=_link_target),
    Column("rule", "alarms.rule", lambda row: row.rule),
    Column("peak", "alarms.peak", lambda row: row.peak),
    Column("threshold", "alarms.threshold", lambda row: row.threshold, is_minor=True),
    Column("fired_at", "alarms.fired_at", lambda row: row.fired_at, kind="time"),
    Column("lasted", "alarms.lasted", lambda row: row.lasted, kind="duration"),
    Column("acknowledged_by", "alarms.acknowledged_by", lambda row: row.acknowledged_by),
    Column("note", "alarms.note", lambda row: row.note, is_minor=True),
    Column("resolved_at", "alarms.resolved_at", lambda row: row.resolved_at, kind="time", is_minor=True),
)


#: Of exports: alarms that have not ended are shown as cards.
OPEN_COLUMNS: Final[Sequence[Column[AlarmRow]]] = (
    Column("target", "alarms.target", lambda row: row.target),
    Column("kind", "alarms.rule.kind", lambda row: row.kind),
    Column("state", "alarms.delivery.state", lambda row: row.state.value),
    Column("rule", "alarms.rule", lambda row: row.rule),
    Column("value", "alarms.peak", lambda row: row.value),
    Column("peak", "alarms.peak", lambda row: row.peak),
    Column("threshold", "alarms.threshold", lambda row: row.threshold),
    Column("detail", "alarms.target", lambda row: row.detail),
    Column("since", "alarms.since", lambda row: row.since),
    Column("fired_at", "alarms.fired_at", lambda row: row.fired_at),
    Column("acknowledged_by", "alarms.acknowledged_by", lambda row: row.acknowledged_by),
    Column("acknowledged_at", "alarms.acknowledged_by", lambda row: row.acknowledged_at),
    Column("note", "alarms.note", lambda row: row.note),
)


def may_see(visit: Visit, alarm: Alarm) -> bool:
    """Whether the user may see an alarm: those of groups by the rights to the group."""
    return alarm.kind not in OF_GROUPS or visit.user.may(Need.VIEW, group=alarm.target)


async def list_alarms(visit: Visit) -> Shown | Response:
    """Show the alarms of a cluster: firing, pending, past."""
    watching, cluster = visit.parts.watching, visit.cluster.name
    past, cut = await watching.tables.list_past(cluster, _PAST_MAX)
    rows = [make_row(visit, alarm) for alarm in past if may_see(visit, alarm)]
    table = make_table(
        visit, "past", PAST_COLUMNS, rows, cut=cut, prefix="past.", search=lambda row: f"{row.target} {row.rule}"
    )
    opened = [make_row(visit, alarm) for alarm in watching.list_open(cluster) if may_see(visit, alarm)]
    pending = [make_row(visit, alarm) for alarm in watching.list_pending(cluster) if may_see(visit, alarm)]
    if visit.is_api:
        return Shown("alarms/list.html", {"open": opened, "pending": pending, "past": rows, "cut": cut})
    open_table = make_table(visit, "open", OPEN_COLUMNS, [*opened, *pending], prefix="open.")
    if open_table.format and visit.query.get("table") == "open":
        return export_table(visit, open_table)
    return show_table(
        visit,
        "alarms/list.html",
        table,
        open_table=open_table,
        firing=[row for row in opened if row.state is AlarmState.FIRING],
        acknowledged=[row for row in opened if row.state is AlarmState.ACKNOWLEDGED],
        pending=pending,
        tones=TONES,
        has_rules=bool(await watching.tables.list_rules()),
        last=watching.find_last(cluster),
        link=lambda row: _link_target(visit, row),
    )


async def acknowledge(visit: Visit) -> Response | Shown:
    """Note that the user takes care of an alarm."""
    number, note = visit.path["alarm"], read_fields(visit, _NOTE)["note"] or ""
    watching = visit.parts.watching
    found = [alarm for alarm in watching.list_open(visit.cluster.name) if str(alarm.id) == number]
    if not found or not may_see(visit, found[0]):
        raise HTTPException(404, visit.text("alarms.gone"))
    _require_group(visit, found[0])
    alarm = await watching.acknowledge(found[0].id, visit.user.name, note)
    if alarm is None:
        raise HTTPException(409, visit.text("alarms.gone"))
    await visit.audit(
        action="alarm.acknowledge",
        target=alarm.target,
        before={"state": found[0].state.value},
        after={"state": alarm.state.value, "rule": alarm.rule_name, "note": note},
        outcome="done",
    )
    if visit.is_api:
        return Shown("alarms/list.html", make_row(visit, alarm))
    return go_to(visit, "alarms")


def _require_group(visit: Visit, alarm: Alarm) -> None:
    if alarm.kind in OF_GROUPS and not visit.user.may(Need.OPERATE, group=alarm.target):
        raise HTTPException(403, visit.text("errors.right.group", name=alarm.target))


ROUTES: Final = (
    Route(
        "/c/{cluster}/alarms",
        list_alarms,
        Need.VIEW,
        nav=Nav("watch", 10, "nav.alarms", "alarms", "a"),
        summary="List alarms: firing, pending and past.",
    ),
    Route(
        "/c/{cluster}/alarms/{alarm}/acknowledge",
        acknowledge,
        Need.OPERATE,
        ("POST",),
        summary="Note that you take care of an alarm.",
        fields={"note": "for the others"},
    ),
    *rules.ROUTES,
    *channels.ROUTES,
)
