"""Bodies with the tables of a broker: topics, groups, offsets, and its registration."""

from __future__ import annotations

import struct
from typing import ClassVar, Final, TypeVar

import msgspec

from eruca._ground.limits import BODY_BYTES_AT_ONCE, REGISTRATION_BYTES_MAX, REGISTRATION_TOPICS_MAX
from eruca._wire import fastjson
from eruca._wire.bodies.shared import (
    BodyError,
    DataVersion,
    JsonBody,
    decode_json,
    encode_json,
    kept,
    kept_dict,
    kept_list,
)
from eruca._wire.codes import VERSION_REGISTER_WITH_FILTER_SERVERS
from eruca._wire.compression import compress, decompress
from eruca._wire.ext import Int32, Int64
from eruca._wire.sysflag import COMPRESSION_ZLIB


class TopicConfig(JsonBody, kw_only=True):
    """The settings of one topic. Permission bits: 4 read, 2 write, 1 inherit, 8 priority."""

    order: bool = kept(False)
    perm: Int32 = kept(6)
    read_queue_nums: Int32 = kept(16)
    topic_filter_type: str = kept("SINGLE_TAG")
    topic_name: str
    topic_sys_flag: Int32 = kept(0)
    write_queue_nums: Int32 = kept(16)


class TopicConfigTable(JsonBody, kw_only=True):
    """All topics of a broker (answer to 21; also what brokers before 3.0.11 register)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = kept_dict()


class RegisterBrokerBody(JsonBody, kw_only=True):
    """What a broker registers (103)."""

    filter_server_list: list[str] = kept_list()
    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)


class GroupConfig(JsonBody, kw_only=True):
    """The settings of one subscription group (200)."""

    broker_id: Int64 = kept(0)
    consume_broadcast_enable: bool = kept(True)
    consume_enable: bool = kept(True)
    consume_from_min_enable: bool = kept(True)
    group_name: str
    notify_consumer_ids_changed_enable: bool = kept(True)
    retry_max_times: Int32 = kept(16)
    retry_queue_nums: Int32 = kept(1)
    which_broker_when_consume_slowly: Int64 = kept(1)


class GroupConfigTable(JsonBody, kw_only=True):
    """All subscription groups of a broker (answer to 201)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, GroupConfig] = kept_dict()


class DoneBehind(JsonBody, kw_only=True):
    """The messages behind the offset of a group in a queue that are done already (`eruca._wire.done`)."""

    done: str
    group: str
    queue_id: Int32
    topic: str


class ConsumerOffsets(JsonBody, kw_only=True):
    """Committed offsets by "topic@group" and queue (answer to 43)."""

    has_odd_keys: ClassVar[bool] = True

    # Eruca's own, where there is any; Java ignores it. Not by "topic@group": clients search the table for such keys.
    eruca_done: list[DoneBehind] | None = None
    offset_table: dict[str, dict[Int32, Int64]] = kept_dict()


class TimerProgress(JsonBody, kw_only=True):
    """The progress of the timer: messages before an offset of its queue and due by a time are delivered."""

    read_offset: Int64 = kept(0)
    through_ms: Int64 = kept(0)


class DelayOffsets(JsonBody, kw_only=True):
    """The progress of each delay level (answer to 45)."""

    has_odd_keys: ClassVar[bool] = True

    # Eruca's own, if the timer was ever used; Java ignores it.
    eruca_timer: TimerProgress | None = None
    offset_table: dict[Int32, Int64] = kept_dict()


class CorrectionOffsets(JsonBody, kw_only=True):
    """The smallest offset of other groups by queue (answer to 308)."""

    has_odd_keys: ClassVar[bool] = True

    correction_offsets: dict[Int32, Int64] = kept_dict()


# --- registration ---------------------------------------------------------------------------------------------------
#
# Compressed form, zlib over:
#
#     +-----+-------------+-----+--  per topic  --------------------------+-----+--------------------+
#     | n   | DataVersion |count| n   | "name read write perm filterType" | n   | filter server list |
#     | i32 | n bytes JSON| i32 | i32 | n bytes                           | i32 | n bytes JSON       |
#     +-----+-------------+-----+-----+-----------------------------------+-----+--------------------+
#
# It loses topicSysFlag and order.

_INT32: Final = struct.Struct(">i")
_TOPIC_WORDS: Final = 5


