"""Strangers who only connect to the console: users are served all the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from eruca._console.identity.rights import Role
from eruca._ground.limits import CONSOLE_CONNECTIONS_MAX
from tests.integration.broker.conftest import excuse_new_files
from tests.security.consoles import run_console

# A form that never arrives.
_HALF = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(autouse=True)
def allow_new_files(forbid_blocking_calls: BlockBuster) -> None:
    """Let the console make its file."""
    excuse_new_files(forbid_blocking_calls)


async def test_strangers_who_take_all_connections_keep_no_user_out(tmp_path: Path) -> None:
    async with run_console(tmp_path) as running, AsyncExitStack() as stack:
        browser = await running.log_in("ann", Role.VIEWER)
        stream = await stack.enter_async_context(browser.client.stream("GET", "/profile"))
        writers = []
        for _ in range(CONSOLE_CONNECTIONS_MAX + 20):
            port = running.console._server.port
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            stack.callback(writer.transport.abort)
            writer.write(_HALF)
            writers.append(writer)
        # A page that was asked for before arrives, and so does a new one; someone else can log in.
        assert (await stream.aread(), stream.status_code)[1] == 200
        again = await running.open_browser()
        again.client.cookies = browser.client.cookies
        assert (await again.get("/profile")).status_code == 200
        other = await running.log_in("bob", Role.VIEWER)
        assert (await other.get("/profile")).status_code == 200
        assert len(running.console._server._server.server_state.connections) <= CONSOLE_CONNECTIONS_MAX


async def test_what_strangers_send_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forms that cannot be read, and that end in the middle."""
    deep = b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    less_deep = b'{"a": ' + b"[" * 600 + b"1" + b"]" * 600 + b"}"
    parts = b'--x\r\nContent-Disposition: form-data; name="user"\r\n\r\nann\r\n'
    forms = [
        (b"application/json", deep),
        (b"application/json", less_deep),
        (b"application/json", b"\xff"),
        (b"application/json", b"[]"),
        (b"multipart/form-data", parts),
        (b"multipart/form-data; boundary=x", b"--y\r\n"),
        (b"multipart/form-data; boundary=x", parts + b"--xyz"),
        (b"multipart/form-data; boundary=x", b"--x\r\n: \x00\r\n\r\n\r\n--x--\r\n"),
        (b"multipart/form-data; boundary=x; charset=none", parts + b"--x--\r\n"),
        (b"multipart/form-data; boundary=" + b"x" * 8000, parts),
        (b"multipart/form-data; boundary=\xff", parts),
        (b"application/x-www-form-urlencoded; charset=none", b"user=%ff%fe&password=\x00"),
        (b"application/x-www-form-urlencoded", b"&".join([b"a=1"] * 4000)),
    ]
    async with run_console(tmp_path) as running:
        port = running.console._server.port

        async def send(data: bytes, *, ends: bool) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            if ends:
                writer.write_eof()
            heard = await reader.read()
            writer.transport.abort()
            return heard

        statuses = []
        for kind, body in forms:
            head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: " + kind + b"\r\n"
            heard = await send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, ends=False)
            statuses.append(int(heard.split(b" ")[1]))
            await send(head + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body, ends=True)
        await send(_HALF, ends=True)
        for _ in forms:
            await send(b"nonsense\r\n\r\n", ends=False)
        assert all(400 <= status < 500 for status in statuses), statuses
    assert [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []
    assert len(caplog.records) < len(forms)
