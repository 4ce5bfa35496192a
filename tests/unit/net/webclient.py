"""HTTP as a client sees it: a request of any bytes on a bare socket, and the parsed answer."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class WebAnswer:
    """An answer: status, headers with lower-case names, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def read_answer(reader: asyncio.StreamReader) -> WebAnswer:
    """Read up to the end of the connection."""
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return WebAnswer(int(first.split(" ")[1]), headers, body)


async def ask_raw(port: int, data: bytes, tls: ssl.SSLContext | None = None) -> WebAnswer:
    """Send bytes and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 24)
    writer.write(data)
    try:
        return await read_answer(reader)
    finally:
        writer.close()


async def get(port: int, path: str, tls: ssl.SSLContext | None = None, **headers: str) -> WebAnswer:
    """Ask for a page."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        *[f"{name.replace('_', '-')}: {text}" for name, text in headers.items()],
    ]
    return await ask_raw(port, "\r\n".join([*lines, "", ""]).encode(), tls)
