"""Starting and stopping clients, also by SIGTERM, with which containers are stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIG_DFL
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

SIGTERM_STATUS = 128 + signal.SIGTERM


class Client(ABC):
    """What is started and closed; `async with` does both."""

    @abstractmethod
    async def start(self) -> None:
        """Begin."""

    @abstractmethod
    async def close(self) -> None:
        """End cleanly."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Termination:
    """SIGTERM for all clients that run in one loop: when the last one has ended cleanly, the process exits."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.running = 0
        self.all_ended = asyncio.Event()


# The loop that has our handler for SIGTERM, which only the main thread can have.
_terminations: dict[asyncio.AbstractEventLoop, _Termination] = {}


async def run_until_stopped(client: Client, find_ended: Callable[[], asyncio.Event]) -> None:
    """Run a client until this task is cancelled, it has ended, or SIGTERM comes, and then close it.

    SIGTERM ends in SystemExit, unless the program has a handler of its own for it.
    """
    with _watch_sigterm() as termination:
        try:
            await client.start()
            ended = find_ended()
            if termination is None:
                await ended.wait()
            else:
                await _wait_for_first(ended, termination.came)
        finally:
            await client.close()
            if termination is not None:
                termination.running -= 1
                if not termination.running:
                    termination.all_ended.set()
        if termination is not None and termination.came.is_set():
            # Others in this loop may still be ending what they began; the exit would cut that off.
            await termination.all_ended.wait()
            raise SystemExit(SIGTERM_STATUS)


async def _wait_for_first(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@contextmanager
def _watch_sigterm() -> Iterator[_Termination | None]:
    """What tells of SIGTERM, if it would just kill the process and this thread is the one that gets signals."""
    loop = asyncio.get_running_loop()
    termination = _terminations.get(loop)
    if termination is None and _can_watch():
        termination = _Termination()
        try:
            loop.add_signal_handler(signal.SIGTERM, _terminate, termination)
        except (NotImplementedError, RuntimeError, ValueError):  # not on every platform
            termination = None
        else:
            _terminations[loop] = termination
    if termination is not None:
        termination.running += 1
        termination.all_ended.clear()
    try:
        yield termination
    finally:
        if termination is not None and not termination.running and _terminations.get(loop) is termination:
            del _terminations[loop]
            loop.remove_signal_handler(signal.SIGTERM)


def _can_watch() -> bool:
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is SIG_DFL


def _terminate(termination: _Termination) -> None:
    log.info("terminated: the clients end what they began")
    termination.came.set()
