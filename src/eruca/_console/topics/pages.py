"""The list of topics, and creating one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from starlette.responses import Response

from eruca._admin.topics import TopicKind
from eruca._console.identity.rights import Need
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.rendering import render_part
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.topics.reading import TopicRow, add_places, read_topics

PERMISSIONS = ("RW", "R", "W", "-")
_KINDS = (*map(str, TopicKind), "all")
_QUEUES_MAX = 65_535
_POLL_S = 2.0
_SAMPLES = 60

COLUMNS: tuple[Column[TopicRow], ...] = (
    Column("name", "topics.name", lambda row: row.name, link=lambda visit, row: visit.url("topics", row.name)),
    Column("kind", "topics.kind", lambda row: row.kind, kind="tag", texts="topics.kind", tone=lambda row: "muted"),
    Column("messages", "topics.messages", lambda row: row.messages, kind="number", can_sort=False),
    Column("last_at", "topics.last", lambda row: row.last_at, kind="time", can_sort=False),
    Column("write_queues", "topics.write_queues", lambda row: row.write_queues, kind="number"),
    Column("read_queues", "topics.read_queues", lambda row: row.read_queues, kind="number", is_minor=True),
    Column(
        "permission",
        "topics.permission",
        lambda row: row.permission,
        kind="tag",
        tone=lambda row: "ok" if row.permission == "RW" else "warning",
    ),
    Column("brokers", "topics.brokers", lambda row: row.brokers, is_minor=True),
)

FIELDS = (
    Field("topic", "topics.name", required=True, hint="topics.name.hint", chars_max=127),
    Field("queues", "topics.queues", "number", default=8, required=True, low=1, high=_QUEUES_MAX,
          hint="topics.queues.hint"),
    Field("permission", "topics.permission", "choice", default="RW", required=True, choices=PERMISSIONS,
          choice_texts="topics.permission"),
    Field("ordered", "topics.ordered", "check", hint="topics.ordered.hint"),
    Field("brokers", "topics.on_brokers", hint="topics.on_brokers.hint", chars_max=1000),
)  # fmt: skip


async def list_topics(visit: Visit) -> Shown | Response:
    """Show all topics of a kind."""
    kind = visit.query.get("kind", "normal")
    kind = kind if kind in _KINDS else "normal"
    found = await read_topics(visit.cluster, kind)
    table = make_table(visit, "topics", COLUMNS, found.rows, cut=found.cut, sort="name")
    table.rows = await add_places(visit.cluster, table.rows)
    return show_table(
        visit,
        "topics/list.html",
        table,
        problems=found.problems,
        kind=kind,
        kinds=_KINDS,
        command=visit.command("topic", "list", *write_flags(kind=None if kind == "normal" else kind)),
    )


async def watch_rates(visit: Visit) -> Response:
    """Send the rates of the cluster as they change."""
    return visit.parts.streams.answer(visit, _list_rates(visit))


async def _list_rates(visit: Visit) -> AsyncIterator[tuple[str, str]]:
    stored: deque[float] = deque(maxlen=_SAMPLES)
    read: deque[float] = deque(maxlen=_SAMPLES)
    while True:
        runtimes = await visit.cluster.recent.ask("brokers.runtime", visit.admin.brokers.runtime, fresh_s=1.0)
        stored.append(sum(each.put_rates[0] for each in runtimes.items if each.put_rates))
        read.append(sum(each.transferred_rates[0] for each in runtimes.items if each.transferred_rates))
        yield "cluster-rates", render_part(visit, "topics/parts.html:rates", list(stored), list(read))
        await asyncio.sleep(_POLL_S)


async def create_topic(visit: Visit) -> Shown:
    """Create a topic."""
    if visit.method == "GET":
        return visit.show("topics/create.html", fields=FIELDS)
    form = read_fields(visit, FIELDS)
    topic, brokers = form["topic"], (form["brokers"] or "").replace(",", " ").split() or None
    settings = {"queues": form["queues"], "permission": form["permission"], "ordered": form["ordered"]}
    return await change(
        visit,
        action="topic.create",
        target=topic,
        words=["topic", "create", topic, *write_flags(**settings, broker=brokers)],
        deed=lambda dry_run: visit.admin.topics.create(topic, **settings, brokers=brokers, dry_run=dry_run),
        then=visit.url("topics"),
    )


ROUTES = (
    Route(
        "/c/{cluster}/topics",
        list_topics,
        Need.VIEW,
        nav=Nav("data", 10, "nav.topics", "topics", "t"),
        summary="List topics.",
        fields={"kind": "normal, retry, dlq, system or all"},
    ),
    Route("/c/{cluster}/live/rates", watch_rates, Need.VIEW, in_api=False),
    Route(
        "/c/{cluster}/new/topic",
        create_topic,
        Need.OPERATE,
        ("GET", "POST"),
        names={"topic": "topic"},
        summary="Create a topic.",
    ),
)
