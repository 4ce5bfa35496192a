"""Send a message: a new one, or a copy of another, edited or not, to the same topic or another one."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eruca._admin.drafts import Draft, Sent, check_draft, copy_message, explain, send_draft
from eruca._admin.storedmessages import StoredMessage
from eruca._console.identity.rights import Need
from eruca._console.messages.reading import find_message, require_unmasked
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, FormRefused, change, read_fields
from eruca._console.pages.outcomes import Difference, OutcomeRow, Outcomes
from eruca._console.pages.routing import Route
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.durations import read_span
from eruca._ground.limits import CONSOLE_BODY_BYTES_MAX
from eruca._ground.printable import show_safely
from eruca.errors import ErucaError

_SHOWN_CHARS: Final = 2000
_COMMAND_CHARS: Final = 2000
_BODY_MAX: Final = 2 * 1024 * 1024

BODY = Field("body", "messages.body", "area", required=True, chars_max=CONSOLE_BODY_BYTES_MAX * 4 // 3)
FIELDS: Final = (
    Field("topic", "messages.to_topic", required=True, chars_max=127),
    BODY,
    Field("encoding", "messages.encoding", "choice", default="text", required=True, choices=("text", "base64"),
          choice_texts="messages.encoding"),
    Field("tags", "messages.tags", chars_max=255),
    Field("keys", "messages.keys", hint="messages.keys.hint", chars_max=2000),
    Field("properties", "messages.properties", "area", hint="messages.properties.hint", rows=3),
    Field("delay", "messages.delay", hint="messages.delay.hint", chars_max=20),
    Field("timer", "messages.timer", "check", hint="messages.timer.hint"),
    Field("shard", "messages.shard", hint="messages.shard.hint", chars_max=255),
    Field("queue", "messages.queue", hint="messages.queue.hint", chars_max=255),
)  # fmt: skip
SOURCE: Final = tuple(Field(name, name, "hidden", chars_max=255) for name in ("source", "broker", "number", "offset"))


def read_sent(result: Sequence[Sent], drafts: Sequence[Draft] = (), before: StoredMessage | None = None) -> Outcomes:
    """Return the rows of sending: what is sent, and where it is now."""
    rows = [
        OutcomeRow(
            where=sent.name or sent.topic,
            outcome=sent.outcome,
            reason=sent.reason,
            differences=_describe_sent(sent) if sent.outcome == "done" else _describe_draft(drafts, number, before),
        )
        for number, sent in enumerate(result)
    ]
    # Not the bodies: the audit log is for others than those who may read messages.
    return Outcomes(rows=rows, after=msgspec.to_builtins(list(result)))


def _describe_sent(sent: Sent) -> list[Difference]:
    facts = {"message id": sent.message_id, "queue": f"{sent.broker}:{sent.queue}", "offset": str(sent.offset)}
    return [Difference(name=name, before=None, after=value) for name, value in facts.items()]


def _describe_draft(drafts: Sequence[Draft], number: int, before: StoredMessage | None) -> list[Difference]:
    """Return what is sent beside what it was, if it is a copy."""
    if number >= len(drafts):
        return []
    old = {} if before is None else _name_parts(copy_message(before))
    new = _name_parts(drafts[number])
    # What is unchanged has no before, except that a copy always shows where it goes and what it is.
    return [
        Difference(name=name, before=None if old.get(name) == new.get(name) else old.get(name), after=new.get(name))
        for name in old | new
        if old.get(name) != new.get(name) or name in ("topic", "body")
    ]


def _name_parts(draft: Draft) -> dict[str, str]:
    try:
        body = show_safely(draft.body.decode(), keep="\n\t")
    except UnicodeDecodeError:
        body = f"<{len(draft.body)} bytes>"
    parts = {
        "topic": draft.topic,
        "body": body if len(body) <= _SHOWN_CHARS else f"{body[:_SHOWN_CHARS]}…",
        "tags": draft.tags,
        "keys": " ".join(draft.keys),
        **{f"property {name}": value for name, value in draft.properties.items()},
        "delay": "" if draft.delay is None else f"{draft.delay.total_seconds():g} s",
        "shard": draft.shard,
        "queue": "" if draft.queue is None else f"{draft.broker}:{draft.queue}",
    }
    return {name: value for name, value in parts.items() if value}


# -- the form ----------------------------------------------------------------------------------------------------------


def read_draft(visit: Visit, form: dict[str, Any]) -> Draft:
    """Return the message that a form describes. Raises FormRefused."""
    errors: dict[str, str] = {}
    body, properties, delay = b"", dict[str, str](), None
    place: tuple[str, int | None] = ("", None)
    try:
        body = _read_body(visit, form)
    except ValueError as error:
        errors["body"] = str(error)
    try:
        properties = _read_properties(visit, form["properties"] or "")
    except ValueError as error:
        errors["properties"] = str(error)
    try:
        delay = read_span(form["delay"]) if form["delay"] else None
    except ErucaError as error:
        errors["delay"] = str(error.args[0])
    try:
        place = _read_place(visit, form["queue"] or "")
    except ValueError as error:
        errors["queue"] = str(error)
    if errors:
        raise FormRefused(errors)
    draft = Draft(
        topic=form["topic"],
        body=body,
        tags=form["tags"] or "",
        keys=(form["keys"] or "").split(),
        properties=properties,
        delay=delay,
        is_timer=form["timer"] and delay is not None,
        shard=form["shard"] or "",
        broker=place[0],
        queue=place[1],
    )
    try:
        return check_draft(draft)
    except ErucaError as error:
        raise FormRefused({"": explain(error)}) from None


def _read_body(visit: Visit, form: dict[str, Any]) -> bytes:
    text: str = form["body"]
    if form["encoding"] == "base64":
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except ValueError:
            raise ValueError(visit.text("messages.bad_base64")) from None
    # A browser sends every line of a text area with CR LF.
    return text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")


def _read_properties(visit: Visit, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(visit.text("messages.bad_property", line=line[:80]))
        found[name.strip()] = value.strip()
    return found


def _read_place(visit: Visit, text: str) -> tuple[str, int | None]:
    if not text:
        return "", None
    broker, _, queue = text.rpartition(":")
    if not broker or not (queue.isascii() and queue.isdecimal() and len(queue) <= 9):
        raise ValueError(visit.text("messages.bad_queue"))
    return broker, int(queue)


def fill_form(message: StoredMessage, topic: str = "") -> dict[str, str]:
    """Return the form that describes a copy of a message."""
    draft = copy_message(message, topic)
    try:
        body, encoding = draft.body.decode(), "text"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(draft.body).decode(), "base64"
    return {
        "topic": draft.topic,
        "body": body,
        "encoding": encoding,
        "tags": draft.tags,
        "keys": " ".join(draft.keys),
        "properties": "\n".join(f"{name}={value}" for name, value in draft.properties.items()),
    }


def write_send_words(draft: Draft) -> list[str]:
    """Return the words of the command that sends a message. A body that is long or not text is in a file."""
    try:
        body = draft.body.decode()
    except UnicodeDecodeError:
        body = ""
    if not body.isprintable() or not 0 < len(body) <= _COMMAND_CHARS:
        digest = hashlib.sha256(msgspec.json.encode(draft)).hexdigest()[:12]
        return ["message", "import", draft.topic, f"message-{digest}.jsonl"]
    delay = None if draft.delay is None else f"{draft.delay.total_seconds():g}s"
    return [
        *("send", draft.topic, *(["--", body] if body.startswith("-") else [body])),
        *write_flags(
            tags=draft.tags or None,
            keys=" ".join(draft.keys) or None,
            property=[f"{name}={value}" for name, value in draft.properties.items()],
            delay=None if draft.is_timer else delay,
            timer=delay if draft.is_timer else None,
            shard=draft.shard or None,
            queue=None if draft.queue is None else f"{draft.broker}:{draft.queue}",
        ),
    ]


# -- pages -------------------------------------------------------------------------------------------------------------


async def send(visit: Visit) -> Shown:
    """Send a message: a new one, or a copy of the one that `source`, `broker`, `number` and `offset` name."""
    source = await _find_source(visit)
    if visit.method == "GET":
        values = (
            {"topic": visit.query.get("topic", "")}
            if source is None
            else fill_form(source, visit.query.get("topic", ""))
        )
        return visit.show(
            "messages/send.html",
            fields=FIELDS,
            values=values,
            source=source,
            hidden=SOURCE,
            back=visit.url("messages", topic=values["topic"]),
            command=visit.command("send", values["topic"] or "TOPIC", "BODY"),
        )
    form = read_fields(visit, FIELDS)
    draft = read_draft(visit, form)

    async def deed(dry_run: bool) -> list[Sent]:
        return [await send_draft(visit.admin.messages, draft, dry_run=dry_run)]

    return await change(
        visit,
        action="message.send" if source is None else "message.resend",
        target=draft.topic,
        words=write_send_words(draft),
        deed=deed,
        then=visit.url("messages", topic=draft.topic),
        read=lambda result: read_sent(result, [draft], source),
    )


async def _find_source(visit: Visit) -> StoredMessage | None:
    """Return the message to copy; None if there is none. Its fields must not be hidden from the user."""
    given = visit.form if visit.request.method == "POST" else visit.query
    names = [str(given.get(field.name) or "") for field in SOURCE]
    if not names[0]:
        return None
    require_unmasked(visit, names[0])
    return await find_message(visit, *names)


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/messages/send",
        send,
        Need.OPERATE,
        ("GET", "POST"),
        names={"topic": "topic", "source": "topic"},
        summary="Send a message, or a copy of one.",
        fields={
            "topic": "where to",
            "body": "the body, as text or base64",
            "encoding": "text or base64",
            "tags": "its tag",
            "keys": "its keys, separated by blanks",
            "properties": "NAME=VALUE, one per line",
            "delay": "30s, 10m, 2h",
            "timer": "true: any delay, not only the levels",
            "shard": "messages with the same one keep their order",
            "queue": "BROKER:N",
            "source": "the topic of the message to copy, with broker, number (of the queue) and offset",
        },
        body_max=_BODY_MAX,
    ),
)
