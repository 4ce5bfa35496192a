"""All members of one broker name, with what elects or promotes them, and a ledger of what they acknowledged.

`faults=True` puts a proxy in front of every member: other members and the operator reach it through the proxy.
Measurements use the members' real addresses. With etcd, each member has its own proxy to etcd.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from eruca._storetools.readonly import Level
from eruca._storetools.verify import verify_store
from eruca._wire.bodies import MessageQueue, ReplicationState
from eruca.errors import ErucaError, NetError
from tests.interop.javapeer import LOOPBACK
from tests.patience import PATIENCE_S
from tests.replication.etcdserver import EtcdServer
from tests.replication.load import TOPIC, Ledger, describe, read_number
from tests.replication.pairs import QUEUES, Member, Names, Watch, run_command
from tests.replication.proxy import TcpProxy
from tests.replication.segments import compare_logs, find_tail, list_diverged, read_diverged, read_log

MASTER, SLAVE = "MASTER", "SLAVE"
HEAL_SECONDS_MAX = PATIENCE_S
_POLL_S = 0.05
_SEGMENT_BYTES = 1024 * 1024
LEASE_S = 2


class Group:
    """Members, name server, perhaps etcd, perhaps proxies.

    >>> async with Group(home, members=2, seed=1) as group:
    ...     master = await group.wait_for_master()
    """

    def __init__(
        self,
        home: Path,
        *,
        members: int,
        seed: int,
        etcd: bool = False,
        faults: bool = False,
        role: str = "SYNC_MASTER",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._home = home
        self._settings = dict(settings or {})
        self._stack = AsyncExitStack()
        self.rng = random.Random(f"replication:{seed}")
        self.names = Names(home / "names")
        self.watch = Watch(self.names.address)
        self.members: list[Member] = []
        # Before the service port and the replication port of each member.
        self.proxies: list[list[TcpProxy]] = []
        self.etcd = EtcdServer(home / "etcd") if etcd else None
        self.etcd_proxies: list[TcpProxy] = []
        self._count, self._faults, self._role = members, faults, role
        self.queues: list[MessageQueue] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        stack = self._stack
        await stack.enter_async_context(self.names)
        await stack.enter_async_context(self.watch)
        if self.etcd is not None:
            await stack.enter_async_context(self.etcd)
        for number in range(self._count):
            await self._add_member(number)
        # The configured master first, as an operator would; the others learn of it.
        for member in self.members:
            await member.start()
            stack.push_async_callback(member.end, signal.SIGKILL)
        master = await self.wait_for_master()
        self.queues = await self.watch.create_topic(master.address, TOPIC, QUEUES)
        await self.wait_until_whole()

    async def _add_member(self, number: int) -> None:
        settings: dict[str, object] = {
            "mappedFileSizeCommitLog": _SEGMENT_BYTES,
            "flushDiskType": "SYNC_FLUSH",
            **self._settings,
        }
        if self.etcd is not None:
            endpoint = self.etcd.endpoint
            if self._faults:
                host, port = endpoint.removeprefix("http://").split(":")
                proxy = TcpProxy((LOOPBACK, 0), (host, int(port)), self._make_rng())
                self.etcd_proxies.append(await self._stack.enter_async_context(proxy))
                endpoint = f"http://{proxy.address}"
            settings |= {"failover": "etcd", "etcdEndpoints": endpoint, "failoverLeaseSeconds": LEASE_S}
        member = Member(
            self._home / f"member{number}",
            self.names.address,
            broker_id=number,
            role="SLAVE" if number else self._role,
            told_host=f"127.0.0.{2 + number}" if self._faults else LOOPBACK,
            settings=settings,
        )
        self.members.append(member)
        if self._faults:
            host = member.told_address.partition(":")[0]
            ports = (member.port, member.port + 1)
            proxies = [TcpProxy((host, port), (LOOPBACK, port), self._make_rng()) for port in ports]
            self.proxies.append([await self._stack.enter_async_context(proxy) for proxy in proxies])

    def _make_rng(self) -> random.Random:
        """A separate random generator for each proxy, so that traffic does not change what else is planned."""
        return random.Random(self.rng.random())

    # -- who is what -------------------------------------------------------------------------------------------------

    async def read_states(self) -> dict[Member, ReplicationState]:
        """Return the state of every member that responds."""
        found = await asyncio.gather(*[self._read_state(member) for member in self.members])
        return {member: state for member, state in zip(self.members, found, strict=True) if state is not None}

    async def _read_state(self, member: Member) -> ReplicationState | None:
        if not member.is_running:
            return None
        try:
            return await self.watch.admin.cluster.state(member.address)
        except ErucaError:
            return None

    async def wait_for(
        self, is_wanted: Callable[[dict[Member, ReplicationState]], bool], what: str, seconds: float = HEAL_SECONDS_MAX
    ) -> dict[Member, ReplicationState]:
        """Wait until the members report what is expected."""
        deadline = time.monotonic() + seconds
        while not is_wanted(states := await self.read_states()):
            if time.monotonic() >= deadline:
                told = "\n".join(f"{member.address}: {state}" for member, state in states.items())
                raise AssertionError(f"after {seconds:.0f} s: not {what}:\n{told}\n{await self.read_logs()}")
            await asyncio.sleep(_POLL_S)
        return states

    async def wait_for_master(self, seconds: float = HEAL_SECONDS_MAX, *, but: Member | None = None) -> Member:
        """Wait until a member reports that it is the master and accepts messages."""
        states = await self.wait_for(lambda found: bool(_list_masters(found, but)), "a master", seconds)
        return _list_masters(states, but)[0]

    async def wait_until_whole(self, seconds: float = HEAL_SECONDS_MAX) -> Member:
        """Wait until all members are present, know each other, and are in sync with one master; return it."""
        states = await self.wait_for(self._is_whole, "one master and the others in sync", seconds)
        return _list_masters(states, None)[0]

    def _is_whole(self, states: dict[Member, ReplicationState]) -> bool:
        masters = _list_masters(states, None)
        if len(states) < len(self.members) or len(masters) != 1:
            return False
        if any(state.role != SLAVE for member, state in states.items() if member is not masters[0]):
            return False
        slaves = states[masters[0]].slaves
        if len(slaves) < len(self.members) - 1 or not all(slave.in_sync for slave in slaves):
            return False
        # A member that does not know the others yet could not tell later which one is missing.
        return all(len(state.members) >= len(self.members) for state in states.values())

    async def promote_another(self, old: Member, *, by_command: bool = False) -> Member:
        """Act as an operator when the master is gone: the member with the most data becomes the master.

        Raises ErucaError when that is refused; with `by_command` it is an assertion.
        """
        states = {member: state for member, state in (await self.read_states()).items() if member is not old}
        if not states:
            raise NetError("no other member answers")
        chosen = max(states, key=lambda member: (states[member].epoch, states[member].tail))
        if by_command:
            arguments = ("cluster", "promote", chosen.told_address, "-n", self.names.address)
            status, _, said = await run_command(*arguments)
            assert status == 0, said
        else:
            await self.watch.admin.cluster.promote(chosen.told_address)
        return chosen

    async def read_logs(self, size: int = 1500) -> str:
        """The ends of all members' logs."""
        logs = [f"--- {member.home.name}\n{await member.read_log(size)}" for member in self.members]
        return "\n".join(logs)

    async def list_complaints(self) -> list[str]:
        """Internal errors that any member has logged."""
        return [f"{m.home.name} logged: {line}" for m in self.members for line in await m.list_complaints()]

    # -- in the end --------------------------------------------------------------------------------------------------

    async def finish(self, ledger: Ledger) -> tuple[list[str], str]:
        """Stop all members cleanly and compare the logs with each other and with the ledger.

        Returns what is wrong, and a line about what was compared.
        """
        master = await self.wait_until_whole()
        await self.watch.wait_until_synced([member.address for member in self.members], HEAL_SECONDS_MAX)
        listed = {m: {tail.file for tail in state.diverged} for m, state in (await self.read_states()).items()}
        faults = []
        # Slaves first: a master that stops would be replaced.
        for member in sorted(self.members, key=lambda each: each is master):
            status = await member.end()
            faults += [f"{member.home.name} ended with {status}"] if status else []
        faults += await self.list_complaints()
        more, line = await asyncio.to_thread(_hold_against, self.members, master, ledger, listed)
        return [*faults, *more], line


