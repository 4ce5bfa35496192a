"""Bodies with numbers: offsets, lags, rates, and internals of queues and consumers."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eruca._wire.bodies.clients import SubscriptionData
from eruca._wire.bodies.shared import JsonBody, MessageQueue, QueueKey, kept, kept_dict, kept_list
from eruca._wire.ext import Int32, Int64


class TopicOffset(JsonBody, kw_only=True):
    """The ends of one queue."""

    last_update_timestamp: Int64 = kept(0)
    max_offset: Int64 = kept(0)
    min_offset: Int64 = kept(0)


class TopicStatsTable(JsonBody, kw_only=True):
    """The ends of a topic's queues (answer to 202)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    offset_table: dict[QueueKey, TopicOffset] = kept_dict()


class ConsumeOffset(JsonBody, kw_only=True):
    """The progress of a group in one queue."""

    broker_offset: Int64 = kept(0)
    consumer_offset: Int64 = kept(0)
    last_timestamp: Int64 = kept(0)


class ConsumeStats(JsonBody, kw_only=True):
    """The progress of a group (answer to 208)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    consume_tps: float = kept(0.0)
    offset_table: dict[QueueKey, ConsumeOffset] = kept_dict()


class ConsumeStatsList(JsonBody, kw_only=True):
    """The progress of every group of a broker, by topic (answer to 317)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = kept_list()
    total_diff: Int64 = kept(0)


class GroupList(JsonBody, kw_only=True):
    """The groups that consume a topic (answer to 300)."""

    group_list: list[str] = kept_list()


class QueueTimeSpan(JsonBody, kw_only=True):
    """The age of the messages of one queue."""

    consume_timestamp: Int64 = msgspec.field(name="consumeTimeStamp", default_factory=lambda: 0)
    consume_timestamp_text: str | None = msgspec.field(name="consumeTimeStampStr", default=None)
    delay_time: Int64 = kept(0)
    max_timestamp: Int64 = msgspec.field(name="maxTimeStamp", default_factory=lambda: 0)
    max_timestamp_text: str | None = msgspec.field(name="maxTimeStampStr", default=None)
    message_queue: MessageQueue
    min_timestamp: Int64 = msgspec.field(name="minTimeStamp", default_factory=lambda: 0)
    min_timestamp_text: str | None = msgspec.field(name="minTimeStampStr", default=None)


class ConsumeTimeSpans(JsonBody, kw_only=True):
    """The age of the messages of a topic, and how late a group is (answer to 303)."""

    consume_time_span_set: list[QueueTimeSpan] = kept_list()


class StatsItem(JsonBody, kw_only=True):
    """One counter over one span of time."""

    average: float = msgspec.field(name="avgpt", default_factory=lambda: 0.0)
    sum: Int64 = kept(0)
    tps: float = kept(0.0)


class BrokerStatsData(JsonBody, kw_only=True):
    """One counter over a day, an hour and a minute (answer to 315)."""

    stats_day: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_hour: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_minute: StatsItem = msgspec.field(default_factory=StatsItem)


class QueueEntry(JsonBody, kw_only=True):
    """One entry of a consume queue."""

    bit_map: str | None = None
    matches: bool = msgspec.field(name="eval", default_factory=lambda: False)
    extend_data_json: str | None = None
    message: str | None = msgspec.field(name="msg", default=None)
    position: Int64 = msgspec.field(name="physicOffset", default_factory=lambda: 0)
    size: Int32 = msgspec.field(name="physicSize", default_factory=lambda: 0)
    tags_code: Int64 = kept(0)


class QueueEntries(JsonBody, kw_only=True):
    """Entries of a consume queue (answer to 321)."""

    filter_data: str | None = None
    max_queue_index: Int64 = kept(0)
    min_queue_index: Int64 = kept(0)
    queue_data: list[QueueEntry] = kept_list()
    subscription_data: SubscriptionData | None = None


class ProcessQueueInfo(JsonBody, kw_only=True):
    """What a consumer holds for one queue."""

    cached_msg_count: Int32 = kept(0)
    cached_msg_max_offset: Int64 = kept(0)
    cached_msg_min_offset: Int64 = kept(0)
    cached_msg_size_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default_factory=lambda: 0)
    commit_offset: Int64 = kept(0)
    dropped: bool = msgspec.field(name="droped", default_factory=lambda: False)
    last_consume_timestamp: Int64 = kept(0)
    last_lock_timestamp: Int64 = kept(0)
    last_pull_timestamp: Int64 = kept(0)
    locked: bool = kept(False)
    transaction_msg_count: Int32 = kept(0)
    transaction_msg_max_offset: Int64 = kept(0)
    transaction_msg_min_offset: Int64 = kept(0)
    try_unlock_times: Int64 = kept(0)


class ConsumeStatus(JsonBody, kw_only=True):
    """How fast a consumer processes one topic."""

    consume_failed_msgs: Int64 = kept(0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default_factory=lambda: 0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default_factory=lambda: 0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default_factory=lambda: 0.0)
    pull_rt: float = msgspec.field(name="pullRT", default_factory=lambda: 0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default_factory=lambda: 0.0)


class ConsumerRunningInfo(JsonBody, kw_only=True):
    """What a consumer is doing (answer to 307)."""

    has_odd_keys: ClassVar[bool] = True
    has_queue_keys: ClassVar[bool] = True

    jstack: str | None = None
    mq_table: dict[QueueKey, ProcessQueueInfo] = kept_dict()
    properties: dict[str, str] = kept_dict()
    status_table: dict[str, ConsumeStatus] = kept_dict()
    subscription_set: list[SubscriptionData] = kept_list()
