"""Dead letters: the groups that have some, those of a group, and sending them again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from eruca._admin.deadletters import GroupLetters, Resent, Wanted
from eruca._console.identity.rights import Need
from eruca._console.messages.reading import (
    link_message,
    make_viewer,
    may_see,
    read_filter,
    require_keys,
    require_unmasked,
)
from eruca._console.messages.searching import list_too_large
from eruca._console.messages.viewing import MessageView
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.outcomes import Difference, OutcomeRow, Outcomes
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.limits import CONSOLE_LETTERS_MAX
from eruca._ground.times import read_moment
from eruca._wire.names import DLQ_PREFIX
from eruca._wire.properties import RETRY_TOPIC
from eruca.errors import ConfigError, NoRoute

_BODY_MAX: Final = 512 * 1024
_TARGETS: Final = ("origin", "group", "topic")
_OUTCOMES: Final = {"sent": "done", "skipped": "unchanged"}
_FIELDS: Final = (
    Field("target", "deadletters.target", "choice", default="group", required=True, choices=_TARGETS,
          choice_texts="deadletters.target"),
    Field("to_topic", "deadletters.to_topic", chars_max=127),
)  # fmt: skip

_GROUP_COLUMNS: tuple[Column[GroupLetters], ...] = (
    Column("group", "deadletters.group", lambda row: row.group,
           link=lambda visit, row: visit.url("deadletters", row.group)),
    Column("count", "deadletters.count", lambda row: row.count, kind="number",
           tone=lambda row: "error" if row.count else "muted"),
    Column("last_at", "deadletters.last", lambda row: row.last_at, kind="time"),
    Column("problem", "deadletters.problem", lambda row: row.problem, is_minor=True),
)  # fmt: skip


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter as the list has it."""

    id: str
    message_id: str
    stored_at: datetime | None
    # Where it was first sent to.
    topic: str
    tags: str
    keys: list[str]
    tries: int
    body: str
    link: str


_LETTER_COLUMNS: tuple[Column[Letter], ...] = (
    Column("stored_at", "deadletters.since", lambda row: row.stored_at, kind="time"),
    Column("message_id", "messages.id", lambda row: row.message_id, link=lambda visit, row: row.link),
    Column("topic", "deadletters.from", lambda row: row.topic),
    Column("tags", "messages.tags", lambda row: row.tags, is_minor=True),
    Column("keys", "messages.keys", lambda row: row.keys),
    Column("tries", "messages.tries", lambda row: row.tries, kind="number", is_minor=True),
    Column("body", "messages.body", lambda row: row.body, kind="code", can_sort=False),
)


async def list_groups(visit: Visit) -> Shown | Response:
    """Show the groups that have dead letters."""
    listed = await visit.cluster.recent.ask("deadletters", visit.admin.dead_letters.list)
    rows = [row for row in listed.items if may_see(visit, group=row.group)]
    table = make_table(visit, "deadletters", _GROUP_COLUMNS, rows, cut=listed.cut, sort="-count")
    return show_table(
        visit, "deadletters/groups.html", table, problems=listed.problems, command=visit.command("dlq", "list")
    )


async def list_letters(visit: Visit) -> Shown | Response:
    """Show the dead letters of a group, or export them."""
    group, filter = visit.path["group"], read_filter(visit)
    wanted = _read_wanted(visit)
    if wanted.key is not None:
        require_keys(visit, DLQ_PREFIX + group)
    views, cut = await _read(visit, group, wanted)
    found = [view for view in views if filter is None or filter.matches(view)]
    if visit.query.get("format") == "jsonl":
        lines = b"".join(msgspec.json.encode(view.make_row()) + b"\n" for view in found)
        head = {"Content-Disposition": 'attachment; filename="dead-letters.jsonl"'}
        return Response(lines, media_type="application/x-ndjson", headers=head)
    rows = [_describe(visit, view) for view in found]
    table = make_table(
        visit,
        "letters",
        _LETTER_COLUMNS,
        rows,
        cut=cut,
        sort="-stored_at",
        select=lambda row: row.id,
        search=lambda row: " ".join((row.message_id, row.topic, row.tags, *row.keys, row.body)),
    )
    times = {name: visit.query.get(name) for name in ("key", "since", "until", "filter")}
    return show_table(
        visit,
        "deadletters/letters.html",
        table,
        group=group,
        problems=list_too_large(DLQ_PREFIX + group, filter),
        fields=_FIELDS,
        may_resend=visit.user.may(Need.OPERATE, group=group),
        export=visit.url("deadletters", group, **times, format="jsonl"),
        is_masked=any(view.is_masked for view in views),
        command=visit.command("dlq", "list", group, *write_flags(key=times["key"] or None)),
    )


