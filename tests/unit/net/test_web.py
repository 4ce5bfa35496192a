"""The small HTTP port: what it answers, and what it refuses to be kept busy with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from eruca._net.web import Page, WebLimits, WebPort, WebRequest
from eruca._observe.metrics import SERVER
from tests.patience import PATIENCE_S
from tests.unit.net.rawpeer import turn_until
from tests.unit.net.tlsserver import Run
from tests.unit.net.webclient import ask_raw, get, read_answer

LIMITS = WebLimits(head_bytes_max=1000, head_seconds_max=PATIENCE_S, answer_seconds_max=PATIENCE_S, connections_max=8)


async def answer(request: WebRequest) -> Page:
    """Describe the request; `/long` is 8 MB, `/once` the same in one piece, `/broken` fails."""
    if request.path == "/long":
        return Page([b"x" * 65_536] * 128)
    if request.path == "/once":
        return Page([b"x" * 65_536 * 128])
    if request.path == "/broken":
        raise KeyError(request.path)
    return Page.of_text(f"{request.method} {request.path} {request.headers.get('accept')}")


@asynccontextmanager
async def open_port(limits: WebLimits = LIMITS) -> AsyncIterator[WebPort]:
    port = WebPort(answer, option="testPort", limits=limits)
    await port.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await port.stop()


def test_a_page(run: Run) -> None:
    async def check() -> None:
        async with open_port() as port:
            found = await get(port.port, "/here?with=query", Accept="text/plain")
            assert (found.status, found.text) == (200, "GET /here text/plain\n")
            assert found.headers["content-length"] == str(len(found.body))
            assert found.headers["connection"] == "close"
            assert found.headers["cache-control"] == "no-store"
            await turn_until(lambda: not port.visits)

    run(check())


def test_a_long_page_arrives_whole_and_head_without_body(run: Run) -> None:
    async def check() -> None:
        async with open_port() as port:
            found = await get(port.port, "/long")
            assert len(found.body) == 8 << 20 == int(found.headers["content-length"])
            found = await ask_raw(port.port, b"HEAD /long HTTP/1.1\r\n\r\n")
            assert (found.status, found.body) == (200, b"")
            assert found.headers["content-length"] == str(8 << 20)

    run(check())


def test_a_request_in_pieces(run: Run) -> None:
    async def check() -> None:
        async with open_port() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            for piece in (b"GET /a HT", b"TP/1.0\r\nAccept: b\r", b"\n\r", b"\nand what it does not read"):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            assert (await read_answer(reader)).text == "GET /a b\n"
            writer.close()

    run(check())


@pytest.mark.parametrize(
    ("data", "status", "says"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405, "POST: only GET and HEAD"),
        (b"GET / HTTP/2\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"GET /\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"\x00\x00\x01\x02\x00\r\n\r\n", 400, "not an HTTP/1.1 request"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "a header is not valid"),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400, "a header is not valid"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 1000, 431, "the request is too large"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 1000 + b"\r\n\r\n", 431, "the request is too large"),
    ],
)
def test_what_is_refused(data: bytes, status: int, says: str, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with open_port() as port:
            found = await ask_raw(port.port, data)
            assert (found.status, found.text) == (status, f"{says}\n")

    run(check())
    assert f"127.0.0.1 asked over HTTP and was refused: {says}" in caplog.text


def test_a_page_that_fails(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with open_port() as port:
            found = await get(port.port, "/broken")
            assert (found.status, found.text) == (500, "internal error, see the log of the server\n")

    run(check())
    assert "GET /broken failed" in caplog.text


def test_one_that_sends_no_request_is_cut_off(run: Run) -> None:
    async def check() -> None:
        async with open_port(replace(LIMITS, head_seconds_max=0.05)) as port:
            assert (await ask_raw_or_nothing(port.port, b"GET / HTTP/1.1\r\n")) == b""
            await turn_until(lambda: not port.visits)

    run(check())


async def ask_raw_or_nothing(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_one_that_does_not_read_is_cut_off(run: Run) -> None:
    async def check() -> None:
        async with open_port(replace(LIMITS, answer_seconds_max=0.2)) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port.port, limit=1024)
            writer.write(b"GET /long HTTP/1.1\r\n\r\n")
            await turn_until(lambda: bool(port.visits))
            await turn_until(lambda: not port.visits)
            writer.close()

    run(check())


def test_too_many_connections(run: Run) -> None:
    async def check() -> None:
        before = SERVER.counter("refused_total", "", option="testPort").value
        async with open_port(replace(LIMITS, connections_max=2)) as port:
            held = [await asyncio.open_connection("127.0.0.1", port.port, limit=1024) for _ in range(2)]
            for _, writer in held:
                writer.write(b"GET /long HTTP/1.1\r\n\r\n")
            await turn_until(lambda: len([visit for visit in port.visits if visit.is_asked]) == 2)
            found = await ask_raw(port.port, b"")
            assert (found.status, found.text) == (503, "too many connections to this port\n")
            for _, writer in held:
                writer.close()
            await turn_until(lambda: not port.visits)
            assert (await get(port.port, "/")).status == 200
        assert SERVER.counter("refused_total", "", option="testPort").value == before + 1

    run(check())


def test_connections_that_send_nothing_keep_nobody_out(run: Run) -> None:
    """A probe that fails because of strangers would restart the server."""

    async def check() -> None:
        before = SERVER.counter("refused_total", "", option="testPort").value
        async with open_port(replace(LIMITS, connections_max=2)) as port:
            held = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(10)]
            held[-1][1].write(b"GET / HTTP/1.1\r\n")
            for _ in range(5):
                assert (await get(port.port, "/healthz")).status == 200
            # The oldest went first.
            assert await held[0][0].read() == b""
            assert len(port.visits) <= 2
            for _, writer in held:
                writer.close()
        assert SERVER.counter("refused_total", "", option="testPort").value > before

    run(check())


def test_connections_that_do_not_read_their_answer_keep_nobody_out(run: Run) -> None:
    """Nor do those with TLS that do not confirm its end."""

    async def check() -> None:
        async with open_port(replace(LIMITS, connections_max=2)) as port:
            held = [await asyncio.open_connection("127.0.0.1", port.port, limit=1024) for _ in range(2)]
            for _, writer in held:
                writer.write(b"GET /once HTTP/1.1\r\n\r\n")
            await turn_until(lambda: len([visit for visit in port.visits if visit.is_answered]) == 2)
            for _ in range(5):
                assert (await get(port.port, "/healthz")).status == 200
            for _, writer in held:
                writer.close()

    run(check())


def test_stopping_ends_every_connection(run: Run) -> None:
    async def check() -> None:
        async with open_port() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            await turn_until(lambda: bool(port.visits))
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert port.port == 0

    run(check())
