"""The well-behaved client during attacks, as a process: `python -m tests.torture.hostilegood BROKER NAMES PID [KEYS]`.

It sends both servers a small request every few milliseconds, each on a separate connection, alternately sends and pulls
a message on another, and watches the memory of the server. For each line `end` on standard input it writes what it
measured since the last one, as JSON. With an access key and a secret key it signs its requests.

Time in which this process did not run, or the server's loop waited for a processor, is subtracted: on a busy machine
that is not the server's silence.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.ext import Header
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import QueueHeader
from eruca._wire.record import decode_records
from eruca._wire.signature import Credentials
from tests.integration.broker.requests import pull_header, send_header
from tests.integration.broker.serving import read_memory
from tests.unit.net.rawpeer import RawPeer, open_peer

_PING_S = 0.005
_TICK_S = 0.002
_PAUSE_S = 0.003
_MEMORY_S = 0.02
# The longest wait for the end of a part.
_PATIENCE_S = 120.0


@dataclass
class Measured:
    """What a good client saw of one part."""

    pings_ms: list[float] = field(default_factory=list)
    rounds_ms: list[float] = field(default_factory=list)
    memory: int = 0
    own_stall_ms: float = 0.0
    problems: list[str] = field(default_factory=list)


class GoodClient:
    """Measures, part by part."""

    def __init__(self, broker: str, names: str, pid: int, account: Credentials | None = None) -> None:
        self._broker, self._names, self._pid = broker, names, pid
        self._account = account
        self.now = Measured()
        # Seconds in which this process did not run, all together.
        self._own_stalls = 0.0
        # Set when each kind of request was answered once since the last line `end`, or failed.
        self._was_served = threading.Event()

    async def run(self) -> None:
        """Measure until standard input ends."""
        async with open_peer(self._broker) as one, open_peer(self._names) as two, open_peer(self._broker) as three:
            header = QueueHeader(topic="Healthy", queue_id=0)
            works = [
                self._tick(),
                self._ping(one, RequestCode.GET_MIN_OFFSET, header),
                self._ping(two, RequestCode.GET_NAMESRV_CONFIG, None),
                self._work(three),
                self._watch_memory(),
            ]
            tasks = [asyncio.create_task(self._note_problem(work)) for work in works]
            await asyncio.to_thread(self._obey)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _obey(self) -> None:
        for line in sys.stdin:
            if line.strip() == "end":
                # A short part can be over before a single request was; a long answer belongs to the part it began in.
                self._was_served.wait(_PATIENCE_S)
                done, self.now = self.now, Measured()
                self._was_served.clear()
                print(json.dumps(asdict(done)), flush=True)

    async def _note_problem(self, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except Exception as error:
            self.now.problems.append(f"{error.__class__.__name__}: {error}")
            self._was_served.set()
            raise

    def _note_served(self) -> None:
        if self.now.pings_ms and self.now.rounds_ms:
            self._was_served.set()

    def _begin(self) -> tuple[float, float, float]:
        """The time, and what others have taken from this process and from the loop of the server, in seconds."""
        return time.perf_counter(), self._own_stalls, read_waited(self._pid)

    async def _end(self, began: tuple[float, float, float]) -> float:
        """Milliseconds since then, without what others took; both may have been kept waiting at the same time."""
        taken = time.perf_counter() - began[0]
        await asyncio.sleep(_TICK_S)  # a stall of ours is counted when the ticker has run
        stalled = max(self._own_stalls - began[1], read_waited(self._pid) - began[2])
        return 1000 * max(0.0, taken - stalled)

    async def _tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            late = time.perf_counter() - began - _TICK_S
            self._own_stalls += max(0.0, late)
            self.now.own_stall_ms = max(self.now.own_stall_ms, 1000 * late)

    def _make(self, code: int, header: Header | None, body: bytes = b"", opaque: int = 1) -> Command:
        request = make_request(code, header, body, opaque=opaque)
        if self._account is not None:
            self._account.sign(request)
        return request

    async def _ping(self, peer: RawPeer, code: RequestCode, header: QueueHeader | None) -> None:
        number = 0
        while True:
            number += 1
            began = self._begin()
            async with asyncio.timeout(_PATIENCE_S):
                await peer.ask(self._make(code, header, opaque=number))
            self.now.pings_ms.append(await self._end(began))
            self._note_served()
            await asyncio.sleep(_PING_S)

    async def _work(self, peer: RawPeer) -> None:
        while True:
            began = self._begin()
            sent = await peer.ask(self._make(RequestCode.SEND_MESSAGE_V2, send_header("Good"), b"good"))
            assert sent.code == ResponseCode.SUCCESS, f"{sent.code} {sent.remark}"
            header = pull_header("Good", queue_offset=int(sent.ext_dict()["queueOffset"]))
            pulled = await peer.ask(self._make(RequestCode.PULL_MESSAGE, header, opaque=2))
            assert next(iter(decode_records(pulled.body))).body == b"good"
            self.now.rounds_ms.append(await self._end(began))
            self._note_served()
            await asyncio.sleep(_PAUSE_S)

    async def _watch_memory(self) -> None:
        while True:
            self.now.memory = max(self.now.memory, await asyncio.to_thread(read_memory, self._pid))
            await asyncio.sleep(_MEMORY_S)


def read_waited(pid: int) -> float:
    """Seconds in which the main thread of a process could have run and had no processor."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0  # a system that does not count it


if __name__ == "__main__":
    account = Credentials(*sys.argv[4:6]) if sys.argv[4:] else None
    asyncio.run(GoodClient(sys.argv[1], sys.argv[2], int(sys.argv[3]), account).run())
