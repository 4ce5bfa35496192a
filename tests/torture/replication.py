"""`make torture ONLY=replication`: masters and slaves, all cases; `ONLY=replication-faults` and the like run one part.

Each part is a list of numbered cases. The progress of a part is kept under `torture-state/`, so a stopped run
resumes where it was; a case that fails prints the command that runs it again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Protocol

from tests.interop.javapeer import prepare_peer
from tests.replication import faults, following, killing, strangers
from tests.torture.runner import STATE, is_over, keep_quiet, run_in_order

MESSAGES: Final = 1_000_000
KILLS: Final = 100
_KILLS_A_RUN: Final = 10
FAULT_SEEDS: Final = 50
STRANGER_SEEDS: Final = 20
_STRANGER_JOBS: Final = 2
# Cases of faults wait most of the time: for bad weather to pass, for links and leases to be given up.
_FAULT_JOBS: Final = 4
# With a million messages: about sixty rolls.
_SEGMENT_BYTES: Final = 4 * 1024 * 1024
_SECONDS_MAX: Final = 1200.0


class Seen(Protocol):
    """What a case saw."""

    violations: list[str]

    def summarise(self) -> str:
        """For people."""


@dataclass(frozen=True)
class Part:
    """One thing that is shown."""

    what: str
    cases: int
    run: Callable[[int, Path], Coroutine[Any, Any, tuple[Seen, Counter[str]]]]
    # What the counts of all cases must amount to.
    tell: Callable[[Counter[str], list[float]], str] = lambda counts, _: describe(counts)
    pauses: Callable[[Any], list[float]] = lambda _: []
    # Cases that run at the same time, each in a separate process.
    jobs: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    text: str
    failed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    pauses: list[float] = field(default_factory=list)


def describe(counts: Counter[str]) -> str:
    """Counts in one line."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


# --- the parts ----------------------------------------------------------------------------------------------------


def _follow(master: str, slave: str) -> Callable[[int, Path], Coroutine[Any, Any, tuple[Seen, Counter[str]]]]:
    async def run(case: int, home: Path) -> tuple[Seen, Counter[str]]:
        peer = await asyncio.to_thread(prepare_peer)
        settings = following.Settings(
            master, slave, messages=MESSAGES, segment_bytes=_SEGMENT_BYTES, seconds_max=_SECONDS_MAX
        )
        result = await following.run(settings, home, peer)
        comparison = result.comparison
        counts = Counter(
            messages=settings.messages,
            segments=comparison.segments if comparison else 0,
            bytes=comparison.end - comparison.begin if comparison else 0,
        )
        return result, counts

    return run


def _kill(*, etcd: bool) -> Callable[[int, Path], Coroutine[Any, Any, tuple[Seen, Counter[str]]]]:
    async def run(case: int, home: Path) -> tuple[Seen, Counter[str]]:
        settings = killing.Settings(case, kills=_KILLS_A_RUN, etcd=etcd, members=3 if etcd else 2)
        result = await killing.run(settings, home, await asyncio.to_thread(prepare_peer))
        repeated = result.consumed.total() - len(result.consumed)
        return result, Counter(
            kills=result.kills, acknowledged=result.acknowledged, lost=0, consumed=len(result.consumed), twice=repeated
        )

    return run


