"""Brokers: configuration, runtime information, statistics, write permission, cleaning up, health."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.rates import Rate
from eruca._admin.results import LIMIT, Changed, Listed


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One registered broker."""

    cluster: str
    broker: str
    # 0: the master.
    broker_id: int
    address: str


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker reports about itself. A value that it does not report is None; `raw` has all as text."""

    broker: str
    address: str
    raw: dict[str, str]
    version: str | None = None
    started_at: datetime | None = None
    uptime: timedelta | None = None
    # Messages per second, over the last 10, 60 and 600 seconds; shorter while it is young.
    put_rates: list[float] = []
    get_rates: list[float] = []
    found_rates: list[float] = []
    missed_rates: list[float] = []
    transferred_rates: list[float] = []
    # Messages in and out: until this morning, and until now; yesterday's are the difference.
    put_today: int | None = None
    get_today: int | None = None
    put_yesterday: int | None = None
    get_yesterday: int | None = None
    put_total: int | None = None
    get_total: int | None = None
    failed_puts: int | None = None
    mean_size: float | None = None
    # The longest of the last minute.
    put_time_max: timedelta | None = None
    # The ends of the commit log.
    log_begin: int | None = None
    log_end: int | None = None
    earliest_at: datetime | None = None
    # 0 to 1.
    log_disk_ratio: float | None = None
    queue_disk_ratio: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    unflushed_bytes: int | None = None
    # Requests waiting in the queues of a Java broker, by `send`, `pull`, `query` and `transaction`.
    waiting: dict[str, int] = {}
    # How long the first of them has been waiting.
    waiting_time: dict[str, timedelta] = {}
    # Messages that wait in each delay level: offset and end.
    delay_levels: dict[int, tuple[int, int]] = {}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a broker answers, and how its disk and clock are."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    answers: bool
    # How long it took to answer.
    round_trip: timedelta | None = None
    version: str | None = None
    # `eruca` or `java`; empty if unknown.
    kind: str = ""
    log_disk_ratio: float | None = None
    disk_free_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    # How much its clock is ahead of ours, within the round trip; None if it does not report a time.
    clock_ahead: timedelta | None = None
    problem: str = ""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one server."""

    # The name of a broker, or the address of a name server.
    where: str
    address: str
    options: dict[str, str]
    # Counts changes since it started.
    version: int | None = None


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue, as its broker reports it."""

    group: str
    topic: str
    broker: str
    queue: int
    offset: int
    end: int
    lag: int
    consumed_at: datetime | None = None


class Brokers:
    """`admin.brokers`

    Where a method takes a `broker`, this is its name, or its address to reach a slave.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[BrokerRow]:
        """Return the registered brokers, masters and slaves."""
        raise NotImplementedError

    async def runtime(
        self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT
    ) -> Listed[Runtime]:
        """Return what brokers report about themselves: one, those of a cluster, or all, with slaves."""
        raise NotImplementedError

    async def config(
        self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT
    ) -> Listed[ServerConfig]:
        """Return the configuration of brokers: one, those of a cluster, or all, with slaves."""
        raise NotImplementedError

    async def statistics(self, name: str, key: str, *, broker: str | None = None) -> Listed[Rate]:
        """Return a counter: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`, and others of Java's."""
        raise NotImplementedError

    async def consume_stats(
        self, broker: str | None = None, *, ordered: bool = False, lag_min: int = 0, limit: int = LIMIT
    ) -> Listed[GroupProgress]:
        """Return how far all groups are in the queues of a broker, or of all: those that are at least `lag_min` behind.

        `ordered`: only topics that are configured as ordered.
        """
        raise NotImplementedError

    async def health(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[Health]:
        """Ask every registered broker whether it answers, and about its disk and its clock."""
        raise NotImplementedError

    # -- changing ----------------------------------------------------------------------------------------------------

    async def set_config(
        self,
        options: Mapping[str, str],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[dict[str, str]]:
        """Change options of one broker, of those of a cluster, or of all masters with neither.

        Before and after have the changed options only.
        """
        raise NotImplementedError

    async def wipe_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Have the name servers report a broker as read-only, so that producers leave it. Counts are of topics.

        A registration of the broker with a changed topic table restores it.
        """
        raise NotImplementedError

    async def add_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Undo `wipe_write_permission`. Every topic of the broker gets permission to read and write."""
        raise NotImplementedError

    async def clean_expired_queues(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete files of consume queues whose messages are gone."""
        raise NotImplementedError

    async def clean_unused_topics(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete the queue files of topics that were deleted."""
        raise NotImplementedError

    async def delete_expired_log(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete segments of the log that are older than the retention time now, whatever the hour."""
        raise NotImplementedError
