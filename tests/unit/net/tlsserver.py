"""A server with TLS for tests, and the loops on which servers run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from eruca._net.handlers import refuse_unknown
from eruca._net.link import Answer, Handler, Link
from eruca._net.server import Server
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsOptions
from eruca._wire.codes import ResponseCode
from eruca._wire.frame import Command, encode_command
from tests.unit.net.rawpeer import run_server

ECHO = 34

Run = Callable[[Coroutine[Any, Any, None]], None]


def echo(link: Link, command: Command) -> Answer:
    return encode_command(command.answer(ResponseCode.SUCCESS, body=command.body))


HANDLERS: dict[int, Handler] = {ECHO: echo}


@asynccontextmanager
async def run_tls(
    options: dict[str, Any], handlers: Mapping[int, Handler] = HANDLERS, **settings: Any
) -> AsyncIterator[Server]:
    """A server with TLS."""
    tls = ServerTls(TlsOptions(**options))
    await tls.start()
    try:
        async with run_server(handlers, refuse_unknown, tls=tls, **settings) as server:
            yield server
    finally:
        await tls.stop()
