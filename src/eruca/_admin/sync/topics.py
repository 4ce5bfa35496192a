"""`Topics` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.topics` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence

from eruca._admin.queueends import QueueEnds
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.settings import TopicSettings
from eruca._admin.sync.base import PlainPart
from eruca._admin.topics import NamedSettings, Topic, TopicKind, TopicName, TopicTraffic
from eruca._admin.topics import Topics as AsyncTopics


class Topics(PlainPart[AsyncTopics]):
    """Lists, shows, creates, changes and deletes topics: `admin.topics`."""

    def list(
        self,
        prefix: str = "",
        *,
        kind: TopicKind | str = TopicKind.NORMAL,
        cluster: str | None = None,
        after: str = "",
        limit: int = LIMIT,
    ) -> Listed[TopicName]:
        """Return the topics of a kind (`normal`, `retry`, `dlq`, `system` or `all`), in the order of their names.

        `after`: only names after this one, for the next page.
        """
        return self._run(self._twin.list(prefix, kind=kind, cluster=cluster, after=after, limit=limit))

    def show(self, topic: str, *, limit: int = LIMIT) -> Topic:
        """Return settings, queues and groups of a topic. Raises NoRoute if no broker has it."""
        return self._run(self._twin.show(topic, limit=limit))

    def queues(self, topic: str, *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the ends of a topic's queues. Raises NoRoute if no broker has it."""
        return self._run(self._twin.queues(topic, limit=limit))

    def ends(self, topics: Sequence[str], *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the ends of the queues of many topics; a topic that no broker has, has none."""
        return self._run(self._twin.ends(topics, limit=limit))

    def unreachable(self, *, limit: int = LIMIT) -> Listed[QueueEnds]:
        """Return the queues with unread messages that consumers cannot get: their numbers are beyond the read queues.

        They are those that producers write to, and those that any group has an offset in; they begin at the first
        message that one of these groups has not consumed.
        """
        return self._run(self._twin.unreachable(limit=limit))

    def groups(self, topic: str, *, limit: int = LIMIT) -> Listed[str]:
        """Return the groups that are subscribed to a topic now or have offsets in it."""
        return self._run(self._twin.groups(topic, limit=limit))

    def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedSettings]:
        """Return the settings of topics on each broker, as the brokers have them."""
        return self._run(self._twin.settings(prefix, limit=limit))

    def traffic(self, topic: str) -> TopicTraffic:
        """Return the rates at which a topic is written and read."""
        return self._run(self._twin.traffic(topic))

    def unused(self, *, limit: int = LIMIT) -> Listed[TopicName]:
        """Return normal topics that have no message and that no group is subscribed to or has offsets in."""
        return self._run(self._twin.unused(limit=limit))

    def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str = "RW",
        ordered: bool = False,
        system_flag: int = 0,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Create a topic on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        return self._run(
            self._twin.create(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                permission=permission,
                ordered=ordered,
                system_flag=system_flag,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def update(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str | None = None,
        ordered: bool | None = None,
        system_flag: int | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Change settings of a topic on the brokers that have it; those that are None stay. Raises NoRoute."""
        return self._run(
            self._twin.update(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                permission=permission,
                ordered=ordered,
                system_flag=system_flag,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def put(
        self,
        topic: str,
        settings: TopicSettings,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Create a topic, or replace its settings, on all masters, on those of a cluster, or on the named brokers."""
        return self._run(self._twin.put(topic, settings, brokers=brokers, cluster=cluster, dry_run=dry_run))

    def set_permission(
        self,
        topic: str,
        permission: str,
        *,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[TopicSettings]:
        """Set who may use a topic: `RW`, `R` (consumers continue, producers are refused), `W` or `-`."""
        return self._run(
            self._twin.set_permission(topic, permission, brokers=brokers, cluster=cluster, dry_run=dry_run)
        )

    def delete(
        self, topic: str, *, brokers: Sequence[str] | None = None, cluster: str | None = None, dry_run: bool = False
    ) -> Changed[TopicSettings]:
        """Delete a topic with its messages, on all brokers, on those of a cluster, or on the named ones.

        Creating it again does not bring the messages back. Raises NoRoute if no broker has it.
        """
        return self._run(self._twin.delete(topic, brokers=brokers, cluster=cluster, dry_run=dry_run))
