"""Messages that the broker reads from its own store to store them again elsewhere."""

from __future__ import annotations

from typing import Final

from eruca._store.messagestore import MessageStore
from eruca._wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca._wire.properties import REAL_TOPIC, get_property
from eruca._wire.record import Record, decode_record
from eruca.errors import WireError

# Messages wait in these topics for the time or the decision to go to their own.
_WAITING_TOPICS: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})
_REAL_TOPIC: Final = REAL_TOPIC.encode()


def read_message(store: MessageStore, position: int) -> Record | None:
    """Return the message at a position of the commit log, or None if there is none or it is damaged.

    The CRC of the body is checked, because the copy gets a new one, which would hide damage.
    """
    return _decode(store.reader.view_record(position) if position >= 0 else None)


def find_message(store: MessageStore, position: int) -> Record | None:
    """Return the message at a position that a peer named: not what looks like a record inside another one."""
    return _decode(store.reader.view_message(position))


def _decode(view: memoryview | None) -> Record | None:
    if view is None:
        return None
    try:
        return decode_record(view)
    except WireError:
        return None


def read_topic(store: MessageStore, position: int) -> str | None:
    """Return the topic of the message at a commit log position, as its readers know it; None if there is none."""
    # A handler may look into a transient buffer, so what is in it counts.
    store.commit()
    view = store.reader.view_message(position)
    if view is None:
        return None
    try:
        record = decode_record(view, check_crc=False)
    except WireError:
        return None
    if record.topic not in _WAITING_TOPICS:
        return record.topic
    real = get_property(record.properties, _REAL_TOPIC)
    return record.topic if real is None else real.decode(errors="replace")


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
