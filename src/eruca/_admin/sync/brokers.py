"""`Brokers` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.brokers` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping

from eruca._admin.brokers import Brokers as AsyncBrokers
from eruca._admin.brokers import GroupProgress, Health, ServerConfig
from eruca._admin.rates import Rate
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.runtime import Runtime
from eruca._admin.sync.base import PlainPart
from eruca._admin.targets import BrokerRow


class Brokers(PlainPart[AsyncBrokers]):
    """Shows and changes what brokers report, are configured with and count: `admin.brokers`.

    Where a method takes a `broker`, this is its name, or its address to reach a slave.
    """

    def list(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[BrokerRow]:
        """Return the registered brokers, masters and slaves."""
        return self._run(self._twin.list(cluster=cluster, limit=limit))

    def runtime(self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[Runtime]:
        """Return what brokers report about themselves: one, those of a cluster, or all, with slaves."""
        return self._run(self._twin.runtime(broker, cluster=cluster, limit=limit))

    def config(
        self, broker: str | None = None, *, cluster: str | None = None, limit: int = LIMIT
    ) -> Listed[ServerConfig]:
        """Return the configuration of brokers: one, those of a cluster, or all, with slaves."""
        return self._run(self._twin.config(broker, cluster=cluster, limit=limit))

    def statistics(self, name: str, key: str, *, broker: str | None = None) -> Listed[Rate]:
        """Return a counter: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`, and others of Java's.

        Brokers that do not have it are left out.
        """
        return self._run(self._twin.statistics(name, key, broker=broker))

    def consume_stats(
        self, broker: str | None = None, *, ordered: bool = False, lag_min: int = 0, limit: int = LIMIT
    ) -> Listed[GroupProgress]:
        """Return how far all groups are in the queues of a broker, or of all: those that are at least `lag_min` behind.

        `ordered`: only topics that are configured as ordered. If there are more than `limit`, those that are furthest
        behind are returned.
        """
        return self._run(self._twin.consume_stats(broker, ordered=ordered, lag_min=lag_min, limit=limit))

    def health(self, *, cluster: str | None = None, limit: int = LIMIT) -> Listed[Health]:
        """Ask every registered broker whether it answers, and about its disk and its clock."""
        return self._run(self._twin.health(cluster=cluster, limit=limit))

    def set_config(
        self,
        options: Mapping[str, str],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[dict[str, str]]:
        """Change options of one broker, of those of a cluster, or of all masters with neither.

        Before and after have these options only. Raises ConfigError if none is named.
        """
        return self._run(self._twin.set_config(options, broker=broker, cluster=cluster, dry_run=dry_run))

    def wipe_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Have the name servers report a broker as read-only, so that producers leave it. Counts are of topics.

        It lasts until the broker registers a changed topic table.
        """
        return self._run(self._twin.wipe_write_permission(broker, dry_run=dry_run))

    def add_write_permission(self, broker: str, *, dry_run: bool = False) -> Changed[int]:
        """Undo `wipe_write_permission`. Every topic of the broker gets permission to read and write."""
        return self._run(self._twin.add_write_permission(broker, dry_run=dry_run))

    def clean_expired_queues(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete files of consume queues whose messages are gone."""
        return self._run(self._twin.clean_expired_queues(broker, cluster=cluster, dry_run=dry_run))

    def clean_unused_topics(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete the queue files of topics that were deleted."""
        return self._run(self._twin.clean_unused_topics(broker, cluster=cluster, dry_run=dry_run))

    def delete_expired_log(
        self, broker: str | None = None, *, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[str]:
        """Have brokers delete segments of the log that are older than the retention time now, whatever the hour."""
        return self._run(self._twin.delete_expired_log(broker, cluster=cluster, dry_run=dry_run))
