"""Reporting the replication state of a broker, and changing its role on an operator's request."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from eruca._broker.options import BrokerOptions, LiveOptions
from eruca._broker.refusals import refuse
from eruca._broker.replication.acknowledging import Acknowledgement
from eruca._broker.replication.asking import MemberCaller, seal
from eruca._broker.replication.claims import Claims
from eruca._broker.replication.failover import FailoverDriver
from eruca._broker.replication.masteraddress import MasterAddress
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.membership import Membership
from eruca._broker.replication.primary import ReplicationServer
from eruca._broker.replication.proving import prove
from eruca._broker.replication.replica import Follower
from eruca._broker.replication.roles import Roles
from eruca._broker.replication.tables import CopiedTables
from eruca._broker.standing import Standing
from eruca._core.replication.numbering import count_promotion
from eruca._ground.limits import EPOCH_AHEAD_MAX, EPOCH_MAX, HA_CHECK_BYTES_MAX
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._store.messagestore import MessageStore
from eruca._wire.bodies import EpochStart, FollowedMaster, ReplicationState, encode_json
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ChangeRoleHeader, ReplicationStateHeader
from eruca._wire.names import FENCED, MASTER, SLAVE
from eruca.errors import ConfigError, ErucaError, RequestRefused, StoreError

# A new master may still lack a little of what it must have: wait for it.
_ARRIVAL_S = 5.0
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class StateHandlers:
    """Handles 90101: the replication state."""

    _options: LiveOptions
    _standing: Standing
    _store: MessageStore
    _acknowledgement: Acknowledgement
    _tables: CopiedTables
    _members: KnownMembers
    _claims: Claims
    _master: MasterAddress
    _server: ReplicationServer
    _follower: Follower
    _roles: Roles
    _membership: Membership

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.REPLICATION_STATE, self.tell)

    def tell(self, request: Request) -> Reply:
        """Return the replication state."""
        header: ReplicationStateHeader = request.header or ReplicationStateHeader()
        body = encode_json(self.describe(self._sum(header.check_begin, header.check_end)))
        return Reply(body=body, remark=seal(body))

    def _sum(self, begin: int, end: int) -> int:
        """Return the CRC of a short part of the log, by which a member proves whose log it has; -1 if it is missing."""
        commitlog = self._store.log
        if not 0 <= begin < end <= min(begin + HA_CHECK_BYTES_MAX, commitlog.readable_end):
            return -1
        found = commitlog.read_bytes(begin, end)
        return -1 if found is None else zlib.crc32(found)

    def describe(self, check_crc: int = -1) -> ReplicationState:
        """Return the current state."""
        options, standing, store, members = self._options.now, self._standing, self._store, self._members
        record = store.lineage.record
        slaves = self._server.list_slaves() if standing.state != SLAVE else []
        members.meet([slave.address for slave in slaves if slave.fenced])
        return ReplicationState(
            address=standing.address,
            authenticates=self._membership.can_authenticate,
            broker_id=standing.broker_id,
            broker_name=options.name,
            check_crc=check_crc,
            claimed_epoch=self._claims.claimed_epoch,
            configured_id=options.broker_id,
            confirmed=min(self._find_confirmed(), store.log.readable_end),
            diverged=list(record.diverged),
            epoch=self._roles.epoch,
            epochs=[EpochStart(epoch=each.epoch, start=each.start, unsure=each.unsure) for each in record.epochs],
            epochs_joined=record.epochs_joined,
            failover=options.failover,
            flushed=store.flusher.flushed,
            ha_address=standing.ha_address,
            last_store_time=store.flusher.last_store_time,
            log_start=store.log.start,
            master=self._describe_master() if standing.state == SLAVE else None,
            members=members.members,
            required=options.in_sync_replicas if standing.is_sync else 1,
            role=standing.state,
            slaves=slaves,
            store_id=record.store_id,
            store_id_given_at=record.store_id_given_at,
            sync=standing.is_sync,
            tail=store.log.readable_end,
            versions=self._tables.count_versions(),
            writable=standing.writable and not store.refusal,
        )

    def _find_confirmed(self) -> int:
        """Return the position that enough members have; a slave knows it from its master."""
        is_slave = self._standing.state == SLAVE
        return self._follower.confirmed if is_slave else self._acknowledgement.condition.confirmed

    def _describe_master(self) -> FollowedMaster:
        followed, members = self._follower.state, self._members
        followed.address, followed.ha_address = self._master.find()
        followed.epoch = members.master_epoch
        followed.sync, followed.required = members.mode or (False, 0)
        return followed


@dataclass(frozen=True, slots=True, eq=False)
class RoleHandlers:
    """Handles 90102: role changes requested by an operator's tool."""

    _options: BrokerOptions
    _standing: Standing
    _store: MessageStore
    _caller: MemberCaller
    _claims: Claims
    _roles: Roles
    # None where an operator decides.
    _failover: FailoverDriver | None
    # The replication state, for the responses.
    _describe: Callable[[], ReplicationState]

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.CHANGE_ROLE, self.change)

    async def change(self, request: Request) -> Reply:
        """Change the role as an operator requests; the response is the resulting state."""
        header: ChangeRoleHeader = request.header
        roles = self._roles
        why = f"requested by {request.link.peer}"
        self._check_epoch(header.epoch)
        if self._failover is not None:
            await self._change_elected(self._failover, header)
            return Reply(body=self._describe())
        try:
            if header.role == MASTER:
                await self._promote(header, why)
            elif header.role == SLAVE:
                await self._demote(header, why)
            elif header.role == FENCED:
                if (state := self._standing.state) != MASTER:
                    refuse(ResponseCode.SYSTEM_ERROR, f"this broker is {state}, not a master")
                await roles.fence(why, epoch=header.epoch)
            else:
                refuse(ResponseCode.SYSTEM_ERROR, f"role {header.role!r}: expected MASTER, SLAVE or FENCED")
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return Reply(body=self._describe())

    async def _change_elected(self, failover: FailoverDriver, header: ChangeRoleHeader) -> None:
        """Let the election decide again: make this master step down, or force a member that may lack messages."""
        try:
            if header.role == SLAVE and self._standing.state == MASTER:
                await failover.step_down()
                return
            if header.role == MASTER and header.force:
                await failover.force()
                return
        except ConfigError as error:
            refuse(ResponseCode.SYSTEM_ERROR, str(error))
        refuse(ResponseCode.SYSTEM_ERROR, f"the members of {self._options.name} elect their master")

    async def _promote(self, header: ChangeRoleHeader, why: str) -> None:
        commitlog = self._store.log
        with suppress(TimeoutError):
            async with asyncio.timeout(_ARRIVAL_S):
                await self._wait_for(header.wait_position)
        if commitlog.readable_end < header.wait_position and not header.force:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has the log only up to {commitlog.readable_end}, not up to {header.wait_position}",
            )
        epoch = header.epoch or count_promotion(self._roles.epoch, self._options.broker_id)
        await self._roles.become_master(epoch, why=why)

    async def _wait_for(self, position: int) -> None:
        while self._store.log.readable_end < position:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(_LOOK_S)

    async def _demote(self, header: ChangeRoleHeader, why: str) -> None:
        roles = self._roles
        if header.epoch and header.epoch < roles.epoch and not header.force:
            refuse(ResponseCode.SYSTEM_ERROR, f"this broker knows epoch {roles.epoch}, {header.epoch} is older")
        master = await self._find_master(header.master_address) if header.master_address else None
        await roles.become_slave(master, why=why, epoch=header.epoch)

    def _check_epoch(self, epoch: int) -> None:
        """Refuse an epoch that no promotion can reach: a broker that accepted it could hardly be promoted any more."""
        highest = min(EPOCH_MAX, self._roles.epoch + EPOCH_AHEAD_MAX)
        if not 0 <= epoch <= highest:
            refuse(ResponseCode.SYSTEM_ERROR, f"epoch {epoch} is out of bounds: expected 0 to {highest}")

    async def _find_master(self, address: str) -> tuple[str, str]:
        """Return the service and HA address of a broker; only a broker of the same store is followed."""
        try:
            proof = await prove(self._caller, address, self._store)
        except ErucaError as error:
            refuse(ResponseCode.SYSTEM_ERROR, f"{address} does not prove that it has the same store: {error}")
        if proof is None:
            refuse(
                ResponseCode.SYSTEM_ERROR,
                f"{address} is a Java broker: brokerRole and name servers decide who follows it",
            )
        state = proof.state
        if state.broker_name != self._options.name:
            refuse(ResponseCode.SYSTEM_ERROR, f"{address} has the broker name {state.broker_name}")
        if not self._claims.may_follow(proof):
            refuse(ResponseCode.SYSTEM_ERROR, f"{address} has a different store than this broker")
        return address, state.ha_address
