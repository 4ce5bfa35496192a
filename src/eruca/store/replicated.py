"""What replication asks of a store: who wrote which part of its log, and to cut off what nobody else has."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import msgspec

from eruca.clock import Clock
from eruca.config import StoreOptions
from eruca.errors import StoreError
from eruca.limits import EPOCH_MAX, EPOCHS_LISTED_MAX
from eruca.store.archived import ArchiveMark
from eruca.store.checkpoint import Checkpoint
from eruca.store.dispatch import Dispatch
from eruca.store.filesystem import FileSystem
from eruca.store.flush import Flusher
from eruca.store.layout import StorePaths
from eruca.store.lookup import Lookup
from eruca.store.queueends import EndsFile
from eruca.store.recovery import RecoveryPlan
from eruca.store.removed import RemovedTopics
from eruca.store.replicationstate import Diverged, ReplicationFile, ReplicationRecord, begin_epoch
from eruca.store.truncation import read_diverged, set_aside, truncate_store
from eruca.wire.epoch import Epoch, is_epoch, join_oldest
from eruca.wire.record import Message


class Replicated(Lookup):
    """A store whose log other brokers copy, or which is a copy itself."""

    clock: Clock
    options: StoreOptions
    checkpoint: Checkpoint
    flusher: Flusher
    archived: ArchiveMark
    removed: RemovedTopics
    dispatch: Dispatch
    ends: EndsFile

    def __init__(self, disk: FileSystem, paths: StorePaths) -> None:
        self.disk = disk
        self.paths = paths
        # Role, epochs and what was set aside; opening the store reads it.
        self.replication = ReplicationRecord()
        self._replication_file = ReplicationFile(disk, paths.replication)
        # Roles and links change the record, each in a thread of its own.
        self._record_guard = threading.RLock()

    def commit(self) -> None:
        """Have every append in the log."""
        raise NotImplementedError

    def load_mark(self) -> None:
        """Have the mark of what is archived not beyond the end of the log."""
        raise NotImplementedError

    def forget_topics(self) -> None:
        """Look every topic and queue up again at its next append."""
        raise NotImplementedError

    # -- the record: durable when these return; they may run in threads ------------------------------------------------

    def load_replication(self) -> ReplicationRecord:
        """Read the record from the disk."""
        self.replication = self._replication_file.load()
        return self.replication

    def save_replication(self, **changes: Any) -> None:
        """Change fields of the record."""
        with self._record_guard:
            record = msgspec.structs.replace(self.replication, **changes)
            self._replication_file.save(record)
            self.replication = record

    def save_role(self, role: str) -> None:
        """Remember what the broker became, "MASTER" or "SLAVE"; empty: what its configuration says."""
        self.save_replication(role=role)

    def begin_epoch(self, epoch: int) -> None:
        """Begin a mastership at the end of the log; must come before its first append."""
        self.commit()
        with self._record_guard:
            tail, record = self.commitlog.tail, self.replication
            if tail != self.commitlog.readable_end or record.truncating >= 0:
                raise StoreError("a mastership begins at the end of a whole record", hint="finish copying first")
            if epoch < record.seen_epoch:
                raise StoreError(f"epoch {epoch} cannot begin: epoch {record.seen_epoch} was seen")
            # A part of a record that was cut off must not come back when the first append is lost with the machine.
            self.commitlog.sync_tail()
            # From now on this log is right, whatever a crash did to it: the others compare theirs.
            epochs = begin_epoch(record.epochs, tail, epoch, record.unsure)
            epochs, joined = join_oldest(epochs, record.epochs_joined, EPOCHS_LISTED_MAX)
            # A store of an older version gets its identity here too.
            identity = {"store_id": uuid4().hex, "store_id_given_at": tail} if not record.store_id else {}
            changes = {"seen_epoch": epoch, "led_epoch": epoch, "unsure": -1, **identity}
            self.save_replication(epochs=epochs, epochs_joined=joined, **changes)

    def adopt_epochs(
        self, epochs: Iterable[Epoch], seen: int, *, joined: int | None = None, identity: tuple[str, int] | None = None
    ) -> None:
        """Take over the epochs of a master, whose log this one is a copy of from now on, and the store's identity.

        The identity comes with where the log ended when it was given; None keeps what is known.
        """
        with self._record_guard:
            known, record = [Epoch(*item) for item in epochs], self.replication
            followed = record.epochs[-1].epoch if record.epochs else 0
            doubts = [item.unsure for item in known if item.epoch > followed and item.unsure >= 0]
            unsure = min([*doubts, *([record.unsure] if record.unsure >= 0 else [])], default=-1)
            store_id, given_at = identity or (record.store_id, record.store_id_given_at)
            self.save_replication(
                epochs=known,
                epochs_joined=record.epochs_joined if joined is None else joined,
                seen_epoch=max(seen, record.seen_epoch),
                store_id=store_id,
                store_id_given_at=given_at,
                unsure=unsure,
            )

    def see_epoch(self, epoch: int) -> None:
        """Remember that some broker is or was the master in an epoch."""
        with self._record_guard:
            if not is_epoch(epoch):
                raise StoreError(f"epoch {epoch} cannot be: an epoch is a number up to {EPOCH_MAX}")
            if epoch > self.replication.seen_epoch:
                self.save_replication(seen_epoch=epoch)

    def note_crash(self, plan: RecoveryPlan) -> None:
        """Note from where on the log was not on the disk for certain, before recovery says that it is."""
        synced = self.checkpoint.position
        sure = plan.scanned_from if synced is None else max(synced, self.commitlog.start)
        before = self.replication.unsure
        if sure < plan.log_end and not 0 <= before <= sure:
            self.save_replication(unsure=sure)

    # -- what only this broker has -------------------------------------------------------------------------------------

    def set_aside(self, position: int, *, epoch: int) -> Diverged | None:
        """Copy the log from a position on into a file of its own, as `truncate` does; this may run in a thread."""
        return set_aside(self, position, epoch)

    def truncate(self, position: int, *, epoch: int) -> Diverged | None:
        """Cut the log back to a position (or the start of the record that lies across it); None if it ends there.

        What is cut off is set aside first. A crash at any moment leaves the log as it was or cut: a cut that was begun
        is finished by the next `open`. One that failed can be tried again, and nothing else until it worked.
        """
        return truncate_store(self, position, epoch)

    def list_diverged(self) -> list[Diverged]:
        """What was set aside and is still there."""
        return [row for row in self.replication.diverged if self.disk.exists(self.paths.diverged / row.file)]

    def read_diverged(self, file: str) -> Iterator[Message]:
        """The messages in a file that was set aside."""
        return read_diverged(self, file)