def _list_masters(states: Mapping[Member, ReplicationState], but: Member | None) -> list[Member]:
    return [m for m, state in states.items() if m is not but and state.role == MASTER and state.writable]


def _hold_against(
    members: Sequence[Member], master: Member, ledger: Ledger, listed: Mapping[Member, set[str]]
) -> tuple[list[str], str]:
    """Compare what is left on the disks."""
    records = list(read_log(master.store))
    faults = ledger.list_faults(records)
    acknowledged = {(attempt.position, attempt.number) for attempt in ledger.list_acknowledged()}
    aside = 0
    size = 0
    for member in members:
        tail = find_tail(member.store)
        comparison = compare_logs(master.store, member.store)
        if not comparison.is_same or tail != comparison.end:
            faults.append(f"{member.home.name} ends at {tail}: {comparison.describe()}")
        for path in list_diverged(member.store):
            if path.name not in {Path(name).name for name in listed[member]}:
                faults.append(f"{member.home.name} does not list {path.name}")
            tails = [record for record in read_diverged(path) if record.topic == TOPIC]
            aside += len(tails)
            size += path.stat().st_size
            wrong = [r for r in tails if (r.position, read_number(r.body)) in acknowledged]
            faults += describe(f"acknowledged and set aside in {path.name}", [(r.position, r.offset) for r in wrong])
        report = verify_store(member.store)
        wrong_files = [f"{item.path}: {item.reason}" for item in report.findings if item.level is Level.ERROR]
        faults += describe(f"the store of {member.home.name} is damaged", wrong_files)
    files = sum(len(list_diverged(member.store)) for member in members)
    line = (
        f"{len(records):,} records of {len(members)} members equal byte by byte;"
        f" set aside: {files} tails, {size:,} bytes, {aside} messages, none acknowledged"
    )
    return faults, line
