"""Network faults between the members of a broker name, under load on all of them, whatever their roles.

Senders reach every member all the time, so a member that acknowledges without the right to do so is caught: its
messages are not in the final log, or are at positions that another one acknowledged, or in another order.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from eruca import ClientOptions
from eruca._admin.promotion import measure
from eruca._wire.names import MASTER
from eruca.admin import Admin
from eruca.errors import ErucaError
from tests.patience import PATIENCE_S
from tests.replication.groups import Group
from tests.replication.load import DirectLoad, Ledger
from tests.replication.pairs import QUEUES, Member
from tests.replication.proxy import TcpProxy, Way

# Dropped connections come in two kinds, reset or silent. A stopped process is not a network fault, but looks like one
# to the others, and it may continue in the middle of anything.
KINDS = ("delay", "reset", "silence", "half-close", "corrupt", "one-way", "freeze")
# Links time out soon, so that much happens during a fault.
_QUICK = {"haSendHeartbeatInterval": 300, "haHousekeepingInterval": 1200}
_FLUSH_MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")
_MORE = 20
_PROGRESS_SECONDS_MAX = PATIENCE_S
_POLL_S = 0.02
# Between two tries of an operator.
_AGAIN_S = 0.3


@dataclass(frozen=True)
class Settings:
    """One run."""

    kind: str
    seed: int
    etcd: bool = False
    episodes: int = 2
    # How long the weather is bad; silence of a second ends a link here, and 2 s are a lease.
    bad_s: tuple[float, float] = (0.5, 5.0)

    @property
    def members(self) -> int:
        """Two and an operator, or three that elect."""
        return 3 if self.etcd else 2


@dataclass
class Result:
    """The observations of one run."""

    settings: Settings
    episodes: list[str] = field(default_factory=list)
    masters: int = 0
    acknowledged: int = 0
    # Changes of the master, and promotions that were refused because something might have been lost.
    changes: int = 0
    refused: int = 0
    # Promotions that were interrupted half-way, which left no master, and that the operator repeated.
    again: int = 0
    line: str = ""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """Summarise the counts for people."""
        settings = self.settings
        how = "etcd" if settings.etcd else "operator"
        return (
            f"{settings.kind}, seed {settings.seed}, {how}: {'; '.join(self.episodes)};"
            f" {self.changes} changes of the master, {self.refused} refused, {self.again} given again;"
            f" {self.line}; {self.seconds:.0f} s"
        )


async def run(settings: Settings, home: Path) -> Result:
    """Run it once."""
    began = time.monotonic()
    result = Result(settings)
    plan = random.Random(f"faults:{settings.kind}:{settings.seed}")
    options = {**_QUICK, "flushDiskType": plan.choice(_FLUSH_MODES)}
    ledger = Ledger()
    async with (
        Group(
            home,
            members=settings.members,
            seed=settings.seed,
            etcd=settings.etcd,
            faults=True,
            settings=options,
        ) as group,
        Admin(group.names.address, ClientOptions(instance="senders", call_timeout=1)) as admin,
        AsyncExitStack() as stack,
    ):
        loads = [DirectLoad(admin.connection.calls, ledger, member.address, queues=QUEUES) for member in group.members]
        for load in loads:
            stack.push_async_callback(load.stop)
        for _ in range(settings.episodes):
            await wait_for_more(group, ledger)
            await _Episode(settings, plan, group, result).run()
        await wait_for_more(group, ledger)
        await stack.aclose()
        faults, line = await group.finish(ledger)
    result.violations += faults
    result.acknowledged = ledger.acknowledged
    result.line = f"{ledger.summarise()}; {line}"
    result.seconds = time.monotonic() - began
    return result


async def wait_for_more(group: Group, ledger: Ledger) -> None:
    """Wait until messages are acknowledged again."""
    wanted = ledger.acknowledged + _MORE
    deadline = time.monotonic() + _PROGRESS_SECONDS_MAX
    while ledger.acknowledged < wanted:
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing is acknowledged: {ledger.summarise()}\n{await group.read_logs()}")
        await asyncio.sleep(_POLL_S)


class _Episode:
    """Bad weather, perhaps a promotion in the middle of it, and fine weather until all is whole again."""

    def __init__(self, settings: Settings, plan: random.Random, group: Group, result: Result) -> None:
        self._settings, self._plan, self._group, self._result = settings, plan, group, result

    async def run(self) -> None:
        """Go through it."""
        plan, group = self._plan, self._group
        master = await group.wait_until_whole()
        lasting = plan.uniform(*self._settings.bad_s)
        victim = master
        if plan.random() < 0.15:
            victim = plan.choice([member for member in group.members if member is not master])
        where, proxies = self._choose(victim)
        whose = "master" if victim is master else "slave"
        self._result.episodes.append(f"{whose}'s {where} {lasting:.1f} s")
        self._spoil(victim, proxies)
        promotes = not self._settings.etcd and plan.random() < 0.8
        patience = plan.uniform(0.2, 0.8) * lasting
        until = time.monotonic() + lasting
        await asyncio.sleep(patience)
        if promotes:
            await self._promote(master, until)
        await asyncio.sleep(max(0.0, until - time.monotonic()))
        for proxy in proxies:
            proxy.clear()
        if self._settings.kind == "freeze":
            victim.freeze(False)
        if promotes:
            await self._promote_again()
        self._result.changes += await group.wait_until_whole() is not master

    def _choose(self, victim: Member) -> tuple[str, list[TcpProxy]]:
        """Which connections to a member: for the log or for questions, or its own to etcd."""
        plan, group = self._plan, self._group
        number = group.members.index(victim)
        if self._settings.kind == "freeze":
            return "process", []
        service, log = group.proxies[number]
        if self._settings.etcd and plan.random() < 0.5:
            proxies = [group.etcd_proxies[number], *([service, log] if plan.random() < 0.5 else [])]
            return f"etcd{' and all' if len(proxies) > 1 else ''}", proxies
        which = plan.choice(("log", "questions", "both", "both"))
        return which, {"log": [log], "questions": [service], "both": [service, log]}[which]

    def _spoil(self, victim: Member, proxies: list[TcpProxy]) -> None:
        plan = self._plan
        if self._settings.kind == "freeze":
            victim.freeze(True)
        way = plan.choice(list(Way))
        for proxy in proxies:
            match self._settings.kind:
                case "delay":
                    for each in Way:
                        proxy.weather[each].delay_s = (0.0, plan.choice((0.05, 0.5, 3.0)))
                case "reset":
                    proxy.is_refusing = plan.random() < 0.7
                    proxy.reset()
                case "silence":
                    for each in Way:
                        proxy.weather[each].is_dark = True
                case "half-close":
                    proxy.half_close(way)
                case "corrupt":
                    for each in Way:
                        proxy.weather[each].corrupt_ppm = plan.choice((20.0, 200.0, 2000.0))
                case "one-way":
                    proxy.weather[way].is_dark = True

    async def _promote(self, master: Member, until: float) -> None:
        """Act as an operator who thinks that the master is gone; retries while the fault lasts."""
        while True:
            try:
                await self._group.promote_another(master)
            except ErucaError:
                self._result.refused += 1
            else:
                return
            if time.monotonic() + _AGAIN_S > until:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _promote_again(self) -> None:
        """Act as an operator whose command was interrupted half-way: repeat it after the fault is over."""
        group = self._group
        deadline = time.monotonic() + _PROGRESS_SECONDS_MAX
        while True:
            states = await group.read_states()
            if len(states) == len(group.members):
                if any(state.role == MASTER for state in states.values()):
                    return
                self._result.again += 1
                for chosen in sorted(states, key=lambda member: measure(states[member]), reverse=True):
                    try:
                        await group.watch.admin.cluster.promote(chosen.told_address)
                        return
                    except ErucaError:
                        continue
            if time.monotonic() > deadline:
                raise AssertionError(f"nobody can be promoted:\n{await group.read_logs()}")
            await asyncio.sleep(_AGAIN_S)
