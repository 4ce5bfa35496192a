"""Masters and slaves: the members of each broker name, how far behind they are, and what they set aside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

import msgspec

from eruca._admin.connection import Connection
from eruca._ground.digits import read_digits
from eruca._ground.times import from_epoch_ms
from eruca._net.addresses import is_address
from eruca._wire.bodies import KVTable, ReplicationState
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import EmptyHeader
from eruca._wire.names import MASTER, MASTER_ID, SLAVE
from eruca.errors import ConfigError, ErucaError, NetError, RequestRefused

#: The role of a Java broker, which does not report its role in replication.
JAVA = "JAVA"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a broker name: its state, or why it does not answer."""

    cluster: str
    broker: str
    # As registered; -1 for a member that is not registered but known to other members.
    broker_id: int
    address: str
    # MASTER, SLAVE, FENCED (a master that may not accept messages), JAVA, or empty if it does not answer.
    role: str = ""
    # Where its log ends; known for Java brokers too.
    tail: int | None = None
    problem: str = ""
    state: ReplicationState | None = None


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far one slave is behind its master."""

    broker: str
    address: str
    broker_id: int
    master: str
    # Whether it replicates with epochs, or as RocketMQ 4.9 does.
    fenced: bool
    connected: bool
    in_sync: bool | None
    position: int
    lag_bytes: int
    # None if unknown.
    lag_seconds: float | None
    # Whose report this is: `master`, `slave`, or `both` if the ends of their logs were compared.
    told_by: str


class DivergedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a member's log that its master does not have, set aside in a file of that member."""

    broker: str
    address: str
    file: str
    epoch: int
    begin: int
    end: int
    found_at: datetime | None


# --- looking ----------------------------------------------------------------------------------------------------------


async def list_members(connection: Connection, broker_name: str | None = None) -> list[Member]:
    """Return the members of all broker names, or of one: those that name servers or other members know."""
    registered = await _list_registered(connection)
    found = await _ask_all(connection, [row for row in registered if broker_name in (None, row.broker)])
    known = {row.address for row in found}
    others: dict[str, Member] = {}
    for row in found:
        for address in _list_acquaintances(row):
            if address not in known:
                others.setdefault(
                    address, Member(cluster=row.cluster, broker=row.broker, broker_id=-1, address=address)
                )
    found += await _ask_all(connection, others.values())
    return sorted(found, key=lambda row: (row.cluster, row.broker, row.broker_id < 0, row.broker_id, row.address))


async def _list_registered(connection: Connection) -> list[Member]:
    info = await connection.describe_clusters()
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    return [
        Member(cluster=clusters.get(name, broker.cluster or ""), broker=name, broker_id=number, address=address)
        for name, broker in info.broker_addr_table.items()
        for number, address in broker.broker_addrs.items()
    ]


def _list_acquaintances(row: Member) -> list[str]:
    if row.state is None:
        return []
    followed = [row.state.master.address] if row.state.master is not None and row.state.master.address else []
    return [*row.state.members, *followed]


async def _ask_all(connection: Connection, rows: Iterable[Member]) -> list[Member]:
    return list(await asyncio.gather(*[_ask(connection, row) for row in rows]))


async def _ask(connection: Connection, row: Member) -> Member:
    try:
        state = await read_state(connection, row.address)
    except RequestRefused as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return await _ask_java(connection, msgspec.structs.replace(row, role=JAVA))
        return msgspec.structs.replace(row, problem=str(error))
    except ErucaError as error:
        return msgspec.structs.replace(row, problem=str(error))
    if state.broker_name != row.broker:
        return msgspec.structs.replace(row, problem=f"it belongs to broker {state.broker_name} now")
    return msgspec.structs.replace(row, role=state.role, tail=state.tail, state=state)


async def _ask_java(connection: Connection, row: Member) -> Member:
    """Ask a Java broker, which reports only where its log ends."""
    try:
        _, body = await connection.ask(row.address, RequestCode.GET_BROKER_RUNTIME_INFO, EmptyHeader())
    except RequestRefused:
        return row  # it has no such figures in its first seconds
    except ErucaError as error:
        return msgspec.structs.replace(row, problem=str(error))
    end = read_digits(body.table.get("commitLogMaxOffset")) if isinstance(body, KVTable) else None
    return row if end is None else msgspec.structs.replace(row, tail=end)


