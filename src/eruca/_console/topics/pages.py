"""The list of topics and one topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import RedirectResponse, Response

from eruca._admin.clients import ProducerClient
from eruca._admin.queueends import QueueEnds
from eruca._admin.routes import RouteBroker
from eruca._admin.topics import TopicKind
from eruca._console.identity.rights import Need
from eruca._console.pages.charts import Series
from eruca._console.pages.commands import write_flags
from eruca._console.pages.rendering import render_part
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, export_table, make_table, show_table
from eruca._console.pages.visit import Shown, Visit
from eruca._console.topics import detail, reading
from eruca._console.topics.detail import TopicGroup, Traffic
from eruca._console.topics.reading import TopicRow

_KINDS = (*map(str, TopicKind), "all")
TABS = ("queues", "groups", "traffic", "routes", "producers", "settings")
_POLL_S = 2.0
_SAMPLES = 150

COLUMNS: tuple[Column[TopicRow], ...] = (
    Column("name", "topics.name", lambda row: row.name, link=lambda visit, row: visit.url("topics", row.name)),
    Column("messages", "topics.messages", lambda row: row.messages, kind="number", can_sort=False),
    Column("rate", "topics.rate", lambda row: row.rate, kind="rate", can_sort=False),
    Column("last_at", "topics.last", lambda row: row.last_at, kind="time", can_sort=False),
    Column("write_queues", "topics.write_queues", lambda row: row.write_queues, kind="number"),
    Column("read_queues", "topics.read_queues", lambda row: row.read_queues, kind="number", is_minor=True),
    Column(
        "permission",
        "topics.permission",
        lambda row: row.permission,
        kind="tag",
        tone=lambda row: "" if row.permission == "RW" else "warning",
    ),
    Column("brokers", "topics.brokers", lambda row: row.brokers, is_minor=True),
)
QUEUE_COLUMNS: tuple[Column[QueueEnds], ...] = (
    Column("broker", "topics.broker", lambda row: row.broker),
    Column("queue", "topics.queue", lambda row: row.queue, kind="number"),
    Column("begin", "topics.begin", lambda row: row.begin, kind="number"),
    Column("end", "topics.end", lambda row: row.end, kind="number"),
    Column("messages", "topics.messages", lambda row: row.count, kind="number"),
    Column("first_at", "topics.first_at", lambda row: row.first_at, kind="time"),
    Column("last_at", "topics.last", lambda row: row.last_at, kind="time"),
)
GROUP_COLUMNS: tuple[Column[TopicGroup], ...] = (
    Column("group", "topics.group", lambda row: row.group, link=lambda visit, row: visit.url("groups", row.group)),
    Column("lag", "topics.lag", lambda row: row.lag, kind="number", tone=lambda row: "" if row.lag else "muted"),
    Column("lag_time", "topics.lag_time", lambda row: row.lag_time, kind="duration"),
    Column("queues", "topics.queues_count", lambda row: row.queues, kind="number"),
    Column("consumed_at", "topics.consumed_at", lambda row: row.consumed_at, kind="time"),
)
TRAFFIC_COLUMNS: tuple[Column[Traffic], ...] = (
    Column("who", "topics.who", lambda row: row.who),
    Column("minute", "topics.minute", lambda row: row.minute, kind="number"),
    Column("minute_rate", "topics.per_second", lambda row: row.minute_rate, kind="rate"),
    Column("hour", "topics.hour", lambda row: row.hour, kind="number"),
    Column("hour_rate", "topics.per_second", lambda row: row.hour_rate, kind="rate"),
    Column("day", "topics.day", lambda row: row.day, kind="number"),
    Column("day_rate", "topics.per_second", lambda row: row.day_rate, kind="rate"),
)
#: Of exports: each name server has a table of its own on the page.
ROUTE_COLUMNS: tuple[Column[tuple[str, RouteBroker]], ...] = (
    Column("server", "topics.tab.routes", lambda row: row[0]),
    Column("broker", "topics.broker", lambda row: row[1].broker),
    Column("cluster", "topics.cluster", lambda row: row[1].cluster),
    Column("addresses", "topics.addresses", lambda row: [f"{id}:{at}" for id, at in row[1].addresses.items()]),
    Column("write_queues", "topics.write_queues", lambda row: row[1].write_queues),
    Column("read_queues", "topics.read_queues", lambda row: row[1].read_queues),
    Column("permission", "topics.permission", lambda row: row[1].permission),
)
PRODUCER_COLUMNS: tuple[Column[ProducerClient], ...] = (
    Column("group", "topics.producer_group", lambda row: row.group),
    Column("client_id", "topics.client_id", lambda row: row.client_id),
    Column("address", "topics.address", lambda row: row.address, kind="code"),
    Column("language", "topics.language", lambda row: row.language),
    Column("version", "topics.version", lambda row: row.version),
    Column("broker", "topics.broker", lambda row: row.broker, is_minor=True),
    Column("seen_at", "topics.seen_at", lambda row: row.seen_at, kind="time"),
)


# -- the list --------------------------------------------------------------------------------------------------------


async def list_topics(visit: Visit) -> Shown | Response:
    """Show all topics of a kind, or those with a prefix; favourites are first."""
    kind = visit.query.get("kind", "normal")
    kind = kind if kind in _KINDS else "normal"
    prefix = visit.query.get("prefix", "")[:255]
    found, stars = await asyncio.gather(
        reading.read_topics(visit.cluster, kind), visit.parts.favourites.list(visit.user.name, visit.cluster.name)
    )
    seen = [row for row in found.rows if visit.user.may(Need.VIEW, topic=row.name)]
    rows = [row for row in seen if row.name.startswith(prefix)]
    if stars:
        rows = [msgspec.structs.replace(row, favourite=True) if row.name in stars else row for row in rows]
    if not visit.query.get("sort"):
        rows.sort(key=lambda row: (not row.favourite, row.name.lower()))
    if visit.query.get("stars"):
        rows = [row for row in rows if row.favourite]
    table = make_table(visit, "topics", COLUMNS, rows, cut=found.cut)
    if not table.format:
        table.rows = await reading.add_places(visit.cluster, table.rows)
    flags = write_flags(kind=None if kind == "normal" else kind)
    folders = reading.list_folders([row.name for row in seen], prefix)
    return show_table(
        visit,
        "topics/list.html",
        table,
        problems=found.problems,
        kind=kind,
        kinds=_KINDS,
        prefix=prefix,
        parents=reading.list_parents(prefix),
        folders=folders[: reading.FOLDERS_MAX],
        folders_more=max(0, len(folders) - reading.FOLDERS_MAX),
        star_count=len(stars),
        command=visit.command("topic", "list", *([prefix] if prefix else []), *flags),
    )


async def toggle_favourite(visit: Visit) -> Shown | Response:
    """Mark a topic with a star, or unmark it."""
    topic = visit.path["topic"]
    is_marked = await visit.parts.favourites.toggle(visit.user.name, visit.cluster.name, topic)
    if visit.is_htmx or visit.is_api:
        return visit.show("topics/star.html", {"topic": topic, "favourite": is_marked}, topic=topic, marked=is_marked)
    return RedirectResponse(visit.url("topics"), 303)


# -- one topic -------------------------------------------------------------------------------------------------------


async def show_topic(visit: Visit) -> Shown | Response:
    """Show one topic; the tab decides which list."""
    topic = visit.path["topic"]
    tab = visit.query.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    found, stars = await asyncio.gather(
        detail.read_detail(visit.cluster, topic), visit.parts.favourites.list(visit.user.name, visit.cluster.name)
    )
    context = {
        "tab": tab,
        "tabs": [(each, visit.text(f"topics.tab.{each}"), visit.url("topics", topic, tab=each)) for each in TABS],
        "topic": topic,
        "detail": found,
        "marked": topic in stars,
        "skew": detail.find_skew(found.topic.queues),
        "command": visit.command("topic", "show", topic, *(["--queues"] if tab == "queues" else [])),
    }
    problems = list(found.problems)
    if tab == "queues":
        table = make_table(visit, "queues", QUEUE_COLUMNS, found.topic.queues, cut=found.topic.cut)
        answer = show_table(visit, "topics/detail.html", table, problems=problems, **context)
    elif tab == "groups":
        names = [name for name in found.topic.groups if visit.user.may(Need.VIEW, group=name)]
        groups, is_cut, more = await detail.read_groups(visit.cluster, topic, names)
        groups_table = make_table(visit, "groups", GROUP_COLUMNS, groups, sort="-lag", cut=is_cut)
        context["command"] = visit.command("lag", *names[:1]) if len(names) == 1 else visit.command("lag")
        answer = show_table(visit, "topics/detail.html", groups_table, problems=[*problems, *more], **context)
    elif tab == "traffic":
        rows = detail.list_traffic(found.traffic)
        named = [msgspec.structs.replace(each, who=each.who or visit.text("topics.stored")) for each in rows]
        context["command"] = visit.command("topic", "stats", topic)
        traffic_table = make_table(visit, "traffic", TRAFFIC_COLUMNS, named)
        answer = show_table(visit, "topics/detail.html", traffic_table, problems=problems, **context)
    elif tab == "producers":
        producers, cut, more = await detail.read_producers(visit.cluster)
        context["command"] = visit.command("client", "producers")
        producer_table = make_table(visit, "producers", PRODUCER_COLUMNS, producers, cut=cut)
        answer = show_table(visit, "topics/detail.html", producer_table, problems=[*problems, *more], **context)
    elif tab == "routes":
        routes, is_same, more = await detail.read_routes(visit.cluster, topic)
        entries = [(each.server, row) for each in routes if each.route for row in each.route.brokers]
        route_table = make_table(visit, "routes", ROUTE_COLUMNS, entries)
        if route_table.format:
            return export_table(visit, route_table)
        context["route_table"] = route_table
        context |= {"routes": routes, "is_same": is_same, "command": visit.command("route", "compare", topic)}
        answer = Shown("topics/detail.html", {"routes": routes}, context, problems=[*problems, *more])
    else:
        answer = Shown("topics/detail.html", None, context, problems=problems)
    if isinstance(answer, Shown) and visit.is_api:
        return _add_detail(answer, found)
    return answer


def _add_detail(answer: Shown, found: detail.TopicDetail) -> Shown:
    """Return the answer for the API: the topic beside the list of the tab."""
    return Shown(answer.template, {"topic": found, "list": answer.value}, answer.context, problems=answer.problems)


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


async def watch_topic(visit: Visit) -> Response:
    """Send how fast a topic is written, from the ends of its queues."""
    return visit.parts.streams.answer(visit, _list_topic_rates(visit))


async def _list_topic_rates(visit: Visit) -> AsyncIterator[tuple[str, str]]:
    topic, loop = visit.path["topic"], asyncio.get_running_loop()
    points: deque[tuple[float, float | None]] = deque(maxlen=_SAMPLES)
    before: tuple[float, int] | None = None
    while True:
        ends = await visit.admin.topics.queues(topic, limit=detail.QUEUES_MAX)
        now, end = loop.time(), sum(each.end for each in ends.items)
        if before is not None:
            points.append((visit.now(), max(0, end - before[1]) / (now - before[0])))
            series = [Series(visit.text("topics.stored"), list(points))]
            yield "topic-rate", render_part(visit, "topics/parts.html:topic_rate", series)
        count = sum(each.count for each in ends.items)
        yield "topic-count", f"{count:,}"
        before = (now, end)
        await asyncio.sleep(_POLL_S)


TOPIC = {"topic": "topic"}
ROUTES = (
    Route(
        "/c/{cluster}/topics",
        list_topics,
        Need.VIEW,
        nav=Nav("data", 10, "nav.topics", "topics", "t"),
        summary="List topics.",
        fields={
            "kind": "normal, retry, dlq, system or all",
            "prefix": "only names that begin with this",
            "q": "only names that contain this",
        },
    ),
    Route("/c/{cluster}/live/rates", watch_rates, Need.VIEW, in_api=False),
    Route(
        "/c/{cluster}/topics/{topic}",
        show_topic,
        Need.VIEW,
        names=TOPIC,
        summary="Show a topic.",
        fields={"tab": f"the list that is returned: {', '.join(TABS)}"},
    ),
    Route("/c/{cluster}/topics/{topic}/live", watch_topic, Need.VIEW, names=TOPIC, in_api=False),
    Route(
        "/c/{cluster}/topics/{topic}/favourite",
        toggle_favourite,
        Need.VIEW,
        ("POST",),
        names=TOPIC,
        summary="Mark a topic as a favourite, or unmark it.",
    ),
)
