"""Search a topic, and one message."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.responses import JSONResponse, RedirectResponse, Response

from eruca._console.identity.rights import Need
from eruca._console.messages import importing, sending
from eruca._console.messages.reading import (
    find_message,
    link_message,
    make_viewer,
    read_filter,
    require_keys,
    require_unmasked,
)
from eruca._console.messages.searching import (
    MODES,
    Bounds,
    Found,
    Wanted,
    is_number,
    read_places,
    write_places,
)
from eruca._console.messages.viewing import FORMATS
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, read_fields
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import write_cell
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.limits import (
    CONSOLE_BODY_BYTES_MAX,
    CONSOLE_FILTER_CHARS_MAX,
    CONSOLE_FILTER_NAME_CHARS_MAX,
    CONSOLE_SCAN_STEPS_MAX,
)
from eruca._ground.times import read_moment
from eruca.errors import ConfigError

_TEXT_CHARS_MAX: Final = 512
_EXPORT_BOUNDS: Final = Bounds(found=1000, messages=50_000, bytes=128 * 1024 * 1024, seconds=10.0)
_CSV_FIELDS: Final = (
    *("stored_at", "born_at", "topic", "broker", "queue", "offset", "message_id", "offset_id", "tags", "keys"),
    *("properties", "tries", "born_host", "body", "body_base64"),
)
_SAVE_FIELDS: Final = (
    Field("name", "messages.filter.name", required=True, chars_max=CONSOLE_FILTER_NAME_CHARS_MAX),
    Field("filter", "messages.filter", required=True, chars_max=CONSOLE_FILTER_CHARS_MAX),
    Field("topic", "messages.topic", chars_max=_TEXT_CHARS_MAX),
)


# -- searching ---------------------------------------------------------------------------------------------------------


async def search(visit: Visit) -> Shown | Response:
    """Show the form, and what a first step finds; or export what is found."""
    saved = await visit.parts.messages.saved.list(visit.user.name)
    wanted, problem = _try_read_wanted(visit)
    context: dict[str, Any] = {"modes": MODES, "saved": saved, "problem": problem, "wanted": wanted}
    if wanted is None or problem is not None:
        status = 200 if problem is None else 400
        return visit.show(
            "messages/search.html", {"error": str(problem)} if problem else None, status=status, found=None, **context
        )
    exported = visit.query.get("format", "")
    if exported in ("json", "jsonl", "csv"):
        return _export(visit, await _run(visit, wanted, _EXPORT_BOUNDS), exported)
    found = await _run(visit, wanted)
    return visit.show("messages/search.html", _describe(found), **context, **_make_context(visit, wanted, found))


async def continue_search(visit: Visit) -> Shown:
    """Show the rows of the next step, or where the search was stopped."""
    wanted = _read_wanted(visit)
    if wanted is None:
        raise ConfigError("the search has no topic")
    if visit.query.get("stop"):
        found = Found(items=[], scanned=0, stopped="stop", resume=read_places(visit.query.get("from", "")))
    else:
        found = await _run(visit, wanted)
    return visit.show("messages/more.html", _describe(found), **_make_context(visit, wanted, found))


async def _run(visit: Visit, wanted: Wanted, bounds: Bounds | None = None) -> Found:
    if wanted.mode == "key":
        require_keys(visit, wanted.topic)
    return await visit.parts.messages.searching.run(
        visit.admin,
        wanted,
        make_viewer(visit, wanted.topic),
        read_filter(visit),
        read_places(visit.query.get("from", "")),
        bounds or Bounds(),
    )


def _make_context(visit: Visit, wanted: Wanted, found: Found) -> dict[str, Any]:
    """Return what the rows and the line of progress show: sums over all steps, and where it continues."""
    step = _read_count(visit, "step") + 1
    scanned = _read_count(visit, "scanned") + found.scanned
    count = _read_count(visit, "found") + len(found.items)
    query = {
        name: text for name, text in visit.query.items() if name not in ("from", "step", "scanned", "found", "stop")
    }
    here = {**query, "from": write_places(found.resume), "scanned": scanned, "found": count}
    goes_on = bool(found.resume) and found.stopped not in ("found", "stop") and step % CONSOLE_SCAN_STEPS_MAX != 0
    return {
        "found": found,
        "scanned": scanned,
        "count": count,
        "goes_on": goes_on,
        "next": visit.url("messages", "more", **here, step=step) if found.resume else "",
        "stop": visit.url("messages", "more", **here, step=step, stop=1),
        "exports": {each: visit.url("messages", **query, format=each) for each in ("jsonl", "json", "csv")},
        "link": lambda view: link_message(visit, view.facts),
        "command": _write_search_command(visit, wanted),
    }


def _describe(found: Found) -> dict[str, Any]:
    return {
        "items": [view.make_row() for view in found.items],
        "scanned": found.scanned,
        "stopped": found.stopped,
        "cut": found.cut or found.stopped != "end",
        "from": write_places(found.resume),
        "problems": msgspec.to_builtins(found.problems),
    }


def _write_search_command(visit: Visit, wanted: Wanted) -> str:
    times = {
        "from_time": wanted.since and wanted.since.isoformat(), "to_time": wanted.until and wanted.until.isoformat()
    }  # fmt: skip
    if wanted.mode in ("key", "id"):
        return visit.command("message", "find", wanted.topic, *write_flags(**{wanted.mode: wanted.name}, **times))
    place = None if wanted.broker is None else f"{wanted.broker}:{wanted.queue}"
    return visit.command("message", "find", wanted.topic, *write_flags(queue=place, offset=wanted.offset, **times))


def _export(visit: Visit, found: Found, format: str) -> Response:
    head = {"Content-Disposition": f'attachment; filename="messages.{format}"'}
    if format == "json":
        return JSONResponse(_describe(found), headers=head)
    rows = [view.make_row() for view in found.items]
    if format == "jsonl":
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        return Response(lines, media_type="application/x-ndjson", headers=head)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_CSV_FIELDS)
    for row in rows:
        row["properties"] = msgspec.json.encode(row["properties"]).decode()
        writer.writerow([write_cell(row[name]) for name in _CSV_FIELDS])
    if found.cut or found.stopped != "end":
        writer.writerow([visit.text("tables.cut.export", count=len(rows))])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=head)


def _read_count(visit: Visit, name: str) -> int:
    text = visit.query.get(name, "")
    return int(text) if is_number(text, 9) else 0


def _try_read_wanted(visit: Visit) -> tuple[Wanted | None, ConfigError | None]:
    try:
        wanted = _read_wanted(visit)
        read_filter(visit)
        return wanted, None
    except ConfigError as error:
        return None, error


def _read_wanted(visit: Visit) -> Wanted | None:
    """Return what the query asks for; None without a topic. Raises ConfigError and InvalidName."""
    query = {name: text.strip()[:_TEXT_CHARS_MAX] for name, text in visit.query.items()}
    topic = query.get("topic", "")
    if not topic:
        return None
    mode = query.get("mode", "newest")
    if mode not in MODES:
        raise ConfigError(f"mode={mode[:40]}: expected one of {', '.join(MODES)}")
    broker, queue = _read_place(query.get("queue", ""))
    offset = query.get("offset", "")
    if mode == "offset" and (broker is None or not is_number(offset)):
        raise ConfigError(visit.text("messages.needs_offset"))
    if mode in ("key", "id") and not query.get("name"):
        raise ConfigError(visit.text("messages.needs_name"))
    return Wanted(
        topic=topic,
        mode=mode,
        name=query.get("name", "") if mode in ("key", "id") else "",
        broker=broker,
        queue=queue,
        offset=int(offset) if mode == "offset" else None,
        since=_read_time(query.get("since", "")),
        until=_read_time(query.get("until", "")),
    )


def _read_place(text: str) -> tuple[str | None, int | None]:
    if not text:
        return None, None
    broker, _, queue = text.rpartition(":")
    if not broker or not is_number(queue, 9):
        raise ConfigError(f"{text!r} is not a queue", hint="BROKER:N, for example broker-a:0")
    return broker, int(queue)


def _read_time(text: str) -> datetime | None:
    if not text:
        return None
    moment = read_moment(text)
    return None if isinstance(moment, str) else moment


# -- one message -------------------------------------------------------------------------------------------------------


async def show_message(visit: Visit) -> Shown | Response:
    """Show one message: where it is, its body in a format, its properties."""
    topic = visit.path["topic"]
    message = await find_message(visit, topic, visit.path["broker"], visit.path["queue"], visit.path["offset"])
    view = await make_viewer(visit, topic)(message)
    if visit.query.get("download"):
        require_unmasked(visit, topic)
        head = {"Content-Disposition": f'attachment; filename="{message.offset_id or "message"}.body"'}
        return Response(message.body, media_type="application/octet-stream", headers=head)
    format = visit.query.get("format", FORMATS[0])
    row = view.make_row()
    return visit.show(
        "messages/message.html",
        row,
        view=view,
        message=view.facts,
        body=view.show(format if format in FORMATS else FORMATS[0]),
        formats=FORMATS,
        here=link_message(visit, message),
        json=msgspec.json.encode(row).decode() if view.size <= CONSOLE_BODY_BYTES_MAX else "",
        command=visit.command("message", "show", message.offset_id),
        neighbours=_find_neighbours(visit, message.offset),
    )


def _find_neighbours(visit: Visit, offset: int) -> dict[str, str]:
    """Return the addresses of the messages before and after one in its queue."""
    place = ("messages", visit.path["topic"], visit.path["broker"], visit.path["queue"])
    found = {"after": visit.url(*place, str(offset + 1))}
    return {"before": visit.url(*place, str(offset - 1)), **found} if offset else found


# -- saved filters -----------------------------------------------------------------------------------------------------


async def save_filter(visit: Visit) -> Response:
    """Save a filter, or delete one."""
    saved = visit.parts.messages.saved
    if visit.form.get("delete"):
        await saved.delete(visit.user.name, str(visit.form["delete"]))
        form: dict[str, Any] = {"topic": visit.form.get("topic"), "filter": visit.form.get("filter")}
    else:
        form = read_fields(visit, _SAVE_FIELDS)
        await saved.save(visit.user.name, form["name"], form["filter"])
    if visit.is_api:
        return JSONResponse({"items": msgspec.to_builtins(await saved.list(visit.user.name))})
    return RedirectResponse(visit.url("messages", topic=form["topic"], filter=form["filter"]), 303)


_SEARCH_FIELDS = {
    "topic": "the topic",
    "mode": "newest, oldest, key, id or offset",
    "name": "the key or the id",
    "queue": "BROKER:N",
    "offset": "the first offset, with mode=offset",
    "since": "a time, or -2h",
    "until": "a time, or -2h",
    "filter": "an expression: body.amount > 100 and tags = 'paid'",
    "from": "where to continue: `from` of the last answer",
}

ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/messages",
        search,
        Need.VIEW,
        names={"topic": "topic"},
        nav=Nav("data", 30, "nav.messages", "messages", "m"),
        summary="Search the messages of a topic.",
        fields=_SEARCH_FIELDS,
    ),
    Route("/c/{cluster}/messages/more", continue_search, Need.VIEW, names={"topic": "topic"}, in_api=False),
    Route(
        "/c/{cluster}/messages/filters",
        save_filter,
        Need.VIEW,
        ("POST",),
        names={"topic": "topic"},
        summary="Save a filter under a name.",
        fields={"name": "its name", "filter": "the expression", "delete": "the name of one to delete"},
    ),
    *sending.ROUTES,
    *importing.ROUTES,
    Route(
        "/c/{cluster}/messages/{topic}/{broker}/{queue}/{offset}",
        show_message,
        Need.VIEW,
        names={"topic": "topic"},
        summary="Show one message.",
        fields={"format": "decoded, text or hex", "download": "1: the body as it is"},
    ),
)
