"""What the pages about messages share: views of messages, and which names a user may see."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from eruca._admin.storedmessages import StoredMessage
from eruca._console.identity.rights import Need
from eruca._console.messages.filtering import Filter, parse_filter
from eruca._console.messages.searching import Viewer, is_number
from eruca._console.messages.viewing import MessageView
from eruca._console.pages.visit import Visit
from eruca._wire.names import check_topic
from eruca._wire.properties import KEYS


def make_viewer(visit: Visit, topic: str) -> Viewer:
    """Return the function that shows the messages of a topic to the user. `topic` is the one they are stored in."""
    mask, decoder = visit.parts.identity.masking.look(visit.user, topic), visit.parts.messages.decoder

    async def view(message: StoredMessage) -> MessageView:
        made = MessageView(message, mask, decoder)
        await made.prepare()
        return made

    return view


def may_see(visit: Visit, *, topic: str = "", group: str = "") -> bool:
    """Return whether the user may see what concerns a topic, a group, or both."""
    return visit.user.may(Need.VIEW, topic=topic, group=group)


def require_unmasked(visit: Visit, topic: str) -> None:
    """Raise HTTPException if fields of the messages of a topic are hidden from the user, who could read the copy."""
    if not visit.parts.identity.masking.look(visit.user, topic).is_empty:
        raise HTTPException(403, visit.text("messages.masked.refused", topic=topic))


def hides_keys(visit: Visit, topic: str) -> bool:
    """Return whether the keys of the messages of a topic are hidden from the user."""
    return KEYS in visit.parts.identity.masking.look(visit.user, topic).properties


def require_keys(visit: Visit, topic: str) -> None:
    """Raise HTTPException if the user could guess hidden keys of a topic by looking for them."""
    if hides_keys(visit, topic):
        raise HTTPException(403, visit.text("messages.masked.keys", topic=topic))


def read_filter(visit: Visit) -> Filter | None:
    """Return the filter of the query. Raises FilterError."""
    text = visit.query.get("filter", "").strip()
    return parse_filter(text) if text else None


async def find_message(visit: Visit, topic: str, broker: str, queue: str, offset: str) -> StoredMessage:
    """Return the message at a place. Raises NoRoute, and HTTPException if the place is not one."""
    if not (is_number(queue, 9) and is_number(offset)):
        raise HTTPException(404, visit.text("messages.no_place"))
    return await visit.admin.messages.at(check_topic(topic), broker, int(queue), int(offset))


def link_message(visit: Visit, message: StoredMessage) -> str:
    """Return the address of the page of a message."""
    return visit.url("messages", message.stored_in, message.broker, str(message.queue), str(message.offset))