def _spoil(*, etcd: bool) -> Callable[[int, Path], Coroutine[Any, Any, tuple[Seen, Counter[str]]]]:
    async def run(case: int, home: Path) -> tuple[Seen, Counter[str]]:
        settings = faults.Settings(faults.KINDS[case % len(faults.KINDS)], case // len(faults.KINDS), etcd=etcd)
        result = await faults.run(settings, home)
        counts: Counter[str] = Counter({f"seeds of {settings.kind}": 1})
        counts["acknowledged"] = result.acknowledged
        counts["changes of the master"] = result.changes
        counts["promotions refused"] = result.refused
        return result, counts

    return run


async def _visit(case: int, home: Path) -> tuple[Seen, Counter[str]]:
    result = await strangers.run(strangers.Settings(case), home)
    return result, Counter({**result.steps, "acknowledged": result.acknowledged, "lost": 0})


def _tell_pauses(counts: Counter[str], pauses: list[float]) -> str:
    return f"{describe(counts)}; {killing.describe_pauses(pauses)}"


def _list_pauses(result: killing.Result) -> list[float]:
    return result.pauses


PARTS: Final = {
    "replication-java-slave": Part("a Java slave of our master", 1, _follow("eruca", "java")),
    "replication-java-master": Part("our slave of a Java master", 1, _follow("java", "eruca")),
    "replication-pair": Part("our slave of our master", 1, _follow("eruca", "eruca")),
    "replication-kills": Part(
        "master killed, operator promotes", KILLS // _KILLS_A_RUN, _kill(etcd=False), _tell_pauses, _list_pauses
    ),
    "replication-failover": Part(
        "master killed, etcd elects", KILLS // _KILLS_A_RUN, _kill(etcd=True), _tell_pauses, _list_pauses
    ),
    "replication-strangers": Part("strangers of the same name", STRANGER_SEEDS, _visit, jobs=_STRANGER_JOBS),
    "replication-faults": Part("network faults", len(faults.KINDS) * FAULT_SEEDS, _spoil(etcd=False), jobs=_FAULT_JOBS),
    "replication-faults-etcd": Part(
        "network faults, etcd elects", len(faults.KINDS) * FAULT_SEEDS, _spoil(etcd=True), jobs=_FAULT_JOBS
    ),
}


# --- running them -------------------------------------------------------------------------------------------------


class _Progress:
    """How far a part is, kept in a file."""

    def __init__(self, name: str) -> None:
        self._path = STATE / f"{name}.json"
        self.next = 0
        self.counts: Counter[str] = Counter()
        self.pauses: list[float] = []
        if self._path.exists():
            state = json.loads(self._path.read_text(encoding="utf-8"))
            self.next, self.counts, self.pauses = state["next"], Counter(state["counts"]), state["pauses"]

    def save(self) -> None:
        """Remember it."""
        self._path.parent.mkdir(exist_ok=True)
        state = {"next": self.next, "counts": self.counts, "pauses": self.pauses}
        self._path.write_text(json.dumps(state), encoding="utf-8")

    def forget(self) -> None:
        """Start over next time."""
        self._path.unlink(missing_ok=True)


def forget() -> None:
    """Start all parts over next time."""
    for name in PARTS:
        _Progress(name).forget()


def run_part(name: str, minutes: float | None) -> int:
    """Run a part from where it stopped, until it is through or the time is over; 0 when all is well."""
    keep_quiet()
    part = PARTS[name]
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    progress = _Progress(name)
    for case, outcome in _run_cases(name, progress.next, deadline):
        print(f"{name} {case + 1} of {part.cases}: {outcome.text}", flush=True)
        if outcome.failed:
            return 1
        progress.counts += outcome.counts
        progress.pauses += outcome.pauses
        progress.next = case + 1
        progress.save()
    if progress.next < part.cases:
        print(f"{name}: stopped before case {progress.next} of {part.cases}; goes on next time")
        return 0
    progress.forget()
    print(f"{name}: {part.what}: cases 0 to {part.cases - 1}: {part.tell(progress.counts, progress.pauses)}")
    return 0


def _run_cases(name: str, first: int, deadline: float | None) -> Iterator[tuple[int, Outcome]]:
    """Run the cases from `first` on until the time is over; returns their results in order."""
    jobs, cases, run = PARTS[name].jobs, range(first, PARTS[name].cases), partial(run_case, name)
    if jobs > 1:
        return run_in_order(run, cases, jobs=jobs, deadline=deadline)
    return ((case, run(case)) for case in takewhile(lambda _: not is_over(deadline), cases))


def run_case(name: str, case: int) -> Outcome:
    """Run one case; the text of a failure includes the command that runs it again."""
    replay = f"replay: {name_replay(name, case)}"
    part = PARTS[name]
    with tempfile.TemporaryDirectory(prefix=f"eruca-{name}-", ignore_cleanup_errors=True) as home:
        try:
            seen, counts = asyncio.run(part.run(case, Path(home)))
        except Exception as error:
            return Outcome(f"FAILED {type(error).__name__}: {error}\n{replay}", failed=True)
    if seen.violations:
        faults_seen = [f"FAILED {violation}" for violation in seen.violations]
        return Outcome("\n".join([seen.summarise(), *faults_seen, replay]), failed=True)
    return Outcome(seen.summarise(), counts=counts, pauses=part.pauses(seen))


def name_replay(name: str, case: int) -> str:
    """The command that runs one case again; what is planned is the same, as far as the clock allows."""
    return f".venv/bin/python -m tests.torture.replication {name} {case}"


def torture(minutes: float | None) -> int:
    """Run all parts, also when one failed; 0 when all is well."""
    return max([run_part(name, minutes) for name in PARTS])


def main() -> int:
    """One case: the part and its number."""
    name, case = sys.argv[1], int(sys.argv[2])
    outcome = run_case(name, case)
    print(outcome.text, flush=True)
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main())
