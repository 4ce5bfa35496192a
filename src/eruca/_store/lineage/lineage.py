"""Which mastership wrote which part of the log, and how a part that no other broker has is cut off.

The facts are kept in a `ReplicationRecord` (`replicationstate`). A cut has four steps:

    1  the bytes from the cut on are copied to eruca-diverged/<epoch>-<begin>-<end>.log, and synced (`setaside`) 2  the
    record notes that file, and that the log is being cut ("truncating"), and is synced 3  log, consume queues, index,
    and the small files that describe the log are cut, and synced (`cutting`) 4  the record notes that the cut is
    finished, and listeners of `was_cut` are called

A crash before step 2 leaves the log as it was. After it, `MessageStore.open` finishes the cut: it cuts the log and
then recovers as after any crash, which derives the rest from the log. `was_cut` is not called for that one, so a table
that describes the log must check when it is loaded: against the end of the log, or against `cuts`.
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
    """The epochs of a store's log, and what was cut off it. The record may be changed from several threads."""

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
        """`commit` moves every append into the log; `cut` cuts all files of the store back to a position, durably."""
        self._disk = disk
        self._paths = paths
        self._clock = clock
        self._log = commitlog
        self._damage = damage
        self._commit = commit
        self._cut = cut
        # Role, epochs and what was set aside; read by `load`.
        self.record = ReplicationRecord()
        self._file = ReplicationFile(disk, paths.replication)
        # Role changes and links both change the record, each in its own thread.
        self._guard = threading.RLock()
        #: Called with the new end of the log after a cut, in the thread that owns the store.
        self.was_cut: Signal[int] = Signal()

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> list[Epoch]:
        """The masterships that wrote the log, the oldest first."""
        return self.record.epochs

    @property
    def seen_epoch(self) -> int:
        """The highest epoch this broker has seen of any master."""
        return self.record.seen_epoch

    @property
    def store_id(self) -> str:
        """The identity of the store; empty until its first master assigns one."""
        return self.record.store_id

    @property
    def cuts(self) -> int:
        """How many times a part of the log was cut off and set aside, including cuts finished by a start."""
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
        """Remember what the broker became, "MASTER" or "SLAVE"; empty: follow its configuration."""
        self.save(role=role)

    def begin_epoch(self, epoch: int) -> None:
        """Begin a mastership at the end of the log; must be called before its first append."""
        self._commit()
        with self._guard:
            tail, record = self._log.tail, self.record
            if tail != self._log.readable_end or record.truncating >= 0:
                raise StoreError("a mastership begins at the end of a whole record", hint="finish copying first")
            if epoch < record.seen_epoch:
                raise StoreError(f"epoch {epoch} cannot begin: epoch {record.seen_epoch} was seen")
            # A partial record that was cut off must not come back if the first append is lost in a power failure.
            self._log.sync_tail()
            # From now on this log is authoritative, whatever a crash did to it: the others compare theirs.
            epochs = begin_epoch(record.epochs, tail, epoch, record.unsure)
            epochs, joined = join_oldest(epochs, record.epochs_joined, EPOCHS_LISTED_MAX)
            # A store of an older version gets its identity here too.
            identity = {"store_id": uuid4().hex, "store_id_given_at": tail} if not record.store_id else {}
            changes = {"seen_epoch": epoch, "led_epoch": epoch, "unsure": -1, **identity}
            self.save(epochs=epochs, epochs_joined=joined, **changes)

    def adopt_epochs(
        self, epochs: Iterable[Epoch], seen: int, *, joined: int | None = None, identity: tuple[str, int] | None = None
    ) -> None:
        """Take over the epochs and the store identity of a master, whose log this one copies from now on.

        The identity comes with the log's end at the time it was assigned; None keeps the known identity.
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
                raise StoreError(f"epoch {epoch} is out of range: an epoch is at most {EPOCH_MAX}")
            if epoch > self.record.seen_epoch:
                self.save(seen_epoch=epoch)

    def note_crash(self, sure: int, log_end: int) -> None:
        """Note from where on the log was not certainly on the disk, before recovery declares that it is."""
        if sure < log_end and not 0 <= self.record.unsure <= sure:
            self.save(unsure=sure)

    def end_doubt(self) -> None:
        """The end of the log was compared with the master's: no damage from a crash is left in it."""
        self.save(unsure=-1)

    # -- what only this broker has -------------------------------------------------------------------------------------

    def set_aside(self, position: int, *, epoch: int) -> Diverged | None:
        """Copy the log from a position on into a separate file, as `truncate` does; may run in a thread."""
        tail = self._log.tail
        begin = max(self._log.start, find_boundary(self._log.chain, position, self._damage.items))
        if begin >= tail:
            return None
        name = copy_aside(self._disk, self._paths.diverged, self._log.chain, begin, tail, epoch)
        return Diverged(file=name, epoch=epoch, begin=begin, end=tail, found_ms=self._clock.now_ms())

    def truncate(self, position: int, *, epoch: int) -> Diverged | None:
        """Cut the log back to a position (or to the start of the record across it); None if the log ends there already.

        The bytes are set aside first. A crash at any moment leaves the log uncut or cut: the next `open` finishes
        a cut that had begun. A failed cut can be retried, and nothing else may be done before it succeeds.
        """
        self._commit()
        record = self.record
        if record.truncating >= 0:  # the last cut failed half-way
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
            "cutting the log back to %d; %d bytes that only this broker has were saved in %s",
            position,
            diverged.end - diverged.begin,
            self._paths.diverged / diverged.file,
        )
        self._cut(position)
        self.finish_cut(position)
        return diverged

    def finish_cut(self, position: int) -> None:
        """Note that the log now ends at a position, and call the listeners that keep facts about the log."""
        record = self.record
        # Drop epochs without a byte in the log; the highest number stays known.
        highest = max([record.seen_epoch, *(item.epoch for item in record.epochs)])
        kept = [item for item in record.epochs if item.start < position]
        unsure = -1 if record.unsure >= position else record.unsure
        self.save(truncating=-1, epochs=kept, seen_epoch=highest, unsure=unsure)
        self.was_cut.tell(position)
