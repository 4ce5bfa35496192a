"""`Cluster` of `eruca.sync.Admin`.

Written by `make generate` from `eruca._admin.cluster` and
`eruca._admin.sync.base`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eruca._admin.cluster import Cluster as AsyncCluster
from eruca._admin.cluster import ClusterRow
from eruca._admin.members import DivergedRow, Lag, Member
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.rolechanges import Promotion
from eruca._admin.sync.base import PlainPart
from eruca._ground.durations import Duration
from eruca._wire.bodies import ReplicationState


class Cluster(PlainPart[AsyncCluster]):
    """Shows masters and slaves and changes the master: `admin.cluster`.

    Brokers with the same name are its members: one master, and slaves, which copy its log.
    """

    def list(self) -> Listed[ClusterRow]:
        """Return the clusters and the names of their brokers."""
        return self._run(self._twin.list())

    def members(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[Member]:
        """Return the members of all broker names, or of one: those that name servers or other members know."""
        return self._run(self._twin.members(broker, limit=limit))

    def lag(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[Lag]:
        """Return one row per slave, as its master reports it, or the slave itself if the master does not."""
        return self._run(self._twin.lag(broker, limit=limit))

    def diverged(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[DivergedRow]:
        """Return the ends of logs that members have set aside."""
        return self._run(self._twin.diverged(broker, limit=limit))

    def find(self, target: str) -> Member:
        """Return the member with an address `host:port`, or with a name and an id `name:id`. Raises ConfigError."""
        return self._run(self._twin.find(target))

    def state(self, address: str) -> ReplicationState:
        """Return the state of a broker's log and links. Raises RequestRefused, also for a Java broker."""
        return self._run(self._twin.state(address))

    def forget(self, address: str, *, dry_run: bool = False) -> Changed[Sequence[str]]:
        """Have the other members of a broker name forget a member that is gone for good.

        It no longer counts when a slave is promoted, so messages that only it has are lost. Raises ConfigError if it
        answers, and NoRoute if no member knows it.
        """
        return self._run(self._twin.forget(address, dry_run=dry_run))

    def promote(
        self,
        target: str,
        *,
        force: bool = False,
        members: int | None = None,
        wait: Duration = 30.0,
        dry_run: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Promotion:
        """Make a slave the master of its broker name.

        If the current master answers, it stops accepting messages, the slave copies the rest of the log, and they swap
        roles: nothing is lost. If it does not answer, the slave is promoted only if no acknowledged message can be
        lost, or with `force`. `members` is their number if one is gone for good. `tell` is called with each step.
        Raises ConfigError, which states what would be lost, and NetError when a member stops answering.
        """
        return self._run(
            self._twin.promote(target, force=force, members=members, wait=wait, dry_run=dry_run, tell=tell)
        )

    def demote(
        self,
        target: str,
        *,
        force: bool = False,
        successor: bool = True,
        members: int | None = None,
        wait: Duration = 30.0,
        dry_run: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Promotion:
        """Have a master step down. The slave with the most data takes over; with `successor=False` none does."""
        return self._run(
            self._twin.demote(
                target, force=force, successor=successor, members=members, wait=wait, dry_run=dry_run, tell=tell
            )
        )
