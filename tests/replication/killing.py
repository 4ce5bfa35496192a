"""The master is killed with `kill -9` under load, again and again, and another member takes its place each time.

Without etcd an operator promotes; with etcd the members elect. The killed one is started again as it was configured
and comes back as a slave. Producers and consumers are never told anything.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from eruca import ClientOptions, Message, Producer
from tests.clients.stage import make_consumer, wait_until
from tests.interop.javapeer import JavaProgram, Peer
from tests.patience import PATIENCE_S
from tests.replication.groups import Group
from tests.replication.load import TOPIC, Ledger, ProducerLoad, describe, read_number

CONSUMERS, JAVA_CONSUMERS = "consumers", "java-consumers"
_NUMBERS_MAX = 5_000_000
_RESUME_SECONDS_MAX = PATIENCE_S
# Messages that must be acknowledged, and consumed, between two kills.
_MORE = 50
_POLL_S = 0.02
_TRY_SECONDS = 2.0
PAUSE_P50_MAX_S, PAUSE_P99_MAX_S = 5.0, 10.0


@dataclass(frozen=True)
class Settings:
    """One run."""

    seed: int
    kills: int = 3
    etcd: bool = False
    members: int = 2
    flush: str = "SYNC_FLUSH"
    # Work before each kill.
    work_s: tuple[float, float] = (0.2, 1.0)


@dataclass
class Result:
    """What was seen in one run."""

    settings: Settings
    kills: int = 0
    # Seconds from a kill to the first acknowledgement of a message that was sent after it.
    pauses: list[float] = field(default_factory=list)
    acknowledged: int = 0
    line: str = ""
    consumed: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """What was counted, for people."""
        settings = self.settings
        how = "etcd elects" if settings.etcd else "operator promotes"
        repeated = self.consumed.total() - len(self.consumed)
        return (
            f"master killed, seed {settings.seed}: {self.kills} kills, {settings.members} members, {how},"
            f" {settings.flush}; {self.line}; consumers got {len(self.consumed):,}, {repeated:,} more than once;"
            f" {describe_pauses(self.pauses)}; {self.seconds:.0f} s"
        )


def describe_pauses(pauses: list[float]) -> str:
    """The pauses of producers in one line."""
    if not pauses:
        return "no pauses"
    ordered = sorted(pauses)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"producers paused p50 {statistics.median(ordered):.2f} s, p99 {p99:.2f} s, longest {ordered[-1]:.2f} s"


class _JavaConsumer:
    """A push consumer of the official client."""

    def __init__(self, peer: Peer, home: Path, names: str) -> None:
        self._program = JavaProgram(peer, "eruca.interop.CountingConsumer", home)
        request = {"do": "start", "name": "java", "group": JAVA_CONSUMERS, "nameServer": names, "topic": TOPIC}
        self._program.ask({**request, "count": _NUMBERS_MAX, "gate": _NUMBERS_MAX + 1})

    def list_lacking(self, numbers: list[int]) -> list[int]:
        """Those of some messages that did not come."""
        (row,) = self._program.ask({"do": "lacks", "group": JAVA_CONSUMERS, "numbers": numbers})
        return list(row["lacking"])

    def count(self) -> tuple[int, int]:
        """How many came, and how many of them more than once."""
        (row,) = self._program.ask({"do": "tell", "group": JAVA_CONSUMERS})
        return row["distinct"], row["repeated"]

    def close(self) -> None:
        """End it."""
        self._program.end(signal.SIGKILL)


class _Clients:
    """Producers and consumers that only know the name server."""

    def __init__(self, group: Group) -> None:
        options = ClientOptions(route_interval=0.5, call_timeout=1)
        self.ledger = Ledger()
        self.consumed: Counter[int] = Counter()
        self.producer = Producer(
            group.names.address, group="feeder", timeout=_TRY_SECONDS, try_timeout=_TRY_SECONDS / 2, options=options
        )
        self._consumer = make_consumer(group.names.address, CONSUMERS, options=options)
        self._load: ProducerLoad | None = None
        self._java: _JavaConsumer | None = None

        @self._consumer.handler(TOPIC)
        async def take(message: Message) -> None:
            self.consumed[read_number(message.body)] += 1

    async def start_java(self, stack: AsyncExitStack, peer: Peer, home: Path, names: str) -> None:
        """A consumer of the official client shall come too."""
        self._java = await asyncio.to_thread(_JavaConsumer, peer, home, names)
        stack.push_async_callback(asyncio.to_thread, self._java.close)

    async def start(self, stack: AsyncExitStack) -> None:
        """Begin."""
        await self.producer.start()
        stack.push_async_callback(self.producer.close)
        await self._consumer.start()
        stack.push_async_callback(self._consumer.close)
        self._load = ProducerLoad(self.producer, self.ledger)
        stack.push_async_callback(self._load.stop)

    async def stop_sending(self) -> None:
        """Wait for the last answers."""
        assert self._load is not None
        await self._load.stop()

    async def wait_for_more(self, group: Group) -> None:
        """Wait until more is acknowledged, and until what is acknowledged from now on is consumed."""
        before = len(self.ledger.attempts)
        wanted: set[int] = set()
        deadline = time.monotonic() + _RESUME_SECONDS_MAX
        while len(wanted) < _MORE or not wanted <= self.consumed.keys():
            if time.monotonic() > deadline:
                missing = sorted(wanted - self.consumed.keys())
                told = f"{len(wanted)} acknowledged since, {len(missing)} of them not consumed: {missing[:5]}"
                raise AssertionError(f"no progress: {told}; {self.ledger.summarise()}\n{await group.read_logs()}")
            await asyncio.sleep(_POLL_S)
            new = [attempt.number for attempt in self.ledger.attempts[before:] if attempt.code == 0]
            wanted = set(new[:_MORE])

    async def wait_for_all(self) -> list[int]:
        """Wait until everything acknowledged is consumed; gives what is not."""
        wanted = {attempt.number for attempt in self.ledger.list_acknowledged()}
        with suppress(AssertionError):
            await wait_until(lambda: wanted <= self.consumed.keys(), "all consumed", _RESUME_SECONDS_MAX)
        return sorted(wanted - self.consumed.keys())

    async def wait_for_java(self) -> tuple[list[int], str]:
        """Wait until the official consumer has everything too; gives what it has not, and a line about it."""
        if self._java is None:
            return [], ""
        lacking = [attempt.number for attempt in self.ledger.list_acknowledged()]
        deadline = time.monotonic() + _RESUME_SECONDS_MAX
        while lacking and time.monotonic() < deadline:
            lacking = await asyncio.to_thread(self._java.list_lacking, lacking)
        distinct, repeated = await asyncio.to_thread(self._java.count)
        return lacking, f"; Java's consumer got {distinct:,}, {repeated:,} more than once"


async def run(settings: Settings, home: Path, peer: Peer | None = None) -> Result:
    """Run it once; with a peer the official client consumes too."""
    began = time.monotonic()
    result = Result(settings)
    options = {"flushDiskType": settings.flush}
    async with (
        Group(home, members=settings.members, seed=settings.seed, etcd=settings.etcd, settings=options) as group,
        AsyncExitStack() as stack,
    ):
        clients = _Clients(group)
        if peer is not None:
            await clients.start_java(stack, peer, home / "java", group.names.address)
        await clients.start(stack)
        kills = []
        while result.kills < settings.kills:
            await clients.wait_for_more(group)
            await asyncio.sleep(group.rng.uniform(*settings.work_s))
            kills.append(await _kill(settings, group))
            result.kills += 1
        await clients.wait_for_more(group)
        await clients.stop_sending()
        missing = await clients.wait_for_all()
        lacking, told = await clients.wait_for_java()
        result.violations += describe("acknowledged and never consumed", missing)
        result.violations += describe("acknowledged and never consumed by Java's", lacking)
        await stack.aclose()
        faults, line = await group.finish(clients.ledger)
    result.violations += faults
    result.pauses = clients.ledger.find_pauses(kills)
    result.acknowledged = clients.ledger.acknowledged
    result.consumed = clients.consumed
    result.line = f"{clients.ledger.summarise()}; {line}{told}"
    result.seconds = time.monotonic() - began
    return result


async def _kill(settings: Settings, group: Group) -> float:
    """Kill the master, have it replaced, start it again, and wait until all is well; gives when it was killed."""
    master = await group.wait_for_master()
    moment = time.monotonic()
    await master.kill()
    if not settings.etcd:
        await group.promote_another(master, by_command=group.rng.random() < 0.3)
    heir = await group.wait_for_master(but=master)
    await asyncio.sleep(group.rng.uniform(0, 0.3))
    await master.start()
    leading = await group.wait_until_whole()
    # The one that was killed comes back as a slave, whatever its configuration says.
    assert settings.etcd or leading is heir, f"{leading.address} leads, not {heir.address}"
    return moment
