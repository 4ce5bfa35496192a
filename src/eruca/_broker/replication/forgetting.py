"""Forgetting a member that is gone for good, on an operator's request."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from eruca._broker.refusals import refuse
from eruca._broker.replication.masteraddress import MasterAddress
from eruca._broker.replication.members import KnownMembers
from eruca._broker.replication.primary import ReplicationServer
from eruca._broker.replication.state import StateHandlers
from eruca._broker.standing import Standing
from eruca._net.handlers import HandlerTable, Reply, Request
from eruca._store.tables.saving import TableSaver
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import ForgetMemberHeader
from eruca._wire.names import SLAVE

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ForgetHandlers:
    """Handles 90105: forgetting a member.

    Fewer members must answer then for a promotion, as if the operator had stated their number.
    """

    _standing: Standing
    _members: KnownMembers
    _server: ReplicationServer
    _master: MasterAddress
    _saver: TableSaver
    _state: StateHandlers

    def register(self, table: HandlerTable) -> None:
        """Register the handler."""
        table.add(RequestCode.FORGET_MEMBER, self.forget)

    async def forget(self, request: Request) -> Reply:
        """Forget a member; the response is the resulting state. One that is connected is refused."""
        header: ForgetMemberHeader = request.header
        address = header.address
        if address == self._standing.address:
            refuse(ResponseCode.SYSTEM_ERROR, "a broker does not forget itself")
        if self._standing.state == SLAVE and self._master.find()[0] == address:
            refuse(ResponseCode.SYSTEM_ERROR, f"{address} is the master of this broker")
        if address in {slave.address for slave in self._server.list_slaves()}:
            refuse(ResponseCode.SYSTEM_ERROR, f"{address} is connected to this broker: stop it first")
        if self._members.forget(address):
            log.info("%s is no longer a member: forgotten at the request of %s", address, request.link.peer)
            await self._saver.wait_until_saved("members")
        return Reply(body=self._state.describe())
