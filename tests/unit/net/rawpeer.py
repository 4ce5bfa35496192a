"""The other end of a connection, bare: bytes and commands on a real loopback socket, and a transport that remembers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from eruca._net.link import Handler, Link
from eruca._net.server import Server, ServerSettings
from eruca._wire.frame import Command, FrameBuffer, encode_command
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S


class RawPeer:
    """One connection to a server, with whole commands or any bytes on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameBuffer()
        self._commands: list[Command] = []

    def write(self, *commands: Command) -> None:
        """Send commands in one write."""
        self.writer.write(b"".join(map(encode_command, commands)))

    def write_bytes(self, data: bytes) -> None:
        """Send anything."""
        self.writer.write(data)

    async def read(self) -> Command:
        """The next command."""
        async with asyncio.timeout(SECONDS_MAX):
            while not self._commands:
                data = await self._reader.read(65536)
                assert data, "the connection ended"
                self._commands = self._frames.feed(data)
        return self._commands.pop(0)

    async def ask(self, command: Command) -> Command:
        """Send a request and return the next command, which must be its response."""
        self.write(command)
        answer = await self.read()
        assert (answer.opaque, answer.is_response) == (command.opaque, True)
        return answer

    async def wait_for_answer(self) -> Command | None:
        """The next command; None if the connection ends instead."""
        try:
            return await self.read()
        except (AssertionError, ConnectionError, ssl.SSLError):
            return None

    async def wait_for_end(self) -> bytes:
        """Wait until the server closed the connection; return what it sent before, apart from commands already read."""
        assert not self._commands
        data = b""
        async with asyncio.timeout(SECONDS_MAX):
            try:
                while piece := await self._reader.read(65536):
                    data += piece
            except (ConnectionError, ssl.SSLError):
                pass
        return data

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


@asynccontextmanager
async def open_peer(address: str | int, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawPeer]:
    """A connection to an address, or to a port on loopback."""
    host, _, port = str(address).rpartition(":")
    peer = RawPeer(*await asyncio.open_connection(host or "127.0.0.1", int(port), ssl=tls))
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def run_server(handlers: Mapping[int, Handler], unknown: Handler, **settings: Any) -> AsyncIterator[Server]:
    """A server on a loopback port chosen by the system, with frequent scans."""
    server = Server(handlers, unknown, ServerSettings(**{"scan_seconds": 0.01, **settings}))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def turn_until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def wait_for_links(server: Server, count: int) -> list[Link]:
    """Wait until a server has that many connections, and return them."""
    await turn_until(lambda: len(server.links) == count)
    return list(server.links)


class RecordingTransport(asyncio.Transport):
    """Records each write separately, which no socket does."""

    def __init__(self, unsent: int = 0) -> None:
        super().__init__({"peername": ("127.0.0.1", 4444), "sockname": ("127.0.0.1", 5555)})
        self.writes: list[bytes] = []
        self.unsent = unsent
        self.closed = False
        self.aborted = False
        self.reads = True

    def write(self, data: Any) -> None:
        """Remember."""
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever full here."""

    def get_write_buffer_size(self) -> int:
        """The value set by the test."""
        return self.unsent

    def is_closing(self) -> bool:
        """Was it closed?"""
        return self.closed or self.aborted

    def close(self) -> None:
        """Remember."""
        self.closed = True

    def abort(self) -> None:
        """Remember."""
        self.aborted = True

    def pause_reading(self) -> None:
        """Remember."""
        self.reads = False

    def resume_reading(self) -> None:
        """Remember."""
        self.reads = True


def split_frames(data: bytes) -> list[Command]:
    """The commands in some bytes, which must be whole frames."""
    buffer = FrameBuffer()
    commands = buffer.feed(data)
    assert buffer.buffered_bytes == 0
    return commands
