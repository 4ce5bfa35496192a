"""What the clients of a broker may use, as options: held pulls, table entries, memory for heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground import limits
from eruca._ground.config import option
from eruca._net.limitoptions import LimitOptions


@dataclass(frozen=True)
class BrokerLimitOptions(LimitOptions):
    """Limits for the clients of a broker, in addition to those of every server."""

    holds_max: int = option(
        limits.HOLDS_MAX,
        "maxHeldPulls",
        "maximum number of held pulls; one more is answered at once",
        low=0,
        mutable=True,
    )
    holds_of_connection_max: int = option(
        limits.HOLDS_OF_CONNECTION_MAX,
        "maxHeldPullsPerConnection",
        "maximum number of held pulls of one connection; one more is answered at once",
        low=0,
        mutable=True,
    )
    holds_bytes_max: int = option(
        limits.HOLDS_BYTES_MAX,
        "maxHeldPullBytes",
        "maximum memory of all held pulls; further ones are answered at once",
        unit="bytes",
        low=0,
        mutable=True,
    )
    holds_of_connection_bytes_max: int = option(
        limits.HOLDS_OF_CONNECTION_BYTES_MAX,
        "maxHeldPullBytesPerConnection",
        "maximum memory of the held pulls of one connection; further ones are answered at once",
        unit="bytes",
        low=0,
        mutable=True,
    )
    pop_waiting_max: int = option(
        100_000,
        "maxPopPollingSize",
        "maximum number of pops that wait for messages; one more is answered with `polling full`",
        low=0,
        mutable=True,
    )
    pop_waiting_of_group_max: int = option(
        1024,
        "popPollingSize",
        "maximum number of pops of one group and topic that wait for messages",
        low=0,
        mutable=True,
    )
    pop_in_flight_max: int = option(
        limits.POP_IN_FLIGHT_MAX,
        "maxPopInFlight",
        "maximum number of messages that are popped and not acknowledged yet; further ones are not delivered",
        low=1,
        high=limits.POP_IN_FLIGHT_CEILING,
        mutable=True,
    )
    pop_threshold: bool = option(
        False,
        "enablePopMessageThreshold",
        "limit what a group has in flight of one queue to popInflightMessageThreshold",
        mutable=True,
    )
    pop_queue_in_flight_max: int = option(
        10_000,
        "popInflightMessageThreshold",
        "maximum number of messages of one queue that a group has in flight, if enablePopMessageThreshold is true",
        low=1,
        mutable=True,
    )
    topics_max: int = option(
        limits.TOPICS_MAX,
        "maxTopics",
        "maximum number of topics, retry and dead letter topics included; further ones are not created",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    groups_max: int = option(
        limits.GROUPS_MAX,
        "maxGroups",
        "maximum number of subscription groups; further ones are not created",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    offsets_max: int = option(
        limits.OFFSETS_MAX,
        "maxOffsets",
        "maximum number of committed offsets, one for each group and queue; further ones are not stored",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    table_bytes_max: int = option(
        limits.SHARED_TABLE_BYTES_MAX,
        "maxTableBytes",
        "maximum size of each of the tables of topics, groups and offsets",
        unit="bytes",
        low=1024,
        high=limits.SHARED_TABLE_BYTES_MAX,
        mutable=True,
    )
    locks_max: int = option(
        limits.LOCKS_MAX,
        "maxQueueLocks",
        "maximum number of queue locks of ordered consumers; further ones are not granted",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    locks_of_group_max: int = option(
        limits.LOCKS_OF_GROUP_MAX,
        "maxQueueLocksPerGroup",
        "maximum number of queue locks of one group; further ones are not granted",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    cancellations_max: int = option(
        limits.CANCELLATIONS_MAX,
        "maxTimerCancellations",
        "maximum number of remembered cancellations of delayed messages, about 200 bytes each; one topic may have as "
        "many as are still free; further ones are refused",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    once_queries_max: int = option(
        limits.ONCE_QUERIES_MAX,
        "maxOnceQueries",
        "maximum number of queries of idempotent sinks, and of idempotent producers, that are remembered; of more, "
        "the one of the same topic that was idle for longest is forgotten",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    once_places_max: int = option(
        limits.ONCE_PLACES_MAX,
        "maxOncePlaces",
        "maximum number of their pairs of partition and queue, about 200 bytes each; the same",
        low=1,
        high=limits.TABLE_ENTRIES_CEILING,
        mutable=True,
    )
    heartbeats_bytes_max: int = option(
        limits.HEARTBEATS_BYTES_MAX,
        "maxHeartbeatBytes",
        "maximum memory for group members and their subscriptions; above it the largest connection of the account or "
        "address with the most is closed",
        unit="bytes",
        low=1024 * 1024,
    )
