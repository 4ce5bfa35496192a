"""`Groups` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.groups` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence

from eruca._admin.groupmembers import Difference, GroupMember, Subscribed
from eruca._admin.groups import Group, GroupName, NamedGroupSettings, TimeSpan
from eruca._admin.groups import Groups as AsyncGroups
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.settings import GroupSettings
from eruca._admin.sync.base import PlainPart


class Groups(PlainPart[AsyncGroups]):
    """Lists, shows, creates, changes and deletes groups: `admin.groups`."""

    def list(
        self, prefix: str = "", *, topic: str | None = None, system: bool = False, after: str = "", limit: int = LIMIT
    ) -> Listed[GroupName]:
        """Return the groups that brokers know or hold offsets of, in the order of their names.

        With `topic`, those that are subscribed to it or have offsets in it. With `system`, the brokers' own too.
        `after`: only names after this one, for the next page.
        """
        return self._run(self._twin.list(prefix, topic=topic, system=system, after=after, limit=limit))

    def show(self, group: str, *, topic: str | None = None, limit: int = LIMIT) -> Group:
        """Return members, subscriptions and progress of a group: in all topics, or in one.

        Members are asked what they hold, so that each queue has its owner. Raises NoRoute if no broker knows the group.
        """
        return self._run(self._twin.show(group, topic=topic, limit=limit))

    def members(self, group: str, *, limit: int = LIMIT) -> Listed[GroupMember]:
        """Return the connected members of a group."""
        return self._run(self._twin.members(group, limit=limit))

    def subscriptions(self, group: str, *, limit: int = LIMIT) -> Listed[Subscribed]:
        """Return the subscriptions of a group, as its members last reported them."""
        return self._run(self._twin.subscriptions(group, limit=limit))

    def differences(self, group: str, *, limit: int = LIMIT) -> Listed[Difference]:
        """Return the subscriptions in which members of a group differ. Each member, up to `limit`, is asked."""
        return self._run(self._twin.differences(group, limit=limit))

    def settings(self, prefix: str = "", *, limit: int = LIMIT) -> Listed[NamedGroupSettings]:
        """Return the settings of groups on each broker."""
        return self._run(self._twin.settings(prefix, limit=limit))

    def time_spans(self, group: str, topic: str, *, limit: int = LIMIT) -> Listed[TimeSpan]:
        """Return the age of the messages of a topic, and how late a group is in each queue."""
        return self._run(self._twin.time_spans(group, topic, limit=limit))

    def create(
        self,
        group: str,
        *,
        consume: bool = True,
        consume_from_min: bool = True,
        broadcast: bool = True,
        retry_queues: int = 1,
        retries: int = 16,
        broker_id: int = 0,
        slow_broker_id: int = 1,
        notify: bool = True,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Create a group on all masters, on those of a cluster, or on the named brokers.

        Raises ConfigError if a broker has it with other settings; `update` changes them.
        """
        return self._run(
            self._twin.create(
                group,
                consume=consume,
                consume_from_min=consume_from_min,
                broadcast=broadcast,
                retry_queues=retry_queues,
                retries=retries,
                broker_id=broker_id,
                slow_broker_id=slow_broker_id,
                notify=notify,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def update(
        self,
        group: str,
        *,
        consume: bool | None = None,
        consume_from_min: bool | None = None,
        broadcast: bool | None = None,
        retry_queues: int | None = None,
        retries: int | None = None,
        broker_id: int | None = None,
        slow_broker_id: int | None = None,
        notify: bool | None = None,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Change settings of a group on the brokers that have it; those that are None stay. Raises NoRoute."""
        return self._run(
            self._twin.update(
                group,
                consume=consume,
                consume_from_min=consume_from_min,
                broadcast=broadcast,
                retry_queues=retry_queues,
                retries=retries,
                broker_id=broker_id,
                slow_broker_id=slow_broker_id,
                notify=notify,
                brokers=brokers,
                cluster=cluster,
                dry_run=dry_run,
            )
        )

    def delete(
        self,
        group: str,
        *,
        offsets: bool = True,
        topics: bool = True,
        force: bool = False,
        brokers: Sequence[str] | None = None,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> Changed[GroupSettings]:
        """Delete a group, by default with its offsets, its retry topic and its dead letters.

        Raises ConfigError while members are connected, unless `force` is set, and NoRoute if no broker has it. Dead
        letters and messages to retry cannot be restored.
        """
        return self._run(
            self._twin.delete(
                group, offsets=offsets, topics=topics, force=force, brokers=brokers, cluster=cluster, dry_run=dry_run
            )
        )
