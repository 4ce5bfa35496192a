"""Slaves made of a plain socket: they send what a test wants and record what they receive."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Awaitable, Callable

from eruca._broker.app import Broker
from eruca._wire.replication import (
    HELLO_MAGIC,
    Chunk,
    ChunkDecoder,
    FencedDecoder,
    FencedFrame,
    Hello,
    LogChunk,
    LogReport,
    Refusal,
    encode_fenced,
    encode_report,
)
from tests.patience import PATIENCE_S

SECONDS_MAX = PATIENCE_S


class RawSlave:
    """A slave made of a plain socket: it sends what a test wants and records what it receives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._classic = ChunkDecoder()
        self._fenced = FencedDecoder()
        self.chunks: list[LogChunk] = []
        self.frames: list[FencedFrame] = []

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    def report(self, position: int) -> None:
        """Send a classic report."""
        self.say(encode_report(LogReport(position)))

    def hello(
        self, broker: Broker, position: int = 0, *, broker_id: int = 1, check: bytes = b"", address: str = "me:1"
    ) -> None:
        """Open a fenced link."""
        epoch = broker.replication.roles.epoch
        begin = position - len(check)
        self.say(HELLO_MAGIC + encode_fenced(Hello(epoch, broker_id, position, begin, zlib.crc32(check), address)))

    async def read(self) -> bool:
        """Read once; return False if the master has closed the connection."""
        async with asyncio.timeout(SECONDS_MAX):
            try:
                data = await self._reader.read(1 << 20)
            except ConnectionResetError:
                return False
        if not data:
            return False
        if self._is_fenced:
            self.frames += self._fenced.feed(data)
        else:
            self.chunks += self._classic.feed(data)
        return True

    _is_fenced = False

    async def read_log(self, size: int) -> bytes:
        """Read until this many bytes of the log have arrived, and return them; they must be contiguous."""
        while sum(len(chunk.data) for chunk in self.log_chunks) < size:
            assert await self.read(), "the master closed"
        chunks = [chunk for chunk in self.log_chunks if chunk.data]
        for before, after in itertools.pairwise(chunks):
            assert after.position == before.position + len(before.data)
        return b"".join([chunk.data for chunk in chunks])

    @property
    def log_chunks(self) -> list[LogChunk] | list[Chunk]:
        """Return the chunks of the log that arrived, and heartbeats."""
        return [frame for frame in self.frames if isinstance(frame, Chunk)] if self._is_fenced else self.chunks

    async def wait_until_closed(self) -> None:
        """Read until the master closes."""
        while await self.read():
            pass

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class FencedSlave(RawSlave):
    """A slave that uses the fenced protocol."""

    _is_fenced = True

    @property
    def refusal(self) -> str:
        """Why the master closed."""
        return next((frame.reason for frame in self.frames if isinstance(frame, Refusal)), "")


Connect = Callable[..., Awaitable[RawSlave]]
