"""Runs servers in one event loop until a signal stops them."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from eruca._cli.saying import say
from eruca._net.listening import ForeignAddress
from eruca.errors import ConnectFailed

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# What shells report for a process ended by a signal.
_EXIT_SIGNAL = 128
# How long a computing thread keeps the interpreter while the event loop waits for it.
_SWITCH_S = 0.0001
# A server creates thousands of requests and answers per second, none of them cycles; the collector need not visit each.
# With a tenth of this value, pauses were shorter but sends a fifth slower.
_NEW_OBJECTS_MAX = 20_000


class Startable(Protocol):
    """A server: name server or broker."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """Stop with everything on disk, even if the start failed half-way."""

    def look_again(self) -> None:
        """Check for changes the files that are read while it runs."""


@dataclass(slots=True)
class Service:
    """A server, and what to do around its start."""

    server: Startable
    # What to do when its port is taken.
    port_hint: str
    on_started: Callable[[], None] | None = None
    # Called after the start, also if it failed.
    after_start: Callable[[], None] | None = None
    # Without its port, the others run nevertheless.
    is_optional: bool = False


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on uvloop, or on asyncio's own loop where uvloop is not available."""
    sys.setswitchinterval(_SWITCH_S)
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


def run_services(services: Sequence[Service], announce: Callable[[], None]) -> None:
    """Start servers in order, announce them, and stop them in reverse order at the first SIGTERM or SIGINT."""
    # A fault below Python (a page of a mapped file that the disk cannot read is a SIGBUS) leaves a trace on stderr.
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    run_loop(_run(services, announce))


async def _run(services: Sequence[Service], announce: Callable[[], None]) -> None:
    started: list[Service] = []

    def look_again() -> None:
        for service in started:
            service.server.look_again()

    with _listen_to_signals(look_again) as stopping:
        try:
            for service in services:
                started.append(service)
                if not await _start_unless(stopping, service):
                    return
            _calm_collector()
            announce()
            await stopping.wait()
        finally:
            await _stop([service.server for service in reversed(started)])


async def _stop(servers: Sequence[Startable]) -> None:
    """Stop servers one after the other; the first error is raised when all have stopped."""
    failed: list[Exception] = []
    for server in servers:
        try:
            await server.stop()
        except Exception as error:
            if failed:
                log.error("%s", error)
            failed.append(error)
    if failed:
        raise failed[0]


async def _start_unless(stopping: asyncio.Event, service: Service) -> bool:
    """Start a server. Returns False if a signal came first, which cancels the start."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(_start(service))
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    # An error of the start is raised, also if a signal came meanwhile.
    starting.result()
    return not stopping.is_set()


def _calm_collector() -> None:
    """Make the garbage collector ignore permanent objects (modules, classes, tables) and run less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_MAX, *gc.get_threshold()[1:])


async def _start(service: Service) -> None:
    try:
        await service.server.start()
    except ConnectFailed as error:
        hint = error.hint if isinstance(error, ForeignAddress) else service.port_hint
        if not service.is_optional:
            raise ConnectFailed(error.args[0], hint=hint) from error
        say(f"{error.args[0]}; {hint}")
    finally:
        if service.after_start is not None:
            service.after_start()
    if service.on_started is not None:
        service.on_started()


@contextmanager
def handle_signals(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Call functions on signals while the block runs. They are removed after it, because a closed uvloop keeps them."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@contextmanager
def _listen_to_signals(look_again: Callable[[], None]) -> Iterator[asyncio.Event]:
    """An event that the first signal sets; the second one ends the process, and the next start recovers.

    SIGHUP means that the terminal is gone, or asks for new log files (logrotate) or settings (systemd). In a terminal
    it is the end, and a clean one. Anywhere else it calls `look_again`, for files that are read while a server runs;
    logs go to stderr, and settings are changed with `updateBrokerConfig`.
    """
    stopping = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            say(f"second {number.name}, stopping at once; the next start will recover")
            os._exit(_EXIT_SIGNAL + number)
        stopping.set()
        log.info("%s: stopping; a second signal stops at once", number.name)

    def hang_up(in_terminal: bool) -> None:
        if in_terminal and not stopping.is_set():
            stop(signal.SIGHUP)
        elif not in_terminal:
            log.warning("SIGHUP: certificates are checked for changes; there are no log files to reopen")
            look_again()

    handlers = {number: partial(stop, number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A server started with nohup ignores it already.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = partial(hang_up, _has_terminal())
    with handle_signals(handlers):
        yield stopping


def _has_terminal() -> bool:
    """Return whether standard input is a terminal; some servers run with it closed."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
