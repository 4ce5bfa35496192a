"""A broker of one queue that answers pulls as a test wants, and its name server, in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from eruca._net.handlers import HandlerTable, Reply, Request, refuse_unknown
from eruca._net.link import Link
from eruca._net.server import Server, ServerSettings
from eruca._spark.source.partitions import PulledPartition, QueueRange
from eruca._wire.bodies import MessageQueue
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, encode_command
from eruca._wire.headers import PullMessageAnswerHeader, PullMessageHeader
from eruca._wire.record import Record, encode_record
from tests.patience import PATIENCE_S
from tests.unit.client.scripted import make_route_data, wait_until

TOPIC, BROKER = "t", "broker-a"
QUEUE = MessageQueue(BROKER, 0, TOPIC)
DROP, SILENT = "drop the connection", "silent"
_START_S = PATIENCE_S

# What one pull is answered with: a code, one of the words above, or (next offset, body).
Step = int | str | tuple[int, bytes]
Script = Callable[[PullMessageHeader], Step | None]


def make_record(offset: int, **fields: object) -> bytes:
    """The record of one message of the queue."""
    usual: dict[str, object] = {"topic": TOPIC, "queue_offset": offset, "body": b"message-%d" % offset}
    return encode_record(Record(**usual | fields))  # type: ignore[arg-type]


class PullServer:
    """Has the offsets from `first` on; `script` may answer otherwise, and None of it leaves a pull to the usual."""

    def __init__(self, count: int, *, first: int = 0, count_max: int = 32, bytes_max: int = 256 * 1024) -> None:
        self.records = {offset: make_record(offset) for offset in range(first, first + count)}
        self.min_offset, self.max_offset = first, first + count
        self.count_max, self.bytes_max = count_max, bytes_max
        # Answers stop where a file of this number of entries ends.
        self.file_entries = 0
        self.steps: deque[Step] = deque()
        self.script: Script = lambda header: None
        self.has_route = True
        # (offset, count) of every pull.
        self.asked: list[tuple[int, int]] = []
        self._elsewhere: dict[int, str] = {}
        self._started = threading.Event()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(_START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_START_S)

    @property
    def address(self) -> str:
        """Where it listens, as broker and as name server."""
        return f"127.0.0.1:{self.server.port}"

    def route_to(self, address: str, broker_id: int = 0) -> None:
        """Let the name server say that the broker is somewhere else, or that only a slave of it is there."""
        self._elsewhere = {broker_id: address}

    def wait_until_alone(self) -> None:
        """Wait until nobody is connected anymore."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(wait_until(lambda: not self.server.links), self._loop).result()

    def plan(self, begin: int, end: int, *, address: str | None = None) -> PulledPartition:
        """One task with a range of the queue."""
        return PulledPartition([QueueRange(QUEUE, begin, end, self.address if address is None else address)])

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        table = HandlerTable()
        table.add_raw(RequestCode.PULL_MESSAGE, self._on_pull)
        table.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._on_route)
        self.server = Server(table.handlers, refuse_unknown, ServerSettings(scan_seconds=0.05))
        await self.server.start()
        self._started.set()
        await self._stopping.wait()
        await self.server.stop()

    def _on_route(self, request: Request) -> Reply:
        if not self.has_route:
            return Reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        route = make_route_data({BROKER: self.address}, 1)
        if self._elsewhere:
            route.broker_datas[0].broker_addrs = self._elsewhere
        return Reply(body=route)

    def _on_pull(self, link: Link, command: Command) -> bytes | None:
        header = command.decode_header(PullMessageHeader)
        self.asked.append((header.queue_offset, header.max_message_nums))
        step = self.steps.popleft() if self.steps else self.script(header)
        if step is None:
            return self._answer(command, *self._read(header))
        if step == DROP:
            link.abort()
        if isinstance(step, str):
            return None
        if isinstance(step, int):
            return encode_command(command.answer(step, remark="as the test wants"))
        return self._answer(command, ResponseCode.SUCCESS if step[1] else ResponseCode.PULL_RETRY_IMMEDIATELY, *step)

    def _answer(self, command: Command, code: int, next_offset: int, body: bytes) -> bytes:
        where = PullMessageAnswerHeader(0, next_offset, self.min_offset, self.max_offset)
        return encode_command(command.answer(code, where, body))

    def _read(self, header: PullMessageHeader) -> tuple[int, int, bytes]:
        at = header.queue_offset
        if at < self.min_offset:
            return ResponseCode.PULL_OFFSET_MOVED, self.min_offset, b""
        if at > self.max_offset:
            return ResponseCode.PULL_OFFSET_MOVED, self.max_offset, b""
        if at == self.max_offset:
            return ResponseCode.PULL_NOT_FOUND, at, b""
        stop = min(at + min(header.max_message_nums, self.count_max), self.max_offset)
        if self.file_entries:
            stop = min(stop, at - at % self.file_entries + self.file_entries)
        body = b""
        while at < stop:
            record = self.records.get(at, b"")
            if body and len(body) + len(record) > self.bytes_max:
                break
            body += record
            at += 1
        return ResponseCode.SUCCESS, at, body
