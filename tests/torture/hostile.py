"""`make torture ONLY=hostile`: hostile and very large clients beside a good one, against `eruca up` on loopback.

For each part of `hostileparts` it prints the longest silence of the servers, the peak of their anonymous memory, and
the 99th percentile of a good client that sends and pulls meanwhile. A miss of an aim makes it exit with 1. Before
anything else it measures how much of the machine others take: on a busy one the aims for times are wider.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.broker.serving import Serving, check_well
from tests.integration.cli.upprocess import make_environment
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S
from tests.torture.hostilegood import Measured
from tests.torture.hostileparts import PARTS

SILENCE_MS_MAX = 100.0
SILENCE_MS_MAX_BUSY = 500.0
MEMORY_MAX = 500 * 1000 * 1000
SLOWER_MAX = 5.0
SLOWER_MAX_BUSY = 20.0
# Below this a percentile is noise of the scheduler, however quick the idle server was.
P99_MS_FLOOR = 10.0
# Beside these a thread reads or compiles what was sent, for as long as it lasts, and Python runs one thread at a time.
_P99_MS_FLOOR_APART = 50.0
_APART = frozenset({"sql-pulls", "heartbeats", "registrations"})
_IDLE_S = 3.0
_CALIBRATION_S = 2.0
# A thread that spins gets this share of its time on a machine that is not busy.
_SHARE_MIN = 0.9


@dataclass(frozen=True)
class Aims:
    """What must hold; wider on a busy machine."""

    silence_ms: float
    slower: float
    memory: int = MEMORY_MAX

    @classmethod
    def choose(cls, *, busy: bool) -> Aims:
        """Those for this machine."""
        return cls(SILENCE_MS_MAX_BUSY, SLOWER_MAX_BUSY) if busy else cls(SILENCE_MS_MAX, SLOWER_MAX)


@dataclass
class Row:
    """The result of one part."""

    name: str
    silence_ms: float
    memory: int
    p99_ms: float
    seconds: float
    problems: list[str]

    def list_misses(self, aims: Aims, idle: Row) -> list[str]:
        """Which aims were missed."""
        found = [f"{self.name}: the good client: {problem}" for problem in self.problems]
        if self.silence_ms > aims.silence_ms:
            found.append(f"{self.name}: silent for {self.silence_ms:.0f} ms, at most {aims.silence_ms:.0f}")
        if self.memory > aims.memory:
            found.append(f"{self.name}: {self.memory / 1e6:.0f} MB of memory, at most {aims.memory / 1e6:.0f}")
        floor = _P99_MS_FLOOR_APART if self.name in _APART else P99_MS_FLOOR
        allowed = max(floor, aims.slower * idle.p99_ms)
        if self.p99_ms > allowed:
            found.append(f"{self.name}: p99 of send and pull {self.p99_ms:.1f} ms, at most {allowed:.1f}")
        return found

    def summarise(self) -> str:
        """One line of the table."""
        return (
            f"  {self.name:14} silence {self.silence_ms:7.1f} ms   memory {self.memory / 1e6:6.0f} MB"
            f"   p99 {self.p99_ms:7.1f} ms   ({self.seconds:.1f} s)"
        )


def measure_share() -> float:
    """The share of a processor that a busy thread gets."""
    began, cpu = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < _CALIBRATION_S:
        pass
    return (time.thread_time() - cpu) / (time.perf_counter() - began)


def is_busy() -> bool:
    """Do others take much of this machine?"""
    return measure_share() < _SHARE_MIN or os.getloadavg()[0] > (os.cpu_count() or 1)


def start_module(*command: str) -> subprocess.Popen[str]:
    """Run a module of these tests in a separate process."""
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**make_environment(), "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Attacking:
    """The parts in their process, with low priority as if they ran on another machine."""

    def __init__(self, serving: Serving, size: float, module: str = "tests.torture.hostileparts") -> None:
        command = [sys.executable, "-m", module, serving.broker, serving.names, str(size)]
        self._process = start_module("nice", "-n", "19", *command)
        self._expect("ready")

    def run(self, name: str) -> None:
        """Carry one out; blocks."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        self._expect("done")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise ChildProcessError(f"the attackers ended with status {self._process.wait()}")

    def end(self) -> None:
        """Have it stop; blocks."""
        self._process.communicate(timeout=PATIENCE_S)


class Spinning:
    """Takes what is left of the machine, as attackers do: what is measured is to differ by the servers' work alone."""

    def __init__(self) -> None:
        command = ["nice", "-n", "19", sys.executable, "-c", "while True: pass"]
        self._processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]

    def end(self) -> None:
        """Stop; blocks."""
        for process in self._processes:
            process.kill()
            process.wait()


