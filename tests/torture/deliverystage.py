"""What the parts of `make torture ONLY=delivery` have in common."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eruca import Message, MessageQueue, Producer
from eruca.errors import ErucaError
from tests.clients.stage import list_queues, read_queue

# Levels 1, 2 and 5 are for delayed messages; retries begin with level 3.
LEVELS_S = (1, 2, 1, 1, 3, *[1] * 13)
OFFSETS_INTERVAL_MS = 200
CHECK_INTERVAL_MS = 400
BROKER_SETTINGS: dict[str, object] = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS_S),
    "flushConsumerOffsetInterval": OFFSETS_INTERVAL_MS,
    "transactionCheckInterval": CHECK_INTERVAL_MS,
    "transactionTimeOut": CHECK_INTERVAL_MS,
    # A broker that just started asks a few times before its producers are back.
    "transactionCheckMax": 60,
}
# What a send, with all its tries, may take: longer than a restart, so that some live through one.
SEND_SECONDS = 2.0
# When all is well, everything is there long before.
SETTLE_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.02
_SHOWN_MAX = 5


@dataclass
class Stage:
    """Where the broker is, and what watches it."""

    nameserver: str
    broker: str
    seed: int
    looker: Producer
    # Parts run until this is False.
    is_feeding: bool = True
    # When the broker was killed, by the loop's clock.
    kills: list[float] = field(default_factory=list)

    async def read_topic(self, topic: str) -> list[Message]:
        """All that a topic has."""
        session = self.looker._session
        return [message for queue in await list_queues(session, topic) for message in await read_queue(session, queue)]

    async def read_queue(self, topic: str, queue_id: int, broker_name: str) -> list[Message]:
        """All that one queue has, also of a topic that has no route."""
        return await read_queue(self.looker._session, MessageQueue(broker_name, queue_id, topic))


class Part:
    """One thing a broker does, with a ledger of what was confirmed to the clients."""

    name: ClassVar[str]

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rng = random.Random(f"delivery:{self.name}:{stage.seed}")
        self.violations: list[str] = []
        # How often the broker was killed while an operation of this part was in progress.
        self.kills = 0
        self.under_way = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._numbers = 0

    # -- what a part does --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make topics, start clients, begin."""

    async def prepare(self) -> None:
        """A kill is near."""

    def press(self) -> None:
        """A kill is very near: begin a few things that it will interrupt."""

    def count_under_way(self) -> int:
        """What a kill would interrupt now."""
        return 0

    def count_done(self) -> int | None:
        """What has been done so far, as the clients see it; None for a part that does nothing on its own."""
        return None

    async def on_restart(self) -> None:
        """The broker is up again."""

    async def settle(self) -> None:
        """Wait until everything that must come has come; nothing new is started."""

    async def check(self) -> None:
        """Hold what the broker has against the ledger."""

    async def close(self) -> None:
        """End the clients."""

    def summarise(self) -> str:
        """What was done, in numbers."""
        return ""

    # -- tools -------------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """The next number."""
        self._numbers += 1
        return self._numbers

    def name_body(self) -> bytes:
        """A unique body."""
        return f"{self.name}-{self.number()}".encode()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; what it raises is a violation."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.blame(f"unexpected {error!r}")

    async def end_tasks(self, seconds: float = 30.0) -> None:
        """Wait for all that was spawned; what does not end is a violation."""
        if self._tasks:
            _, hanging = await asyncio.wait(set(self._tasks), timeout=seconds)
            for task in hanging:
                self.blame(f"does not end: {task.get_coro()}")
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)

    async def rest(self, low_ms: float, high_ms: float) -> None:
        """A pause by chance."""
        await asyncio.sleep(self.rng.uniform(low_ms, high_ms) / 1000)

    def blame(self, what: str) -> None:
        """Take note of what must not be."""
        self.violations.append(f"{self.name}: {what}")

    def blame_all(self, what: str, these: Iterable[object]) -> None:
        """Take note of many that have the same."""
        if found := list(these):
            more = "" if len(found) <= _SHOWN_MAX else f" and {len(found) - _SHOWN_MAX} more"
            self.blame(f"{what}: {', '.join(map(str, found[:_SHOWN_MAX]))}{more}")

    async def wait_for(self, missing: Any, what: str) -> None:
        """Wait until nothing is missing; a violation when something still is after a long time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS_MAX
        while found := missing():
            if loop.time() > deadline:
                self.blame_all(what, found)
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_for_more(self, count: int | None) -> None:
        """Wait until the part has resumed automatically after a restart."""
        await self.wait_for(lambda: ["all"] if count is not None and self.count_done() == count else [], "stands still")


async def insist(work: Any) -> Any:
    """Do something that a kill may interrupt, repeatedly until it is done."""
    async with asyncio.timeout(SETTLE_SECONDS_MAX):
        while True:
            try:
                return await work()
            except ErucaError:
                await asyncio.sleep(0.05)
