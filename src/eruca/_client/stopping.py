"""Starting and stopping clients, also on SIGTERM (which stops containers) and SIGINT (Ctrl-C)."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from signal import SIG_DFL
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

SIGTERM_STATUS = 128 + signal.SIGTERM


class Client(ABC):
    """An object that is started and closed; `async with` does both."""

    @abstractmethod
    async def start(self) -> None:
        """Start."""

    @abstractmethod
    async def close(self) -> None:
        """Stop cleanly."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _is_started(self) -> bool:
        """Return whether it is started and not closed; then it warns when it is garbage collected."""
        return False

    def __del__(self) -> None:
        with suppress(AttributeError):  # its constructor may have failed
            if self._is_started:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)


def describe_client(
    client: Client, group: str, nameservers: str, state: str, topics: Iterable[str] | None = None
) -> str:
    """Return the `repr` of a client: its group, its topics, its name servers and its state."""
    facts = f"group={group!r}" + ("" if topics is None else f" topics={list(topics)!r}")
    return f"<{type(client).__name__} {facts} nameservers={nameservers!r} {state}>"


def find_state(*, is_started: bool, was_closed: bool) -> str:
    """Return the state of a client in words."""
    return "started" if is_started else "closed" if was_closed else "not started"


class _Termination:
    """Signals that end a program, for all clients running in one loop: the program exits after the last one stops."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.number = 0
        # The signals for which our handler is installed.
        self.watched: list[signal.Signals] = []
        # The tasks that run clients; those that were cancelled are closing, or will be in a moment.
        self.tasks: set[asyncio.Task[object]] = set()
        self.all_ended = asyncio.Event()
        self._one_closed = asyncio.Event()

    def join(self) -> None:
        """Count a client, which this task runs."""
        self.tasks.add(_this_task())
        self.all_ended.clear()

    async def close(self, client: Client) -> None:
        """Close a client, and wait for others that are cancelled too.

        `asyncio.run` cancels what is left when its main task ends. So when Ctrl-C cancels several clients, the first
        one that is done must not end that task before the others are.
        """
        try:
            await client.close()
        finally:
            self.tasks.discard(_this_task())
            self._one_closed.set()
            if not self.tasks:
                self.all_ended.set()
        while any(task.cancelling() for task in self.tasks):
            self._one_closed.clear()
            await self._one_closed.wait()

    def take(self, number: signal.Signals) -> None:
        """Handle a signal: let the clients stop."""
        log.info("%s: the clients finish their work and stop", number.name)
        self.number = number
        self.came.set()

    def make_exit(self) -> BaseException:
        """Return the exception with which the program ends."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else SystemExit(SIGTERM_STATUS)


# The loop in which our signal handlers are installed; only the main thread can have them.
_terminations: dict[asyncio.AbstractEventLoop, _Termination] = {}


async def run_until_stopped(client: Client, find_ended: Callable[[], asyncio.Event]) -> None:
    """Run a client until this task is cancelled, the client ends, or SIGTERM or SIGINT arrives; then close it.

    SIGTERM ends in SystemExit and SIGINT in KeyboardInterrupt, unless the program has its own handlers for them.
    `asyncio.run` has a handler for SIGINT that cancels the task, which closes the client too.
    """
    with _watch_signals() as termination:
        try:
            await client.start()
            if termination is None:
                await find_ended().wait()
            else:
                await _wait_for_first(find_ended(), termination.came)
        finally:
            if termination is None:
                await client.close()
            else:
                await termination.close(client)
        if termination is not None and termination.came.is_set():
            # Other clients in this loop may still be closing; exiting now would interrupt them.
            await termination.all_ended.wait()
            raise termination.make_exit()


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None  # only coroutines come here
    return task


async def _wait_for_first(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@contextmanager
def _watch_signals() -> Iterator[_Termination | None]:
    """Yield the handler of signals that would otherwise end the program; None if this thread receives no signals."""
    loop = asyncio.get_running_loop()
    termination = _terminations.get(loop)
    if termination is None and threading.current_thread() is threading.main_thread():
        termination = _begin_watching(loop)
    if termination is not None:
        termination.join()
    try:
        yield termination
    finally:
        if termination is not None and not termination.tasks and _terminations.get(loop) is termination:
            del _terminations[loop]
            for number in termination.watched:
                loop.remove_signal_handler(number)


def _begin_watching(loop: asyncio.AbstractEventLoop) -> _Termination | None:
    termination = _Termination()
    for number, usual in ((signal.SIGTERM, SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is not usual:
            continue
        try:
            loop.add_signal_handler(number, termination.take, number)
        except (NotImplementedError, RuntimeError, ValueError):  # not on every platform
            continue
        termination.watched.append(number)
    if not termination.watched:
        return None
    _terminations[loop] = termination
    return termination
