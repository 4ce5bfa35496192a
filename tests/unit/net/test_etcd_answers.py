"""Answers of etcd that were damaged on the way are lost connections, which are tried again."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress

import pytest

from eruca._ground.limits import ETCD_ANSWER_BYTES_MAX
from eruca._net.etcd import open_etcd
from eruca.errors import ConnectionLost

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
            with pytest.raises(ConnectionLost, match="etcd returned"):
                await client.get_prefix("/some/")
        finally:
            await client.close()


async def end(writer: asyncio.StreamWriter, ended: asyncio.Event) -> None:
    """Close a connection that may already be lost, and signal it."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    ended.set()


@pytest.mark.parametrize("way", ["call", "refusal", "watch"])
async def test_an_answer_without_an_end_is_not_kept(way: str) -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        status = b"500 No" if way == "refusal" else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, 1 << 40))
        try:
            while sent < 64 * ETCD_ANSWER_BYTES_MAX:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except OSError:
            pass
        await end(writer, ended)

    ended = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = await open_etcd([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"], timeout_s=20)
        try:
            with pytest.raises(ConnectionLost, match="more than any expected response"):
                if way == "watch":
                    await anext(aiter(client.watch("/some/", 1)))
                else:
                    await client.get_prefix("/some/")
        finally:
            await client.close()
            await ended.wait()
    # What the sockets buffer is added.
    assert sent < 32 * ETCD_ANSWER_BYTES_MAX


async def test_lines_of_a_watch_come_as_they_are_sent() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        for piece in (
            b'{"result": {"header": {"rev',
            b'ision": "7"}}}\n{"result": {"header"',
            b': {"revision": "8"}}}\n',
        ):
            writer.write(piece)
            await writer.drain()
        await reader.read()
        await end(writer, ended)

    ended = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = await open_etcd([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"], timeout_s=20)
        watch = client.watch("/some/", 1)
        assert [(await anext(watch))[0], (await anext(watch))[0]] == [7, 8]
        await watch.aclose()  # type: ignore[attr-defined]
        await client.close()
        await ended.wait()
