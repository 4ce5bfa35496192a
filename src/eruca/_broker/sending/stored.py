"""Messages the broker reads back from its own store to store them again somewhere else."""

from __future__ import annotations

from eruca._store.messagestore import MessageStore
from eruca._wire.record import Record, decode_record
from eruca.errors import WireError


def read_message(store: MessageStore, position: int) -> Record | None:
    """The message at a commit-log position, or None when there is none or it is damaged.

    The body's CRC is checked, because the copy will get a new one: damage must not be given a clean bill.
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
    """A message to be stored anew: body, flags, times and hosts of its birth as they are, another destination."""
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