async def read_state(connection: Connection, address: str) -> ReplicationState:
    """Return the state of a broker's log and links. Raises RequestRefused, also for a Java broker."""
    _, body = await connection.ask(address, RequestCode.REPLICATION_STATE, EmptyHeader())
    if not isinstance(body, ReplicationState):
        raise NetError(f"broker {address} answered without its state")
    # The address at which we reached it: behind address translation a broker knows itself by another one.
    return msgspec.structs.replace(body, address=address)


async def measure_lag(connection: Connection, broker_name: str | None = None) -> list[Lag]:
    """Return one row per slave, as its master reports it, or the slave itself if the master does not."""
    members = await list_members(connection, broker_name)
    # A master knows its slaves by the ids in their configuration; users know the registered ids.
    ids = {(member.broker, member.address): member.broker_id for member in members}
    rows: list[Lag] = []
    for member in members:
        if member.state is None or member.role != MASTER:
            continue
        rows += [
            Lag(
                broker=member.broker,
                address=slave.address,
                broker_id=ids.get((member.broker, slave.address), -1),
                master=member.address,
                fenced=slave.fenced,
                connected=True,
                in_sync=slave.in_sync,
                position=slave.position,
                lag_bytes=slave.lag_bytes,
                lag_seconds=_to_seconds(slave.lag_ms),
                told_by="master",
            )
            for slave in member.state.slaves
        ]
    told = {row.address for row in rows}
    for member in members:
        state = member.state
        if state is None or state.role != SLAVE or member.address in told:
            continue
        followed = state.master
        rows.append(
            Lag(
                broker=member.broker,
                address=member.address,
                broker_id=member.broker_id,
                master=followed.address if followed is not None else "",
                fenced=followed is not None and followed.epoch > 0,
                connected=followed is not None and followed.connected,
                in_sync=None,
                position=state.tail,
                lag_bytes=followed.lag_bytes if followed is not None else -1,
                lag_seconds=_to_seconds(followed.lag_ms) if followed is not None else None,
                told_by="slave",
            )
        )
    rows += _compare_java(members)
    return sorted(rows, key=lambda row: (row.broker, row.address))


def _to_seconds(lag_ms: int) -> float | None:
    return None if lag_ms < 0 else lag_ms / 1000


def _compare_java(members: list[Member]) -> list[Lag]:
    """Return the Java slaves of Java masters, of which only the ends of the logs are known."""
    masters = {row.broker: row for row in members if row.role == JAVA and row.broker_id == MASTER_ID}
    return [
        Lag(
            broker=row.broker,
            address=row.address,
            broker_id=row.broker_id,
            master=masters[row.broker].address,
            fenced=False,
            connected=True,
            in_sync=None,
            position=row.tail,
            lag_bytes=max(0, (masters[row.broker].tail or 0) - row.tail),
            lag_seconds=None,
            told_by="both",
        )
        for row in members
        if row.role == JAVA and row.broker_id > MASTER_ID and row.broker in masters and row.tail is not None
    ]


async def list_diverged(connection: Connection, broker_name: str | None = None) -> list[DivergedRow]:
    """Return the ends of logs that members have set aside."""
    return [
        DivergedRow(
            broker=member.broker,
            address=member.address,
            file=tail.file,
            epoch=tail.epoch,
            begin=tail.begin,
            end=tail.end,
            found_at=from_epoch_ms(tail.found_ms),
        )
        for member in await list_members(connection, broker_name)
        if member.state is not None
        for tail in member.state.diverged
    ]


# --- finding one ------------------------------------------------------------------------------------------------------


async def find_member(connection: Connection, target: str) -> Member:
    """Return the member with an address `host:port`, or with a name and an id `name:id`. Raises ConfigError."""
    registered = await _list_registered(connection)
    for row in registered:
        if target in (row.address, f"{row.broker}:{row.broker_id}"):
            return await _ask(connection, row)
    if not is_address(target):
        raise ConfigError(f"{target}: expected HOST:PORT or NAME:ID", hint="eruca cluster list shows both")
    if any(row.broker == target.rpartition(":")[0] for row in registered):
        raise ConfigError(f"no broker {target} is registered", hint="eruca cluster list shows the members")
    # It may be alive without being registered.
    try:
        state = await read_state(connection, target)
    except RequestRefused as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return Member(cluster="", broker="", broker_id=-1, address=target, role=JAVA)
        raise
    except NetError as error:
        raise ConfigError(
            f"no broker {target} is registered, and none answers there: {error.args[0]}",
            hint="eruca cluster list shows the members",
        ) from error
    return Member(
        cluster="", broker=state.broker_name, broker_id=state.broker_id, address=target, role=state.role, state=state
    )
