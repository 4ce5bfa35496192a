"""Batches: many messages of one topic in as few requests as the size limit allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eruca._client.produce.outgoing import Outgoing, build_properties, check_body, check_flag, describe_delay
from eruca._client.produce.sending import Parcel
from eruca._ground.limits import SENT_BATCH_MESSAGES_MAX
from eruca._wire.batch import BatchItem, encode_batch
from eruca._wire.codes import RequestCode
from eruca._wire.ids import UniqueIds
from eruca._wire.names import RETRY_PREFIX
from eruca._wire.properties import WAIT
from eruca.errors import MessageIllegal

# The fixed part of one message of a batch: size, magic, checksum, flag and the two lengths.
ITEM_BYTES = 22


def build_batches(
    topic: str,
    messages: Sequence[Outgoing],
    unique_ids: UniqueIds,
    bytes_max: int,
    extra: Mapping[str, str] | None = None,
) -> Iterator[Parcel]:
    """Encode messages into batches, in order. Raises MessageIllegal before the first batch is returned.

    A batch has at most `bytes_max` bytes. It also has few enough messages that the answer, which lists them all, can
    be read.
    """
    if topic.startswith(RETRY_PREFIX):
        raise MessageIllegal("a batch cannot go to a retry topic")
    if len({message.wait for message in messages}) > 1:
        raise MessageIllegal("the messages of a batch must agree whether to wait for the disk")
    items: list[tuple[BatchItem, str]] = []
    for message in messages:
        delay, delay_level, timer = message.delay, message.delay_level, message.timer
        is_delayed = delay is not None or delay_level is not None or timer is not None
        if is_delayed and describe_delay(delay, delay_level, timer):
            raise MessageIllegal("a batch cannot be delayed", hint="send delayed messages one by one")
        body = check_body(message.body, bytes_max)
        unique_id = unique_ids.create()
        properties = build_properties(
            unique_id, message.tags, message.keys, message.properties, message.wait, extra=extra
        ).encode()
        if ITEM_BYTES + len(body) + len(properties) > bytes_max:
            raise MessageIllegal(
                f"one message with its properties has more than {bytes_max} bytes",
                hint="split it, or raise message_bytes_max here and maxMessageSize on the broker",
            )
        items.append((BatchItem(check_flag(message.flag), body, properties), unique_id))
    return _cut(topic, items, bytes_max, wait=not messages or messages[0].wait)


def _cut(topic: str, items: list[tuple[BatchItem, str]], bytes_max: int, *, wait: bool) -> Iterator[Parcel]:
    start = size = 0
    for number, (item, _) in enumerate(items):
        added = ITEM_BYTES + len(item.body) + len(item.properties)
        if number > start and (size + added > bytes_max or number - start >= SENT_BATCH_MESSAGES_MAX):
            yield make_batch(topic, items[start:number], wait)
            start, size = number, 0
        size += added
    if start < len(items):
        yield make_batch(topic, items[start:], wait)


def make_batch(topic: str, items: Sequence[tuple[BatchItem, str]], wait: bool) -> Parcel:
    """Return one parcel with these messages; each item is a message and its id."""
    return Parcel(
        topic,
        encode_batch([item for item, _ in items]),
        f"{WAIT}\x01{'true' if wait else 'false'}",
        ",".join([unique_id for _, unique_id in items]),
        code=RequestCode.SEND_BATCH_MESSAGE,
    )
