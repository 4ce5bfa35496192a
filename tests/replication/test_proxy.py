"""The proxy of the network faults works as described, so that a test that passes behind it means something."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.clients.stage import wait_until
from tests.patience import PATIENCE_S
from tests.replication.proxy import TcpProxy, Way

_DARK_S = 0.15
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """An echo server that remembers what it received."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.ends: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                self.heard += data
                writer.write(data)
                await writer.drain()
            self.ends.append("end")
            writer.write(b"bye")
            await writer.drain()
        except ConnectionError:
            self.ends.append("reset")
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()


@asynccontextmanager
async def stand_between() -> AsyncIterator[tuple[TcpProxy, Echo]]:
    """An echo behind a proxy."""
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    try:
        target = server.sockets[0].getsockname()
        async with TcpProxy(("127.0.0.1", 0), target, random.Random(1)) as proxy:
            yield proxy, echo
    finally:
        server.close()


@asynccontextmanager
async def connect(proxy: TcpProxy) -> AsyncIterator[Streams]:
    host, port = proxy.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.readexactly(count)


async def expect_silence(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(_DARK_S):
            await reader.read(1)


async def test_bytes_go_through_both_ways() -> None:
    async with stand_between() as (proxy, echo), connect(proxy) as (reader, writer):
        sent = random.Random(2).randbytes(1_000_000)
        writer.write(sent)
        assert await read(reader, len(sent)) == sent
        writer.write_eof()
        assert await read(reader, 3) == b"bye"
        assert await reader.read() == b""
        assert bytes(echo.heard) == sent
        await wait_until(lambda: proxy.count == 0, "closed")


async def test_delayed_bytes_come_later_and_in_order() -> None:
    async with stand_between() as (proxy, _), connect(proxy) as (reader, writer):
        proxy.weather[Way.BACK].delay_s = (0.05, 0.2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(20):
            writer.write(b"%02d" % number)
            await writer.drain()
            await asyncio.sleep(0.001)
        assert await read(reader, 40) == b"".join(b"%02d" % number for number in range(20))
        assert loop.time() - began >= 0.05


async def test_what_is_held_in_the_dark_comes_when_it_is_light() -> None:
    async with stand_between() as (proxy, echo), connect(proxy) as (reader, writer):
        proxy.weather[Way.THERE].is_dark = True
        writer.write(b"lost?")
        await expect_silence(reader)
        assert not echo.heard
        proxy.clear()
        assert await read(reader, 5) == b"lost?"


async def test_one_way_may_be_dark_alone() -> None:
    async with stand_between() as (proxy, echo), connect(proxy) as (reader, writer):
        proxy.weather[Way.BACK].is_dark = True
        writer.write(b"heard")
        await wait_until(lambda: echo.heard == b"heard", "heard")
        await expect_silence(reader)
        proxy.clear()
        assert await read(reader, 5) == b"heard"


async def test_a_connection_made_in_the_dark_waits() -> None:
    async with stand_between() as (proxy, _):
        for weather in proxy.weather.values():
            weather.is_dark = True
        async with connect(proxy) as (reader, writer):
            writer.write(b"hello")
            await expect_silence(reader)
            assert proxy.opened == 0
            proxy.clear()
            assert await read(reader, 5) == b"hello"


async def test_reset_is_seen_by_both_sides_and_new_connections_may_be_refused() -> None:
    async with stand_between() as (proxy, echo):
        async with connect(proxy) as (reader, writer):
            writer.write(b"first")
            await read(reader, 5)
            proxy.is_refusing = True
            proxy.reset()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await read(reader, 1)
            await wait_until(lambda: len(echo.ends) == 1, "told")
        async with connect(proxy) as (reader, _):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await read(reader, 1)
        proxy.clear()
        async with connect(proxy) as (reader, writer):
            writer.write(b"again")
            assert await read(reader, 5) == b"again"


async def test_a_half_closed_connection_still_talks_the_other_way() -> None:
    async with stand_between() as (proxy, echo), connect(proxy) as (reader, writer):
        writer.write(b"one")
        assert await read(reader, 3) == b"one"
        assert proxy.half_close(Way.THERE) == 1
        await wait_until(lambda: echo.ends == ["end"], "told")
        # The server's last data arrives, what we send does not.
        writer.write(b"two")
        assert await read(reader, 3) == b"bye"
        assert echo.heard == b"one"


async def test_corrupt_bytes_are_counted_and_nothing_else_changes() -> None:
    async with stand_between() as (proxy, _), connect(proxy) as (reader, writer):
        proxy.weather[Way.THERE].corrupt_ppm = 100
        sent = random.Random(3).randbytes(500_000)
        writer.write(sent)
        got = await read(reader, len(sent))
        wrong = sum(a != b for a, b in zip(sent, got, strict=True))
        assert 10 < wrong < 200
        assert wrong == proxy.weather[Way.THERE].corrupted