async def resend(visit: Visit) -> Shown:
    """Send selected dead letters of a group again; they are unchanged, and remain dead letters."""
    group = visit.path["group"]
    ids = list(dict.fromkeys(str(each) for each in visit.form.getlist("selected") if isinstance(each, str) and each))
    if not 0 < len(ids) <= CONSOLE_LETTERS_MAX:
        raise ConfigError(visit.text("deadletters.select", most=CONSOLE_LETTERS_MAX))
    form = read_fields(visit, _FIELDS)
    target, topic = form["target"], form["to_topic"]
    if target == "topic":
        if not topic:
            raise ConfigError(visit.text("deadletters.needs_topic"))
        # Elsewhere other rules may apply, or none.
        require_unmasked(visit, DLQ_PREFIX + group)
    wanted = Wanted(ids=ids, limit=len(ids))
    if target == "origin":
        await _require_origins(visit, group, wanted)

    async def deed(dry_run: bool) -> list[Resent]:
        rows = visit.admin.dead_letters.resend(
            group, wanted, only_group=target == "group", topic=topic if target == "topic" else None, dry_run=dry_run
        )
        return [row async for row in rows]

    flags = {"origin": [], "group": ["--only-group"], "topic": ["--to-topic", topic or ""]}[target]
    return await change(
        visit,
        action="deadletter.resend",
        target=group,
        words=["dlq", "resend", group, *ids, *flags],
        deed=deed,
        then=visit.url("deadletters", group),
        read=lambda result: _read_resent(visit, result),
    )


def _read_resent(visit: Visit, result: Sequence[Resent]) -> Outcomes:
    """Return the rows of sending dead letters again: one for each letter."""
    rows = [
        OutcomeRow(
            where=row.message_id,
            outcome=_OUTCOMES.get(row.outcome, row.outcome),
            reason=row.reason,
            differences=[
                Difference(name=visit.text("messages.topic"), before=None, after=row.topic),
                *(
                    [Difference(name=visit.text("messages.queue"), before=None, after=f"{row.broker}:{row.queue}")]
                    if row.broker
                    else []
                ),
                *(
                    [Difference(name=visit.text("messages.offset"), before=None, after=str(row.offset))]
                    if row.offset >= 0
                    else []
                ),
            ],
        )
        for row in result
    ]
    return Outcomes(rows=rows, after=msgspec.to_builtins(list(result)))


# -- reading -----------------------------------------------------------------------------------------------------------


async def _read(visit: Visit, group: str, wanted: Wanted) -> tuple[list[MessageView], bool]:
    """Return the dead letters of a group, and whether there are more."""
    view = make_viewer(visit, DLQ_PREFIX + group)
    found: list[MessageView] = []
    letters = visit.admin.dead_letters.read(group, wanted)
    try:
        async with aclosing(cast(Any, letters)) as opened:
            async for letter in opened:
                if len(found) >= CONSOLE_LETTERS_MAX:
                    return found, True
                found.append(await view(letter))
    except NoRoute:
        pass  # it is gone
    return found, False


async def _require_origins(visit: Visit, group: str, wanted: Wanted) -> None:
    """Raise HTTPException unless the user may send to the topics that the letters came from."""
    for view in (await _read(visit, group, wanted))[0]:
        topic = _find_origin(view)
        if topic and not visit.user.may(Need.OPERATE, topic=topic):
            raise HTTPException(403, visit.text("errors.right.topic", name=topic))


def _read_wanted(visit: Visit) -> Wanted:
    key = visit.query.get("key", "").strip() or None
    return Wanted(key=key, since=_read_time(visit, "since"), until=_read_time(visit, "until"))


def _read_time(visit: Visit, name: str) -> datetime | None:
    text = visit.query.get(name, "").strip()
    moment = read_moment(text) if text else None
    return moment if isinstance(moment, datetime) else None


def _find_origin(view: MessageView) -> str:
    return view.facts.properties.get(RETRY_TOPIC, "")


def _describe(visit: Visit, view: MessageView) -> Letter:
    facts = view.facts
    return Letter(
        id=facts.offset_id,
        message_id=facts.message_id,
        stored_at=facts.stored_at,
        topic=_find_origin(view),
        tags=facts.tags,
        keys=facts.keys,
        tries=facts.tries,
        body=view.preview,
        link=link_message(visit, facts),
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/deadletters",
        list_groups,
        Need.VIEW,
        nav=Nav("data", 60, "nav.deadletters", "deadletters", "e"),
        summary="List the groups that have dead letters.",
    ),
    Route(
        "/c/{cluster}/deadletters/{group}",
        list_letters,
        Need.VIEW,
        names={"group": "group"},
        summary="List the dead letters of a group.",
        fields={"key": "a key", "since": "a time, or -2h", "until": "a time, or -2h", "filter": "an expression"},
    ),
    Route(
        "/c/{cluster}/deadletters/{group}/resend",
        resend,
        Need.OPERATE,
        ("POST",),
        names={"group": "group", "to_topic": "topic"},
        summary="Send dead letters again.",
        fields={"selected": "their ids", "target": "origin, group or topic", "to_topic": "with target=topic"},
        body_max=_BODY_MAX,
    ),
)
