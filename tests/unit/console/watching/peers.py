"""Peers of deliveries: a web server that notes what is posted to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answer = Callable[["Posted"], bytes]
OK = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
BROKEN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class Posted:
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Hook:
    """A web server; `answers` are used in turn, and the last one repeatedly."""

    answers: list[bytes] = field(default_factory=lambda: [OK])
    posted: list[Posted] = field(default_factory=list)
    port: int = 0
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hooks/secret?room=7"

    async def wait_for(self, count: int) -> list[Posted]:
        """Return the requests when there are this many."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.posted) >= count)
        return self.posted

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        async with self.came:
            self.posted.append(Posted(first, headers, body))
            writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
            self.came.notify_all()
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def run_hook(*answers: bytes) -> AsyncIterator[Hook]:
    """Run a web server."""
    hook = Hook(list(answers) or [OK])
    server = await asyncio.start_server(hook.serve, "127.0.0.1", 0)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        await server.wait_closed()
