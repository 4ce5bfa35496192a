"""Delayed messages: those that wait for their time, and cancelling one."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.responses import Response

from eruca._admin.delayed import Cancelled, Delayed
from eruca._console.identity.masking import MASK
from eruca._console.identity.rights import Need
from eruca._console.messages.reading import may_see
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import change
from eruca._console.pages.outcomes import Difference, OutcomeRow, Outcomes
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.times import show_exact
from eruca._console.pages.visit import Shown, Visit
from eruca._wire.properties import KEYS, TAGS

_OUTCOMES: Final = {"cancelled": "done", "unknown": "failed"}

_COLUMNS: tuple[Column[Delayed], ...] = (
    Column("due_at", "delayed.due", lambda row: row.due_at, kind="time"),
    Column("topic", "delayed.topic", lambda row: row.topic,
           link=lambda visit, row: visit.url("messages", topic=row.topic)),
    Column("message_id", "messages.id", lambda row: row.message_id, kind="code"),
    Column("level", "delayed.level", lambda row: row.level or None, kind="number"),
    Column("tags", "messages.tags", lambda row: row.tags, is_minor=True),
    Column("keys", "messages.keys", lambda row: row.keys),
    Column("born_at", "delayed.sent", lambda row: row.born_at, kind="time", is_minor=True),
    Column("broker", "delayed.broker", lambda row: row.broker, is_minor=True),
    Column("size", "messages.size", lambda row: row.size, kind="bytes", is_minor=True),
)  # fmt: skip


async def list_delayed(visit: Visit) -> Shown | Response:
    """Show the messages that wait for their time."""
    topic = visit.query.get("topic", "").strip() or None
    listed, levels = await asyncio.gather(visit.admin.delayed.list(topic=topic), visit.admin.delayed.levels())
    rows = [_mask(visit, row) for row in listed.items if may_see(visit, topic=row.topic)]
    table = make_table(
        visit,
        "delayed",
        _COLUMNS,
        rows,
        cut=listed.cut,
        sort="due_at",
        search=lambda row: " ".join((row.topic, row.message_id, row.tags, *row.keys)),
    )
    return show_table(
        visit,
        "delayed/list.html",
        table,
        problems=[*listed.problems, *levels.problems],
        levels=[level for level in levels.items if level.waiting] if visit.user.sees_all else [],
        may_cancel=lambda row: not row.level and visit.user.may(Need.OPERATE, topic=row.topic),
        command=visit.command("delayed", "list", *write_flags(topic=topic)),
    )


def _mask(visit: Visit, row: Delayed) -> Delayed:
    """Return a message without the properties that are hidden from the user."""
    hidden = visit.parts.identity.masking.look(visit.user, row.topic).properties
    return msgspec.structs.replace(
        row,
        tags=MASK if row.tags and TAGS in hidden else row.tags,
        keys=[MASK] if row.keys and KEYS in hidden else row.keys,
    )


async def cancel(visit: Visit) -> Shown:
    """Cancel a message that has its own time."""
    topic, name = visit.path["topic"], visit.path["message_id"]

    async def deed(dry_run: bool) -> Cancelled:
        return await visit.admin.delayed.cancel(topic, name, dry_run=dry_run)

    return await change(
        visit,
        action="delayed.cancel",
        target=name,
        words=["delayed", "cancel", topic, name],
        deed=deed,
        then=visit.url("delayed"),
        read=lambda result: _read_cancelled(visit, result),
    )


def _read_cancelled(visit: Visit, result: Cancelled) -> Outcomes:
    row = OutcomeRow(
        where=result.topic,
        outcome=_OUTCOMES.get(result.outcome, result.outcome),
        reason=result.reason,
        differences=[Difference(name=visit.text("delayed.due"), before=show_exact(result.due_at), after=None)]
        if result.due_at
        else [],
    )
    return Outcomes(rows=[row], before=msgspec.to_builtins(result), after={"outcome": result.outcome})


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/delayed",
        list_delayed,
        Need.VIEW,
        names={"topic": "topic"},
        nav=Nav("data", 70, "nav.delayed", "delayed", "y"),
        summary="List the messages that wait for their time.",
        fields={"topic": "only those of a topic"},
    ),
    Route(
        "/c/{cluster}/delayed/{topic}/{message_id}/cancel",
        cancel,
        Need.OPERATE,
        ("POST",),
        names={"topic": "topic"},
        summary="Cancel a message that has its own time.",
    ),
)
