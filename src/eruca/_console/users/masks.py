"""The fields of messages that are masked: list, add, delete."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from eruca._admin.results import Change, Changed, name_outcome
from eruca._console.identity.masking import MaskRule, read_rule
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.users.pages import WHERE
from eruca._ground.digits import read_digits
from eruca.errors import ConfigError


class MaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit log keeps of a rule."""

    topics: str
    fields: list[str]
    role: str


COLUMNS: tuple[Column[tuple[int, MaskRule]], ...] = (
    Column("topics", "masks.topics", lambda row: f"{row[1].prefix}*", kind="code"),
    Column("fields", "masks.fields", lambda row: " ".join(row[1].fields), kind="code"),
    Column("role", "masks.role", lambda row: row[1].role.value, kind="tag", texts="users.role"),
)
_FIELDS = (
    Field("prefix", "masks.prefix", hint="masks.prefix.hint", chars_max=127),
    Field("fields", "masks.fields", required=True, hint="masks.fields.hint", chars_max=4096),
    Field(
        "role", "masks.role", "choice", default="admin", required=True, choices=("operator", "admin"),
        choice_texts="users.role",
    ),
)  # fmt: skip


async def list_masks(visit: Visit) -> Shown | Response:
    """Show all rules."""
    table = make_table(visit, "masks", COLUMNS, visit.parts.identity.masking.rules)
    return show_table(visit, "users/masks.html", table)


async def add_mask(visit: Visit) -> Shown:
    """Add a rule."""
    if visit.method == "GET":
        return visit.show("users/mask.html", fields=_FIELDS)
    form = read_fields(visit, _FIELDS)
    rule = read_rule(form["prefix"] or "", form["fields"], form["role"])
    masking = visit.parts.identity.masking

    async def deed(dry_run: bool) -> Changed[MaskFacts]:
        if not dry_run:
            await masking.add(rule)
        return _describe(None, rule, dry_run=dry_run)

    return await _change(visit, "mask.add", rule, ["mask", "add", rule.prefix, *rule.fields, rule.role.value], deed)


async def delete_mask(visit: Visit) -> Shown:
    """Delete a rule."""
    number = read_digits(visit.path["number"]) or 0
    masking = visit.parts.identity.masking
    rule = dict(masking.rules).get(number)
    if rule is None:
        raise ConfigError(visit.text("masks.gone"))

    async def deed(dry_run: bool) -> Changed[MaskFacts]:
        if not dry_run:
            await masking.delete(number)
        return _describe(rule, None, dry_run=dry_run)

    return await _change(visit, "mask.delete", rule, ["mask", "delete", number], deed)


async def _change(visit: Visit, action: str, rule: MaskRule, words: list[Any], deed: Any) -> Shown:
    target = f"{rule.prefix}*"
    return await change(visit, action=action, target=target, words=words, deed=deed, then="/masks", has_command=False)


def _describe(before: MaskRule | None, after: MaskRule | None, *, dry_run: bool) -> Changed[MaskFacts]:
    old, new = (
        None if rule is None else MaskFacts(topics=f"{rule.prefix}*", fields=[*rule.fields], role=rule.role.value)
        for rule in (before, after)
    )
    outcome = name_outcome(old, new, dry_run=dry_run)
    return Changed(name="masks", changes=[Change(where=WHERE, before=old, after=new, outcome=outcome)])


ROUTES = (
    Route("/masks", list_masks, Need.ADMIN, nav=Nav("console", 20, "nav.masks", "lock"), in_api=False),
    Route("/masks/new", add_mask, Need.ADMIN, ("GET", "POST"), in_api=False),
    Route("/masks/{number}/delete", delete_mask, Need.ADMIN, ("POST",), in_api=False),
)
