"""The loop of the plain clients: one a process, in a daemon thread, begun when the first client starts."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from eruca._client.handover import Handover
from eruca.errors import CallTimeout, ClientClosed, ConfigError

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Argument = TypeVar("Argument")
Answer = TypeVar("Answer")

# What is not done this long after its timeout makes us ask whether the loop still runs, and so long it may answer.
_GRACE_S = 1.0
# The same for calls that may take as long as they need.
_LOOK_AFTER_S = 15.0
_STUCK_S = 15.0
# A lock cannot be waited for without end and with a timeout; this long it can.
_PATIENCE_S_MAX = 3600.0
_PLACES_SHOWN = 3
# How long the end of the process may wait for clients that were not closed.
_EXIT_S = 10.0


class Closable(Protocol):
    """Something in the loop that wants to be closed before it ends."""

    async def close(self) -> None:
        """Let go."""


class Call(Generic[Result]):
    """One coroutine in the loop, and the thread that waits for it."""

    __slots__ = ("bell", "context", "errand", "error", "result", "task", "work")

    def __init__(self) -> None:
        # Held until there is something to look at: a lock is the cheapest thing a thread can wait for.
        self.bell = threading.Lock()
        self.bell.acquire()
        # Spans and the like of the caller are those of the call.
        self.context = contextvars.copy_context()
        self.work: Coroutine[Any, Any, Result] | None = None
        self.task: asyncio.Task[None] | None = None
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.errand: tuple[Callable[[Any], Any], Any, asyncio.Future[Any]] | None = None

    async def carry(self, work: Coroutine[Any, Any, Result]) -> None:
        """In the loop: do the work, and ring."""
        try:
            self.result = await work
        except asyncio.CancelledError:
            self.error = ClientClosed("the client was closed while this call was under way")
        except BaseException as error:
            self.error = error
        finally:
            if self.bell.locked():  # else it rang for an errand, and who waited was interrupted
                self.bell.release()

    async def ask(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
        """In the loop: have the waiting thread itself call a function, because its own things are there."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.errand = (function, argument, future)
        self.bell.release()
        return await future


