"""The audit log: filtered by user, cluster, text and time, and exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from eruca._console.identity.audit import AuditFilter, AuditRow
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import EXPORT_ROWS_MAX, Column, make_table, show_table
from eruca._console.pages.texts import Texts
from eruca._console.pages.times import show_duration
from eruca._console.pages.visit import Shown, Visit
from eruca._console.users.pages import WHERE
from eruca._ground.times import read_moment

# A page is filtered and sorted among at most this number of rows; an export has more.
_ROWS_MAX = 2000

COLUMNS: tuple[Column[AuditRow], ...] = (
    Column("at", "audit.at", lambda row: row.at, kind="time"),
    Column("user", "audit.user", lambda row: row.user),
    Column("action", "audit.action", lambda row: row.action, kind="tag", texts="action"),
    Column("target", "audit.target", lambda row: row.target),
    Column("cluster", "audit.cluster", lambda row: row.cluster, is_minor=True),
    # What it shows is in the language of the user: `list_changes` fills it in.
    Column("changes", "audit.changes", lambda row: None, kind="html"),
    Column("before", "audit.before", lambda row: row.before, is_exported_only=True),
    Column("after", "audit.after", lambda row: row.after, is_exported_only=True),
    Column(
        "outcome",
        "audit.outcome",
        lambda row: row.outcome,
        kind="tag",
        texts="changes.outcome",
        tone=lambda row: {"done": "ok", "failed": "error"}.get(row.outcome, "muted"),
    ),
    Column("reason", "audit.reason", lambda row: row.reason, texts="audit.reason", can_sort=False, is_minor=True),
    Column("command", "audit.command", lambda row: row.command, is_exported_only=True),
    Column("address", "audit.address", lambda row: row.address, kind="code", is_minor=True),
    Column("id", "audit.id", lambda row: row.id, kind="number", is_exported_only=True),
)
_DIFFERENCES_MAX = 6
#: The labels of values, by the actions that change them.
_LABELS: dict[str, dict[str, str]] = {
    "alarm.rule": {
        name: f"alarms.rule.{name}"
        for name in ("name", "kind", "threshold", "duration", "prefix", "cluster", "channels", "enabled")
    },
    "alarm.channel": {name: f"alarms.channel.{name}" for name in ("name", "kind", "target")},
    "user": {"role": "users.role", "rights": "users.grants", "disabled": "users.disabled"},
    "topic": {name: f"topics.{name}" for name in ("write_queues", "read_queues", "permission", "ordered")},
}
#: The texts of the choices of such a field.
_CHOICES = {
    "alarms.rule.kind": "alarms.kind",
    "alarms.channel.kind": "alarms.channel.kind",
    "users.role": "users.role",
    "topics.permission": "topics.permission",
}
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

    def show(row: AuditRow) -> Markup:
        return draw_differences(row.before, row.after, row.action, visit.texts)

    table = make_table(
        visit,
        "audit",
        [replace(each, value=show) if each.key == "changes" else each for each in COLUMNS],
        rows[:most],
        cut=len(rows) > most,
        sort="-id",
        search=lambda row: f"{row.target} {row.action} {row.user} {row.before} {row.after} {row.command}",
    )
    return show_table(visit, "auditing/list.html", table, fields=_FIELDS, days=visit.parts.identity.options.audit_days)


def draw_differences(before: str, after: str, action: str, texts: Texts) -> Markup:
    """Return what differs between two JSON texts of a row, a line for each value, with the labels of the forms."""
    labels = next((labels for prefix, labels in _LABELS.items() if action.startswith(prefix)), {})
    old, new = _flatten(_read(before)), _flatten(_read(after))
    paths = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    lines = [
        Markup("<li><span>{}</span> {}</li>").format(
            _name(path, labels, texts),
            _draw_difference(*(_write(each.get(path), path, labels, texts) for each in (old, new))),
        )
        for path in paths[:_DIFFERENCES_MAX]
    ]
    more = Markup("<li>+{}</li>").format(len(paths) - _DIFFERENCES_MAX) if len(paths) > _DIFFERENCES_MAX else ""
    return Markup('<ul class="differences">{}{}</ul>').format(Markup("").join(lines), more) if lines else Markup("")


def _draw_difference(before: str | None, after: str | None) -> Markup:
    was = Markup("<del>{}</del> → ").format(before) if before is not None else ""
    becomes = Markup("<ins>{}</ins>").format(after) if after is not None else "–"  # noqa: RUF001
    return Markup("{}{}").format(was, becomes)


def _name(path: tuple[str, ...], labels: Mapping[str, str], texts: Texts) -> str:
    """Return the name of a value: the broker that has it, if one does, and the label of its field."""
    where = [part for part in path[:-1] if part != WHERE]
    last = path[-1:] if not path or path[-1] not in labels else (texts(labels[path[-1]]),)
    return " ".join([*where, *last])


def _write(value: Any, path: tuple[str, ...], labels: Mapping[str, str], texts: Texts) -> str | None:
    """Return a value as the forms show it."""
    if value is None or isinstance(value, bool):
        return None if value is None else texts("app.yes" if value else "app.no")
    if isinstance(value, list):
        return ", ".join(str(_write(each, (), labels, texts)) for each in value)
    if isinstance(value, float):
        return show_duration(texts, value) if path[-1:] == ("duration",) else f"{value:g}"
    choice = f"{_CHOICES.get(labels.get(path[-1], '') if path else '', '')}.{value}"
    return texts(choice) if texts.has(choice) else str(value)


def _read(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _flatten(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values in a value by where they are; a part for which there is nothing has none."""
    if isinstance(value, dict):
        found: dict[tuple[str, ...], Any] = {}
        for key, each in value.items():
            found |= _flatten(each, (*path, key))
        return found
    return {} if value is None or value in ("", []) else {path: value}


def _read_time(text: str) -> datetime | None:
    """Return a time of the query. Raises ConfigError for one that cannot be read."""
    moment = read_moment(text.strip()) if text.strip() else None
    return moment if isinstance(moment, datetime) else None


ROUTES = (Route("/audit", list_changes, Need.ADMIN, nav=Nav("console", 30, "nav.audit", "audit"), in_api=False),)
