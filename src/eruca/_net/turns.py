"""Turns: long work of many connections shares the loop, one slice in each turn of it.

Whoever has more to do than a slice of time allows queues up here for the rest. However many do, requests that come
meanwhile wait for one slice at most. Short work has a queue of its own and does not wait behind long work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from weakref import WeakKeyDictionary

from eruca._ground.limits import SLICE_SECONDS

_LONG_AT_ONCE = 2


class Turns:
    """The queue of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._short: deque[Callable[[], None]] = deque()
        self._is_due = False
        #: For questions with large answers: memory is for a few of them.
        self.few = asyncio.Semaphore(_LONG_AT_ONCE)
        # When the time for reads of this turn is over, by `perf_counter`; 0 before the first of them.
        self._turn_end = 0.0
        self._has_given_way = False

    def begin(self) -> float:
        """When the work on a read is to end, by `perf_counter`; 0 when this turn of the loop has no time left.

        uvloop reads from many connections, and up to 32 times from each, in one turn.
        """
        here = perf_counter()
        if not self._turn_end:
            self._turn_end = here + SLICE_SECONDS
            self._loop.call_soon(self._end_turn)
        return self._turn_end if here < self._turn_end else 0.0

    def _end_turn(self) -> None:
        self._turn_end = 0.0

    def call(self, work: Callable[[], None], *, is_short: bool = False) -> None:
        """Have a function called in a later turn of the loop, when all who came before have had theirs."""
        (self._short if is_short else self._waiting).append(work)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        waiting, short = self._waiting, self._short
        self._is_due = bool(waiting or short)
        if not self._is_due:
            return
        # Behind it, so that the sockets are looked at in between; before it runs, because it may raise.
        self._loop.call_soon(self._run)
        if short:
            end = perf_counter() + SLICE_SECONDS
            while short and perf_counter() < end:
                short.popleft()()
        if not waiting:
            return
        # Reads that took the time of this turn are enough for it, but not twice in a row: long work goes on too.
        if not self._has_given_way and self._turn_end and perf_counter() >= self._turn_end:
            self._has_given_way = True
            return
        self._has_given_way = False
        waiting.popleft()()

    async def wait(self, *, is_short: bool = False) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.call(lambda: None if turn.done() else turn.set_result(None), is_short=is_short)
        await turn

    async def take_part(self) -> None:
        """Wait for a turn of the loop with time left: for each of many that wake at once and do something short."""
        while not self.begin():
            await self.wait(is_short=True)


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
