"""What a slave agrees on with its master before it copies: its identity, where the logs diverge, where to continue.

A slave asks the master's service port for its epochs, and for proof that its log is from the same store. If the master
is an Eruca broker, the part of the log that only the slave has is set aside and cut off. Nothing is cut for a broker of
another store. A Java broker does not know the request: the point of divergence cannot be found, and the link is
classic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from eruca._broker.options import BrokerOptions
from eruca._broker.replication.asking import MemberCaller
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.proving import Proof, prove
from eruca._broker.replication.threads import finish_in_thread
from eruca._broker.standing import Standing
from eruca._core.replication.epochs import drop_unwritten, last_epoch
from eruca._core.replication.handshake import SlaveHandshake
from eruca._core.replication.kinship import Kinship
from eruca._net.handlers import expect_success
from eruca._store.lineage.replicalog import ReplicaLog
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import ReplicationState
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode
from eruca._wire.epoch import Epoch
from eruca._wire.frame import make_request
from eruca._wire.names import MASTER
from eruca.errors import NetError, StoreError

# The service address and the HA address of the master; empty where unknown.
FindMaster: TypeAlias = Callable[[], tuple[str, str]]

_ASK_MS: Final = 3000


class Plan(NamedTuple):
    """How to open a link: the address, the start position, the mastership (None: classic), and how to authenticate."""

    address: str
    position: int
    epoch: int | None
    master_start: int = 0
    handshake: SlaveHandshake | None = None


@dataclass(eq=False)
class Agreement:
    """Brings the log of a slave to a state that its master's log can continue."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _caller: MemberCaller
    _membership: Membership
    #: The log that is copied to. It outlives links, because it remembers what was rejected on the last one.
    replica: ReplicaLog | None = None
    #: Service and HA address of the last known master.
    addresses: tuple[str, str] = ("", "")

    def finish(self) -> None:
        """Let the store write its log again."""
        if self.replica is not None:
            self.replica.finish()
            self.replica = None

    async def prepare(self, find_master: FindMaster) -> Plan:
        """Find out where the log continues, and cut off what the master does not have. Raises ErucaError."""
        options = self._options
        self.replica = self.replica or ReplicaLog(self._store)
        service, ha_address = find_master()
        self.addresses = service, ha_address
        if not service:
            raise NetError("no name server knows a master for this broker name")
        if service == self._standing.address:
            raise NetError("this broker itself is registered as the master")
        proof = await prove(self._caller, service, self._store, _ASK_MS)
        if proof is None:
            if not ha_address:
                raise NetError("no name server knows the master's HA address")
            self._membership.approach_java(service)
            position = await self._choose_classic_start(service)
            await self._forget_unwritten()
            return Plan(ha_address, position, None)
        state = proof.state
        self._check_master(state)
        handshake = self._membership.approach_master(service, can_authenticate=state.authenticates)
        await self._agree(proof)
        assert self.replica is not None
        tail = self.replica.start_from(state.log_start)
        # What the master reports about itself is newer than what name servers know.
        address = options.ha_master or state.ha_address or ha_address
        return Plan(address, tail, state.epoch, state.log_start, handshake)

    def _check_master(self, state: ReplicationState) -> None:
        """Refuse to follow a broker that is not, or no longer, the master of this name."""
        options, seen = self._options, self._store.lineage.seen_epoch
        if state.broker_name != options.name:
            raise NetError(
                f"{state.address} has the broker name {state.broker_name}, but this broker is {options.name}"
            )
        if state.role != MASTER:
            raise NetError(f"{state.address} is not a master at the moment")
        if state.epoch < seen:
            raise NetError(f"{state.address} was the master of epoch {state.epoch}, but epoch {seen} has started since")

    async def _agree(self, proof: Proof) -> None:
        """Cut off what the master does not have, and adopt its list of epochs and its identity."""
        store, state, common = self._store, proof.state, proof.common
        record, tail = store.lineage.record, store.log.tail
        if proof.kinship is Kinship.STRANGER:
            raise StoreError(
                f"the master {state.address} has a different store than this broker, although both are named"
                f" {state.broker_name}: nothing is copied, and nothing is cut off",
                hint="give one of them another brokerName; or, to make this broker a copy of the master, stop it, move"
                " its store directory away and start it as a slave: it copies the whole log",
            )
        if 0 < common < state.log_start and tail > 0:
            raise StoreError(
                f"the master's log begins at {state.log_start}, but this log matches it only up to {common}",
                hint="stop this broker, move its store directory away and start it: it copies the whole log again",
            )
        if common < tail:
            if proof.kinship is not Kinship.SAME:
                raise StoreError(
                    f"{tail - common} bytes of this log would have to be cut off, but the master {state.address} cannot"
                    " prove that its log is from the same store",
                    hint="the master runs an older version: update it first",
                )
            await self._cut_back(common)
        theirs = [Epoch(item.epoch, item.start, item.unsure) for item in state.epochs]
        known = (list(record.epochs), record.epochs_joined, record.seen_epoch, record.store_id)
        if common < tail or known != (theirs, state.epochs_joined, state.epoch, state.store_id):
            # A master with an older version has no identity.
            identity = (state.store_id, state.store_id_given_at) if state.store_id else None
            joined = state.epochs_joined
            await finish_in_thread(store.lineage.adopt_epochs, theirs, state.epoch, joined=joined, identity=identity)

    async def _cut_back(self, position: int) -> None:
        """Set aside everything after a position, and cut it off."""
        store = self._store
        self.finish()
        epoch = last_epoch(store.lineage.epochs)
        await finish_in_thread(store.lineage.set_aside, position, epoch=epoch)
        # On the event loop, so that no reader runs meanwhile; the slow part is already done.
        store.lineage.truncate(position, epoch=epoch)
        self.replica = ReplicaLog(store)

    async def _forget_unwritten(self) -> None:
        """Drop epochs that start beyond the end of the log, so that they do not claim a Java master's bytes."""
        store = self._store
        written = drop_unwritten(store.lineage.epochs, store.log.tail)
        if len(written) != len(store.lineage.epochs):
            await finish_in_thread(store.lineage.adopt_epochs, written, store.lineage.seen_epoch)

    async def _choose_classic_start(self, service: str) -> int:
        """Choose where to start with a Java master, which sends an empty slave only its last segment by default."""
        assert self.replica is not None
        tail = self.replica.start_from(0)
        if tail or not self._options.ha_copy_oldest:
            return tail
        answer = await self._caller.plain.call(service, make_request(RequestCode.GET_BROKER_RUNTIME_INFO), _ASK_MS)
        _, body = decode_answer(RequestCode.GET_BROKER_RUNTIME_INFO, expect_success(answer))
        start, end = _read_bounds(body.table)
        segment_bytes = self._store.options.commitlog_segment_bytes
        if start > 0:
            return start
        if end < segment_bytes:
            return 0  # there is only one segment, which is the last one
        # Position 0 cannot be requested, because it means the last segment. But the first byte of a log is known:
        # records start with their size, which is below 16 MiB. If that were wrong, the first record would be damaged
        # and rejected.
        self.replica.append(0, b"\0")
        return 1


def _read_bounds(table: dict[str, str]) -> tuple[int, int]:
    """Read the start and end of a Java master's log from its runtime metrics."""
    try:
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
    except (KeyError, ValueError) as error:
        raise NetError("the master did not report where its log begins") from error
