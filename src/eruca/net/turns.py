"""Turns: long work of many connections shares the loop, one slice in each turn of it.

Whoever has more to do than a slice of time allows queues up here for the rest. However many do, requests that come
meanwhile wait for one slice at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from weakref import WeakKeyDictionary

from eruca.limits import SLICE_SECONDS

_LONG_AT_ONCE = 2


class Turns:
    """The queue of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False
        #: For questions with large answers: memory is for a few of them.
        self.few = asyncio.Semaphore(_LONG_AT_ONCE)
        # The loop's time in the turn that is now, and when the time for reads in it is over, by `perf_counter`.
        self._turn = 0.0
        self._turn_end = 0.0

    def begin(self, now: float) -> float:
        """When the work on a read is to end, by `perf_counter`; 0 when this turn, at loop time `now`, has no time left.

        uvloop reads of many connections, and up to 32 times of each, in one turn, and its time stands still meanwhile.
        """
        here = perf_counter()
        if now != self._turn:
            self._turn = now
            self._turn_end = here + SLICE_SECONDS
        return self._turn_end if here < self._turn_end else 0.0

    def call(self, work: Callable[[], None]) -> None:
        """Have a function called in a later turn of the loop, when all who came before have had theirs."""
        self._waiting.append(work)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_due = bool(self._waiting)
        if not self._is_due:
            return
        work = self._waiting.popleft()
        # Behind it, so that the sockets are looked at in between; before it runs, because it may raise.
        self._loop.call_soon(self._run)
        work()

    async def wait(self) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.call(lambda: None if turn.done() else turn.set_result(None))
        await turn


class Slices:
    """Cuts one long piece of work: `await slices.rest()` now and then gives the loop away when a slice is over."""

    __slots__ = ("_end", "_turns")

    def __init__(self) -> None:
        self._turns = find_turns(asyncio.get_running_loop())
        self._end = perf_counter() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Is it time to let others work?"""
        return perf_counter() >= self._end

    async def rest(self) -> None:
        """Let others work if the slice is over."""
        if perf_counter() >= self._end:
            await self._turns.wait()
            self._end = perf_counter() + SLICE_SECONDS


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def find_turns(loop: asyncio.AbstractEventLoop) -> Turns:
    """The queue of a loop."""
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(loop)
    return turns
