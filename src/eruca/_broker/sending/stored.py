"""Messages that the broker reads from its own store to store them again elsewhere."""

from __future__ import annotations

from eruca._store.messagestore import MessageStore
from eruca._wire.record import Record, decode_record
from eruca.errors import WireError


def read_message(store: MessageStore, position: int) -> Record | None:
    """Return the message at a commit log position, or None if there is none or it is damaged.

    The CRC of the body is checked, because the copy gets a new one, which would hide damage.
    """
    if position < 0:
        return None
    view = store.reader.view_record(position)
    if view is None:
        return None
    try:
        return decode_record(view)
    except WireError:
        return None


def copy_message(message: Record, topic: str, queue_id: int, properties: bytes | None = None) -> Record:
    """Return a copy of a message for another destination: body, flags, born time and hosts are unchanged."""
    return Record(
        topic=topic,
        queue_id=queue_id,
        flag=message.flag,
        body=message.body,
        properties=message.properties if properties is None else properties,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
    )