class LoopThread:
    """A loop in a thread, and the ways there for other threads."""

    def __init__(self) -> None:
        self._loop = _make_loop()
        self._loop.set_default_executor(_LastingThreads(thread_name_prefix="eruca-sync"))
        self._handover = Handover(self._loop)
        self._open: set[Closable] = set()
        # Set in a child process: the thread stayed with the parent.
        self.is_forked = False
        self._thread = threading.Thread(target=self._run_loop, name="eruca-sync", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    # -- calls -------------------------------------------------------------------------------------------------------

    def run(
        self,
        work: Coroutine[Any, Any, Result],
        timeout_s: float | None = None,
        call: Call[Result] | None = None,
        *,
        goes_on: bool = False,
    ) -> Result:
        """Do something in the loop and wait for it. Raises what it raises.

        The work keeps its own timeout; `timeout_s` says how long that is, so that a loop that is stuck is noticed.
        An interrupt (Ctrl-C) of who waits cancels it, unless it `goes_on`.
        """
        call = call or Call()
        self.check_caller(work)
        call.work = work
        self._post(self._begin, call, work)
        try:
            self._wait(call, timeout_s)
            while call.errand is not None:
                self._do_errand(call)
                self._wait(call, timeout_s)
        except BaseException as error:
            if not goes_on:
                with suppress(ClientClosed):
                    self._post(_cancel, call)
                    if not isinstance(error, CallTimeout):
                        call.bell.acquire(timeout=_GRACE_S)  # what was begun may want to tidy up
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # else error, traceback and call would keep each other alive
        return call.result  # type: ignore[return-value]  # without an error there is one

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a plain function in the loop and wait for what it returns; the loop itself just calls it."""
        if self.is_here():
            return function()

        async def do() -> Result:
            return function()

        return self.run(do())

    def post(self, function: Callable[[Argument], object], argument: Argument) -> None:
        """Have a function called in the loop, and wait for nothing; calls are made in the order they are posted."""
        self._check_fork()
        self._post(function, argument)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin something in the loop, and wait for nothing."""
        self._post(self._loop.create_task, work, work)

    def is_here(self) -> bool:
        """Is this the thread of the loop?"""
        return threading.get_ident() == self._thread.ident

    def check_caller(self, work: Coroutine[Any, Any, object] | None = None) -> None:
        """Refuse calls that could never return: from the loop itself, and from a process that has no loop thread."""
        try:
            if threading.get_ident() == self._thread.ident and not self.is_forked:
                raise ConfigError(
                    "a plain client was called in the loop that does its work, which would wait for itself",
                    hint="in async functions and hooks use the async client: from eruca import Producer, Consumer",
                )
            self._check_fork()
        except BaseException:
            if work is not None:
                work.close()
            raise

    def _check_fork(self) -> None:
        if self.is_forked:
            raise ClientClosed(
                "the client was started before this process was forked, and its connections stayed with the parent",
                hint="start a client of its own in each process, after the fork",
            )

    def _post(
        self, function: Callable[[Any], object], argument: object, work: Coroutine[Any, Any, object] | None = None
    ) -> None:
        try:
            self._handover.post(function, argument)
        except RuntimeError:
            if work is not None:
                work.close()
            raise ClientClosed("the loop of the plain clients has ended with the process") from None

    def _begin(self, call: Call[Any]) -> None:
        assert call.work is not None
        call.task = self._loop.create_task(call.carry(call.work), context=call.context)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, call: Call[Any], timeout_s: float | None) -> None:
        patience = _LOOK_AFTER_S if timeout_s is None else min(max(timeout_s, 0.0) + _GRACE_S, _PATIENCE_S_MAX)
        while not call.bell.acquire(timeout=patience):
            patience = _LOOK_AFTER_S
            answered = threading.Lock()
            answered.acquire()
            self._post(_ring, answered)
            if not answered.acquire(timeout=_STUCK_S if timeout_s is None else _GRACE_S):
                raise CallTimeout(
                    f"the loop of the plain clients does not answer, it is busy in {self._find_place()}",
                    hint="async handlers, hooks and listeners must not block; plain handlers may",
                )

    def _find_place(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "nothing: its thread has ended"
        places = traceback.extract_stack(frame, limit=_PLACES_SHOWN)
        return ", called by ".join([f"{place.name} ({place.filename}:{place.lineno})" for place in reversed(places)])

    def _do_errand(self, call: Call[Any]) -> None:
        assert call.errand is not None
        (function, argument, future), call.errand = call.errand, None
        result, error = None, None
        try:
            result = function(argument)
        except BaseException as caught:
            error = caught
        self._post(_resolve, (future, result, error))

    # -- the end -----------------------------------------------------------------------------------------------------

    def add(self, client: Closable) -> None:
        """Close something when the process ends, unless it is removed before."""
        self._open.add(client)

    def remove(self, client: Closable) -> None:
        """It is closed."""
        self._open.discard(client)

    def end(self, timeout_s: float) -> None:
        """Close what is open and end the thread; what takes too long is left to its fate."""
        self._post(self._begin_end, timeout_s)
        # The loop keeps the time by itself, because a thread that is still in it when Python ends may crash.
        self._thread.join(timeout_s + 3 * _GRACE_S)
        if self._thread.is_alive():
            log.warning("the loop of the plain clients does not end, it is busy in %s", self._find_place())

    def _begin_end(self, timeout_s: float) -> None:
        self._ending = self._loop.create_task(self._close_all(timeout_s))

    async def _close_all(self, timeout_s: float) -> None:
        closing = [self._loop.create_task(client.close()) for client in list(self._open)]
        if closing:
            done, late = await asyncio.wait(closing, timeout=timeout_s)
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.warning("a client could not be closed: %s", error)
            if late:
                log.warning("%d clients took too long to close; some messages may come again", len(late))
        tasks = asyncio.all_tasks() - {self._ending}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)
        self._loop.stop()


class _LastingThreads(ThreadPoolExecutor):
    """Threads for what blocks. At the end of the process they take nothing more; then it is done at once."""

    def submit(self, function: Callable[..., Result], /, *args: Any, **named: Any) -> Future[Result]:
        """Have a function run in a thread."""
        try:
            return super().submit(function, *args, **named)
        except RuntimeError:
            future: Future[Result] = Future()
            try:
                future.set_result(function(*args, **named))
            except Exception as error:
                future.set_exception(error)
            return future


def _make_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _ring(bell: threading.Lock) -> None:
    bell.release()


def _cancel(call: Call[Any]) -> None:
    if call.task is None or call.work is None:
        return
    call.task.cancel()
    if inspect.getcoroutinestate(call.work) == inspect.CORO_CREATED:
        call.work.close()  # the task ends before it could do so, or ring
        call.bell.release()


def _resolve(answer: tuple[asyncio.Future[Any], Any, BaseException | None]) -> None:
    future, result, error = answer
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


# -- one a process -----------------------------------------------------------------------------------------------------

_guard = threading.Lock()
_current: LoopThread | None = None
# Loops of the parent process. Their sockets are the parent's, so they must never be closed or collected here.
_of_parents: list[LoopThread] = []


def find_loop_thread() -> LoopThread:
    """The loop thread of this process."""
    global _current  # noqa: PLW0603
    with _guard:
        if _current is None:
            _current = LoopThread()
        return _current


def _leave_to_parent() -> None:
    global _current, _guard  # noqa: PLW0603
    _guard = threading.Lock()
    if _current is not None:
        _current.is_forked = True
        _of_parents.append(_current)
        _current = None


def _end_with_process() -> None:
    if _current is not None:
        _current.end(_EXIT_S)


atexit.register(_end_with_process)
if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(after_in_child=_leave_to_parent)
