"""Runs behaviour cases side by side: most of their time is waiting, for a delay or for a rebalance.

Each case has an event loop of its own, as a program of a user has, and topics and groups of its own. What it leaves
behind, a task or a session, is a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eruca._client.session.session import _SESSIONS
from tests.clients.stage import Case
from tests.patience import PATIENCE_S

AT_ONCE = 6
CASE_SECONDS_MAX = PATIENCE_S
# Turns that a task gets to end. Together they are less than a call may take, since who only waits for the end of one is
# left behind as well; where the machine is busy, each of them takes longer.
_END_TURNS_MAX = 50
_END_TURN_S = 0.05


def find_cases() -> Mapping[str, Case]:
    """Every `case_*` of the modules `cases_*.py` beside this one, by `module-name`."""
    found: dict[str, Case] = {}
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        module = import_module(f"tests.clients.{path.stem}")
        for name, value in vars(module).items():
            if name.startswith("case_"):
                found[f"{path.stem.removeprefix('cases_')}-{name.removeprefix('case_')}"] = value
    return found


class Run:
    """Cases on their way against one system."""

    def __init__(self, nameserver: str, names: Sequence[str]) -> None:
        cases = find_cases()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="case")
        self._futures: dict[str, Future[float]] = {
            name: self._threads.submit(_run_case, cases[name], nameserver, name) for name in names
        }

    def wait(self, name: str) -> float:
        """Wait until a case has ended; raises what it raised, and returns how many seconds it took."""
        return self._futures[name].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)


def _run_case(case: Case, nameserver: str, name: str) -> float:
    began = time.monotonic()
    asyncio.run(_watch_case(case, nameserver, name))
    return time.monotonic() - began


async def _watch_case(case: Case, nameserver: str, name: str) -> None:
    async with asyncio.timeout(CASE_SECONDS_MAX):
        await case(nameserver, f"t-{name}", f"g-{name}")
    left = await _wait_for_ends()
    assert not left, f"tasks left behind: {left}"
    loop = asyncio.get_running_loop()
    assert not [key for key in list(_SESSIONS) if key[0] is loop], "a session is left open"


async def _wait_for_ends() -> set[asyncio.Task[Any]]:
    """Let tasks end that are about to; returns those that do not.

    One that lost its connection gets some turns, one that was cancelled as many as it needs.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for _ in range(_END_TURNS_MAX):
        if left:
            _, left = await asyncio.wait(left, timeout=_END_TURN_S)
    if ending := {task for task in left if task.cancelling()}:
        left -= ending
        left |= (await asyncio.wait(ending, timeout=PATIENCE_S))[1]
    return left
