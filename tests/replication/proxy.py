"""A TCP proxy between two servers that makes network faults: delays, silence, resets, half-closed connections, wrong
bytes.

Each direction has its own faults, which may change while connections are open. Data that is held back is not lost, as
with TCP itself: it arrives when the direction is free again, unless the connection was closed meanwhile.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 64 * 1024
# What one way of one connection holds before it stops reading, like the buffers of a network.
_HELD_BYTES_MAX = 256 * 1024
# A blocked direction checks this often whether the other side has closed.
_POLL_S = 0.01


class Way(enum.Enum):
    """Seen from the connecting side: what it sends, and what it receives."""

    THERE = "there"
    BACK = "back"


class Weather:
    """How it is on one way. All of it may be changed at any time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._light = asyncio.Event()
        self._light.set()
        # How late bytes arrive: between these two.
        self.delay_s = (0.0, 0.0)
        # How many bytes of a million are changed.
        self.corrupt_ppm = 0.0
        self.corrupted = 0

    @property
    def is_dark(self) -> bool:
        """Nothing arrives, and neither side is notified."""
        return not self._light.is_set()

    @is_dark.setter
    def is_dark(self, value: bool) -> None:
        if value:
            self._light.clear()
        else:
            self._light.set()

    async def wait_for_light(self) -> None:
        """Wait as long as it is dark."""
        await self._light.wait()

    def clear(self) -> None:
        """Fine weather."""
        self.is_dark, self.delay_s, self.corrupt_ppm = False, (0.0, 0.0), 0.0

    def choose_delay(self) -> float:
        """How late the next bytes are."""
        return self._rng.uniform(*self.delay_s)

    def change(self, data: bytes) -> bytes:
        """The bytes as they arrive."""
        if not self.corrupt_ppm:
            return data
        # Where the next wrong byte is: steps of an exponential distribution cost nothing where nothing is wrong.
        at = int(self._rng.expovariate(self.corrupt_ppm / 1e6))
        if at >= len(data):
            return data
        changed = bytearray(data)
        while at < len(changed):
            changed[at] ^= self._rng.randrange(1, 256)
            self.corrupted += 1
            at += 1 + int(self._rng.expovariate(self.corrupt_ppm / 1e6))
        return bytes(changed)


class _Pipe:
    """One way of one connection: reads, holds, and writes when it is time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, weather: Weather) -> None:
        self._reader, self._writer, self._weather = reader, writer, weather
        # When it is to arrive, and what: nothing is the end, None a reset.
        self._held: deque[tuple[float, bytes | None]] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self.is_cut = False

    def cut(self) -> None:
        """Close this direction alone: the receiver sees the end of the stream."""
        self.is_cut = True
        self._changed.set()
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def run(self) -> None:
        """Carry bytes until either end is closed."""
        reading = asyncio.create_task(self._read())
        try:
            await self._write()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        last = 0.0
        while True:
            data: bytes | None
            try:
                data = await self._reader.read(_CHUNK_BYTES)
            except OSError:
                data = None
            # Later bytes never overtake earlier ones.
            last = max(last, loop.time() + self._weather.choose_delay())
            self._held.append((last, data))
            self._held_bytes += len(data or b"")
            self._changed.set()
            if not data:
                return
            while self._held_bytes > _HELD_BYTES_MAX:
                self._has_room.clear()
                await self._has_room.wait()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._held:
                self._changed.clear()
                await self._changed.wait()
            due, data = self._held[0]
            if (late := due - loop.time()) > 0:
                await asyncio.sleep(late)
            await self._weather.wait_for_light()
            self._held.popleft()
            self._held_bytes -= len(data or b"")
            self._has_room.set()
            if data is None:
                raise ConnectionResetError
            if not data:
                if not self.is_cut:
                    self._writer.write_eof()
                return
            if self.is_cut:
                continue  # the receiver has closed
            self._writer.write(self._weather.change(data))
            await self._writer.drain()


class _Connection:
    """Both ways of one connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, pipes: dict[Way, _Pipe]) -> None:
        self._writers = (client, server)
        self.pipes = pipes

    async def run(self) -> None:
        """Carry both ways until both are closed, or one of them breaks."""
        tasks = [asyncio.create_task(pipe.run()) for pipe in self.pipes.values()]
        try:
            await asyncio.gather(*tasks)
        except OSError:
            self.abort()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        """Reset it: both sides get an error."""
        for writer in self._writers:
            writer.transport.abort()


class TcpProxy:
    """Listens at one place and carries every connection to another.

    >>> async with TcpProxy(("127.0.0.2", 10912), ("127.0.0.1", 10912), random.Random(7)) as proxy:
    ...     proxy.weather[Way.BACK].is_dark = True
    """

    def __init__(self, listen: tuple[str, int], target: tuple[str, int], rng: random.Random) -> None:
        self._listen, self._target = listen, target
        self.weather = {way: Weather(rng) for way in Way}
        # New connections are reset at once.
        self.is_refusing = False
        self.opened = 0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, *self._listen, limit=_CHUNK_BYTES)
        self._listen = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._listen
        return f"{host}:{port}"

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    # -- weather -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Fine weather on both ways, for old and new connections."""
        self.is_refusing = False
        for weather in self.weather.values():
            weather.clear()

    def reset(self) -> None:
        """Reset every connection that is open."""
        for connection in list(self._connections):
            connection.abort()

    def half_close(self, way: Way) -> int:
        """Close one direction of every connection; the other stays open. Return how many there were."""
        for connection in self._connections:
            connection.pipes[way].cut()
        return len(self._connections)

    # -- connections -------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy ends; a stream server would log it as an error
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that is made in the dark does not get through before it is light.
        while self.weather[Way.THERE].is_dark and not self.is_refusing:
            if reader.at_eof():
                return
            await asyncio.sleep(_POLL_S)
        if self.is_refusing:
            return
        try:
            from_server, to_server = await asyncio.open_connection(*self._target, limit=_CHUNK_BYTES)
        except OSError:
            return
        self.opened += 1
        pipes = {
            Way.THERE: _Pipe(reader, to_server, self.weather[Way.THERE]),
            Way.BACK: _Pipe(from_server, writer, self.weather[Way.BACK]),
        }
        connection = _Connection(writer, to_server, pipes)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            to_server.transport.abort()
