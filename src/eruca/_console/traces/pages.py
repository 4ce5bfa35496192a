"""What happened to a message: its trace as a timeline, and what the groups of its topic did with it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from eruca._admin.results import Listed
from eruca._admin.storedmessages import StoredMessage
from eruca._admin.tracing import TraceRow, Track
from eruca._console.identity.rights import Need
from eruca._console.messages.reading import hides_keys, link_message, make_viewer, may_see
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, export_table, make_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.traces.timeline import Event, draw_timeline, list_events
from eruca._wire.names import check_topic
from eruca.errors import ErucaError, NoRoute

_NAME_CHARS_MAX = 512
_STEPS_MAX = 256
_TONES = {"consumed": "ok", "waiting": "warning", "filtered": "muted", "unknown": "muted"}
_KINDS = ("produced", "stored", "sent", "delivered", "consumed", "decided")

_COLUMNS: tuple[Column[Event], ...] = (
    Column("at", "traces.at", lambda row: row.at, kind="time"),
    Column("after", "traces.after", lambda row: row.after, kind="duration"),
    Column("kind", "traces.step", lambda row: row.kind, kind="tag", texts="traces.kind", tone=lambda row: row.tone),
    Column("who", "traces.who", lambda row: row.who),
    Column("seconds", "traces.took", lambda row: row.seconds, kind="duration"),
    Column("tries", "traces.tries", lambda row: row.tries, kind="number"),
    Column("outcome", "traces.outcome", lambda row: row.outcome),
)
_TRACK_COLUMNS: tuple[Column[Track], ...] = (
    Column("group", "traces.group", lambda row: row.group, link=lambda visit, row: visit.url("groups", row.group)),
    Column("outcome", "traces.outcome", lambda row: row.outcome, kind="tag", texts="traces.track",
           tone=lambda row: _TONES.get(row.outcome, "muted")),
    Column("online", "traces.online", lambda row: row.online, kind="flag",
           tone=lambda row: "ok" if row.online else "muted"),
    Column("offset", "traces.offset", lambda row: row.offset, kind="number"),
    Column("reason", "traces.reason", lambda row: row.reason),
)  # fmt: skip


async def show_trace(visit: Visit) -> Shown | Response:
    """Show what happened to the message with an id or a key."""
    topic, name = visit.query.get("topic", "").strip(), visit.query.get("name", "").strip()[:_NAME_CHARS_MAX]
    context: dict[str, Any] = {
        "topic": topic,
        "name": name,
        "command": visit.command("message", "trace", name or "ID"),
    }
    if not (topic and name):
        return visit.show("traces/trace.html", None, asked=False, **context)
    check_topic(topic)
    found, steps = await asyncio.gather(_find_message(visit, topic, name), _read_steps(visit, name))
    tracks = await _read_tracks(visit, found)
    wanted = {found.message_id, name} if found is not None else {name}
    shown = [step for step in steps.items if _may_see_step(visit, step, topic, wanted)]
    events = list_events(found, shown)
    table = make_table(visit, "events", _COLUMNS, events, cut=steps.cut, prefix="events.")
    tracked = make_table(visit, "tracks", _TRACK_COLUMNS, tracks.items, cut=tracks.cut, prefix="tracks.")
    for each in (table, tracked):
        if each.format:
            return export_table(visit, each)
    kinds = {kind: visit.text(f"traces.kind.{kind}") for kind in _KINDS}
    return visit.show(
        "traces/trace.html",
        {"events": events, "groups": tracks.items, "cut": steps.cut, "problems": [*steps.problems, *tracks.problems]},
        asked=True,
        message=None if found is None else await make_viewer(visit, found.stored_in)(found),
        link="" if found is None else link_message(visit, found),
        timeline=draw_timeline(events, visit.text("traces.timeline"), kinds),
        table=table,
        tracks=tracked,
        is_traced=bool(shown),
        **context,
    )


def _may_see_step(visit: Visit, step: TraceRow, topic: str, ids: set[str]) -> bool:
    """Whether a step is of this message, in a topic of the user; deliveries do not name their topic."""
    if step.topic not in ("", topic) and not may_see(visit, topic=step.topic):
        return False
    if step.message_id not in ids and (hides_keys(visit, topic) or not (step.topic or visit.user.sees_all)):
        return False
    return may_see(visit, group=step.group) if step.group else True


async def _find_message(visit: Visit, topic: str, name: str) -> StoredMessage | None:
    """Return the newest message with an id, or else with a key; None if there is none."""
    messages = visit.admin.messages
    found = (await messages.find(topic, name)).items
    if not found and not hides_keys(visit, topic):
        found = (await messages.find_by_key(topic, name)).items
    return found[-1] if found else None


async def _read_steps(visit: Visit, name: str) -> Listed[TraceRow]:
    try:
        return await visit.admin.messages.trace(name, limit=_STEPS_MAX)
    except NoRoute:
        return Listed(items=[])  # nobody has ever traced anything


async def _read_tracks(visit: Visit, found: StoredMessage | None) -> Listed[Track]:
    if found is None:
        return Listed(items=[])
    try:
        listed = await visit.admin.messages.tracks(found.offset_id)
    except ErucaError:
        return Listed(
            items=[]
        )  # the record expired meanwhile, or its broker is away: the steps are still worth showing
    return msgspec.structs.replace(listed, items=[row for row in listed.items if may_see(visit, group=row.group)])


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/traces",
        show_trace,
        Need.VIEW,
        names={"topic": "topic"},
        nav=Nav("data", 50, "nav.traces", "traces", "r"),
        summary="Show what happened to a message.",
        fields={"topic": "its topic", "name": "its id, or a key"},
    ),
)
