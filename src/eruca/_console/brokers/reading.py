"""What the pages of brokers show: members with their roles, rates, disks and replication, and what options mean."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from eruca._admin.members import Lag, Member
from eruca._admin.plain import hide_secrets
from eruca._admin.results import Problem
from eruca._admin.runtime import Runtime
from eruca._console.clusters import Cluster
from eruca._wire.names import MASTER_ID
from eruca.errors import NoRoute

MEMBERS_MAX = 1_000


class OptionMeaning(msgspec.Struct, frozen=True, kw_only=True):
    """What an option of a broker means."""

    key: str
    doc: str
    default: str
    unit: str = ""
    # The values it may have: `1 to 100`.
    values: str = ""
    # Whether it can be changed while the broker runs.
    mutable: bool = False


class BrokerRowShown(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a broker name."""

    # `broker-a` for a master, `broker-a:1` for a slave; its address if it is not registered.
    where: str
    cluster: str
    address: str
    role: str
    epoch: int | None = None
    version: str | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    disk: float | None = None
    disk_free: int | None = None
    uptime: timedelta | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    in_sync: bool | None = None
    problem: str = ""


class BrokerList(msgspec.Struct, frozen=True, kw_only=True):
    """All members of all broker names."""

    rows: list[BrokerRowShown]
    cut: bool
    problems: list[Problem]


class OptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a broker, with its meaning."""

    key: str
    value: str
    default: str
    doc: str
    unit: str
    mutable: bool
    # Whether it differs from its default; None if no default is known.
    changed: bool | None


class BrokerDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One member: its row, what it reports, and its options."""

    row: BrokerRowShown
    runtime: Runtime | None
    member: Member | None
    slaves: list[Lag]
    options: list[OptionRow]
    problems: list[Problem]


async def read_brokers(cluster: Cluster) -> BrokerList:
    """Return all members with what they report."""
    return await cluster.recent.ask("brokers", lambda: _read_brokers(cluster))


async def _read_brokers(cluster: Cluster) -> BrokerList:
    admin = cluster.admin
    members, runtimes, lags = await asyncio.gather(
        admin.cluster.members(limit=MEMBERS_MAX),
        cluster.recent.ask("brokers.runtime", admin.brokers.runtime, fresh_s=1.0),
        admin.cluster.lag(limit=MEMBERS_MAX),
    )
    runtime_of = {each.address: each for each in runtimes.items}
    lag_of = {each.address: each for each in lags.items}
    rows = [_join(each, runtime_of.get(each.address), lag_of.get(each.address)) for each in members.items]
    return BrokerList(rows=rows, cut=members.cut or runtimes.cut, problems=runtimes.problems)


def _join(member: Member, runtime: Runtime | None, lag: Lag | None) -> BrokerRowShown:
    where = member.broker if member.broker_id == MASTER_ID else f"{member.broker}:{member.broker_id}"
    return BrokerRowShown(
        where=where if member.broker_id >= 0 else member.address,
        cluster=member.cluster,
        address=member.address,
        role=_name_role(member),
        epoch=member.state.epoch if member.state is not None else None,
        version=runtime.version if runtime is not None else None,
        rate_in=_first(runtime.put_rates) if runtime is not None else None,
        rate_out=_first(runtime.transferred_rates) if runtime is not None else None,
        disk=runtime.log_disk_ratio if runtime is not None else None,
        disk_free=runtime.disk_free_bytes if runtime is not None else None,
        uptime=runtime.uptime if runtime is not None else None,
        lag_bytes=lag.lag_bytes if lag is not None else None,
        lag_seconds=lag.lag_seconds if lag is not None else None,
        in_sync=lag.in_sync if lag is not None else None,
        problem=member.problem,
    )


def _name_role(member: Member) -> str:
    """Return master, slave or fenced; a broker of Java reports no role, but its id tells it."""
    if not member.role:
        return "silent"
    if member.role in ("MASTER", "SLAVE", "FENCED"):
        return member.role.lower()
    return "master" if member.broker_id == MASTER_ID else "slave"


def _first(rates: Sequence[float]) -> float | None:
    return rates[0] if rates else None


async def read_detail(cluster: Cluster, where: str, meanings: Mapping[str, OptionMeaning]) -> BrokerDetail:
    """Return all about one member, by its name, its name and id, or its address. Raises NoRoute."""
    admin = cluster.admin
    found = await read_brokers(cluster)
    row = next((each for each in found.rows if where in (each.where, each.address)), None)
    if row is None:
        raise NoRoute(f"there is no broker {where}", hint="eruca cluster list shows all")
    name = row.where.partition(":")[0]
    runtimes, configs, members, lags = await asyncio.gather(
        admin.brokers.runtime(row.address),
        admin.brokers.config(row.address),
        admin.cluster.members(name),
        admin.cluster.lag(name),
    )
    options = configs.items[0].options if configs.items else {}
    problems = {(each.where, each.error): each for each in [*runtimes.problems, *configs.problems]}
    return BrokerDetail(
        row=row,
        runtime=runtimes.items[0] if runtimes.items else None,
        member=next((each for each in members.items if each.address == row.address), None),
        slaves=lags.items if row.role != "slave" else [each for each in lags.items if each.address == row.address],
        options=list_options(options, meanings),
        problems=list(problems.values()),
    )


def list_options(options: Mapping[str, str], meanings: Mapping[str, OptionMeaning]) -> list[OptionRow]:
    """Return the options of a broker with their meanings; the values of secrets are hidden."""
    shown: dict[str, str] = hide_secrets(dict(options))
    rows = []
    for key in sorted(shown, key=str.lower):
        meaning = meanings.get(key)
        rows.append(
            OptionRow(
                key=key,
                value=shown[key],
                default=meaning.default if meaning is not None else "",
                doc=meaning.doc if meaning is not None else "",
                unit=meaning.unit if meaning is not None else "",
                mutable=meaning.mutable if meaning is not None else False,
                changed=None if meaning is None else options[key] != meaning.default,
            )
        )
    return rows
