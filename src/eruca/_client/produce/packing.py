"""Packing: checks names, builds properties and compresses bodies, to turn messages into parcels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eruca._client.arguments import check_count, check_type
from eruca._client.namespaces import wrap
from eruca._client.produce.batching import build_batches
from eruca._client.produce.outgoing import (
    Outgoing,
    Receipt,
    build_properties,
    check_body,
    check_flag,
    join_keys,
    read_text,
)
from eruca._client.produce.sending import Parcel
from eruca._client.session.session import Session
from eruca._ground.limits import MESSAGE_BODY_BYTES_MAX
from eruca._observe.telemetry import Operation, Telemetry
from eruca._wire.compression import compress
from eruca._wire.ids import UniqueIds
from eruca._wire.names import FORBIDDEN_TO_SEND, check_topic
from eruca._wire.properties import INSTANCE_ID, KEYS, TAGS, UNIQ_KEY
from eruca._wire.sysflag import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD, set_compression
from eruca.errors import ConfigError, ErucaError, MessageIllegal

Body = bytes | bytearray | memoryview

# The smallest body that is compressed by default.
COMPRESS_FROM = 4096

COMPRESSIONS = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
# A larger body is compressed in a thread, because it would block the event loop and so delay heartbeats.
_COMPRESS_IN_LOOP_BYTES_MAX = 128 * 1024
# At most this many valid topic names are cached, so that a program with a new name per message uses bounded memory.
_TOPICS_KNOWN_MAX = 10_000


class Packer:
    """Makes the parcels of one producer."""

    def __init__(
        self,
        namespace: str,
        group: str,
        *,
        compress_from: int | None = COMPRESS_FROM,
        compression: str = "zlib",
        compression_level: int = 5,
        message_bytes_max: int = MESSAGE_BODY_BYTES_MAX,
        serializer: Callable[[Any], Body] | None = None,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self.telemetry: Telemetry | None = None
        self._serialize = serializer
        self._namespace = namespace
        self._group = group
        check_count("message_bytes_max", message_bytes_max)
        if compress_from is not None:
            check_count("compress_from", compress_from, at_least=0)
        #: Bodies of at least this many bytes are compressed.
        self.compress_from = message_bytes_max + 1 if compress_from is None else compress_from
        self._compression = _check_compression(compression, compression_level)
        self._compression_level = compression_level
        self._bytes_max = message_bytes_max
        # The properties of every message of this producer.
        self._own = {**({INSTANCE_ID: namespace} if namespace else {}), **(own or {})}
        # The names of topics on the broker, by the names that the user passes.
        self._topics: dict[str, str] = {}

    def pack(
        self,
        unique_ids: UniqueIds,
        topic: str,
        body: Any,
        tags: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int = 0,
        wait: bool = True,
        extra: Mapping[str, str] | None = None,
        is_raw: bool = False,
    ) -> Parcel:
        """Return a parcel with one message; a raw body is not serialized. Raises MessageIllegal and InvalidName."""
        try:
            wrapped = self._topics.get(topic) or self.find_topic(topic)
        except TypeError:
            read_text("topic", topic)
            raise
        if self._serialize is not None and not is_raw:
            body = self._serialize(body)
        if body.__class__ is not bytes or not 0 < len(body) <= self._bytes_max:
            body = check_body(body, self._bytes_max)
        if flag:
            check_flag(flag)
        unique_id = unique_ids.create()
        own: Mapping[str, str] = {**self._own, **extra} if extra else self._own
        if self.telemetry is not None:
            keys = keys if isinstance(keys, str) else join_keys(keys)
            described = {UNIQ_KEY: unique_id, TAGS: tags or "", KEYS: keys, **own, **(properties or {})}
            build_properties(unique_id, tags, keys, properties, wait, own)  # raises before a span is started
            operation, own = self._start_span(topic, [described], own, len(body))
            try:
                text = build_properties(unique_id, tags, keys, properties, wait, own)
            except BaseException as error:  # the context of the span made it too long
                self.telemetry.end_send(operation, error=error)
                raise
            return Parcel(wrapped, body, text, unique_id, 0, flag, operation=operation)
        text = build_properties(unique_id, tags, keys, properties, wait, own)
        return Parcel(wrapped, body, text, unique_id, 0, flag)

    async def compress(self, parcel: Parcel) -> None:
        """Compress the body, if that makes it smaller."""
        kind, level, body = self._compression, self._compression_level, parcel.body
        if len(body) > _COMPRESS_IN_LOOP_BYTES_MAX:
            small = await asyncio.to_thread(compress, body, kind, level)
        else:
            small = compress(body, kind, level)
        if len(small) < len(body):
            parcel.body = small
            parcel.sys_flag = set_compression(parcel.sys_flag, kind)

    def pack_batches(
        self, unique_ids: UniqueIds, topic: str, messages: Sequence[Outgoing]
    ) -> tuple[list[Parcel], Operation | None]:
        """Return parcels with these messages, and the span of all of them, if there is one."""
        wrapped = self.find_topic(topic)
        if self._serialize is not None:
            messages = [replace(message, body=self._serialize(message.body)) for message in messages]
        operation, own = None, self._own
        if self.telemetry is not None and messages:
            described = [{**self._own, **message.properties} for message in messages]
            operation, own = self._start_span(topic, described, own, None)
        try:
            return list(build_batches(wrapped, messages, unique_ids, self._bytes_max, own)), operation
        except BaseException as error:
            if operation is not None and self.telemetry is not None:
                self.telemetry.end_send(operation, error=error)
            raise

    def find_topic(self, topic: str) -> str:
        """Check the name of a topic and return its name on the broker."""
        topic = read_text("topic", topic)
        if topic in FORBIDDEN_TO_SEND:
            raise MessageIllegal(f"only brokers send to the topic {topic}")
        wrapped = check_topic(wrap(self._namespace, check_topic(topic)))
        if len(self._topics) >= _TOPICS_KNOWN_MAX:
            self._topics.clear()
        self._topics[topic] = wrapped
        return wrapped

    def end_span(
        self, session: Session | None, operation: Operation | None, receipt: Receipt | None, error: BaseException | None
    ) -> None:
        """End the span of a send, if it has one."""
        telemetry = self.telemetry
        if operation is None or telemetry is None:
            return
        if receipt is None or session is None:
            telemetry.end_send(operation, error=error)
            return
        address = session.routes.find_address(receipt.queue.broker_name)
        queue_id, message_id = receipt.queue.queue_id, receipt.message_id
        telemetry.end_send(operation, server=address or "", queue_id=queue_id, message_id=message_id)

    def _start_span(
        self, topic: str, described: list[dict[str, str]], own: Mapping[str, str], body_bytes: int | None
    ) -> tuple[Operation, dict[str, str]]:
        """Start a span; return it, and the client's own properties with the context that is sent with the message."""
        assert self.telemetry is not None
        names = [set(each) for each in described]
        operation = self.telemetry.start_send(topic, self._group, *described, body_bytes=body_bytes)
        # All messages without a context got the same one.
        context = {
            name: text
            for each, before in zip(described, names, strict=True)
            for name, text in each.items()
            if name not in before
        }
        return operation, {**own, **context}


def _check_compression(name: str, level: int) -> int:
    check_type("compression", name, str)
    check_count("compression_level", level, at_least=-1)
    if name not in COMPRESSIONS:
        raise ConfigError(f"compression={name!r}: expected one of {', '.join(COMPRESSIONS)}")
    try:
        compress(b"probe", COMPRESSIONS[name], level)
    except ErucaError:
        raise
    except Exception as error:
        raise ConfigError(f"compression={name!r}, compression_level={level}: {error}") from error
    return COMPRESSIONS[name]
