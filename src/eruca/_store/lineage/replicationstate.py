"""What a store remembers about replication, in `config/erucaReplication.json`: role, epochs, and a cut in progress.

An epoch is one mastership. The list of epochs records which of them wrote which part of the log, so that two logs can
be compared without reading them. The identity of the store decides whether two lists may be compared at all: every
store counts its epochs from one. A list older than the log would attribute bytes to the wrong master, and a divergence
would go unnoticed. That is why a damaged file is an error here, although there is a backup beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from eruca._ground.limits import EPOCH_MAX
from eruca._store.filesystem import FileSystem
from eruca._store.tables.tables import TableFile
from eruca._wire.bodies import JsonBody
from eruca._wire.bodies.replication import DivergedTail
from eruca._wire.bodies.shared import kept, kept_list
from eruca._wire.epoch import Epoch, is_epoch
from eruca.errors import StoreError, TableCorrupt

# A part of the log that another master does not have, set aside: file, epoch, begin, end, found_ms.
Diverged: TypeAlias = DivergedTail


class ReplicationRecord(JsonBody):
    """The content of the file. A record is immutable: saving replaces it."""

    #: What the broker became after its start: "MASTER" or "SLAVE"; empty while it follows its configuration.
    role: str = kept("")
    epochs: list[Epoch] = kept_list()
    #: Masterships up to this one are joined into one entry of the list; 0 when none were.
    epochs_joined: int = kept(0)
    #: The identity of the store, assigned by its first master; empty before that, and in stores of older versions.
    store_id: str = kept("")
    #: Where the log ended when the identity was assigned.
    store_id_given_at: int = kept(0)
    #: The highest epoch this broker has seen of any master; it never follows one with a lower epoch.
    seen_epoch: int = kept(0)
    #: The last epoch in which this broker was the master.
    led_epoch: int = kept(0)
    #: The log is being cut back to this position; -1 when no cut is in progress. A start finishes the cut.
    truncating: int = kept(-1)
    #: From here on a crash may have changed the log, -1 when there was none; a slave compares it with its master's log.
    unsure: int = kept(-1)
    diverged: list[Diverged] = kept_list()


class ReplicationFile:
    """The record on the disk."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._table = TableFile(disk, path, ReplicationRecord)

    def load(self) -> ReplicationRecord:
        """Read the record; empty without a file. Raises TableCorrupt when the file exists and is unreadable."""
        file, backup = self._table.file, self._table.backup
        try:
            record = file.read()
            if record is None and not backup.exists():
                return ReplicationRecord()
            if record is None:
                raise StoreError("missing")
            check_epochs(record.epochs)
        except StoreError as error:
            raise TableCorrupt(
                f"{file.path} is unreadable, so it is unknown which master wrote which part of the log: {error}",
                hint=f"if no role changed since it was saved, put {backup.path.name} in its place; otherwise start "
                "with an empty store directory and let this broker copy the log of its master",
            ) from error
        if not is_epoch(record.seen_epoch):
            # An older version had no bound and accepted any epoch: it could never become master again.
            record.seen_epoch = record.epochs[-1].epoch if record.epochs else 0
        return record

    def save(self, record: ReplicationRecord) -> None:
        """Replace the record atomically, keeping the previous one as its backup; durable when this returns."""
        check_epochs(record.epochs)
        self._table.save(record)


def check_epochs(epochs: Sequence[Epoch]) -> None:
    """Refuse a list in which epochs do not increase, are out of bounds, or positions go back."""
    for earlier, later in itertools.pairwise(epochs):
        if later.epoch <= earlier.epoch or later.start < earlier.start:
            raise StoreError(f"{later} cannot follow {earlier}")
    for item in (*epochs[:1], *epochs[-1:]):
        if not is_epoch(item.epoch) or item.start < 0:
            raise StoreError(f"{item} is out of range: an epoch is at most {EPOCH_MAX}")


def begin_epoch(epochs: Iterable[Epoch], tail: int, epoch: int, unsure: int = -1) -> list[Epoch]:
    """The list with a new epoch at its end, starting at the tail.

    Epochs that start beyond the tail are dropped: what they wrote was lost in a crash.
    """
    known = list(epochs)
    if known and epoch <= known[-1].epoch:
        raise StoreError(f"epoch {epoch} cannot begin: the log already has epoch {known[-1].epoch}")
    return [*(item for item in known if item.start <= tail), Epoch(epoch, tail, unsure)]
