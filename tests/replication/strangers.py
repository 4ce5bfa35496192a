"""Strangers with the name of a master and its slave, and forged frames about masterships, under load.

Strangers are brokers of other stores: new ones, and older ones with more masterships than ours. They start as masters
or as slaves with the same name server. Forged requests register masters that do not exist, and tell members to change
their roles. Nothing acknowledged may be lost, no log may be cut, and only an operator changes the master.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eruca import ClientOptions
from eruca._ground.config import StoreOptions
from eruca._ground.limits import EPOCH_AHEAD_MAX, EPOCH_MAX
from eruca._net.caller import Caller
from eruca._store.messagestore import open_store
from eruca._wire.bodies import ReplicationState
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import make_request
from eruca._wire.headers import ChangeRoleHeader, RegisterBrokerHeader
from eruca.admin import Admin
from tests.replication.faults import wait_for_more
from tests.replication.groups import MASTER, Group
from tests.replication.load import DirectLoad, Ledger
from tests.replication.pairs import BROKER_NAME, CLUSTER, QUEUES, Member
from tests.unit.store.samples import make_message

KINDS: Final = ("new master", "older master", "older slave", "registration", "role", "promotion")
_SEGMENT_BYTES: Final = 1024 * 1024
_CALL_MS: Final = 5000
_STRANGE_ID: Final = 7
_OUT_OF_BOUNDS: Final = (-1, EPOCH_MAX + 1, EPOCH_MAX, EPOCH_MAX // 2, 2**63 - 1)


@dataclass(frozen=True)
class Settings:
    """One run."""

    seed: int
    steps: int = 12


@dataclass
class Result:
    """The observations of one run."""

    settings: Settings
    steps: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    line: str = ""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """Summarise the counts for people."""
        steps = ", ".join(f"{count} {name}" for name, count in sorted(self.steps.items()))
        return f"strangers, seed {self.settings.seed}: {steps}; {self.line}; {self.seconds:.0f} s"


async def run(settings: Settings, home: Path) -> Result:
    """Run it once."""
    began = time.monotonic()
    result, ledger = Result(settings), Ledger()
    async with (
        Group(home, members=2, seed=settings.seed) as group,
        Admin(group.names.address, ClientOptions(instance="senders", call_timeout=1)) as admin,
        AsyncExitStack() as stack,
    ):
        for member in group.members:
            stack.push_async_callback(DirectLoad(admin.connection.calls, ledger, member.address, queues=QUEUES).stop)
        visit = _Visit(settings, home, group, result)
        stack.push_async_callback(visit.close)
        await wait_for_more(group, ledger)
        for _ in range(settings.steps):
            await visit.step()
            await wait_for_more(group, ledger)
        await stack.aclose()
        faults, line = await group.finish(ledger)
    result.violations += faults
    result.acknowledged = ledger.acknowledged
    result.line = f"{ledger.summarise()}; {line}"
    result.seconds = time.monotonic() - began
    return result


class _Visit:
    """The strangers of one run, one after the other."""

    def __init__(self, settings: Settings, home: Path, group: Group, result: Result) -> None:
        self._plan = random.Random(f"strangers:{settings.seed}")
        self._home, self._group, self._result = home, group, result
        self._caller = Caller()
        self._count = 0
        # A master of another store, to which no name server leads.
        self._elsewhere: Member | None = None

    async def close(self) -> None:
        """Let nothing run on."""
        await self._caller.close()
        if self._elsewhere is not None:
            await self._elsewhere.end()

    async def step(self) -> None:
        """Cause one event, and check whether the members keep their roles."""
        kind = self._plan.choice(KINDS)
        self._result.steps[kind] += 1
        master = await self._group.wait_until_whole()
        match kind:
            case "new master":
                await self._start_master(0)
            case "older master":
                await self._start_master(self._plan.randint(1, 2000))
            case "older slave":
                await self._start_slave()
            case "registration":
                await self._register(master)
            case "role":
                await self._tell_roles(master)
            case _:
                (master,) = [member for member in self._group.members if member is not master]
                await self._group.watch.admin.cluster.promote(master.address)
        now = await self._group.wait_until_whole()
        states = await self._group.read_states()
        if now is not master:
            self._complain(f"after {kind}: {now.home.name} is the master, and not {master.home.name}")
        for member, state in states.items():
            if state.diverged:
                self._complain(f"after {kind}: the log of {member.home.name} was cut: {state.diverged}")
            if state.epoch > EPOCH_MAX // 4:
                self._complain(f"after {kind}: {member.home.name} believes epoch {state.epoch}")

    def _complain(self, text: str) -> None:
        self._result.violations.append(text)

    # -- brokers of other stores -------------------------------------------------------------------------------------

    async def _make(self, masterships: int, *, broker_id: int, role: str, name_server: str = "") -> Member:
        """A broker with a store that has had some masterships, each of them with a message."""
        self._count += 1
        home = self._home / f"stranger{self._count}"
        address = name_server or self._group.names.address
        settings = {"mappedFileSizeCommitLog": _SEGMENT_BYTES}
        member = Member(home, address, broker_id=broker_id, role=role, settings=settings)
        if masterships:
            await asyncio.to_thread(_fill, member.store, masterships)
        return member

    async def _start_master(self, masterships: int) -> None:
        """A master of the name does not start, and leaves its store as it was."""
        stranger = await self._make(masterships, broker_id=0, role="SYNC_MASTER")
        try:
            await stranger.start()
        except AssertionError:
            if "another broker is already named" not in await stranger.read_log():
                self._complain(f"a stranger did not start for another reason: {await stranger.read_log()}")
            return
        self._complain(f"a second master of the name started, after {masterships} masterships")
        await stranger.end()

    async def _start_slave(self) -> None:
        """A slave with its own log copies nothing, and keeps what it has."""
        masterships = self._plan.randint(1, 50)
        stranger = await self._make(masterships, broker_id=_STRANGE_ID, role="SLAVE")
        await stranger.start()
        deadline = time.monotonic() + 60
        while "a different store" not in await stranger.read_log(20_000):
            if time.monotonic() > deadline:
                self._complain("a slave of another store does not say that it copies nothing")
                break
            await asyncio.sleep(0.05)
        await stranger.end()
        kept = await asyncio.to_thread(_count, stranger.store)
        if kept != masterships:
            self._complain(f"a slave of another store has {kept} of {masterships} messages")

    # -- frames ------------------------------------------------------------------------------------------------------

    async def _register(self, master: Member) -> None:
        """Register masters that do not exist; one that knows the store may have the name while it is connected."""
        state = (await self._group.read_states())[master]
        near = state.epoch + self._plan.randint(1, EPOCH_AHEAD_MAX // 2)
        epoch = self._plan.choice((near, near, *_OUT_OF_BOUNDS, state.epoch, 1))
        store = self._plan.choice((None, "0" * 32, state.store_id))
        caller = Caller()
        try:
            header = RegisterBrokerHeader(BROKER_NAME, "127.0.0.1:1", CLUSTER, "127.0.0.1:2", 0, eruca_epoch=epoch)
            header.eruca_store = store
            await caller.call(self._group.names.address, make_request(RequestCode.REGISTER_BROKER, header), _CALL_MS)
        finally:
            await caller.close()
        await self._wait_until_registered(master)

    async def _wait_until_registered(self, master: Member) -> None:
        deadline = time.monotonic() + 60
        while (await self._group.watch.admin.connection.list_masters()).get(BROKER_NAME) != master.address:
            if time.monotonic() > deadline:
                self._complain("producers do not find the master any more")
                return
            await asyncio.sleep(0.05)

    async def _tell_roles(self, master: Member) -> None:
        """Tell every member to take roles with impossible epochs, and to follow a broker of another store."""
        if self._elsewhere is None:
            self._elsewhere = await self._make(3, broker_id=0, role="SYNC_MASTER", name_server="127.0.0.1:1")
            await self._elsewhere.start()
        state: ReplicationState = (await self._group.read_states())[master]
        forged = [
            ChangeRoleHeader(self._plan.choice(("SLAVE", "FENCED", MASTER)), self._plan.choice(_OUT_OF_BOUNDS), True),
            ChangeRoleHeader("SLAVE", state.epoch + 1000, True, master_address=self._elsewhere.address),
            ChangeRoleHeader("SLAVE", state.epoch + 1000, True, master_address="127.0.0.1:1"),
        ]
        for member in self._group.members:
            for header in forged:
                command = make_request(RequestCode.CHANGE_ROLE, header)
                answer = await self._caller.call(member.address, command, _CALL_MS)
                if answer.code == ResponseCode.SUCCESS:
                    self._complain(f"{member.home.name} became what {header} says")


def _fill(root: Path, masterships: int) -> None:
    store = open_store(root, StoreOptions(commitlog_segment_bytes=_SEGMENT_BYTES))
    for number in range(masterships):
        store.lineage.begin_epoch(number + 1)
        store.append(make_message(body=b"a stranger's %d" % number))
    store.close()


def _count(root: Path) -> int:
    store = open_store(root, StoreOptions(commitlog_segment_bytes=_SEGMENT_BYTES))
    found = sum(queue.max_offset for queue in store.queues)
    store.close()
    return found
