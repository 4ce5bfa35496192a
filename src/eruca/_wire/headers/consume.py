"""Headers of consuming: pull, offsets, lookups, and leaving a group."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eruca._wire.ext import Header, Int32, Int64
from eruca._wire.headers.shared import BrokerNamed


class PullMessageHeader(Header, kw_only=True):
    """Pull messages of one queue (11)."""

    written_in_order: ClassVar[bool] = True

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_message_nums: Int32 = msgspec.field(name="maxMsgNums")
    sys_flag: Int32  # 1 commit the offset, 2 hold when empty, 4 expression is here, 8 class filter, 16 lite pull
    commit_offset: Int64
    suspend_timeout_ms: Int64 = msgspec.field(name="suspendTimeoutMillis")
    subscription: str | None = None
    subscription_version: Int64 = msgspec.field(name="subVersion")
    expression_type: str | None = None  # TAG or SQL92
    # RocketMQ 5: the maximum bytes of an answer. A 4.x broker ignores it.
    max_message_bytes: Int32 | None = msgspec.field(default=None, name="maxMsgBytes")
    broker_name: str | None = msgspec.field(default=None, name="bname")


class PullMessageAnswerHeader(Header):
    """Where to continue (answers 0, 19, 20, 21 of 11). All four are required: the Java client does not check."""

    written_in_order: ClassVar[bool] = True

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    # Eruca's own, if a slave has replaced a master before: the mastership of the log, so that a reader notices.
    eruca_epoch: Int64 | None = None


class QueryConsumerOffsetHeader(BrokerNamed):
    """Ask for a group's offset in one queue (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class CommittedOffsetHeader(Header):
    """The offset of a group in one queue (answer to 14)."""

    offset: Int64
    # Eruca's own: the messages behind the offset that are done already (`eruca._wire.done`).
    eruca_done: str | None = None


class UpdateConsumerOffsetHeader(BrokerNamed):
    """Commit a group's offset in one queue (15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    # Eruca's own: the messages behind the offset that are done already (`eruca._wire.done`).
    eruca_done: str | None = None


class SearchOffsetHeader(BrokerNamed):
    """Find the offset of a queue at a store time (29)."""

    topic: str
    queue_id: Int32
    timestamp: Int64


class ViewMessageHeader(Header):
    """Fetch the record at a position of the commit log (33)."""

    offset: Int64


class QueryMessageHeader(Header):
    """Find messages by key (12)."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    # Not a field of the Java class: "the key is a unique id". Java's broker requires the map, but not this entry.
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageAnswerHeader(Header):
    """How far the index reaches (answers 0 and 22 of 12)."""

    index_last_update_timestamp: Int64
    index_last_update_position: Int64 = msgspec.field(name="indexLastUpdatePhyoffset")


class UnregisterClientHeader(Header):
    """A client leaves its groups (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class PopMessageHeader(BrokerNamed):
    """Pop messages of a topic (200050)."""

    consumer_group: str
    topic: str
    queue_id: Int32  # -1: of all queues
    max_message_nums: Int32 = msgspec.field(name="maxMsgNums")
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32  # where a new group begins: 0 the oldest message, 1 new ones
    exp_type: str | None = None  # TAG or SQL92
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageAnswerHeader(Header):
    """What was popped (answer to 200050); the last three list queues and messages (`_broker.popping.handlers`)."""

    pop_time: Int64
    invisible_time: Int64
    revive_queue_id: Int32 = msgspec.field(name="reviveQid")
    rest_num: Int64
    start_offset_info: str | None = None
    message_offset_info: str | None = msgspec.field(default=None, name="msgOffsetInfo")
    order_count_info: str | None = None


class AckMessageHeader(BrokerNamed):
    """Acknowledge a popped message (200051)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str  # a receipt handle
    offset: Int64


class ChangeInvisibleTimeHeader(BrokerNamed):
    """Make a popped message visible at another time (200053)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str  # a receipt handle
    offset: Int64
    invisible_time: Int64
    suspend: bool | None = None


class ChangeInvisibleTimeAnswerHeader(Header):
    """What is new in the handle (answer to 200053)."""

    pop_time: Int64
    invisible_time: Int64
    revive_queue_id: Int32 = msgspec.field(name="reviveQid")


class ResetOffsetHeader(Header):
    """Reset a group to a time: the admin to the broker (222), the broker to its clients (220)."""

    topic: str
    group: str
    timestamp: Int64  # -1: to the end
    is_force: bool | None = None


class ConsumerStatusHeader(Header):
    """Ask for the offsets clients have: the admin to the broker (223), the broker to a client (221)."""

    topic: str
    group: str
    client_address: str | None = msgspec.field(default=None, name="clientAddr")  # a client id, in fact


class ConsumerRunningInfoHeader(Header):
    """Request the state of a consumer (307), through the broker."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeDirectlyHeader(Header):
    """Have one client consume one message now (309), through the broker."""

    consumer_group: str
    client_id: str | None = None
    message_id: str | None = msgspec.field(default=None, name="msgId")  # the offset id
    broker_name: str | None = None
