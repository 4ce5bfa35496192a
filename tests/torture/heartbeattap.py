"""A tap on the wire: passes bytes between clients and a broker, and notes when each client's heartbeats came by."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise

from eruca._wire.bodies import HeartbeatData
from eruca._wire.catalog import decode_request
from eruca._wire.codes import RequestCode
from eruca._wire.frame import FrameBuffer

_READ_BYTES = 256 * 1024


class HeartbeatTap:
    """Listens on the address the broker advertises, and forwards to its real address."""

    def __init__(self, listen: tuple[str, int], broker: tuple[str, int]) -> None:
        self._listen = listen
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # When heartbeats came, by client id and consumer group.
        self.beats: dict[tuple[str, str], list[float]] = defaultdict(list)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, *self._listen)

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # asyncio takes the end of this by `stop` for a mistake.
            with suppress(OSError, asyncio.CancelledError):
                answers, requests = await asyncio.open_connection(*self._broker)
                try:
                    back = asyncio.ensure_future(_pass_on(answers, writer))
                    await self._pass_requests(reader, requests)
                    back.cancel()
                finally:
                    requests.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameBuffer()
        while data := await reader.read(_READ_BYTES):
            now = time.monotonic()
            for command in frames.feed(data):
                if command.code == RequestCode.HEART_BEAT and not command.is_response:
                    body = decode_request(command)[1]
                    assert isinstance(body, HeartbeatData)
                    for consumer in body.consumer_data_set:
                        self.beats[body.client_id, consumer.group_name].append(now)
            writer.write(data)
            await writer.drain()

    def find_largest_gap(self, group: str, until: float) -> tuple[float, str]:
        """The longest time a member of a group was silent, up to `until`, and who it was."""
        largest, who = 0.0, ""
        for (client_id, name), times in self.beats.items():
            if name != group:
                continue
            moments = [*[moment for moment in times if moment <= until], until]
            gap = max(later - earlier for earlier, later in pairwise(moments))
            if gap > largest:
                largest, who = gap, client_id
        return largest, who


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()
