"""Which mastership wrote which part of the log, and how the log loses what no other broker has.

The record of it is `replicationstate`'s. A cut has four steps:

    1  the bytes from the cut on are copied to eruca-diverged/<epoch>-<begin>-<end>.log, and synced (`setaside`)
    2  the record says so, and that the log is being cut ("truncating"), and is synced
    3  log, consume queues, index, and the small files that tell of the log are cut, and synced (`cutting`)
    4  the record says that nothing is being cut any more, and whoever asked (`was_cut`) is told

A crash before step 2 leaves the log as it was. From there on `MessageStore.open` finishes the cut: it cuts the log and
then recovers as after any crash, by which the rest follows from the log. Nobody hears of that one, so a table that
tells of the log must find out by itself when it is loaded: by where the log ends, or by `cuts`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import msgspec

from eruca._ground.clock import Clock
from eruca._ground.limits import EPOCH_MAX, EPOCHS_LISTED_MAX
from eruca._ground.signals import Signal
from eruca._store.filesystem import FileSystem
from eruca._store.layout import StorePaths
from eruca._store.lineage.replicationstate import Diverged, ReplicationFile, ReplicationRecord, begin_epoch
from eruca._store.lineage.setaside import copy_aside, find_boundary
from eruca._store.log.commitlog import CommitLog
from eruca._store.log.damage import DamageList
from eruca._wire.epoch import Epoch, is_epoch, join_oldest
from eruca.errors import StoreError

log = logging.getLogger(__name__)


class Lineage:
    """The epochs of a store's log, and what was cut off it. Changes of the record may be made in threads."""

    def __init__(
        self,
        disk: FileSystem,
        paths: StorePaths,
        clock: Clock,
        commitlog: CommitLog,
        damage: DamageList,
        *,
        commit: Callable[[], None],
        cut: Callable[[int], None],
    ) -> None:
        """`commit` has every append in the log; `cut` cuts all files of the store back to a position, durably."""
        self._disk = disk
        self._paths = paths
        self._clock = clock
        self._log = commitlog
        self._damage = damage
        self._commit = commit
        self._cut = cut
        # Role, epochs and what was set aside; `load` reads it.
        self.record = ReplicationRecord()
        self._file = ReplicationFile(disk, paths.replication)
        # Roles and links change the record, each in a thread of its own.
        self._guard = threading.RLock()
        #: Told the new end of the log after a cut, in the thread that owns the store.
        self.was_cut: Signal[int] = Signal()

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> list[Epoch]:
        """The masterships that wrote the log, the oldest first."""
        return self.record.epochs

    @property
    def seen_epoch(self) -> int:
        """The highest epoch of any master this broker has seen."""
        return self.record.seen_epoch

    @property
    def store_id(self) -> str:
        """The identity of the store; empty before its first master gave it one."""
        return self.record.store_id

    @property
    def cuts(self) -> int:
        """How often a part of the log was cut off and set aside, also by a cut that a start finished."""
        return len(self.record.diverged)

    # -- the record: durable when these return; they may run in threads ------------------------------------------------

    def load(self) -> ReplicationRecord:
        """Read the record from the disk."""
        self.record = self._file.load()
        return self.record

    def save(self, **changes: Any) -> None:
        """Change fields of the record."""
        with self._guard:
            record = msgspec.structs.replace(self.record, **changes)
            self._file.save(record)
            self.record = record

    def save_role(self, role: str) -> None:
        """Remember what the broker became, "MASTER" or "SLAVE"; empty: what its configuration says."""
        self.save(role=role)

    def begin_epoch(self, epoch: int) -> None:
        """Begin a mastership at the end of the log; must come before its first append."""
        self._commit()
        with self._guard:
            tail, record = self._log.tail, self.record
            if tail != self._log.readable_end or record.truncating >= 0:
                raise StoreError("a mastership begins at the end of a whole record", hint="finish copying first")
            if epoch < record.seen_epoch:
                raise StoreError(f"epoch {epoch} cannot begin: epoch {record.seen_epoch} was seen")
            # A part of a record that was cut off must not come back when the first append is lost with the machine.
            self._log.sync_tail()
            # From now on this log is right, whatever a crash did to it: the others compare theirs.
            epochs = begin_epoch(record.epochs, tail, epoch, record.unsure)
            epochs, joined = join_oldest(epochs, record.epochs_joined, EPOCHS_LISTED_MAX)
            # A store of an older version gets its identity here too.
            identity = {"store_id": uuid4().hex, "store_id_given_at": tail} if not record.store_id else {}
            changes = {"seen_epoch": epoch, "led_epoch": epoch, "unsure": -1, **identity}
            self.save(epochs=epochs, epochs_joined=joined, **changes)

    def adopt_epochs(
        self, epochs: Iterable[Epoch], seen: int, *, joined: int | None = None, identity: tuple[str, int] | None = None
    ) -> None:
        """Take over the epochs of a master, whose log this one is a copy of from now on, and the store's identity.

        The identity comes with where the log ended when it was given; None keeps what is known.
        """
        with self._guard:
            known, record = [Epoch(*item) for item in epochs], self.record
            followed = record.epochs[-1].epoch if record.epochs else 0
            doubts = [item.unsure for item in known if item.epoch > followed and item.unsure >= 0]
            unsure = min([*doubts, *([record.unsure] if record.unsure >= 0 else [])], default=-1)
            store_id, given_at = identity or (record.store_id, record.store_id_given_at)
            self.save(
                epochs=known,
                epochs_joined=record.epochs_joined if joined is None else joined,
                seen_epoch=max(seen, record.seen_epoch),
                store_id=store_id,
                store_id_given_at=given_at,
                unsure=unsure,
            )

    def see_epoch(self, epoch: int) -> None:
        """Remember that some broker is or was the master in an epoch."""
        with self._guard:
            if not is_epoch(epoch):
                raise StoreError(f"epoch {epoch} cannot be: an epoch is a number up to {EPOCH_MAX}")
            if epoch > self.record.seen_epoch:
                self.save(seen_epoch=epoch)

    def note_crash(self, sure: int, log_end: int) -> None:
        """Note from where on the log was not on the disk for certain, before recovery says that it is."""
        if sure < log_end and not 0 <= self.record.unsure <= sure:
            self.save(unsure=sure)

    def end_doubt(self) -> None:
        """The end of the log was compared with the master's: a crash changed nothing that is still in it."""
        self.save(unsure=-1)

    # -- what only this broker has -------------------------------------------------------------------------------------

    def set_aside(self, position: int, *, epoch: int) -> Diverged | None:
        """Copy the log from a position on into a file of its own, as `truncate` does; this may run in a thread."""
        tail = self._log.tail
        begin = max(self._log.start, find_boundary(self._log.chain, position, self._damage.items))
        if begin >= tail:
            return None
        name = copy_aside(self._disk, self._paths.diverged, self._log.chain, begin, tail, epoch)
        return Diverged(file=name, epoch=epoch, begin=begin, end=tail, found_ms=self._clock.now_ms())

    def truncate(self, position: int, *, epoch: int) -> Diverged | None:
        """Cut the log back to a position (or the start of the record that lies across it); None if it ends there.

        What is cut off is set aside first. A crash at any moment leaves the log as it was or cut: a cut that was begun
        is finished by the next `open`. One that failed can be tried again, and nothing else until it worked.
        """
        self._commit()
        record = self.record
        if record.truncating >= 0:  # the last one failed half-way
            position, diverged = record.truncating, record.diverged[-1]
        else:
            begin = find_boundary(self._log.chain, position, self._damage.items)
            if begin >= self._log.tail:
                return None
            position = max(0, begin)
            found = self.set_aside(position, epoch=epoch)
            if found is None:
                return None
            diverged = found
            self.save(truncating=position, diverged=[*record.diverged, diverged])
        log.warning(
            "cutting the log back to %d; %d bytes that only this broker has are set aside in %s",
            position,
            diverged.end - diverged.begin,
            self._paths.diverged / diverged.file,
        )
        self._cut(position)
        self.finish_cut(position)
        return diverged

    def finish_cut(self, position: int) -> None:
        """Note that the log ends at a position now, and tell whoever keeps something that tells of the log."""
        record = self.record
        # Epochs without a byte in the log are gone; the highest number stays known.
        highest = max([record.seen_epoch, *(item.epoch for item in record.epochs)])
        kept = [item for item in record.epochs if item.start < position]
        unsure = -1 if record.unsure >= position else record.unsure
        self.save(truncating=-1, epochs=kept, seen_epoch=highest, unsure=unsure)
        self.was_cut.tell(position)
