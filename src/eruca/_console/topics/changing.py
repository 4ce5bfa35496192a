"""Creating, changing and deleting topics."""

from __future__ import annotations

from typing import Any

from eruca._admin.topics import explain_unknown
from eruca._console.identity.rights import Need
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, FormRefused, change, read_fields
from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Shown, Visit
from eruca._console.topics.pages import TOPIC
from eruca._console.topics.reading import TopicRow, read_topics

PERMISSIONS = ("RW", "R", "W", "-")
_QUEUES_MAX = 65_535
# Groups that read a topic which is to be deleted; more are not counted.
_GROUPS_MAX = 1_000
_BROKERS = Field("brokers", "topics.on_brokers", hint="topics.on_brokers.hint", chars_max=1000)
_PERMISSION = Field(
    "permission",
    "topics.permission",
    "choice",
    default="RW",
    required=True,
    choices=PERMISSIONS,
    choice_texts="topics.permission",
)
_ORDERED = Field("ordered", "topics.ordered", "check", hint="topics.ordered.hint")

CREATE_FIELDS = (
    Field("topic", "topics.name", required=True, hint="topics.name.hint", chars_max=127),
    Field(
        "queues",
        "topics.queues",
        "number",
        default=8,
        required=True,
        low=1,
        high=_QUEUES_MAX,
        hint="topics.queues.hint",
    ),
    _PERMISSION,
    _ORDERED,
    _BROKERS,
)
CHANGE_FIELDS = (
    Field("write_queues", "topics.write_queues.each", "number", low=1, high=_QUEUES_MAX, hint="topics.fewer.hint"),
    Field("read_queues", "topics.read_queues.each", "number", low=1, high=_QUEUES_MAX),
    _PERMISSION,
    _ORDERED,
    _BROKERS,
)
DELETE_FIELDS = (_BROKERS,)


async def create_topic(visit: Visit) -> Shown:
    """Create a topic."""
    if visit.method == "GET":
        return visit.show("topics/create.html", fields=CREATE_FIELDS)
    form = read_fields(visit, CREATE_FIELDS)
    topic, brokers = form["topic"], split_names(form["brokers"])
    settings: dict[str, Any] = {name: form[name] for name in ("queues", "permission", "ordered")}
    return await change(
        visit,
        action="topic.create",
        target=topic,
        words=["topic", "create", topic, *write_flags(**settings, broker=brokers)],
        deed=lambda dry_run: visit.admin.topics.create(topic, **settings, brokers=brokers, dry_run=dry_run),
        then=visit.url("topics", topic),
        back=visit.url("topics"),
    )


async def change_topic(visit: Visit) -> Shown:
    """Change the queues, the permission or the order of a topic."""
    topic = visit.path["topic"]
    if visit.method == "GET":
        row = await _find_row(visit, topic)
        count = max(1, len(row.brokers))
        values = {
            "write_queues": row.write_queues // count,
            "read_queues": row.read_queues // count,
            "permission": row.permission.partition(" ")[0],
            "ordered": row.ordered,
        }
        return visit.show("topics/change.html", None, topic=topic, fields=CHANGE_FIELDS, values=values, row=row)
    form = read_fields(visit, CHANGE_FIELDS)
    brokers = split_names(form["brokers"])
    settings: dict[str, Any] = {name: form[name] for name in ("write_queues", "read_queues", "permission", "ordered")}
    if all(settings[name] is None for name in ("write_queues", "read_queues", "permission")):
        raise FormRefused({"write_queues": visit.text("forms.required")})
    flags = write_flags(**{name: value for name, value in settings.items() if name != "ordered"}, broker=brokers)
    return await change(
        visit,
        action="topic.change",
        target=topic,
        words=["topic", "update", topic, *flags, "--ordered" if settings["ordered"] else "--no-ordered"],
        deed=lambda dry_run: visit.admin.topics.update(topic, **settings, brokers=brokers, dry_run=dry_run),
        then=visit.url("topics", topic),
    )


async def delete_topic(visit: Visit) -> Shown:
    """Delete a topic with its messages."""
    topic = visit.path["topic"]
    if visit.method == "GET":
        row = await _find_row(visit, topic)
        groups = await visit.admin.topics.groups(topic, limit=_GROUPS_MAX)
        return visit.show(
            "topics/delete.html",
            None,
            topic=topic,
            fields=DELETE_FIELDS,
            row=row,
            groups=groups.items,
            cut=groups.cut,
        )
    brokers = split_names(read_fields(visit, DELETE_FIELDS)["brokers"])
    return await change(
        visit,
        action="topic.delete",
        target=topic,
        words=["topic", "delete", topic, *write_flags(broker=brokers, yes=True)],
        deed=lambda dry_run: visit.admin.topics.delete(topic, brokers=brokers, dry_run=dry_run),
        then=visit.url("topics"),
        back=visit.url("topics", topic),
        is_dangerous=True,
    )


async def _find_row(visit: Visit, topic: str) -> TopicRow:
    """Return the settings of a topic. Raises NoRoute."""
    found = await read_topics(visit.cluster, "all")
    row = next((each for each in found.rows if each.name == topic), None)
    if row is None:
        raise explain_unknown(topic)
    return row


def split_names(text: str | None) -> list[str] | None:
    """Return names that are separated by blanks or commas; None if there are none."""
    return (text or "").replace(",", " ").split() or None


ROUTES = (
    Route(
        "/c/{cluster}/new/topic",
        create_topic,
        Need.OPERATE,
        ("GET", "POST"),
        names=TOPIC,
        summary="Create a topic.",
        form=CREATE_FIELDS,
    ),
    Route(
        "/c/{cluster}/topics/{topic}/change",
        change_topic,
        Need.OPERATE,
        ("GET", "POST"),
        names=TOPIC,
        summary="Change a topic.",
        form=CHANGE_FIELDS,
    ),
    Route(
        "/c/{cluster}/topics/{topic}/delete",
        delete_topic,
        Need.OPERATE,
        ("GET", "POST"),
        names=TOPIC,
        summary="Delete a topic with its messages.",
        form=DELETE_FIELDS,
    ),
)
