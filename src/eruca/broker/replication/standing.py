"""What automatic failover knows of a broker: where its log ends, how far its slaves are, and whom it needs."""

from __future__ import annotations

from collections.abc import Iterable

from eruca.broker.failover import LogEnd
from eruca.broker.options import BrokerRole
from eruca.broker.parts import Parts
from eruca.broker.replication.members import KnownMembers
from eruca.broker.replication.primary import ReplicationServer
from eruca.core.failover.view import Progress
from eruca.core.replication.epochs import drop_unwritten, last_epoch


class BrokerStanding:
    """The log and the slaves of one broker."""

    def __init__(self, parts: Parts, server: ReplicationServer, members: KnownMembers) -> None:
        self._parts = parts
        self._members = members
        self._server = server
        self._required = 1
        # Nothing beyond is acknowledged, whatever was asked for when it was.
        self._floor = 0

    def find_log_end(self) -> LogEnd:
        """Where the log ends. A slave knows of epochs that it has not copied yet: they do not count."""
        store = self._parts.store
        tail = store.commitlog.readable_end
        epochs = drop_unwritten(store.replication.epochs, tail)
        seen = max(store.replication.seen_epoch, last_epoch(store.replication.epochs))
        return LogEnd(tail, last_epoch(epochs), seen, frozenset(self._members.members), store.replication.store_id)

    def meet(self, addresses: Iterable[str]) -> None:
        """Remember members: etcd may lose its data, and then whoever is not here may have more."""
        self._members.meet(addresses)

    def measure(self) -> Progress:
        """How far the slaves are; only those that follow this mastership say who they are."""
        options, tail = self._parts.options, self._parts.store.commitlog.readable_end
        required = 1 if options.role is BrokerRole.ASYNC_MASTER else options.in_sync_replicas
        if min(required, self._required) <= 1:
            # Where one copy is enough, or was until a moment ago, everything that is stored may be acknowledged.
            self._floor = tail
        self._required = required
        reads = self._parts.replication.reads
        if reads.is_bounding:
            # What was shown must not be taken back, either; alone in the set, a master shows everything.
            self._floor = max(self._floor, min(tail, reads.certain))
        confirmed = min(tail, max(self._floor, self._parts.replication.condition.confirmed))
        reports = {
            link.member: link.machine.confirmed
            for link in self._server.links
            if link.is_joined and link.member is not None and link.machine.confirmed >= 0
        }
        return Progress(tail, confirmed, required, reports)

    def require(self, members: frozenset[int]) -> None:
        """Acknowledge nothing that one of these lacks."""
        self._parts.replication.condition.set_members(frozenset(members))
        self.release()

    def release(self) -> None:
        """Acknowledge what may be acknowledged now."""
        self._parts.replication.release()
