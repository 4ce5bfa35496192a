"""The view of a broker for automatic failover: the end of its log, and the progress of its slaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eruca._broker.options import BrokerRole, LiveOptions
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.primary import ReplicationServer
from eruca._broker.standing import Standing
from eruca._core.failover.view import Progress
from eruca._core.replication.epochs import drop_unwritten, last_epoch
from eruca._store.messagestore import MessageStore


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a member's log, the epoch that wrote it, the highest epoch it knows, and the members it knows."""

    position: int
    epoch: int
    seen: int
    known: frozenset[str] = frozenset()
    # The identity of its store.
    store: str = ""


@dataclass(slots=True, eq=False)
class BrokerCopies:
    """The log and the slaves of one broker."""

    _options: LiveOptions
    _standing: Standing
    _store: MessageStore
    _acknowledgement: Acknowledgement
    _server: ReplicationServer
    _members: KnownMembers
    _required: int = 1
    # Nothing beyond this position is acknowledged, whatever the options were at the time.
    _floor: int = 0

    def find_log_end(self) -> LogEnd:
        """Return where the log ends. Epochs that a slave knows but has not copied yet do not count."""
        store = self._store
        tail = store.log.readable_end
        epochs = drop_unwritten(store.lineage.epochs, tail)
        seen = max(store.lineage.seen_epoch, last_epoch(store.lineage.epochs))
        return LogEnd(tail, last_epoch(epochs), seen, frozenset(self._members.members), store.lineage.store_id)

    def meet(self, addresses: Iterable[str]) -> None:
        """Remember members: etcd may lose its data, and then a member that is not present may have more."""
        self._members.meet(addresses)

    def measure(self) -> Progress:
        """Return the progress of the slaves; only those that follow this mastership are identified."""
        options, tail = self._options.now, self._store.log.readable_end
        required = 1 if self._standing.role is BrokerRole.ASYNC_MASTER else options.in_sync_replicas
        if min(required, self._required) <= 1:
            # If one copy is enough, or was until a moment ago, everything stored may have been acknowledged.
            self._floor = tail
        self._required = required
        reads = self._acknowledgement.reads
        if reads.is_bounding:
            # Messages that were shown must not be taken back either; a master alone in the set shows everything.
            self._floor = max(self._floor, min(tail, reads.certain))
        confirmed = min(tail, max(self._floor, self._acknowledgement.condition.confirmed))
        reports = {
            link.member: link.machine.confirmed
            for link in self._server.links
            if link.is_joined and link.member is not None and link.machine.confirmed >= 0
        }
        return Progress(tail, confirmed, required, reports)

    def require(self, members: frozenset[int]) -> None:
        """Acknowledge nothing that one of these members lacks."""
        self._acknowledgement.condition.set_members(frozenset(members))
        self.release()

    def release(self) -> None:
        """Acknowledge whatever may be acknowledged now."""
        self._acknowledgement.release()