class Measuring:
    """The good client, in its process."""

    def __init__(self, serving: Serving, *keys: str) -> None:
        """`keys` are those of its account, if it has one."""
        module = [sys.executable, "-m", "tests.torture.hostilegood"]
        self._process = start_module(*module, serving.broker, serving.names, str(serving.process.pid), *keys)

    def take(self) -> Measured:
        """What was measured since the last time; blocks."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("end\n")
        self._process.stdin.flush()
        return Measured(**json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """Have it stop; blocks."""
        self._process.communicate(timeout=PATIENCE_S)


def make_row(name: str, measured: Measured, seconds: float) -> Row:
    """Sum up what a good client saw."""
    rounds = sorted(measured.rounds_ms)
    problems = list(measured.problems)
    if not rounds or not measured.pings_ms:
        problems.append("not served at all")
    p99 = rounds[min(len(rounds) - 1, len(rounds) * 99 // 100)] if rounds else float("inf")
    return Row(name, max(measured.pings_ms, default=float("inf")), measured.memory, p99, seconds, problems)


async def measure_idle(measuring: Measuring, size: float) -> Row:
    """What the good client sees of servers that nobody else uses, while others take the rest of the machine."""
    await asyncio.sleep(min(1.0, _IDLE_S * size))  # connected and warm
    spinning = await asyncio.to_thread(Spinning)
    try:
        await asyncio.to_thread(measuring.take)
        await asyncio.sleep(_IDLE_S * max(0.3, size))
        idle = make_row("idle", await asyncio.to_thread(measuring.take), _IDLE_S)
    finally:
        await asyncio.to_thread(spinning.end)
    print(idle.summarise(), flush=True)
    return idle


async def measure_part(name: str, measuring: Measuring, attacking: Attacking) -> Row:
    """What it sees during one part."""
    await asyncio.to_thread(measuring.take)
    began = time.monotonic()
    await asyncio.to_thread(attacking.run, name)
    row = make_row(name, await asyncio.to_thread(measuring.take), time.monotonic() - began)
    print(row.summarise(), flush=True)
    return row


async def run_parts(serving: Serving, names: list[str], size: float, deadline: float | None) -> tuple[Row, list[Row]]:
    """Run parts one after the other; returns what was measured while idle, and during each part."""
    measuring = await asyncio.to_thread(Measuring, serving)
    attacking = await asyncio.to_thread(Attacking, serving, size)
    try:
        idle = await measure_idle(measuring, size)
        rows = []
        for name in names:
            if deadline is not None and time.monotonic() >= deadline:
                print(f"  {name}: not run, the time is over")
                continue
            rows.append(await measure_part(name, measuring, attacking))
            await check_well(serving)
    finally:
        await asyncio.to_thread(attacking.end)
        await asyncio.to_thread(measuring.end)
    return idle, rows


async def run_hostile(
    directory: Path, names: list[str], aims: Aims, *, size: float = 1.0, minutes: float | None = None
) -> list[str]:
    """Start the servers, run parts, and stop and start them again; returns the goals that were missed."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    serving = await asyncio.to_thread(Serving, directory)
    try:
        await check_well(serving)
        idle, rows = await run_parts(serving, names, size, deadline)
        misses = [miss for row in rows for miss in row.list_misses(aims, idle)]
        began = time.monotonic()
        status = await asyncio.to_thread(serving.end)
        took = time.monotonic() - began
        print(f"  stopped in {took:.1f} s with status {status}")
        if status != 0:
            misses.append(f"it stopped with status {status}")
        await asyncio.to_thread(serving.start)
        await check_well(serving)
        mistakes = [line for line in await asyncio.to_thread(serving.complaints) if "Traceback" in line]
        misses += [f"the log has {len(mistakes)} tracebacks"] if mistakes else []
    finally:
        if serving.process.poll() is None:
            await asyncio.to_thread(serving.end)
    return misses


def torture(minutes: float | None) -> int:
    """Run all parts; 0 when every aim was met."""
    busy = is_busy()
    aims = Aims.choose(busy=busy)
    print(
        f"hostile: a {'busy' if busy else 'quiet'} machine: at most {aims.silence_ms:.0f} ms of silence, "
        f"{aims.memory / 1e6:.0f} MB, and {aims.slower:g} times the p99 of an idle server or {P99_MS_FLOOR:g} ms "
        f"({_P99_MS_FLOOR_APART:g} ms for {', '.join(sorted(_APART))})"
    )
    chosen = os.environ.get("HOSTILE_PARTS", "")
    names = [name for name in PARTS if not chosen or name in chosen.split(",")]
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        misses = asyncio.run(run_hostile(Path(directory), names, aims, minutes=minutes))
    for miss in misses:
        print(f"MISSED {miss}")
    print(f"hostile: {len(names)} parts, {len(misses)} aims missed" if misses else f"hostile: {len(names)} parts, well")
    return 1 if misses else 0
