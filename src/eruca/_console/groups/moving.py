"""Moving a group: one queue, by time, past its backlog, to the offsets of another; and deleting it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal

from eruca._admin.moving import Moved, is_same_move
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field, FormRefused, change, read_fields
from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.times import read_moment
from eruca._wire.names import RETRY_PREFIX
from eruca.errors import ConfigError, NoRoute

_OFFSET_MAX: Final = 2**62
_WAYS: Final = ("to", "by", "begin", "end")
_SET_FIELDS: Final = (
    Field("topic", "groups.topic", required=True),
    Field("broker", "groups.broker", required=True),
    Field("queue", "groups.queue", "number", required=True, low=0, high=65_535),
    Field("way", "groups.set.way", "choice", default="to", required=True, choices=_WAYS, choice_texts="groups.set.way"),
    Field(
        "amount",
        "groups.set.amount",
        "number",
        low=-_OFFSET_MAX,
        high=_OFFSET_MAX,
        hint="groups.set.amount.hint",
        shown_for=("way", ("to", "by")),
    ),
)
_RESET_FIELDS: Final = (
    Field("topic", "groups.topic", required=True),
    Field("to", "groups.reset.to", required=True, default="-1h", hint="groups.reset.to.hint", chars_max=40),
    Field("only_back", "groups.reset.only_back", "check", hint="groups.reset.only_back.hint"),
)
_SKIP_FIELDS: Final = (Field("topic", "groups.topic", required=True),)
_CLONE_FIELDS: Final = (
    Field("target", "groups.clone.target", required=True, hint="groups.clone.target.hint"),
    Field("topic", "groups.topic", hint="groups.clone.topic.hint"),
)
_DELETE_FIELDS: Final = (
    Field("keep_offsets", "groups.delete.keep_offsets", "check", hint="groups.delete.keep_offsets.hint"),
)


async def _show_form(
    visit: Visit, action: str, fields: tuple[Field, ...], place: dict[str, Any] | None = None
) -> Shown:
    """Show a form; a topic is chosen among those that the group has offsets in, if it has any."""
    group = visit.path["group"]
    topics = await _list_topics(visit) if any(field.name == "topic" for field in fields) else []
    if place is not None:
        fields = tuple(replace(field, kind="hidden") if field.name in place else field for field in fields)
    elif topics:
        fields = tuple(
            replace(field, kind="choice", choices=topics) if field.name == "topic" else field for field in fields
        )
    # The others reach members that are connected.
    members = len((await visit.admin.groups.members(group)).items) if action == "group.set" else 0
    return visit.show("groups/form.html", action=action, group=group, fields=fields, place=place, members=members)


# --- one queue --------------------------------------------------------------------------------------------------------


async def set_offset(visit: Visit) -> Shown:
    """Set or shift the offset of a group in one queue."""
    group = visit.path["group"]
    if visit.method == "GET":
        return await _show_form(visit, "group.set", _SET_FIELDS, place=await _find_place(visit))
    form = read_fields(visit, _SET_FIELDS)
    topic, broker, queue = form["topic"], form["broker"], form["queue"]
    offset = await _find_offset(visit, form)

    async def deed(dry_run: bool) -> Moved:
        return await visit.admin.offsets.set(group, topic, broker, queue, offset, dry_run=dry_run)

    return await change(
        visit,
        action="group.set",
        target=group,
        words=["offset", "set", group, topic, f"{broker}:{queue}={offset}"],
        deed=deed,
        then=visit.url("groups", group),
        is_same=is_same_move,
    )


async def _find_offset(visit: Visit, form: dict[str, Any]) -> int:
    """Return the offset that a form means: itself, from the current one, or an end of the queue."""
    way, amount = form["way"], form["amount"]
    if way in ("to", "by") and amount is None:
        raise FormRefused({"amount": visit.text("forms.required")})
    if way == "to":
        if amount < 0:
            raise FormRefused({"amount": visit.text("forms.range", low=0, high=_OFFSET_MAX)})
        return int(amount)
    place = await _find_place(visit, form["topic"], form["broker"], form["queue"])
    if place is None:
        raise NoRoute(f"topic {form['topic']} has no queue {form['broker']}:{form['queue']}")
    if way == "by":
        if place["offset"] is None:
            raise ConfigError("the group has no offset in this queue", hint="set one: there is nothing to shift")
        return int(min(max(place["offset"] + amount, place["begin"]), place["end"]))
    return int(place["begin"] if way == "begin" else place["end"])


async def _find_place(
    visit: Visit, topic: str | None = None, broker: str | None = None, queue: int | None = None
) -> dict[str, Any] | None:
    """Return where a group is in a queue, and the ends of the queue; None if the query names none."""
    group = visit.path["group"]
    topic = topic or visit.query.get("topic", "")
    broker = broker or visit.query.get("broker", "")
    wanted = str(queue if queue is not None else visit.query.get("queue", ""))
    if not topic or not broker:
        return None
    ends = (await visit.admin.topics.queues(topic)).items
    row = next((each for each in ends if (each.broker, str(each.queue)) == (broker, wanted)), None)
    if row is None:
        return None
    progress = (await visit.admin.offsets.show(group, topic)).items
    mine = next((each for each in progress if (each.broker, each.queue) == (row.broker, row.queue)), None)
    offset = None if mine is None else mine.offset
    return {"topic": topic, "broker": broker, "queue": row.queue, "offset": offset, "begin": row.begin, "end": row.end}


# --- many queues ------------------------------------------------------------------------------------------------------


async def reset(visit: Visit) -> Shown:
    """Move a group to the messages that were stored at a time."""
    group = visit.path["group"]
    if visit.method == "GET":
        return await _show_form(visit, "group.reset", _RESET_FIELDS)
    form = read_fields(visit, _RESET_FIELDS)
    topic, text, force = form["topic"], form["to"], not form["only_back"]
    to = _read_moment(text)

    async def deed(dry_run: bool) -> Moved:
        return await visit.admin.offsets.reset(group, topic, to, force=force, dry_run=dry_run)

    return await change(
        visit,
        action="group.reset",
        target=group,
        words=["offset", "reset", group, topic, f"--to={text}", *([] if force else ["--only-back"])],
        deed=deed,
        then=visit.url("groups", group),
        is_same=lambda before, now: is_same_move(before, now, to_end=to == "latest"),
    )


def _read_moment(text: str) -> datetime | Literal["earliest", "latest"]:
    try:
        return read_moment(text)
    except ConfigError as error:
        raise FormRefused({"to": str(error)}) from None


async def skip(visit: Visit) -> Shown:
    """Move a group past everything that waits for it in a topic."""
    group = visit.path["group"]
    if visit.method == "GET":
        return await _show_form(visit, "group.skip", _SKIP_FIELDS)
    topic = read_fields(visit, _SKIP_FIELDS)["topic"]

    async def deed(dry_run: bool) -> Moved:
        return await visit.admin.offsets.skip(group, topic, dry_run=dry_run)

    return await change(
        visit,
        action="group.skip",
        target=group,
        words=["offset", "skip", group, topic],
        deed=deed,
        then=visit.url("groups", group),
        is_same=lambda before, now: is_same_move(before, now, to_end=True),
    )


async def clone(visit: Visit) -> Shown:
    """Start another group where this one is."""
    group = visit.path["group"]
    if visit.method == "GET":
        return await _show_form(visit, "group.clone", _CLONE_FIELDS)
    form = read_fields(visit, _CLONE_FIELDS)
    target, topic = form["target"], form["topic"]

    async def deed(dry_run: bool) -> Moved:
        return await visit.admin.offsets.clone(group, target, topic, dry_run=dry_run)

    return await change(
        visit,
        action="group.clone",
        target=target,
        words=["offset", "clone", group, target, *(["--topic", topic] if topic else [])],
        deed=deed,
        then=visit.url("groups", group),
        is_same=is_same_move,
    )


async def delete(visit: Visit) -> Shown:
    """Delete a group."""
    group = visit.path["group"]
    if visit.method == "GET":
        return await _show_form(visit, "group.delete", _DELETE_FIELDS)
    keep = read_fields(visit, _DELETE_FIELDS)["keep_offsets"]

    async def deed(dry_run: bool) -> Any:
        return await visit.admin.groups.delete(group, offsets=not keep, dry_run=dry_run)

    return await change(
        visit,
        action="group.delete",
        target=group,
        words=["group", "delete", group, *(["--keep-offsets"] if keep else [])],
        deed=deed,
        then=visit.url("groups"),
        back=visit.url("groups", group),
        is_dangerous=True,
        is_same=lambda before, now: before.changes == now.changes,
    )


async def _list_topics(visit: Visit) -> list[str]:
    """Return the topics that a group has offsets in, to choose from; its own topic for retries is last."""
    progress = await visit.admin.offsets.show(visit.path["group"])
    return sorted({row.topic for row in progress.items}, key=lambda topic: (topic.startswith(RETRY_PREFIX), topic))


_PATH: Final = "/c/{cluster}/groups/{group}/"
_BOTH: Final = ("GET", "POST")
_NAMES: Final = {"group": "group", "topic": "topic"}
ROUTES: Final = (
    Route(
        _PATH + "set",
        set_offset,
        Need.OPERATE,
        _BOTH,
        names=_NAMES,
        summary="Set or shift the offset of a group in one queue. No member may be connected.",
        fields={"way": "to, by, begin or end", "amount": "an offset, or how many messages"},
    ),
    Route(
        _PATH + "reset",
        reset,
        Need.OPERATE,
        _BOTH,
        names=_NAMES,
        summary="Move a group to the messages that were stored at a time.",
        fields={"to": "a time, an age (-2h), earliest or latest", "only_back": "do not move forward"},
    ),
    Route(_PATH + "skip", skip, Need.OPERATE, _BOTH, names=_NAMES, summary="Move a group past its backlog."),
    Route(
        _PATH + "clone",
        clone,
        Need.OPERATE,
        _BOTH,
        names={**_NAMES, "target": "group"},
        summary="Copy the offsets of a group to another.",
        fields={"target": "the other group"},
    ),
    Route(_PATH + "delete", delete, Need.OPERATE, _BOTH, names={"group": "group"}, summary="Delete a group."),
)