def encode_registration(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Write a registration, as JSON or in the compressed form."""
    if not compressed:
        return encode_json(body)
    table = body.topic_config_serialize_wrapper
    pieces = [_frame(encode_json(table.data_version)), _INT32.pack(len(table.topic_config_table))]
    for topic in table.topic_config_table.values():
        words = (topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_filter_type)
        pieces.append(_frame(" ".join(map(str, words)).encode()))
    pieces.append(_frame(fastjson.write(body.filter_server_list)))
    return compress(b"".join(pieces))


def _frame(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def decode_registration(data: bytes, *, compressed: bool = False, version: int = 0x7FFFFFFF) -> RegisterBrokerBody:
    """Read a registration of a broker of `version`. Raises BodyError or WireError.

    A large registration is read topic by topic, so that a thread reading it lets others run.
    """
    if compressed:
        return _decode_compressed(decompress(data, COMPRESSION_ZLIB, REGISTRATION_BYTES_MAX))
    if version < VERSION_REGISTER_WITH_FILTER_SERVERS:
        if len(data) > BODY_BYTES_AT_ONCE:
            return RegisterBrokerBody(topic_config_serialize_wrapper=_decode_large(_decode_raw(_RawTable, data)))
        return RegisterBrokerBody(topic_config_serialize_wrapper=decode_json(TopicConfigTable, data))
    if len(data) > BODY_BYTES_AT_ONCE:
        raw = _decode_raw(_RawRegistration, data)
        table = _decode_large(raw.topic_config_serialize_wrapper)
        return RegisterBrokerBody(filter_server_list=raw.filter_server_list, topic_config_serialize_wrapper=table)
    return decode_json(RegisterBrokerBody, data)


class _RawTable(JsonBody, kw_only=True):
    """A table whose topics are not read yet."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, msgspec.Raw] = kept_dict()


class _RawRegistration(JsonBody, kw_only=True):
    """A registration whose topics are not read yet."""

    filter_server_list: list[str] = kept_list()
    topic_config_serialize_wrapper: _RawTable = msgspec.field(default_factory=_RawTable)


_RawT = TypeVar("_RawT", _RawTable, _RawRegistration)


def _decode_raw(kind: type[_RawT], data: bytes) -> _RawT:
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise BodyError(f"registration: {error}") from None


def _decode_large(raw: _RawTable) -> TopicConfigTable:
    _check_count(len(raw.topic_config_table))
    topics = {name: decode_json(TopicConfig, bytes(item)) for name, item in raw.topic_config_table.items()}
    return TopicConfigTable(data_version=raw.data_version, topic_config_table=topics)


def _check_count(count: int) -> None:
    if count > REGISTRATION_TOPICS_MAX:
        raise BodyError(f"registration: {count} topics, the maximum is {REGISTRATION_TOPICS_MAX}")


def _decode_compressed(data: bytes) -> RegisterBrokerBody:
    data_version, at = _unframe(data, 0)
    count, at = _read_int(data, at)
    _check_count(count)
    topics: dict[str, TopicConfig] = {}
    # Every topic takes at least four bytes, so a wrong count fails at the first missing topic.
    for _ in range(count):
        line, at = _unframe(data, at)
        topic = _decode_topic(line)
        topics[topic.topic_name] = topic
    servers, at = _unframe(data, at)
    if at != len(data):
        raise BodyError(f"compressed registration: {len(data) - at} bytes are left over")
    table = TopicConfigTable(data_version=decode_json(DataVersion, data_version), topic_config_table=topics)
    try:
        server_list = msgspec.json.decode(servers, type=list[str])
    except (ValueError, RecursionError) as error:
        raise BodyError(f"compressed registration: filter servers: {error}") from None
    return RegisterBrokerBody(filter_server_list=server_list, topic_config_serialize_wrapper=table)


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    if at + 4 > len(data):
        raise BodyError("compressed registration: it ends inside a length")
    (value,) = _INT32.unpack_from(data, at)
    return value, at + 4


def _unframe(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_int(data, at)
    if not 0 <= size <= len(data) - at:
        raise BodyError(f"compressed registration: {size} bytes announced, {len(data) - at} are left")
    return data[at : at + size], at + size


def _decode_topic(line: bytes) -> TopicConfig:
    try:
        words = line.decode().split(" ")
        if len(words) != _TOPIC_WORDS:
            raise ValueError(f"{len(words)} words")
        return TopicConfig(
            topic_name=words[0],
            read_queue_nums=int(words[1]),
            write_queue_nums=int(words[2]),
            perm=int(words[3]),
            topic_filter_type=words[4],
        )
    except ValueError as error:
        raise BodyError(f"compressed registration: topic line {line[:200]!r}: {error}") from None
