"""Some members of one group in a separate process, with slow handlers.

What happens is printed, one JSON line each; the process ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from eruca import ClientOptions, Consumer, Message, Rebalance
from eruca._wire.bodies import MessageQueue


@dataclass(frozen=True)
class MemberSettings:
    """What the members of one process do; every second one has a plain handler, which runs in threads."""

    nameserver: str
    group: str
    topic: str
    first: int
    count: int
    handler_s: float
    concurrency: int
    heartbeat_ms: int
    rebalance_ms: int
    # How long handlers may continue at the end.
    drain_s: float


def tell(**event: Any) -> None:
    """Report what happened, with a time that all processes of a machine share."""
    sys.stdout.write(json.dumps({"at": time.monotonic(), **event}) + "\n")
    sys.stdout.flush()


def make_member(settings: MemberSettings, number: int) -> Consumer:
    """One consumer."""

    mine: set[int] = set()

    def tell_queues(assigned: list[MessageQueue], revoked: list[MessageQueue]) -> None:
        mine.update([queue.queue_id for queue in assigned])
        mine.difference_update([queue.queue_id for queue in revoked])
        tell(event="queues", member=number, queues=sorted(mine))

    consumer = Consumer(
        settings.nameserver,
        group=settings.group,
        start="earliest",
        options=ClientOptions(heartbeat_interval=settings.heartbeat_ms / 1000, ip="127.0.0.1"),
        rebalance=Rebalance(interval=settings.rebalance_ms / 1000, on_change=tell_queues),
        drain=settings.drain_s,
    )

    async def work(message: Message) -> None:
        tell(event="begun", member=number)
        await asyncio.sleep(settings.handler_s)
        tell(event="handled", member=number)

    def work_plainly(message: Message) -> None:
        tell(event="begun", member=number)
        threading.Event().wait(settings.handler_s)  # keeps its thread, as a slow database does
        tell(event="handled", member=number)

    consumer.handler(settings.topic, concurrency=settings.concurrency)(work_plainly if number % 2 else work)
    return consumer


async def main(settings: MemberSettings) -> None:
    """Consume until the input ends."""
    members = [make_member(settings, settings.first + number) for number in range(settings.count)]
    await asyncio.gather(*[member.start() for member in members])
    for number, member in enumerate(members, settings.first):
        tell(event="started", member=number, client=member._session.client_id)
    await asyncio.to_thread(sys.stdin.read)
    tell(event="closing")
    await asyncio.gather(*[member.close() for member in members])


if __name__ == "__main__":
    asyncio.run(main(MemberSettings(**json.loads(sys.argv[1]))))
