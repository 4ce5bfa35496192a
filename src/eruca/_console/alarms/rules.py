"""Alarm rules: list, create, change, delete."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._console.alarms.showing import go_to, show_value
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field, FormRefused, read_fields
from eruca._console.pages.routing import Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.watching.rules import OF_GROUPS, Rule, RuleKind
from eruca.errors import ConfigError

_DAY_S: Final = 86_400
_KINDS: Final = tuple(kind.value for kind in RuleKind)


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the list."""

    id: int
    name: str
    kind: str
    cluster: str
    prefix: str
    threshold: str
    duration: float
    channels: list[str]
    enabled: bool


COLUMNS: Final[tuple[Column[RuleRow], ...]] = (
    Column(
        "name",
        "alarms.rule.name",
        lambda row: row.name,
        link=lambda visit, row: visit.url("alarms", "rules", str(row.id)),
    ),
    Column("kind", "alarms.rule.kind", lambda row: row.kind, kind="tag", texts="alarms.kind"),
    Column("threshold", "alarms.rule.from", lambda row: row.threshold),
    Column("duration", "alarms.rule.duration", lambda row: row.duration, kind="duration"),
    Column("prefix", "alarms.rule.prefix", lambda row: row.prefix, kind="code"),
    Column("cluster", "alarms.rule.cluster", lambda row: row.cluster, is_minor=True),
    Column("channels", "alarms.rule.channels", lambda row: row.channels),
    Column(
        "enabled",
        "alarms.rule.enabled",
        lambda row: row.enabled,
        kind="flag",
        tone=lambda row: "ok" if row.enabled else "muted",
    ),
)

_NAME = Field("name", "alarms.rule.name", required=True, chars_max=100)
_KIND = Field("kind", "alarms.rule.kind", "choice", required=True, default="age", choices=_KINDS,
              choice_texts="alarms.kind")  # fmt: skip
_VALUES = (
    Field("threshold", "alarms.rule.threshold", "number", required=True, low=1, high=10**15,
          hint="alarms.rule.threshold.hint"),
    Field("duration", "alarms.rule.duration", "number", required=True, default=60, low=0, high=_DAY_S,
          hint="alarms.rule.duration.hint"),
    Field("prefix", "alarms.rule.prefix", hint="alarms.rule.prefix.hint"),
)  # fmt: skip
_ENABLED = Field("enabled", "alarms.rule.enabled", "check", default=True)


def _cluster_field(visit: Visit) -> Field:
    return Field(
        "cluster", "alarms.rule.cluster", "choice", choices=visit.parts.clusters.names, hint="alarms.rule.cluster.hint"
    )


async def list_rules(visit: Visit) -> Shown | Response:
    """Show all rules."""
    watching = visit.parts.watching
    names = {channel.id: channel.name for channel in await watching.tables.list_channels()}
    rows = [
        RuleRow(
            id=rule.id,
            name=rule.name,
            kind=rule.kind.value,
            cluster=rule.cluster,
            prefix=rule.prefix,
            threshold=show_value(visit, rule.kind, rule.threshold),
            duration=rule.duration,
            channels=[names[each] for each in rule.channels if each in names],
            enabled=rule.enabled,
        )
        for rule in await watching.tables.list_rules()
    ]
    table = make_table(visit, "rules", COLUMNS, rows, sort="name")
    return show_table(visit, "alarms/rules.html", table)


async def create_rule(visit: Visit) -> Shown | Response:
    """Create a rule."""
    fields = (_NAME, _KIND, *_VALUES, _cluster_field(visit))
    if visit.method == "GET":
        return await _show_form(visit, "alarm.rule.create", fields, None)
    form = read_fields(visit, fields)
    return await _put(visit, "alarm.rule.create", None, {**form, "kind": RuleKind(form["kind"]), "enabled": True})


async def change_rule(visit: Visit) -> Shown | Response:
    """Change a rule; what it watches stays."""
    rule = await _find(visit)
    fields = (_NAME, *_VALUES, _cluster_field(visit), _ENABLED)
    if visit.method == "GET":
        return await _show_form(visit, "alarm.rule.update", fields, rule)
    return await _put(visit, "alarm.rule.update", rule, {**read_fields(visit, fields), "kind": rule.kind})


