"""`make torture ONLY=slow-handler`: a group whose handlers are all busy for longer than a heartbeat keeps its queues.

One `eruca up`, the members in several processes, half of them with plain handlers (threads), half with async ones. The
heartbeats are counted on the wire, where the broker is, not where the client believes to have sent them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eruca import Producer
from eruca._wire.codes import RequestCode
from eruca._wire.frame import make_request
from eruca._wire.headers import CreateTopicHeader
from tests.interop.brokers import SETTINGS as CLUSTER_SETTINGS
from tests.interop.brokers import ErucaCluster
from tests.paths import REPOSITORY
from tests.torture.heartbeattap import HeartbeatTap
from tests.torture.slowmembers import MemberSettings

GROUP, TOPIC = "slow", "slow"
# Where clients are told the broker is; there the tap listens.
_TOLD_HOST = "127.0.0.2"
_STABLE_S = 90.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Settings:
    """How large and how slow. The times are the defaults of a user."""

    members: int = 20
    processes: int = 4
    queues_each: int = 2
    concurrency: int = 4
    handler_s: float = 30.0
    seconds: float = 300.0
    heartbeat_ms: int = 30_000
    rebalance_ms: int = 20_000
    gap_s_max: float = 35.0


@dataclass
class Result:
    """What was seen."""

    settings: Settings
    changes: list[str] = field(default_factory=list)
    gap_s: float = 0.0
    gap_of: str = ""
    heartbeats: int = 0
    begun: int = 0
    handled: int = 0
    idle_members: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def summarise(self) -> str:
        """One line."""
        settings = self.settings
        return (
            f"slow-handler: {settings.members} members in {settings.processes} processes,"
            f" {self.seconds / 60:.1f} minutes, handlers of {settings.handler_s:g} s:"
            f" {len(self.changes)} ownership changes, largest heartbeat gap {self.gap_s:.1f} s"
            f" (at most {settings.gap_s_max:g}; {self.heartbeats} heartbeats),"
            f" {self.handled} messages handled, {self.begun} begun"
        )

    def list_violations(self) -> list[str]:
        """What must not be."""
        found = [f"ownership changed: {change}" for change in self.changes]
        if self.gap_s > self.settings.gap_s_max:
            found.append(f"{self.gap_of} was silent for {self.gap_s:.1f} s")
        found += [f"member {number} handled nothing" for number in self.idle_members]
        return found


class _Members:
    """The processes with the members, and what they told."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: list[asyncio.Task[None]] = []
        self.queues: dict[int, list[int]] = {}
        # Every time a member told of its queues.
        self.told: list[tuple[float, int, list[int]]] = []
        self.begun: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()

    async def start(self, nameserver: str) -> None:
        """Start them all."""
        settings = self._settings
        each = settings.members // settings.processes
        for number in range(settings.processes):
            member = MemberSettings(
                nameserver=nameserver,
                group=GROUP,
                topic=TOPIC,
                first=number * each,
                count=each,
                handler_s=settings.handler_s,
                concurrency=settings.concurrency,
                heartbeat_ms=settings.heartbeat_ms,
                rebalance_ms=settings.rebalance_ms,
                drain_s=settings.handler_s + 5,
            )
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.torture.slowmembers",
                json.dumps(asdict(member)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=REPOSITORY,
            )
            self._processes.append(process)
            self._readers.append(asyncio.ensure_future(self._read(process)))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            match event["event"]:
                case "queues":
                    self.queues[event["member"]] = event["queues"]
                    self.told.append((event["at"], event["member"], event["queues"]))
                case "begun":
                    self.begun[event["member"]] += 1
                case "handled":
                    self.handled[event["member"]] += 1

    def is_stable(self) -> bool:
        """Has every member its share, and every queue one owner?"""
        settings = self._settings
        owned = sorted([queue for queues in self.queues.values() for queue in queues])
        shares = {len(queues) for queues in self.queues.values()}
        return owned == list(range(settings.members * settings.queues_each)) and shares == {settings.queues_each}

    def are_alive(self) -> bool:
        """Does every process run?"""
        return all(process.returncode is None for process in self._processes)

    async def stop(self) -> None:
        """Have them end, and end those that do not."""
        for process in self._processes:
            if process.stdin is not None and process.returncode is None:
                process.stdin.close()
        patience_s = self._settings.handler_s * 2 + 20
        for process in self._processes:
            try:
                async with asyncio.timeout(patience_s):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)


async def prepare(nameserver: str, broker: str, settings: Settings) -> None:
    """Make the topic, and fill it so that no handler is ever out of work."""
    queues = settings.members * settings.queues_each
    rounds = settings.seconds / settings.handler_s + 3
    async with Producer(nameserver, group="filler") as producer:
        header = CreateTopicHeader(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6)
        await producer._session.calls.ask(broker, make_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        for queue in await producer.list_queues(TOPIC):
            count = round(rounds * settings.concurrency / settings.queues_each) + 1
            await producer.send_batch(TOPIC, [b"work"] * count, queue=queue)


async def run(settings: Settings, home: Path) -> Result:
    """Run it once. Raises AssertionError when it does not even begin well."""
    told = {**CLUSTER_SETTINGS, "brokerIP1": _TOLD_HOST, "bindAddress": "127.0.0.1"}
    cluster = await asyncio.to_thread(ErucaCluster, home, told)
    port = int(cluster.broker.rpartition(":")[2])
    nameserver = f"127.0.0.1:{cluster.name_server.rpartition(':')[2]}"
    tap = HeartbeatTap((_TOLD_HOST, port), ("127.0.0.1", port))
    members = _Members(settings)
    try:
        await tap.start()
        await prepare(nameserver, cluster.broker, settings)
        await members.start(nameserver)
        return await watch(settings, members, tap)
    finally:
        await members.stop()
        await tap.stop()
        await asyncio.to_thread(cluster.__exit__, None, None, None)


async def watch(settings: Settings, members: _Members, tap: HeartbeatTap) -> Result:
    """Wait for the first stable state, and look what changes from then on."""
    result = Result(settings)
    async with asyncio.timeout(_STABLE_S):
        while not members.is_stable() or len(members.begun) < settings.members:
            assert members.are_alive(), "a process with members ended"
            await asyncio.sleep(_POLL_S)
    began = time.monotonic()
    handled = members.handled.copy()
    while time.monotonic() < began + settings.seconds:
        assert members.are_alive(), "a process with members ended"
        await asyncio.sleep(_POLL_S)
    ended = time.monotonic()
    result.seconds = ended - began
    result.changes = [f"member {who} has {queues}" for at, who, queues in members.told if began < at <= ended]
    result.gap_s, result.gap_of = tap.find_largest_gap(GROUP, ended)
    result.heartbeats = sum(len(times) for (_, group), times in tap.beats.items() if group == GROUP)
    result.begun, result.handled = members.begun.total(), members.handled.total()
    if settings.seconds > 2 * settings.handler_s:
        result.idle_members = [n for n in range(settings.members) if members.handled[n] <= handled[n]]
    assert len({client for client, group in tap.beats if group == GROUP}) == settings.members
    return result


def torture(minutes: float | None) -> int:
    """Run it and say what was seen; 0 when all is well."""
    settings = Settings() if minutes is None else Settings(seconds=60 * minutes)
    with tempfile.TemporaryDirectory(prefix="eruca-slow-") as home:
        result = asyncio.run(run(settings, Path(home)))
    print(result.summarise())
    violations = result.list_violations()
    for violation in violations:
        print(f"FAILED {violation}")
    return 1 if violations else 0
