"""What automatic failover knows of a broker: where its log ends, how far its slaves are, and whom it needs."""

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
    """The end of a member's log, the epoch that wrote there, the highest epoch it has heard of, and whom it knows."""

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
    # Nothing beyond is acknowledged, whatever was asked for when it was.
    _floor: int = 0

    def find_log_end(self) -> LogEnd:
        """Where the log ends. A slave knows of epochs that it has not copied yet: they do not count."""
        store = self._store
        tail = store.log.readable_end
        epochs = drop_unwritten(store.lineage.epochs, tail)
        seen = max(store.lineage.seen_epoch, last_epoch(store.lineage.epochs))
        return LogEnd(tail, last_epoch(epochs), seen, frozenset(self._members.members), store.lineage.store_id)

    def meet(self, addresses: Iterable[str]) -> None:
        """Remember members: etcd may lose its data, and then whoever is not here may have more."""
        self._members.meet(addresses)

    def measure(self) -> Progress:
        """How far the slaves are; only those that follow this mastership say who they are."""
        options, tail = self._options.now, self._store.log.readable_end
        required = 1 if self._standing.role is BrokerRole.ASYNC_MASTER else options.in_sync_replicas
        if min(required, self._required) <= 1:
            # Where one copy is enough, or was until a moment ago, everything that is stored may be acknowledged.
            self._floor = tail
        self._required = required
        reads = self._acknowledgement.reads
        if reads.is_bounding:
            # What was shown must not be taken back, either; alone in the set, a master shows everything.
            self._floor = max(self._floor, min(tail, reads.certain))
        confirmed = min(tail, max(self._floor, self._acknowledgement.condition.confirmed))
        reports = {
            link.member: link.machine.confirmed
            for link in self._server.links
            if link.is_joined and link.member is not None and link.machine.confirmed >= 0
        }
        return Progress(tail, confirmed, required, reports)

    def require(self, members: frozenset[int]) -> None:
        """Acknowledge nothing that one of these lacks."""
        self._acknowledgement.condition.set_members(frozenset(members))
        self.release()

    def release(self) -> None:
        """Acknowledge what may be acknowledged now."""
        self._acknowledgement.release()
