"""What a store remembers of replication, in `config/erucaReplication.json`: role, epochs, and a cut that is under way.

An epoch is one mastership. The list of epochs says which of them wrote which part of the log, so that two logs can be
compared without reading them. The identity of the store says whether two lists may be compared at all: every store
counts its epochs from one. A list that is older than the log would say that bytes are another master's than they
are, and a divergence would go unseen; that is why a damaged file is an error here, although a backup lies beside it.
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
    """What is in the file. A record is never changed: another one takes its place when it is saved."""

    #: What the broker became after its start: "MASTER" or "SLAVE"; empty while it is what its configuration says.
    role: str = kept("")
    epochs: list[Epoch] = kept_list()
    #: Masterships up to this one are one entry of the list; 0 when none were joined.
    epochs_joined: int = kept(0)
    #: The identity of the store, which its first master gave it; empty before, and in stores of older versions.
    store_id: str = kept("")
    #: Where the log ended when it got the identity.
    store_id_given_at: int = kept(0)
    #: The highest epoch of any master this broker has seen; it never follows one with a lower epoch.
    seen_epoch: int = kept(0)
    #: The last epoch in which this broker itself was the master.
    led_epoch: int = kept(0)
    #: The log is being cut back to this position; -1 when it is not. A start finishes the cut.
    truncating: int = kept(-1)
    #: From here on a crash may have changed the log, -1 when there was none; a slave compares it with its master's.
    unsure: int = kept(-1)
    diverged: list[Diverged] = kept_list()


class ReplicationFile:
    """The record on the disk."""

    def __init__(self, disk: FileSystem, path: Path) -> None:
        self._table = TableFile(disk, path, ReplicationRecord)

    def load(self) -> ReplicationRecord:
        """Read the record; without a file it is empty. Raises TableCorrupt when the file is there and unreadable."""
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
                f"{file.path} is unreadable, so nobody can tell which master wrote which part of the log: {error}",
                hint=f"if no role changed since it was saved, put {backup.path.name} in its place; otherwise start "
                "with an empty store directory and let this broker copy the log of its master",
            ) from error
        if not is_epoch(record.seen_epoch):
            # A version that had no bound believed somebody: it could never lead again.
            record.seen_epoch = record.epochs[-1].epoch if record.epochs else 0
        return record

    def save(self, record: ReplicationRecord) -> None:
        """Replace the record in one step, keeping the one before as its backup; durable when this returns."""
        check_epochs(record.epochs)
        self._table.save(record)


def check_epochs(epochs: Sequence[Epoch]) -> None:
    """Refuse a list in which numbers do not grow, are out of bounds, or positions go back."""
    for earlier, later in itertools.pairwise(epochs):
        if later.epoch <= earlier.epoch or later.start < earlier.start:
            raise StoreError(f"{later} cannot follow {earlier}")
    for item in (*epochs[:1], *epochs[-1:]):
        if not is_epoch(item.epoch) or item.start < 0:
            raise StoreError(f"{item} cannot be: an epoch is a number up to {EPOCH_MAX}")


def begin_epoch(epochs: Iterable[Epoch], tail: int, epoch: int, unsure: int = -1) -> list[Epoch]:
    """The list with a new epoch at its end, which begins at the tail.

    Epochs that begin behind the tail are dropped: what they wrote was lost with the machine.
    """
    known = list(epochs)
    if known and epoch <= known[-1].epoch:
        raise StoreError(f"epoch {epoch} cannot begin: the log has epoch {known[-1].epoch} already")
    return [*(item for item in known if item.start <= tail), Epoch(epoch, tail, unsure)]
