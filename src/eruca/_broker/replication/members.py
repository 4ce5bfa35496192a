"""All members of this broker's name, whether present or not, and how the last master acknowledged.

Name servers forget a member that is gone, but promoting a slave requires the number of members: those that do not
respond may have acknowledged messages. So each member remembers all members it ever met. A master meets its slaves
through their links; a slave learns about the others from its master. A member that moved to another address counts
twice, and one that is gone for good still counts, until an operator has it forgotten or states how many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eruca._broker.options import LiveOptions
from eruca._broker.standing import Standing
from eruca._ground.limits import MEMBERS_MAX
from eruca._ground.signals import Signal
from eruca._store.filesystem import FileSystem
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody, ReplicationState
from eruca._wire.bodies.shared import kept, kept_list

log = logging.getLogger(__name__)

TABLE_NAME: Final = "erucaMembers.json"


class MembersTable(JsonBody):
    """The file: service addresses of the other members, the last known settings of their master, and the read limit."""

    #: The position up to which messages were readable; -1 if it was never recorded.
    confirmed: int = kept(-1)
    #: The configured id of the master; -1 if no master was ever known.
    master_configured_id: int = kept(-1)
    master_epoch: int = kept(0)
    members: list[str] = kept_list()
    #: Copies it waits for, including its own; 0 if no master was ever known.
    required: int = kept(0)
    sync: bool = kept(False)


@dataclass(frozen=True, slots=True, eq=False)
class KnownMembers:
    """What one broker knows about the other members of its name."""

    _options: LiveOptions
    _standing: Standing
    _table: MembersTable
    # The position up to which readers may read: saved with the members.
    _find_readable: Callable[[], int]
    #: Called when there is something to save.
    changed: Signal[()] = field(default_factory=Signal[()])

    def snapshot(self) -> MembersTable:
        """Return the content of the file."""
        table = self._table
        table.confirmed = self._find_readable()
        return MembersTable(
            confirmed=table.confirmed,
            master_configured_id=table.master_configured_id,
            master_epoch=table.master_epoch,
            members=list(table.members),
            required=table.required,
            sync=table.sync,
        )

    @property
    def members(self) -> list[str]:
        """The addresses of all members, this broker's first."""
        own = self._standing.address
        return [own, *[address for address in self._table.members if address != own]]

    @property
    def mode(self) -> tuple[bool, int] | None:
        """Whether the last master waited for slaves, and for how many copies; None if no master was ever known."""
        return (self._table.sync, self._table.required) if self._table.required else None

    @property
    def master_epoch(self) -> int:
        """The epoch of the last known master."""
        return self._table.master_epoch

    @property
    def master_configured_id(self) -> int:
        """The configured id of the master; -1 if no master was ever known."""
        return self._table.master_configured_id

    def meet(self, addresses: Iterable[str]) -> None:
        """Remember members: a slave that connected, or a master that is followed."""
        known, own = self._table.members, self._standing.address
        new = [address for address in dict.fromkeys(addresses) if address and address != own and address not in known]
        if not new:
            return
        if len(known) + len(new) > MEMBERS_MAX:
            log.warning("cannot remember all %d members of %s: too many", len(known) + len(new), self._options.now.name)
            new = new[: max(0, MEMBERS_MAX - len(known))]
        known += new
        self.changed.tell()

    def forget(self, address: str) -> bool:
        """Forget a member that is gone for good. Returns False if it was not known."""
        known = self._table.members
        if address not in known:
            return False
        known.remove(address)
        self.changed.tell()
        return True

    def hear(self, master: ReplicationState) -> None:
        """Record what the master reports about itself and the other members."""
        if master.epoch >= self._table.master_epoch:
            self._note(master.epoch, master.configured_id, max(1, master.required), master.sync)
        self.meet([master.address, *master.members, *[slave.address for slave in master.slaves if slave.fenced]])

    def hear_java(self, *, is_sync: bool) -> None:
        """Record how a Java master acknowledges: with SYNC_MASTER one slave has what it acknowledged."""
        table = self._table
        self._note(table.master_epoch, table.master_configured_id, 2 if is_sync else 1, is_sync)

    def save_if_moved(self) -> None:
        """Save the read limit if it changed since the last save."""
        if self._find_readable() != self._table.confirmed:
            self.changed.tell()

    def lead(self, epoch: int) -> None:
        """Record how this broker acknowledges as the new master."""
        options = self._options.now
        self._note(epoch, options.broker_id, options.in_sync_replicas, self._standing.is_sync)

    def _note(self, epoch: int, configured_id: int, required: int, sync: bool) -> None:
        table = self._table
        told = (epoch, configured_id, required, sync)
        if told != (table.master_epoch, table.master_configured_id, table.required, table.sync):
            table.master_epoch, table.master_configured_id, table.required, table.sync = told
            self.changed.tell()


def open_members(disk: FileSystem, directory: Path) -> TableFile[MembersTable]:
    """Return the file in a store's config directory."""
    return TableFile(disk, directory / TABLE_NAME, MembersTable)
