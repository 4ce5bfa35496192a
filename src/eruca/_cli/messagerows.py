"""How commands show a message: one shape as JSON everywhere, one line or two tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from eruca._admin.storedmessages import make_row
from eruca._cli.output import format_bytes, format_time
from eruca._cli.tables import make_table
from eruca._client.produce.outgoing import Receipt
from eruca._ground.printable import say_count, show_safely
from eruca._wire.ids import decode_offset_id
from eruca._wire.properties import split_keys
from eruca.admin import StoredMessage
from eruca.errors import WireError

if TYPE_CHECKING:
    from rich.console import RenderableType

LIST_COLUMNS = ["stored", "where", "message id", "tags", "keys", ">tries", ">size"]


def describe_message(message: StoredMessage) -> dict[str, Any]:
    """Return a message as JSON has it: the body as text (null if it is not text), and always in base64."""
    return make_row(message)


def describe_sent(
    topic: str, body: bytes, tags: str, keys: str, properties: Mapping[str, str], receipt: Receipt
) -> dict[str, Any]:
    """Return a message that was just stored in the same shape: what the answer does not tell is null."""
    try:
        position = decode_offset_id(receipt.offset_id).position
    except WireError:
        position = None
    sent = StoredMessage(
        topic=topic,
        stored_in=topic,
        broker=receipt.queue.broker_name,
        queue=receipt.queue.queue_id,
        offset=receipt.offset,
        message_id=receipt.message_id,
        offset_id=receipt.offset_id,
        origin_id=receipt.offset_id,
        tags=tags,
        keys=split_keys(keys),
        properties=dict(properties),
        body=body,
        body_is_packed=False,
        born_at=None,
        stored_at=None,
        born_host="",
        store_host="",
        tries=0,
        position=position or 0,
        size=0,
    )
    unknown = dict.fromkeys(("stored_in", "born_at", "stored_at", "born_host", "store_host", "size", "body_crc"))
    return describe_message(sent) | unknown | {"position": position, "status": receipt.status.name}


def say_body(body: bytes, *, bytes_max: int | None = None) -> str:
    """Return a body for people: its text, or how long it is."""
    cut = body if bytes_max is None else body[:bytes_max]
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if len(cut) == len(body) or len(cut) - error.start > 3:
            return f"<{len(body)} bytes, not text>"
        text = cut[: error.start].decode()  # cut in the middle of a character
    return text if len(cut) == len(body) else f"{text}..."


def write_line(message: StoredMessage) -> str:
    """Return a message as one line: time, place, tags, keys, body."""
    head = f"{format_time(message.stored_at)}  {name_place(message)}"
    notes = []
    if message.tags:
        notes.append(f"tags={message.tags}")
    if message.keys:
        notes.append(f"keys={' '.join(message.keys)}")
    return show_safely("  ".join([head, *notes, say_body(message.body)]), keep="\n")


def name_place(message: StoredMessage) -> str:
    """Return where a message is: `broker/queue@offset`."""
    return f"{message.broker}/{message.queue}@{message.offset}"


def draw_row(message: StoredMessage) -> list[str]:
    """Return the cells of `LIST_COLUMNS`."""
    where = (name_place(message), message.message_id, message.tags, " ".join(message.keys))
    return [format_time(message.stored_at), *where, str(message.tries), format_bytes(len(message.body))]


def draw_message(message: StoredMessage, title: str = "message") -> Iterable[RenderableType]:
    """Return the tables of one message: its facts with the body, and its properties."""
    facts = [
        ("topic", message.topic),
        ("where", f"{message.broker}, queue {message.queue}, offset {message.offset}"),
        ("message id", message.message_id),
        ("offset id", message.offset_id),
        ("tags", message.tags),
        ("keys", " ".join(message.keys)),
        ("sent", f"{format_time(message.born_at)} by {message.born_host}"),
        ("stored", f"{format_time(message.stored_at)} by {message.store_host}"),
        ("delivered again", say_count(message.tries, "time")),
        ("in the log", f"position {message.position}, {format_bytes(message.size)}"),
        ("body", _say_whole_body(message)),
    ]
    if message.stored_in != message.topic:
        facts.insert(1, ("stored in", message.stored_in))
    if message.origin_id != message.offset_id:
        facts.insert(4, ("first record", message.origin_id))
    yield make_table([title, ""], [(name, value) for name, value in facts if value])
    yield make_table(["property", ""], list(message.properties.items()))


def _say_whole_body(message: StoredMessage) -> str:
    if message.body_is_packed:
        return f"<{len(message.body)} bytes, still compressed; pip install 'eruca[compression]' has more methods>"
    return say_body(message.body)
