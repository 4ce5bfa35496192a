"""A slave follows a master, each ours or Java's: equal segments, and the official client continues when the master
dies.

The pair replicates before it responds (SYNC_MASTER). Two groups of push consumers are half-way when the master is
killed. `live` continues in the same process. `resumed` is stopped just before, after its last commits that the slave
cannot have seen, and comes back in a new consumer: messages it gets twice must be behind the offsets that the slave
had.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eruca import ClientOptions, MessageQueue, Producer
from eruca._client.produce.outgoing import SendStatus
from eruca._storetools.readonly import Level
from eruca._storetools.verify import verify_store
from eruca.errors import ErucaError
from tests.clients.stage import poll
from tests.interop.javapeer import JavaBroker, JavaProgram, Peer
from tests.patience import PATIENCE_S
from tests.replication.load import TOPIC, send_all
from tests.replication.pairs import QUEUES, Member, Names, Watch, start_java_member
from tests.replication.segments import Comparison, compare_logs, list_queue_faults, list_segments, read_log

SETTLE_SECONDS_MAX = 120.0
_PROBE = "Probe"
_SEND_SECONDS = 30.0
# Every message is to be acknowledged by both, however busy the machine is; nothing here waits for a time to be over.
_PATIENT = {"slaveTimeout": 20_000, "haHousekeepingInterval": 20_000}
_CALL_MS = 15_000
# Java copies offsets every ten seconds.
_OFFSETS_SECONDS_MAX = PATIENCE_S
LIVE, RESUMED = "live", "resumed"


@dataclass(frozen=True)
class Settings:
    """One run."""

    master: str
    slave: str
    messages: int = 50_000
    segment_bytes: int = 1024 * 1024
    # The share of the messages that the master has before its slave is started for the first time.
    late_share: float = 0.0
    # The slave's log begins where the master's does, even if it joined late; otherwise with the last segment.
    copies_all: bool = True
    # The official client consumes, and continues from the slave.
    consumes: bool = True
    flush: str = "ASYNC_FLUSH"
    seconds_max: float = SETTLE_SECONDS_MAX


@dataclass
class Result:
    """The observations of one run."""

    settings: Settings
    statuses: Counter[str] = field(default_factory=Counter)
    tail: int = 0
    comparison: Comparison | None = None
    # By group: what arrived, what arrived after the kill, and what the slave knew.
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent_s: float = 0.0
    # From the last answer until the slave had everything.
    lag_s: float = 0.0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summarise(self) -> str:
        """Summarise the counts for people."""
        settings = self.settings
        head = f"{settings.slave} slave of {settings.master} master"
        late = f", slave after {settings.late_share:.0%}" if settings.late_share else ""
        statuses = ", ".join(f"{name} {count:,}" for name, count in sorted(self.statuses.items()))
        rows = [
            f"{head}: {settings.messages:,} messages{late} in {self.sent_s:.1f} s ({statuses});"
            f" in sync {self.lag_s:.2f} s later; {self.comparison.describe() if self.comparison else 'not compared'};"
            f" {self.seconds:.0f} s"
        ]
        for name, facts in self.groups.items():
            rows.append(
                f"  {name}: master killed at {facts['before']:,} of {settings.messages:,}; {facts['distinct']:,} came,"
                f" {facts['repeated']:,} twice, {facts['unsynced']:,} of the commits were not at the slave"
            )
        return "\n".join(rows)


class _Stage:
    """The processes of one run."""

    def __init__(self, settings: Settings, home: Path, peer: Peer | None, names: str, watch: Watch) -> None:
        self.settings, self.home, self.peer, self.names, self.watch = settings, home, peer, names, watch
        self._running: dict[str, Member | JavaBroker] = {}

    async def start(self, name: str) -> None:
        """Start the master or the slave."""
        settings = self.settings
        kind = settings.master if name == "master" else settings.slave
        role, broker_id = ("SYNC_MASTER", 0) if name == "master" else ("SLAVE", 1)
        options: dict[str, object] = {
            "mappedFileSizeCommitLog": settings.segment_bytes,
            "flushDiskType": settings.flush,
        }
        if kind == "eruca":
            options |= {"haCopyOldest": str(settings.copies_all).lower(), **_PATIENT}
            member = Member(self.home / name, self.names, broker_id=broker_id, role=role, settings=options)
            self._running[name] = member
            await member.start()
            return
        assert self.peer is not None
        self._running[name] = await asyncio.to_thread(
            start_java_member,
            self.peer,
            self.home / name,
            self.names,
            broker_id=broker_id,
            role=role,
            settings=options,
        )

    async def end(self, name: str, with_signal: signal.Signals) -> int:
        """End one of them, if it runs."""
        broker = self._running.pop(name, None)
        if broker is None:
            return 0
        if isinstance(broker, Member):
            return await broker.end(with_signal)
        return await asyncio.to_thread(broker.end, with_signal)

    def address(self, name: str) -> str:
        """Where one of them listens."""
        return self._running[name].address

    def store(self, name: str) -> Path:
        """What one of them keeps."""
        return self.home / name / "store"

    async def list_complaints(self, name: str) -> list[str]:
        """Internal errors that were logged."""
        broker = self._running.get(name)
        return await broker.list_complaints() if isinstance(broker, Member) else []


async def run(settings: Settings, home: Path, peer: Peer | None) -> Result:
    """Run it once."""
    began = time.monotonic()
    result = Result(settings)
    async with (
        Names(home / "names") as names,
        Watch(names.address, _CALL_MS) as watch,
        _staging(settings, home, peer, names.address, watch) as stage,
        _consuming(settings, home, peer) as program,
        Producer(
            names.address, group="feeder", timeout=_SEND_SECONDS, options=ClientOptions(route_interval=0.5)
        ) as producer,
    ):
        await stage.start("master")
        queues = await watch.create_topic(stage.address("master"), TOPIC)
        late = int(settings.messages * settings.late_share)
        if late:
            result.statuses += await send_all(producer, range(late), queues)
        await stage.start("slave")
        await _wait_for_slave(producer, watch, stage)
        if program is not None:
            await _start_groups(program, settings, names.address)
        sent = time.monotonic()
        result.statuses += await send_all(producer, range(late, settings.messages), queues)
        result.sent_s = time.monotonic() - sent
        addresses = [stage.address("master"), stage.address("slave")]
        result.tail = await watch.wait_until_synced(addresses, settings.seconds_max)
        result.lag_s = time.monotonic() - sent - result.sent_s
        await _compare(stage, result)
        if program is not None:
            await _kill_under_consumers(program, stage, queues, names.address, result)
        else:
            await stage.end("master", signal.SIGKILL)
        result.violations += await stage.list_complaints("slave")
        status = await stage.end("slave", signal.SIGTERM)
        if status and settings.slave == "eruca":
            result.violations.append(f"the slave ended with {status}")
    await asyncio.to_thread(_check_store, stage.store("slave"), result)
    result.seconds = time.monotonic() - began
    return result


@asynccontextmanager
async def _staging(
    settings: Settings, home: Path, peer: Peer | None, names: str, watch: Watch
) -> AsyncIterator[_Stage]:
    stage = _Stage(settings, home, peer, names, watch)
    try:
        yield stage
    finally:
        for name in ("master", "slave"):
            await stage.end(name, signal.SIGKILL)


@asynccontextmanager
async def _consuming(settings: Settings, home: Path, peer: Peer | None) -> AsyncIterator[JavaProgram | None]:
    if not settings.consumes:
        yield None
        return
    assert peer is not None
    program = await asyncio.to_thread(JavaProgram, peer, "eruca.interop.CountingConsumer", home / "consumers")
    try:
        yield program
    finally:
        await asyncio.to_thread(program.end, signal.SIGKILL)


async def _wait_for_slave(producer: Producer, watch: Watch, stage: _Stage) -> None:
    """Wait until the master reports that its slave has what is sent to it."""
    await watch.create_topic(stage.address("master"), _PROBE, 1)

    async def probe() -> SendStatus | None:
        try:
            return (await producer.send(_PROBE, b"are you there?")).status
        except ErucaError:
            return None

    await poll(probe, lambda status: status is SendStatus.STORED)


async def _compare(stage: _Stage, result: Result) -> None:
    settings = result.settings
    one, other = stage.store("master"), stage.store("slave")
    result.comparison = comparison = await asyncio.to_thread(compare_logs, one, other, result.tail)
    if not comparison.is_same:
        result.violations.append(f"the logs differ: {comparison.describe()}")
    begin = min(await asyncio.to_thread(list_segments, one))
    if settings.copies_all != (comparison.begin == begin):
        result.violations.append(f"the slave's log begins at {comparison.begin}, the master's at {begin}")
    if comparison.segments < 2:
        result.violations.append(f"only {comparison.segments} segments: no roll was compared")
    if result.statuses.total() != settings.messages:
        result.violations.append(f"{result.statuses.total()} of {settings.messages} messages have a receipt")


# --- the consumers ------------------------------------------------------------------------------------------------


async def _start_groups(program: JavaProgram, settings: Settings, names: str) -> None:
    for group, share in ((LIVE, 0.4), (RESUMED, 0.2)):
        await _tell(program, "start", group=group, **_describe(settings, names, group, f"{group}-1", share))


def _describe(settings: Settings, names: str, group: str, name: str, share: float) -> dict[str, Any]:
    gate = int(settings.messages * share)
    return {"name": name, "nameServer": names, "topic": TOPIC, "count": settings.messages, "gate": gate}


async def _tell(program: JavaProgram, action: str, seconds: float = 0.0, **fields: Any) -> dict[str, Any]:
    request: Mapping[str, Any] = {"do": action, "seconds": seconds, **fields}
    rows = await asyncio.to_thread(program.ask, request, seconds + 60)
    return rows[0] if rows else {}


async def _kill_under_consumers(
    program: JavaProgram, stage: _Stage, queues: list[MessageQueue], names: str, result: Result
) -> None:
    """Bring both groups half-way, the last commits of one unknown to the slave; kill the master; let both continue."""
    settings = result.settings
    count = settings.messages
    await _tell(program, "await", settings.seconds_max, group=RESUMED, count=int(count * 0.2))
    await _tell(program, "await", settings.seconds_max, group=LIVE, count=int(count * 0.4))
    for group in (LIVE, RESUMED):
        await _tell(program, "persist", name=f"{group}-1")
    await _wait_for_offsets(stage, queues)
    # More is consumed and committed, and there is no time to tell the slave.
    await _tell(program, "gate", group=RESUMED, at=int(count * 0.3))
    await _tell(program, "await", settings.seconds_max, group=RESUMED, count=int(count * 0.3))
    await _tell(program, "stop", name=f"{RESUMED}-1")
    told = {group: await _read_offsets(stage, "master", group, queues) for group in (LIVE, RESUMED)}
    await stage.end("master", signal.SIGKILL)
    known = {group: await _read_offsets(stage, "slave", group, queues) for group in (LIVE, RESUMED)}
    before = {group: (await _tell(program, "tell", group=group))["distinct"] for group in (LIVE, RESUMED)}
    await _tell(program, "gate", group=LIVE, at=count + 1)
    again = {**_describe(settings, names, RESUMED, f"{RESUMED}-2", 1.0), "gate": count + 1}
    await _tell(program, "start", group=RESUMED, **again)
    for group in (LIVE, RESUMED):
        facts = await _tell(program, "await", settings.seconds_max, group=group, count=count)
        facts["before"] = before[group]
        facts["unsynced"] = sum(max(0, told[group][queue] - known[group][queue]) for queue in known[group])
        result.groups[group] = facts
    # Duplicates arrive together with the last messages; the position of each queue was taken before.
    for group in (LIVE, RESUMED):
        await _tell(program, "persist", name=f"{group}-{1 if group == LIVE else 2}")
        facts = await _tell(program, "tell", group=group)
        result.groups[group].update(facts)
        result.violations += [f"{group}: {text}" for text in _judge(facts, known[group], count)]


def _judge(facts: Mapping[str, Any], known: Mapping[int, int], count: int) -> list[str]:
    faults = []
    if facts["missing"] or facts["distinct"] != count:
        faults.append(f"{facts['distinct']} of {count} came, missing {facts['missing']}")
    faults += [
        f"offset {lowest} of queue {queue} came twice, the slave knew {known[int(queue)]}"
        for queue, lowest in facts["lowestRepeated"].items()
        if lowest < known[int(queue)]
    ]
    return faults


async def _read_offsets(stage: _Stage, name: str, group: str, queues: list[MessageQueue]) -> dict[int, int]:
    calls, address = stage.watch.admin.connection.calls, stage.address(name)
    found = {queue.queue_id: await calls.read_offset(address, group, queue) for queue in queues}
    return {queue_id: offset or 0 for queue_id, offset in found.items()}


async def _wait_for_offsets(stage: _Stage, queues: list[MessageQueue]) -> None:
    """Wait until the slave knows what was committed; the gates are closed, so nothing is added meanwhile."""

    async def compare() -> tuple[dict[int, int], ...]:
        found = [await _read_offsets(stage, name, group, queues) for group in (LIVE, RESUMED) for name in _BOTH]
        return tuple(found)

    await _poll_long(compare, lambda found: found[0] == found[1] and found[2] == found[3] and any(found[2].values()))


_BOTH = ("master", "slave")


async def _poll_long(ask: Callable[[], Any], is_wanted: Callable[[Any], bool]) -> None:
    deadline = time.monotonic() + _OFFSETS_SECONDS_MAX
    while not is_wanted(found := await ask()):
        assert time.monotonic() < deadline, f"after {_OFFSETS_SECONDS_MAX:.0f} s: still {found}"
        await asyncio.sleep(0.2)


# --- the slave's store afterwards ---------------------------------------------------------------------------------


def _check_store(store: Path, result: Result) -> None:
    records = list(read_log(store))
    numbers = Counter(record.body[:8] for record in records if record.topic == TOPIC)
    if result.settings.copies_all and len(numbers) != result.settings.messages:
        result.violations.append(f"the slave has {len(numbers)} of {result.settings.messages} messages")
    result.violations += list_queue_faults(records, TOPIC)[:5]
    report = verify_store(store)
    result.violations += [
        f"{item.kind.value}: {item.path}: {item.reason}" for item in report.findings if item.level is Level.ERROR
    ][:5]
    assert len({record.queue_id for record in records if record.topic == TOPIC}) == QUEUES
