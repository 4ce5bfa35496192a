"""Messages that are not sent yet: checked, and read from lines of JSON as the commands print them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from eruca._admin.messages import Messages
from eruca._admin.storedmessages import StoredMessage
from eruca._client.produce.outgoing import check_body, find_delay_level
from eruca._wire.names import check_topic
from eruca._wire.properties import RESERVED, split_keys
from eruca.errors import ConfigError, ErucaError


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not sent yet."""

    topic: str
    body: bytes
    tags: str = ""
    keys: list[str] = []
    # Without those that clients and brokers set.
    properties: dict[str, str] = {}
    # One of the delay levels, or any time if `is_timer`.
    delay: timedelta | None = None
    is_timer: bool = False
    shard: str = ""
    broker: str = ""
    queue: int | None = None


class DraftLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an imported file: a message, or why it is not one."""

    # From 1.
    line: int
    draft: Draft | None
    problem: str = ""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of sending one message."""

    # A name of it: its line in a file, or what it is a copy of.
    name: str
    topic: str
    # `planned`, `done` or `failed` (see `reason`).
    outcome: str
    reason: str = ""
    message_id: str = ""
    offset_id: str = ""
    broker: str = ""
    queue: int = -1
    offset: int = -1
    # Bytes of the body.
    size: int = 0


def check_draft(draft: Draft) -> Draft:
    """Return a draft that can be sent. Raises MessageIllegal, InvalidName and ConfigError."""
    check_topic(draft.topic)
    check_body(draft.body)
    for name, value in draft.properties.items():
        if not name or not value:
            raise ConfigError(f"property {name[:80]!r}: name and value must not be empty")
        if name in RESERVED:
            raise ConfigError(
                f"property {name}: the name is reserved", hint="tags, keys and delay have fields of their own"
            )
    for key in draft.keys:
        if not key or split_keys(key) != [key]:
            raise ConfigError(f"key {key[:80]!r}: a key has no spaces")
    if draft.shard and (draft.broker or draft.queue is not None):
        raise ConfigError("a shard and a queue are mutually exclusive")
    if draft.delay is not None and not draft.is_timer:
        find_delay_level(draft.delay)
    return draft


def copy_message(message: StoredMessage, topic: str = "") -> Draft:
    """Return a message as a draft: what its sender wrote, without what clients and brokers added."""
    properties = {name: value for name, value in message.properties.items() if name not in RESERVED and value}
    return Draft(
        topic=topic or message.topic, body=message.body, tags=message.tags, keys=message.keys, properties=properties
    )


def read_lines(data: bytes, topic: str, *, lines_max: int) -> Iterator[DraftLine]:
    """Yield the messages of lines of JSON, as `eruca message find -o json` and `eruca tail -o json` print them.

    A line needs `body` (text, or any JSON, which is written as JSON) or `body_base64`; it may have `tags`, `keys`,
    `properties` and `shard`. Other fields are ignored, and so is `topic`: all go to one topic. Blank lines are skipped.
    Raises ConfigError for more than `lines_max` lines.
    """
    count = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        count += 1
        if count > lines_max:
            raise ConfigError(f"the file has more than {lines_max} messages", hint="split it")
        try:
            yield DraftLine(line=number, draft=_read_line(line, topic))
        except (ErucaError, ValueError) as error:
            yield DraftLine(line=number, draft=None, problem=str(error.args[0] if error.args else error))


def _read_line(line: bytes, topic: str) -> Draft:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ConfigError("it is not a JSON object")
    keys = row.get("keys") or []
    keys = split_keys(keys) if isinstance(keys, str) else keys
    properties = row.get("properties") or {}
    if not isinstance(keys, list) or not isinstance(properties, dict):
        raise ConfigError("keys are a list of texts, properties an object of texts")
    return check_draft(
        Draft(
            topic=topic,
            body=_read_body(row),
            tags=_read_text(row.get("tags") or "", "tags"),
            keys=[_read_text(key, "a key") for key in keys],
            properties={
                name: _read_text(value, f"property {name}")
                for name, value in properties.items()
                if name not in RESERVED
            },
            shard=_read_text(row.get("shard") or "", "shard"),
        )
    )


def _read_body(row: dict[str, Any]) -> bytes:
    encoded = row.get("body_base64")
    if encoded is not None:
        try:
            return base64.b64decode(_read_text(encoded, "body_base64"), validate=True)
        except ValueError:
            raise ConfigError("body_base64 is not base64") from None
    body = row.get("body")
    if body is None:
        raise ConfigError("it has neither body nor body_base64")
    return body.encode() if isinstance(body, str) else msgspec.json.encode(body)


def _read_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is not a text")
    return value


# -- sending -----------------------------------------------------------------------------------------------------------


async def send_draft(messages: Messages, draft: Draft, *, dry_run: bool, name: str = "") -> Sent:
    """Send a message, or only look whether it could be sent. Never raises what the cluster refuses."""
    later = {("timer" if draft.is_timer else "delay"): draft.delay} if draft.delay is not None else {}
    sent = Sent(name=name, topic=draft.topic, outcome="planned", size=len(draft.body))
    try:
        receipt = await messages.send(
            draft.topic,
            draft.body,
            tags=draft.tags or None,
            keys=draft.keys,
            properties=draft.properties,
            broker=draft.broker or None,
            queue=draft.queue,
            shard=draft.shard or None,
            dry_run=dry_run,
            **later,  # type: ignore[arg-type]
        )
    except ErucaError as error:
        return msgspec.structs.replace(
            sent, outcome="failed", reason=" ".join(filter(None, (str(error.args[0]), error.hint)))
        )
    if receipt is None:
        return sent
    return msgspec.structs.replace(
        sent,
        outcome="done",
        message_id=receipt.message_id,
        offset_id=receipt.offset_id,
        broker=receipt.queue.broker_name,
        queue=receipt.queue.queue_id,
        offset=receipt.offset,
    )


def explain(error: ErucaError) -> str:
    """Return what is wrong and what to do, as one line."""
    return "; ".join(filter(None, (str(error.args[0]), error.hint)))
