"""The event loop of the plain clients: one per process, in a daemon thread, started with the first client."""

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

# If a call is not done this long after its timeout, the loop is checked; it has this long to respond.
_GRACE_S = 1.0
# The same for calls without a timeout.
_LOOK_AFTER_S = 15.0
_STUCK_S = 15.0
# A lock cannot be awaited with an infinite timeout; it is awaited for this long at a time.
_PATIENCE_S_MAX = 3600.0
_PLACES_SHOWN = 3
# How long the process may wait at exit for clients that were not closed.
_EXIT_S = 10.0


class Closable(Protocol):
    """Something in the loop that must be closed before the loop ends."""

    async def close(self) -> None:
        """Release what it holds."""


class Call(Generic[Result]):
    """One coroutine in the loop and the thread that waits for it."""

    __slots__ = ("bell", "context", "errand", "error", "result", "task", "work")

    def __init__(self) -> None:
        # Held until there is a result or an errand: a lock is the cheapest thing a thread can wait for.
        self.bell = threading.Lock()
        self.bell.acquire()
        # The call runs in the caller's context, with its spans for example.
        self.context = contextvars.copy_context()
        self.work: Coroutine[Any, Any, Result] | None = None
        self.task: asyncio.Task[None] | None = None
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.errand: tuple[Callable[[Any], Any], Any, asyncio.Future[Any]] | None = None

    async def carry(self, work: Coroutine[Any, Any, Result]) -> None:
        """In the loop: do the work and wake the waiting thread."""
        try:
            self.result = await work
        except asyncio.CancelledError:
            self.error = ClientClosed("the client was closed during this call")
        except BaseException as error:
            self.error = error
        finally:
            if self.bell.locked():  # otherwise it was released for an errand, and the waiting thread was interrupted
                self.bell.release()

    async def ask(self, function: Callable[[Argument], Answer], argument: Argument) -> Answer:
        """In the loop: have the waiting thread call a function, for example to use its own database connection."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.errand = (function, argument, future)
        self.bell.release()
        return await future


class LoopThread:
    """An event loop in a thread, and the ways for other threads to use it."""

    def __init__(self) -> None:
        self._loop = _make_loop()
        self._loop.set_default_executor(_LastingThreads(thread_name_prefix="eruca-sync"))
        self._handover = Handover(self._loop)
        self._open: set[Closable] = set()
        # Set in a child process: the thread stayed with the parent.
        self.is_forked = False
        self._ident = 0
        self._thread = threading.Thread(target=self._run_loop, name="eruca-sync", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        self._ident = threading.get_ident()
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
        """Run a coroutine in the loop and wait for it. Raises what it raises.

        The coroutine applies its own timeout; `timeout_s` is that timeout, so that a stuck loop is noticed.
        An interrupt (Ctrl-C) of the waiting thread cancels the coroutine, unless `goes_on` is set.
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
                        call.bell.acquire(timeout=_GRACE_S)  # give it time to clean up
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # otherwise error, traceback and call form a reference cycle
        return call.result  # type: ignore[return-value]  # without an error there is one

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a plain function in the loop and return its result; in the loop itself, just call it."""
        if self.is_here():
            return function()

        async def do() -> Result:
            return function()

        return self.run(do())

    def post(self, function: Callable[[Argument], object], argument: Argument) -> None:
        """Schedule a function call in the loop without waiting; calls are made in the order they are posted."""
        self._check_fork()
        self._post(function, argument)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a coroutine in the loop without waiting for it."""
        self._post(self._loop.create_task, work, work)

    def is_here(self) -> bool:
        """Return whether the caller is the thread of the loop."""
        return threading.get_ident() == self._ident

    def check_caller(self, work: Coroutine[Any, Any, object] | None = None) -> None:
        """Reject calls that could never return: from the loop itself, and from a forked process without the thread."""
        if threading.get_ident() != self._ident and not self.is_forked:
            return
        if work is not None:
            work.close()
        self._check_fork()
        raise ConfigError(
            "a plain client was called in the event loop that runs it, which would deadlock",
            hint="in async functions and hooks, use the async client: from eruca import Producer, Consumer",
        )

    def _check_fork(self) -> None:
        if self.is_forked:
            raise ClientClosed(
                "the client was started before this process was forked; its connections belong to the parent",
                hint="start a separate client in each process, after the fork",
            )

    def _post(
        self, function: Callable[[Any], object], argument: object, work: Coroutine[Any, Any, object] | None = None
    ) -> None:
        try:
            self._handover.post(function, argument)
        except RuntimeError:
            if work is not None:
                work.close()
            raise ClientClosed("the event loop of the plain clients has ended because the process is exiting") from None

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
                    f"the event loop of the plain clients does not respond; it is busy in {self._find_place()}",
                    hint="async handlers, hooks and listeners must not block; plain handlers may",
                )

    def _find_place(self) -> str:
        frame = sys._current_frames().get(self._ident)
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
        """Register something to be closed when the process ends."""
        self._open.add(client)

    def remove(self, client: Closable) -> None:
        """Unregister something that was closed."""
        self._open.discard(client)

    def end(self, timeout_s: float) -> None:
        """Close what is open and end the thread; what takes too long is abandoned."""
        self._post(self._begin_end, timeout_s)
        # The loop enforces the time limit itself: a thread still running it when Python exits may crash.
        self._thread.join(timeout_s + 3 * _GRACE_S)
        if self._thread.is_alive():
            log.warning("the event loop of the plain clients does not end; it is busy in %s", self._find_place())

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
                log.warning("%d clients took too long to close; some messages may be delivered again", len(late))
        tasks = asyncio.all_tasks() - {self._ending}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_S)
        self._loop.stop()


class _LastingThreads(ThreadPoolExecutor):
    """A thread pool for blocking calls. When the process exits and it accepts no more, calls run at once instead."""

    def submit(self, function: Callable[..., Result], /, *args: Any, **named: Any) -> Future[Result]:
        """Run a function in a thread."""
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
        call.work.close()  # the task ended before it could close it or wake the thread
        call.bell.release()


def _resolve(answer: tuple[asyncio.Future[Any], Any, BaseException | None]) -> None:
    future, result, error = answer
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


# -- one per process ---------------------------------------------------------------------------------------------------

_guard = threading.Lock()
_current: LoopThread | None = None
# Loops of the parent process. Their sockets are the parent's, so they must never be closed or collected here.
_of_parents: list[LoopThread] = []


def find_loop_thread() -> LoopThread:
    """Return the loop thread of this process."""
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
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)
