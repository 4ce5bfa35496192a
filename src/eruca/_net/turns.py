"""Turns: long work of many connections shares the loop, one slice in each iteration.

Work that takes longer than a time slice queues up here for the rest. However much is queued, requests that arrive
meanwhile wait for one slice at most. Short work has its own queue and does not wait behind long work.
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
        #: For requests with large responses: there is memory for only a few at a time.
        self.few = asyncio.Semaphore(_LONG_AT_ONCE)
        # When the time for reads in this iteration ends, by `perf_counter`; 0 before the first read.
        self._turn_end = 0.0
        self._has_given_way = False

    @property
    def queued(self) -> int:
        """How much work waits for a turn."""
        return len(self._waiting) + len(self._short)

    def begin(self) -> float:
        """Return when the work on a read must end, by `perf_counter`; 0 if this loop iteration has no time left.

        uvloop reads from many connections, and up to 32 times from each, in one iteration.
        """
        here = perf_counter()
        if not self._turn_end:
            self._turn_end = here + SLICE_SECONDS
            self._loop.call_soon(self._end_turn)
        return self._turn_end if here < self._turn_end else 0.0

    def _end_turn(self) -> None:
        self._turn_end = 0.0

    def call(self, work: Callable[[], None], *, is_short: bool = False) -> None:
        """Call a function in a later loop iteration, after everything that was queued before."""
        (self._short if is_short else self._waiting).append(work)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        waiting, short = self._waiting, self._short
        self._is_due = bool(waiting or short)
        if not self._is_due:
            return
        # Scheduled again so that the sockets are polled in between; before running, because it may raise.
        self._loop.call_soon(self._run)
        if short:
            end = perf_counter() + SLICE_SECONDS
            while short and perf_counter() < end:
                short.popleft()()
        if not waiting:
            return
        # If reads used up the time of this iteration, skip it, but not twice in a row: long work must progress too.
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
        """Wait for a loop iteration with time left: for many tasks that wake at once and each do something short."""
        while not self.begin():
            await self.wait(is_short=True)


class Slices:
    """Cuts one long piece of work: `await slices.rest()` yields to the loop when a slice is over."""

    __slots__ = ("_end", "_turns")

    def __init__(self) -> None:
        self._turns = find_turns(asyncio.get_running_loop())
        self._end = perf_counter() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether it is time to yield."""
        return perf_counter() >= self._end

    async def rest(self) -> None:
        """Yield to the loop if the slice is over."""
        if perf_counter() >= self._end:
            await self._turns.wait()
            self._end = perf_counter() + SLICE_SECONDS


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def find_turns(loop: asyncio.AbstractEventLoop) -> Turns:
    """Return the queue of a loop."""
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = Turns(loop)
    return turns
