"""Clusters: masters and slaves, epochs, how far slaves are behind, and changing the master."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.forgetting import forget_member
from eruca._admin.members import (
    DivergedRow,
    Lag,
    Member,
    find_member,
    list_diverged,
    list_members,
    measure_lag,
    read_state,
)
from eruca._admin.results import LIMIT, Changed, Listed
from eruca._admin.rolechanges import Promotion, RoleChange
from eruca._ground.durations import Duration, to_seconds
from eruca._wire.bodies import ReplicationState


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster and the names of its brokers."""

    cluster: str
    brokers: list[str]


class Cluster:
    """Shows masters and slaves and changes the master: `admin.cluster`.

    Brokers with the same name are its members: one master, and slaves, which copy its log.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- looking -----------------------------------------------------------------------------------------------------

    async def list(self) -> Listed[ClusterRow]:
        """Return the clusters and the names of their brokers."""
        table = await self._connection.list_clusters()
        return Listed(items=[ClusterRow(cluster=name, brokers=sorted(table[name])) for name in sorted(table)])

    async def members(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[Member]:
        """Return the members of all broker names, or of one: those that name servers or other members know."""
        rows = await list_members(self._connection, broker)
        return Listed(items=rows[:limit], cut=len(rows) > limit)

    async def lag(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[Lag]:
        """Return one row per slave, as its master reports it, or the slave itself if the master does not."""
        rows = await measure_lag(self._connection, broker)
        return Listed(items=rows[:limit], cut=len(rows) > limit)

    async def diverged(self, broker: str | None = None, *, limit: int = LIMIT) -> Listed[DivergedRow]:
        """Return the ends of logs that members have set aside."""
        rows = await list_diverged(self._connection, broker)
        return Listed(items=rows[:limit], cut=len(rows) > limit)

    async def find(self, target: str) -> Member:
        """Return the member with an address `host:port`, or with a name and an id `name:id`. Raises ConfigError."""
        return await find_member(self._connection, target)

    async def state(self, address: str) -> ReplicationState:
        """Return the state of a broker's log and links. Raises RequestRefused, also for a Java broker."""
        return await read_state(self._connection, address)

    # -- changing ----------------------------------------------------------------------------------------------------

    async def forget(self, address: str, *, dry_run: bool = False) -> Changed[Sequence[str]]:
        """Have the other members of a broker name forget a member that is gone for good.

        It no longer counts when a slave is promoted, so messages that only it has are lost. Raises ConfigError if it
        answers, and NoRoute if no member knows it.
        """
        return await forget_member(self._connection, address, dry_run=dry_run)

    async def promote(
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
        change = RoleChange(self._connection, force, members, to_seconds("wait", wait), dry_run, tell)
        return await change.promote(await find_member(self._connection, target))

    async def demote(
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
        change = RoleChange(self._connection, force, members, to_seconds("wait", wait), dry_run, tell)
        member = await find_member(self._connection, target)
        return await (change.demote(member) if successor else change.retire(member))
