"""Periodic work: one task that repeats something, whatever goes wrong with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from eruca._ground.backoff import spread
from eruca.errors import ErucaError

log = logging.getLogger(__name__)

# The wait after a failure of work that has no interval, or whose interval cannot be read.
RETRY_S = 1.0
# A longer wait is made of waits of this length, because event loops differ in the longest they accept.
_WAIT_S_MAX = 86_400.0
# Timers of uvloop have whole milliseconds and may fire a fraction of one early. Waiting for the rest would be a busy
# loop there.
_EARLY_S = 0.001


class Repeating:
    """Does something at intervals until it is stopped.

    A failure is logged and never ends it: an `ErucaError` as one line, once until it changes, anything else with its
    traceback. The interval is read before each wait, and again by `look_again`, so a change takes effect at once.
    `wake` runs the work without waiting for the interval.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[], Awaitable[float | None]],
        interval_s: Callable[[], float],
        *,
        at_once: bool = False,
        retry_s: float | Callable[[int], float] | None = None,
        jitter: float = 0.0,
        level: int = logging.ERROR,
    ) -> None:
        """`what` names the work in logs; `work` may return the seconds until the next run, in place of the interval.

        `at_once` runs it right at the start. `retry_s` is the wait after a failure, or a function of the number of
        consecutive failures (`Backoff.after`); None means the interval. `jitter` is the share of an interval that may
        be randomly removed. `level` is the log level of an `ErucaError`: a warning where peers are expected to come
        and go.
        """
        self._what = what
        self._work = work
        self._interval_s = interval_s
        self._at_once = at_once
        self._retry_s = retry_s
        self._jitter = jitter
        self._level = level
        self._failures = 0
        self._is_woken = False
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.Future[None] | None = None
        self._trouble = ""

    @property
    def is_running(self) -> bool:
        """Was it started and not stopped?"""
        return self._task is not None

    def start(self) -> None:
        """Start; needs a running loop. Does nothing while it runs."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop; work in progress is cancelled."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def look_again(self) -> None:
        """Read the interval again, because it may have changed."""
        if self._alarm is not None:
            _ring(self._alarm)

    def wake(self) -> None:
        """Run now; if a run is in progress, run once more after it, because it may have started too early."""
        self._is_woken = True
        self.look_again()

    async def _run(self) -> None:
        wait_s: float | None = 0.0 if self._at_once else None
        while True:
            await self._wait(wait_s)
            try:
                wait_s = await self._work()
            except Exception as error:
                self._failures += 1
                wait_s = self._retry_s(self._failures) if callable(self._retry_s) else self._retry_s
                self._tell(error)
            else:
                self._failures = 0
                self._tell(None)

    async def _wait(self, told_s: float | None) -> None:
        """Wait for the given time, or for the interval, counted from now."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        share = spread(1.0, self._jitter)
        while True:
            left_s = began + (self._read_interval() * share if told_s is None else told_s) - loop.time()
            if left_s < _EARLY_S or self._is_woken:
                self._is_woken = False
                # Other tasks get their turn in between, even when there is nothing to wait for.
                return await asyncio.sleep(0)
            self._alarm = alarm = loop.create_future()
            timer = loop.call_later(min(left_s, _WAIT_S_MAX), _ring, alarm)
            try:
                await alarm
            finally:
                timer.cancel()

    def _read_interval(self) -> float:
        try:
            return float(self._interval_s())
        except Exception:
            log.exception("the interval of %s cannot be read", self._what)
            return RETRY_S

    def _tell(self, error: Exception | None) -> None:
        if error is None:
            if self._trouble:
                log.info("%s works again", self._what)
            self._trouble = ""
        elif isinstance(error, ErucaError):
            # A failure that repeats is worth one line.
            level = logging.DEBUG if str(error) == self._trouble else self._level
            log.log(level, "%s failed, retrying: %s", self._what, error)
            self._trouble = str(error)
        else:
            log.error("%s failed, retrying", self._what, exc_info=error)
            self._trouble = repr(error)


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)
