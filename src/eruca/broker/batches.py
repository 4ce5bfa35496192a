"""The body of a batch send: unpacked if its sender compressed it, and as messages if it cannot be stored as it came."""

from __future__ import annotations

from collections.abc import Iterable

from eruca.broker.refusals import refuse
from eruca.errors import WireError
from eruca.store.encodedbatch import BatchFacts
from eruca.wire.batch import BatchItem
from eruca.wire.codes import ResponseCode
from eruca.wire.compression import decompress
from eruca.wire.record import Message
from eruca.wire.sysflag import clear_compression, is_compressed

_SIZE_BYTES = 4


def unpack_batch(body: bytes, sys_flag: int, bytes_max: int) -> tuple[bytes, int]:
    """The messages of a batch as they are encoded, and the flags that are true of each of them.

    The C++ client (and so PyPI's `rocketmq`) compresses the body of a batch as it does that of a message. Java's
    clients never do, and a Java broker stores such a batch as one message that no consumer can read. Where the flag
    stands and the body is a batch all the same, the flag is about the bodies of the messages: every compression begins
    with bytes that would announce a first message larger than a frame.
    """
    if not is_compressed(sys_flag) or int.from_bytes(body[:_SIZE_BYTES]) <= len(body):
        return body, sys_flag
    try:
        return decompress(body, sys_flag, bytes_max), clear_compression(sys_flag)
    except WireError as error:
        refuse(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be unpacked: {error}")


def make_messages(topic: str, queue_id: int, items: Iterable[BatchItem], facts: BatchFacts) -> list[Message]:
    """The messages of a batch, each with what all of them have in common."""
    return [
        Message(
            topic=topic,
            queue_id=queue_id,
            flag=item.flag,
            body=item.body,
            properties=_join_properties(item.properties, facts.shared),
            sys_flag=facts.sys_flag,
            born_timestamp=facts.born_timestamp,
            born_host=facts.born_host,
            store_host=facts.store_host,
            reconsume_times=facts.reconsume_times,
        )
        for item in items
    ]


def _join_properties(own: bytes, shared: bytes) -> bytes:
    if not own:
        return shared
    return own + shared if own.endswith(b"\x02") else own + b"\x02" + shared
