"""`make torture ONLY=send-soon`: a program that sends in the background as fast as it can uses bounded memory.

A million messages go through `await producer.send_soon(...)` in a tight loop that drops the futures, to an `eruca up`
in a separate process. Nothing may fail, and the memory of this process may grow by what the window allows.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from eruca import Producer, PullConsumer, Receipt
from tests.integration.broker.serving import Serving, read_memory

TOPIC = "soon"
_LOOK_EVERY = 5_000
# What 8,192 messages under way need, with room for the collector to be late.
_GROWTH_MAX = 200 * 1000 * 1000
# A busy machine takes longer, and nothing fails for that.
_TIMEOUT_S = 120.0


@dataclass
class Result:
    """What was seen."""

    count: int
    failed: int = 0
    stored: int = 0
    growth: int = 0
    seconds: float = 0.0

    def summarise(self) -> str:
        """One line."""
        return (
            f"send-soon: {self.count:,} messages in {self.seconds:.1f} s ({self.count / self.seconds:,.0f}/s),"
            f" {self.failed} failed, {self.stored:,} stored, memory grew by at most {self.growth / 1e6:.0f} MB"
        )

    def list_violations(self) -> list[str]:
        """What must not be."""
        found = []
        if self.failed:
            found.append(f"{self.failed} sends failed")
        if self.stored != self.count:
            found.append(f"{self.stored} of {self.count} messages are stored")
        if self.growth > _GROWTH_MAX:
            found.append(f"memory grew by {self.growth} bytes, at most {_GROWTH_MAX}")
        return found


async def run(count: int, nameserver: str) -> Result:
    """Send them all."""
    result = Result(count)

    def note(done: asyncio.Future[Receipt]) -> None:
        result.failed += done.cancelled() or done.exception() is not None

    began, before = time.monotonic(), await asyncio.to_thread(read_memory, os.getpid())
    async with Producer(nameserver, group="soon", timeout=_TIMEOUT_S) as producer:
        for number in range(count):
            (await producer.send_soon(TOPIC, b"%d" % number)).add_done_callback(note)
            if not number % _LOOK_EVERY:
                result.growth = max(result.growth, await asyncio.to_thread(read_memory, os.getpid()) - before)
    result.seconds = time.monotonic() - began
    async with PullConsumer(nameserver, group="count") as consumer:
        for queue in await consumer.list_queues(TOPIC):
            result.stored += await consumer.end_offset(queue)
    return result


def torture(_: float | None) -> int:
    """Run it; 0 when all is well. It takes a minute or two."""
    with tempfile.TemporaryDirectory(prefix="eruca-soon-") as directory:
        serving = Serving(Path(directory))
        try:
            result = asyncio.run(run(1_000_000, serving.names))
        finally:
            serving.end()
    print(result.summarise())
    violations = result.list_violations()
    for violation in violations:
        print(f"  {violation}")
    return 1 if violations else 0
