"""Half messages and op records, stored byte for byte as by a Java broker."""

from __future__ import annotations

from eruca._broker.sending.stored import copy_message
from eruca._core.transactions import Half, Op
from eruca._ground.digits import read_digits
from eruca._wire.halves import DECIDED_TAG, HALF_QUEUE, read_decided_offset
from eruca._wire.names import HALF_TOPIC, OP_HALF_TOPIC
from eruca._wire.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    WAIT,
    encode_properties,
    get_property,
    parse_properties,
)
from eruca._wire.record import Record
from eruca._wire.sysflag import TRANSACTION_COMMIT, set_host_bits, set_transaction

_OP_PROPERTIES = encode_properties({WAIT: "true", TAGS: DECIDED_TAG})


def read_half(message: Record, timeout_ms: int) -> Half:
    """Extract from a half message what decisions need."""
    immunity = get_property(message.properties, CHECK_IMMUNITY_TIME_IN_SECONDS.encode())
    immunity_ms = None
    if immunity is not None:
        seconds = read_digits(immunity)
        immunity_ms = timeout_ms if seconds is None else seconds * 1000
    return Half(
        offset=message.queue_offset,
        position=message.position,
        born_ms=message.born_timestamp,
        checks=read_digits(get_property(message.properties, TRANSACTION_CHECK_TIMES.encode())) or 0,
        immunity_ms=immunity_ms,
        origin=read_digits(get_property(message.properties, TRAN_PREPARED_QUEUE_OFFSET.encode())),
    )


def read_op(message: Record) -> Op:
    """Extract from an op record what decisions need."""
    return Op(message.queue_offset, message.position, read_decided_offset(message))


def make_op(half_offset: int, host: bytes, now_ms: int) -> Record:
    """Build the record that marks a half as decided."""
    return Record(
        topic=OP_HALF_TOPIC,
        queue_id=HALF_QUEUE,
        body=b"%d" % half_offset,
        properties=_OP_PROPERTIES,
        sys_flag=set_host_bits(0, host, host),
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def make_committed(half: Record) -> Record | None:
    """Build the message that a committed half becomes; return None if the half has no destination."""
    topic, queue_id = half.get_property(REAL_TOPIC), read_digits(half.get_property(REAL_QID))
    if topic is None or queue_id is None:
        return None
    committed = copy_message(half, topic, queue_id, _drop_root(half.properties))
    committed.sys_flag = set_transaction(half.sys_flag, TRANSACTION_COMMIT)
    committed.prepared_position = half.position
    return committed


def _drop_root(properties: bytes) -> bytes:
    """Return properties without the root's offset, which Java writes only if the sender asked for more time."""
    if get_property(properties, TRAN_PREPARED_QUEUE_OFFSET.encode()) is None:
        return properties
    kept = parse_properties(properties)
    if CHECK_IMMUNITY_TIME_IN_SECONDS not in kept:
        del kept[TRAN_PREPARED_QUEUE_OFFSET]
    return encode_properties(kept)


def make_copy(half: Record, root: int | None, *, checks: int | None = None, waits: bool = True) -> Record:
    """Copy a half to the end of its queue; the copy names its root, or keeps the one already named."""
    properties = parse_properties(half.properties)
    if root is not None:
        properties.setdefault(TRAN_PREPARED_QUEUE_OFFSET, str(root))
    if checks is not None:
        properties[TRANSACTION_CHECK_TIMES] = str(checks)
    if not waits:
        properties[WAIT] = "false"
    return copy_message(half, HALF_TOPIC, HALF_QUEUE, encode_properties(properties))
