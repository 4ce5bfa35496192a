"""Headers of the send family: 10, 310, 320, the replies 324, 325, 326, and their answers."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from eruca._wire.ext import Header, Int32, Int64
from eruca._wire.headers.shared import BrokerNamed


class SendMessageHeader(BrokerNamed):
    """Send one message (10) or a reply (324), long names."""

    producer_group: str
    topic: str
    default_topic: str  # the template if the topic must be created
    default_topic_queue_nums: Int32
    queue_id: Int32  # below 0: the broker chooses
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32  # the application's own
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None  # true: the body is a batch, whatever the code
    max_reconsume_times: Int32 | None = None


class SendMessageV2Header(Header):
    """Send one message (310), a batch (320) or a reply (325): the fields of SendMessageHeader by one letter each."""

    written_in_order: ClassVar[bool] = True

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


#: Either spelling; the attributes are the same.
AnySendHeader: TypeAlias = SendMessageHeader | SendMessageV2Header


class SendMessageAnswerHeader(Header):
    """Where the message was stored. `message_id` of a batch is a comma-joined list."""

    written_in_order: ClassVar[bool] = True
    added_to_map: ClassVar[frozenset[str]] = frozenset({"MSG_REGION", "TRACE_ON"})

    message_id: str = msgspec.field(name="msgId")
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


class SendRefusedHeader(Header):
    """The message is not stored. The Java client reads both fields without checking that they are present."""

    region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


class PushReplyHeader(Header):
    """The broker delivers a reply to the client that asked (326); the body is the reply."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    # Both are "ip:port".
    born_host: str | None = None
    store_host: str | None = None
    store_timestamp: Int64 | None = None


class SendBackHeader(BrokerNamed):
    """A consumer returns a message to be delivered again later (36)."""

    offset: Int64  # its position in the commit log
    group: str
    delay_level: Int32  # 0: the broker chooses; below 0: to the dead letters
    origin_message_id: str | None = msgspec.field(default=None, name="originMsgId")
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    # Eruca's own: the exact delay. Other brokers use the delay level, which is the next longer one.
    eruca_delay_ms: Int64 | None = None


class EndTransactionHeader(BrokerNamed):
    """A producer decides a half message (37)."""

    producer_group: str
    half_offset: Int64 = msgspec.field(name="tranStateTableOffset")
    position: Int64 = msgspec.field(name="commitLogOffset")
    decision: Int32 = msgspec.field(name="commitOrRollback")  # sysFlag bits: 0 unknown, 8 commit, 12 roll back
    message_id: str = msgspec.field(name="msgId")
    from_check: bool | None = msgspec.field(default=None, name="fromTransactionCheck")
    transaction_id: str | None = None


class CheckTransactionHeader(Header):
    """The broker asks a producer for the outcome of a half message (39)."""

    half_offset: Int64 = msgspec.field(name="tranStateTableOffset")
    position: Int64 = msgspec.field(name="commitLogOffset")
    message_id: str | None = msgspec.field(default=None, name="msgId")
    transaction_id: str | None = None
    offset_message_id: str | None = msgspec.field(default=None, name="offsetMsgId")
