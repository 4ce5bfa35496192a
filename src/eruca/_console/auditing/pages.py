"""The audit log: filtered by user, cluster, text and time, and exported."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from eruca._console.identity.audit import AuditFilter, AuditRow
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import EXPORT_ROWS_MAX, Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.times import read_moment

# A page is filtered and sorted among at most this number of rows; an export has more.
_ROWS_MAX = 2000

COLUMNS: tuple[Column[AuditRow], ...] = (
    Column("at", "audit.at", lambda row: row.at, kind="time"),
    Column("user", "audit.user", lambda row: row.user),
    Column("action", "audit.action", lambda row: row.action, kind="tag", texts="action"),
    Column("target", "audit.target", lambda row: row.target),
    Column("cluster", "audit.cluster", lambda row: row.cluster, is_minor=True),
    Column("changes", "audit.changes", lambda row: draw_differences(row.before, row.after), kind="html"),
    Column("before", "audit.before", lambda row: row.before, is_exported_only=True),
    Column("after", "audit.after", lambda row: row.after, is_exported_only=True),
    Column(
        "outcome",
        "audit.outcome",
        lambda row: row.outcome,
        kind="tag",
        tone=lambda row: {"done": "ok", "failed": "error"}.get(row.outcome, "muted"),
    ),
    Column("reason", "audit.reason", lambda row: row.reason, can_sort=False, is_minor=True),
    Column("command", "audit.command", lambda row: row.command, is_exported_only=True),
    Column("address", "audit.address", lambda row: row.address, kind="code", is_minor=True),
    Column("id", "audit.id", lambda row: row.id, kind="number", is_exported_only=True),
)
_DIFFERENCES_MAX = 6
_FIELDS = (
    Field("user", "audit.user", chars_max=128),
    Field("text", "audit.text", chars_max=200),
    Field("after", "audit.from", chars_max=40, hint="audit.from.hint"),
    Field("before", "audit.to", chars_max=40),
)


async def list_changes(visit: Visit) -> Shown | Response:
    """Show what was changed, the latest first."""
    query = visit.query
    wanted = AuditFilter(
        user=query.get("user", "")[:128],
        cluster=query.get("cluster", "")[:128],
        text=query.get("text", "")[:200],
        after=_read_time(query.get("after", "")),
        before=_read_time(query.get("before", "")),
    )
    audit = visit.parts.identity.audit
    most = EXPORT_ROWS_MAX if query.get("format") else _ROWS_MAX
    rows = await audit.list(wanted, limit=most + 1)
    table = make_table(
        visit,
        "audit",
        COLUMNS,
        rows[:most],
        cut=len(rows) > most,
        sort="-id",
        search=lambda row: f"{row.target} {row.action} {row.user} {row.before} {row.after} {row.command}",
    )
    return show_table(visit, "auditing/list.html", table, fields=_FIELDS, days=visit.parts.identity.options.audit_days)


def draw_differences(before: str, after: str) -> Markup:
    """Return what differs between two JSON texts of a row, a line for each value."""
    old, new = _flatten(_read(before)), _flatten(_read(after))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    lines = [_draw_difference(name, old.get(name), new.get(name)) for name in names[:_DIFFERENCES_MAX]]
    more = Markup("<li>+{}</li>").format(len(names) - _DIFFERENCES_MAX) if len(names) > _DIFFERENCES_MAX else ""
    return Markup('<ul class="differences">{}{}</ul>').format(Markup("").join(lines), more) if lines else Markup("")


def _draw_difference(name: str, before: str | None, after: str | None) -> Markup:
    was = Markup("<del>{}</del> → ").format(before) if before is not None else ""
    becomes = Markup("<ins>{}</ins>").format(after) if after is not None else "–"  # noqa: RUF001
    return Markup("<li><span>{}</span> {}{}</li>").format(name, was, becomes)


def _read(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _flatten(value: Any, name: str = "") -> dict[str, str]:
    """Return the values in a value by their names; a part for which there is nothing has none."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, each in value.items():
            found |= _flatten(each, f"{name} {key}".strip())
        return found
    if value is None or value in ("", []):
        return {}
    return {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def _read_time(text: str) -> datetime | None:
    """Return a time of the query. Raises ConfigError for one that cannot be read."""
    moment = read_moment(text.strip()) if text.strip() else None
    return moment if isinstance(moment, datetime) else None


ROUTES = (Route("/audit", list_changes, Need.ADMIN, nav=Nav("console", 30, "nav.audit", "audit"), in_api=False),)
