"""Which servers an operation is for, and asking them side by side without one hiding the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from eruca._admin.connection import Connection, explain_no_master
from eruca._admin.results import Change, Problem
from eruca._wire.names import MASTER_ID
from eruca.errors import ConfigError, ErucaError, NetError, NoRoute

# How many requests one operation has under way.
ASKED_AT_ONCE = 32

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Facts = TypeVar("Facts")


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One registered broker."""

    cluster: str
    broker: str
    # 0: the master.
    broker_id: int
    address: str

    @property
    def where(self) -> str:
        """Its name; with its id if it is not the master."""
        return self.broker if self.broker_id == MASTER_ID else f"{self.broker}:{self.broker_id}"


async def list_registered(connection: Connection, cluster: str | None = None) -> list[BrokerRow]:
    """Return all registered brokers, or those of a cluster. Raises NoRoute if there is no such cluster."""
    info = await connection.describe_clusters()
    clusters = {name: each for each, names in info.cluster_addr_table.items() for name in names}
    if cluster is not None and cluster not in info.cluster_addr_table:
        raise NoRoute(f"there is no cluster {cluster}", hint=_name_some("clusters", info.cluster_addr_table))
    rows = [
        BrokerRow(cluster=clusters.get(name, broker.cluster or ""), broker=name, broker_id=number, address=address)
        for name, broker in info.broker_addr_table.items()
        for number, address in broker.broker_addrs.items()
    ]
    found = [row for row in rows if cluster in (None, row.cluster)]
    return sorted(found, key=lambda row: (row.cluster, row.broker, row.broker_id, row.address))


async def find_targets(
    connection: Connection, brokers: Sequence[str] | None = None, cluster: str | None = None, *, slaves: bool = False
) -> list[BrokerRow]:
    """Return the brokers an operation is for: the named ones, those of a cluster, or all.

    A name is that of a master; `name:id` and an address are any member. Without names they are the masters, and with
    `slaves` all members. Raises NoRoute for a name that is not registered, and ConnectFailed if its master is missing.
    """
    rows = await list_registered(connection, cluster)
    if brokers is not None:
        return [_find_named(rows, name) for name in brokers]
    found = [row for row in rows if slaves or row.broker_id == MASTER_ID]
    if not rows:
        raise explain_no_broker()
    if not found:
        raise NetError("no master is registered", hint="eruca cluster list shows the members; start a master")
    return found


async def find_target(connection: Connection, broker: str) -> BrokerRow:
    """Return the broker with a name, `name:id` or address."""
    return (await find_targets(connection, [broker]))[0]


def explain_no_broker() -> NetError:
    """Return the error for a cluster without brokers."""
    return NetError(
        "no broker is registered", hint="`eruca broker` starts one; -n sets the name servers to ask, -n 10.0.0.1:9876"
    )


def _find_named(rows: Iterable[BrokerRow], name: str) -> BrokerRow:
    rows = list(rows)
    for row in rows:
        if name in (row.where, row.address, f"{row.broker}:{row.broker_id}"):
            return row
    if any(row.broker == name for row in rows):
        raise explain_no_master(name)
    raise NoRoute(f"no broker {name} is registered", hint=_name_some("brokers", sorted({row.broker for row in rows})))


def _name_some(what: str, names: Iterable[str]) -> str:
    shown = sorted(names)[:5]
    return f"there are {what} named {', '.join(shown)}" if shown else "`eruca broker` starts one"


def one_or_all(name: str | None) -> list[str] | None:
    """Return a single optional name as `find_targets` takes names."""
    return None if name is None else [name]


# --- asking -----------------------------------------------------------------------------------------------------------


async def ask_each(
    rows: Sequence[BrokerRow], ask: Callable[[BrokerRow], Awaitable[Answer]]
) -> tuple[list[tuple[BrokerRow, Answer]], list[Problem]]:
    """Ask brokers side by side; return the answers, in their order, and a problem for each that failed."""
    found, problems = [], []
    for row, answer in zip(rows, await gather_bounded(rows, ask), strict=True):
        if isinstance(answer, ErucaError):
            problems.append(make_problem(row, answer))
        else:
            found.append((row, answer))
    return found, problems


class Answering:
    """The brokers of an operation that asks each of them many times: one that does not answer is not asked again."""

    def __init__(self, rows: Sequence[BrokerRow]) -> None:
        self._rows = rows
        self._failed: dict[str, Problem] = {}

    @property
    def rows(self) -> list[BrokerRow]:
        """Those that have answered so far, or were not asked yet."""
        return [row for row in self._rows if row.address not in self._failed]

    @property
    def problems(self) -> list[Problem]:
        """One problem for each broker that failed."""
        return list(self._failed.values())

    def note(self, problems: Iterable[Problem]) -> None:
        """Record brokers that failed."""
        for problem in problems:
            self._failed.setdefault(problem.address, problem)


async def change_each(
    rows: Sequence[BrokerRow],
    change: Callable[[BrokerRow], Awaitable[Change[Facts]]],
    before: Mapping[str, Facts | None],
) -> list[Change[Facts]]:
    """Change something on brokers side by side; a broker that fails has the outcome `failed`. `before` is by name."""

    def describe(row: BrokerRow, answer: Change[Facts] | ErucaError) -> Change[Facts]:
        if not isinstance(answer, ErucaError):
            return answer
        was = before.get(row.where)
        return Change(where=row.where, before=was, after=was, outcome="failed", reason=str(answer))

    answers = await gather_bounded(rows, change)
    return [describe(row, answer) for row, answer in zip(rows, answers, strict=True)]


async def gather_bounded(
    items: Sequence[Item], ask: Callable[[Item], Awaitable[Answer]], *, at_once: int = ASKED_AT_ONCE
) -> list[Answer | ErucaError]:
    """Ask something about each item, some at a time; return the answer or the error of each."""
    slots = asyncio.Semaphore(at_once)
    answers: list[Answer | ErucaError] = []

    async def ask_one(item: Item) -> Answer | ErucaError:
        async with slots:
            try:
                return await ask(item)
            except ErucaError as error:
                return error

    # In slices, so that tens of thousands of items are not as many tasks.
    for start in range(0, len(items), 8 * at_once):
        answers += await asyncio.gather(*[ask_one(item) for item in items[start : start + 8 * at_once]])
    return answers


def make_problem(row: BrokerRow, error: ErucaError) -> Problem:
    """Return the problem of a broker that failed."""
    return Problem(where=row.where, address=row.address, error=str(error.args[0]), hint=error.hint)


def refuse_both(brokers: Sequence[str] | str | None, cluster: str | None) -> None:
    """Raise ConfigError if brokers and a cluster are named."""
    if brokers is not None and cluster is not None:
        raise ConfigError("brokers and a cluster were named", hint="name one of them")
