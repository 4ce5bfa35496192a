"""Runs many cases of a scenario in several processes, with a bar, and remembers how far it came."""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.crash.scenarios import SCENARIOS, Scenario
from tests.paths import REPOSITORY

STATE = REPOSITORY / "torture-state"
_CHUNK_MAX = 25
# A case that fails prints this much of itself; the replay prints all.
_TEXT_MAX = 1500

Failure = tuple[int, str]
Case = TypeVar("Case")
Result = TypeVar("Result")


@dataclass
class Outcome:
    """What became of one scenario."""

    first: int
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    # The results of the cases, for scenarios that return one.
    words: Counter[str] = field(default_factory=Counter)

    def summarise(self, scenario: Scenario) -> str:
        """One line: how many cases, which, how many failed; and one for each thing that became of them."""
        words = "".join(f"\n{'':8} {count:6} {word}" for word, count in sorted(self.words.items()))
        last = self.first + self.done - 1
        stopped = "" if last + 1 >= self.total else f", stopped before {last + 1} of {self.total}"
        failed = f", {len(self.failures)} FAILED" if self.failures else ", none failed"
        return (
            f"{scenario.name:8} {self.done:6} cases ({self.first} to {last}) in {self.seconds:6.1f} s{failed}{stopped}"
            f"  [{scenario.what}]{words}"
        )


def run_chunk(name: str, cases: Sequence[int]) -> tuple[list[Failure], Counter[str]]:
    """Run some cases in a process of the pool; returns those that failed, and the results of the others."""
    failures: list[Failure] = []
    words: Counter[str] = Counter()
    for case in cases:
        try:
            word = SCENARIOS[name].run(case)
        except Exception as error:
            failures.append((case, "".join(traceback.format_exception(error))[-_TEXT_MAX:]))
        else:
            words.update([] if word is None else [word])
    return failures, words


def keep_quiet() -> None:
    """Discard the store's logs: a scenario that needs them adds its own handler."""
    logger = logging.getLogger("eruca")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def run_here(scenario: Scenario, case: int, console: Console) -> int:
    """Run one case in this process, with everything it logs."""
    console.print(f"{scenario.name} {case}: {scenario.describe(case)}")
    try:
        scenario.run(case)
    except Exception:
        console.print_exception()
        return 1
    console.print("passed")
    return 0


def run_in_order(
    run: Callable[[Case], Result], cases: Iterable[Case], *, jobs: int, deadline: float | None
) -> Iterator[tuple[Case, Result]]:
    """Run cases in several processes until the time is over; yields their results in order.

    Closing the iterator stops it: running cases finish, and waiting ones are not started.
    """
    due = takewhile(lambda _: not is_over(deadline), cases)
    waiting: deque[tuple[Case, Future[Result]]] = deque()
    # New interpreters: nothing of this process, or of an earlier run, is carried over.
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=keep_quiet)
    try:
        while True:
            waiting.extend((case, pool.submit(run, case)) for case in islice(due, 2 * jobs - len(waiting)))
            if not waiting:
                return
            case, future = waiting.popleft()
            yield case, future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def is_over(deadline: float | None) -> bool:
    """Whether there is an end, and it has come."""
    return deadline is not None and time.monotonic() >= deadline


class Run:
    """The settings of one invocation."""

    def __init__(self, console: Console, *, jobs: int, minutes: float | None, fresh: bool) -> None:
        self._console = console
        self._jobs = max(1, jobs)
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._fresh = fresh

    def run(self, scenario: Scenario, *, first: int | None, count: int | None) -> Outcome:
        """Run a scenario from its first case, or from where a stopped run left it."""
        place = STATE / f"{scenario.name}.json"
        keeps_place = first is None
        begin = (0 if self._fresh else _read_place(place)) if first is None else first
        keep_quiet()  # counting may run a scenario
        total = scenario.count() if count is None else begin + count
        outcome = Outcome(begin, total=total)
        started = time.monotonic()
        with self._make_bar(scenario, total, begin) as bar:
            task = bar.task_ids[0]
            for cases, (failures, words) in self._run_chunks(scenario, begin, total):
                outcome.done += len(cases)
                outcome.words.update(words)
                outcome.failures.extend(failures)
                bar.advance(task, len(cases))
                for case, _ in failures:
                    bar.console.print(f"{scenario.name} {case} failed: {scenario.describe(case)}", style="red")
                if keeps_place:
                    _write_place(place, cases[-1] + 1, total)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _make_bar(self, scenario: Scenario, total: int, begin: int) -> Progress:
        bar = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        bar.add_task(scenario.name, total=total, completed=begin)
        return bar

    def _run_chunks(
        self, scenario: Scenario, begin: int, total: int
    ) -> Iterator[tuple[range, tuple[list[Failure], Counter[str]]]]:
        """Yield the chunks in order, so that everything before the last one yielded is done."""
        size = 1 if scenario.slow else min(_CHUNK_MAX, max(1, (total - begin) // (4 * self._jobs)))
        chunks = (range(start, min(total, start + size)) for start in range(begin, total, size))
        return run_in_order(partial(run_chunk, scenario.name), chunks, jobs=self._jobs, deadline=self._deadline)


def _read_place(path: Path) -> int:
    """Where a stopped run resumes; 0 without one."""
    if not path.exists():
        return 0
    place: int = json.loads(path.read_text(encoding="utf-8"))["next"]
    return place


def _write_place(path: Path, place: int, total: int) -> None:
    """Remember where to resume; a finished run starts over next time."""
    if place >= total:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"next": place}), encoding="utf-8")