async def _show_form(visit: Visit, action: str, fields: tuple[Field, ...], rule: Rule | None) -> Shown:
    values: dict[str, Any] = {} if rule is None else msgspec.structs.asdict(rule)
    if rule is not None:
        values |= {"threshold": f"{rule.threshold:g}", "duration": f"{rule.duration:g}"}
    channels = await visit.parts.watching.tables.list_channels()
    chosen = {str(each) for each in (rule.channels if rule else ())}
    if visit.errors:
        chosen = {str(each) for each in visit.form.getlist("channel")}
    return visit.show(
        "alarms/rule.html",
        action=action,
        fields=fields,
        values=values,
        rule=rule,
        channels=channels,
        chosen=chosen,
    )


async def _put(visit: Visit, action: str, before: Rule | None, form: dict[str, Any]) -> Shown | Response:
    watching = visit.parts.watching
    known = {str(channel.id): channel.id for channel in await watching.tables.list_channels()}
    rule = Rule(
        id=0 if before is None else before.id,
        name=form["name"],
        kind=form["kind"],
        cluster=form["cluster"] or "",
        prefix=form["prefix"] or "",
        threshold=float(form["threshold"]),
        duration=float(form["duration"]),
        channels=tuple(known[str(each)] for each in visit.form.getlist("channel") if str(each) in known),
        enabled=form["enabled"],
    )
    _require_rights(visit, rule)
    try:
        rule = await watching.tables.put_rule(rule)
    except ConfigError as error:
        raise FormRefused({"": str(error)}) from None
    await visit.audit(action=action, target=rule.name, before=before, after=rule, outcome="done")
    for cluster in visit.parts.clusters.names:
        watching.look_again(cluster)
    return Shown("alarms/rules.html", rule) if visit.is_api else go_to(visit, "alarms", "rules")


def _require_rights(visit: Visit, rule: Rule) -> None:
    """A rule about groups needs the right to all that begin with its prefix."""
    if rule.kind in OF_GROUPS and not visit.user.may(Need.OPERATE, group=rule.prefix):
        raise HTTPException(403, visit.text("errors.right.group", name=rule.prefix or "*"))


async def delete_rule(visit: Visit) -> Shown | Response:
    """Delete a rule; its alarms end."""
    rule = await _find(visit)
    _require_rights(visit, rule)
    await visit.parts.watching.tables.delete_rule(rule.id)
    await visit.audit(action="alarm.rule.delete", target=rule.name, before=rule, after=None, outcome="done")
    visit.parts.watching.look_again(visit.cluster.name)
    return Shown("alarms/rules.html", rule) if visit.is_api else go_to(visit, "alarms", "rules")


async def _find(visit: Visit) -> Rule:
    rules = await visit.parts.watching.tables.list_rules()
    found = next((rule for rule in rules if str(rule.id) == visit.path["rule"]), None)
    if found is None:
        raise HTTPException(404, visit.text("alarms.no_rule"))
    return found


_PATH: Final = "/c/{cluster}/alarms/rules"
_FIELDS: Final = {
    "name": "a name",
    "kind": ", ".join(_KINDS),
    "threshold": "messages, seconds or percent",
    "duration": "seconds",
    "prefix": "of groups, brokers or slaves",
    "cluster": "only this one",
    "channel": "the id of a channel; may be repeated",
}
ROUTES: Final = (
    Route(_PATH, list_rules, Need.VIEW, summary="List alarm rules."),
    Route(
        "/c/{cluster}/alarms/new/rule",
        create_rule,
        Need.OPERATE,
        ("GET", "POST"),
        summary="Create an alarm rule.",
        fields=_FIELDS,
    ),
    Route(
        _PATH + "/{rule}", change_rule, Need.OPERATE, ("GET", "POST"), summary="Change an alarm rule.", fields=_FIELDS
    ),
    Route(_PATH + "/{rule}/delete", delete_rule, Need.OPERATE, ("POST",), summary="Delete an alarm rule."),
)
