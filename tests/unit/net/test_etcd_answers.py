"""Answers of etcd that were damaged on the way are lost connections, which are tried again."""

from __future__ import annotations

import asyncio
import base64

import pytest

from eruca.errors import ConnectionLost
from eruca.net.etcd import open_etcd

NO_TEXT = b"\xef(("


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{", id="no json"),
        pytest.param(b'{"header": {"revision": "x"}}', id="no number"),
        pytest.param(b'{"header": {"revision": "' + NO_TEXT + b'"}}', id="no text"),
        pytest.param(
            b'{"header": {"revision": "1"}, "kvs": [{"key": "' + base64.b64encode(NO_TEXT) + b'"}]}', id="no key"
        ),
    ],
)
async def test_a_damaged_answer_is_a_lost_connection(content: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if b"content-length" in line)
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = await open_etcd([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"], timeout_s=20)
        try:
            with pytest.raises(ConnectionLost, match="etcd answered"):
                await client.get_prefix("/some/")
        finally:
            await client.close()
