"""Running servers in one event loop, from the command line's first signal to its last."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import click

from eruca.errors import ConnectFailed

log = logging.getLogger(__name__)

Result = TypeVar("Result")
# What shells report for a process that a signal ended.
_EXIT_SIGNAL = 128
# How long a thread that only computes keeps the interpreter while the loop wants it.
_SWITCH_S = 0.001
# A server makes thousands of requests and answers a second that are no cycles; the collector need not look at each.
_NEW_OBJECTS_MAX = 20_000


class Startable(Protocol):
    """A server: name server or broker."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End with everything on the disk; also when the start failed half-way."""


@dataclass(slots=True)
class Service:
    """A server and what its user wants to hear."""

    server: Startable
    # What to do when its port is taken.
    port_hint: str
    on_started: Callable[[], None] | None = None
    # However the start went.
    after_start: Callable[[], None] | None = None


def run_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the fastest loop there is."""
    sys.setswitchinterval(_SWITCH_S)
    if sys.platform == "win32":
        return asyncio.run(main)
    import uvloop

    return uvloop.run(main)


def run_services(services: Sequence[Service], announce: Callable[[], None]) -> None:
    """Start servers in order, say so, and stop them in reverse at the first SIGTERM or SIGINT."""
    run_loop(_run(services, announce))


async def _run(services: Sequence[Service], announce: Callable[[], None]) -> None:
    stopping = _listen_to_signals()
    started: list[Service] = []
    try:
        for service in services:
            started.append(service)
            await _start(service)
            if stopping.is_set():
                return
        _calm_collector()
        announce()
        await stopping.wait()
    finally:
        await _stop([service.server for service in reversed(started)])


async def _stop(servers: Sequence[Startable]) -> None:
    """Stop servers one after the other; what one could not do is raised when all have stopped."""
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


def _calm_collector() -> None:
    """Have the collector leave alone what is there for good (modules, classes, tables), and come less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_MAX, *gc.get_threshold()[1:])


async def _start(service: Service) -> None:
    try:
        await service.server.start()
    except ConnectFailed as error:
        raise ConnectFailed(error.args[0], hint=service.port_hint) from error
    finally:
        if service.after_start is not None:
            service.after_start()
    if service.on_started is not None:
        service.on_started()


def _listen_to_signals() -> asyncio.Event:
    """An event that the first signal sets; the second one ends the process, and the next start recovers."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            click.echo(f"eruca: {number.name} again, stopping at once; the next start will recover", err=True)
            os._exit(_EXIT_SIGNAL + number)
        stopping.set()
        log.info("%s: stopping; once more stops at once", number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return stopping
