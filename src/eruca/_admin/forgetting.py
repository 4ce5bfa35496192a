"""Members that are gone for good: the others forget them."""

from __future__ import annotations

from collections.abc import Sequence

from eruca._admin.connection import Connection
from eruca._admin.members import Member, list_members
from eruca._admin.results import Change, Changed, name_outcome
from eruca._net.addresses import is_address
from eruca._wire.bodies import ReplicationState
from eruca._wire.codes import RequestCode
from eruca._wire.headers import ForgetMemberHeader
from eruca._wire.names import MASTER
from eruca.errors import ConfigError, ErucaError, NoRoute


async def forget_member(connection: Connection, address: str, *, dry_run: bool) -> Changed[Sequence[str]]:
    """Have all members that answer forget one; before and after are the members that each of them knows."""
    if not is_address(address):
        raise ConfigError(f"{address}: expected HOST:PORT", hint="eruca cluster list shows the members")
    rows = await list_members(connection)
    for row in rows:
        if row.address == address and (row.role or row.broker_id >= 0):
            _refuse(row)
    knowing = [row for row in rows if row.state is not None and address in row.state.members]
    if not knowing:
        raise NoRoute(f"no member knows {address}", hint="eruca cluster list shows the members")
    # The master first: its slaves learn from it who the members are.
    knowing.sort(key=lambda row: row.role != MASTER)
    return Changed(name=address, changes=[await _forget(connection, row, address, dry_run=dry_run) for row in knowing])


def _refuse(row: Member) -> None:
    if row.role:
        raise ConfigError(f"{row.address} answers: it is a member of {row.broker}", hint="stop it first")
    raise ConfigError(
        f"{row.address} is still registered with a name server",
        hint="name servers forget a broker two minutes after its last registration",
    )


async def _forget(connection: Connection, row: Member, address: str, *, dry_run: bool) -> Change[Sequence[str]]:
    assert row.state is not None
    before = row.state.members
    after = [member for member in before if member != address]
    if dry_run:
        return Change(
            where=row.address, before=before, after=after, outcome=name_outcome(before, after, dry_run=dry_run)
        )
    try:
        _, body = await connection.ask(row.address, RequestCode.FORGET_MEMBER, ForgetMemberHeader(address=address))
    except ErucaError as error:
        return Change(where=row.address, before=before, after=before, outcome="failed", reason=str(error))
    if isinstance(body, ReplicationState):
        after = body.members
    return Change(where=row.address, before=before, after=after, outcome=name_outcome(before, after, dry_run=dry_run))
