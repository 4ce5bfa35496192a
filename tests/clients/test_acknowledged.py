"""A consumer is killed: with Eruca the next one gets what was not done, and nothing else.

Java's broker keeps one offset of a queue, so there everything behind the first such message comes again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eruca import Consumer, MessageQueue, Producer
from eruca._wire.headers import CommittedOffsetHeader
from tests.clients.ackingmember import NEVER_DONE
from tests.clients.stage import create_topic, make_consumer, poll, send_numbered
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.paths import REPOSITORY
from tests.patience import PATIENCE_S

COUNT = 10
LAST = b"the last one"


@contextmanager
def start_member(kind: str, nameserver: str, group: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer in another process, which is killed at the end."""
    program = Path("tests/clients/ackingmember.py")
    command = [sys.executable, "-P", str(program), kind, nameserver, group, topic]
    with subprocess.Popen(command, cwd=REPOSITORY) as member:
        try:
            yield member
        finally:
            member.kill()


async def read_progress(producer: Producer, group: str, queue: MessageQueue) -> CommittedOffsetHeader | None:
    """What the broker keeps of the group."""
    session = producer._session
    return await session.calls.read_progress(session.routes.require_address(queue.broker_name), group, queue)


async def read_until_last(consumer: Consumer) -> list[bytes]:
    """What arrives before the last message."""
    found = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in consumer:
            await message.ack()
            if message.body == LAST:
                break
            found.append(message.body)
    return found


async def send_and_wait(nameserver: str, group: str, topic: str, wanted: tuple[int, str | None]) -> None:
    """Send messages, and wait until the broker has this offset and these messages behind it."""
    queue = MessageQueue(BROKER_NAME, 0, topic)
    async with Producer(nameserver, group="feed") as producer:
        await create_topic(producer, topic, 1)
        await send_numbered(producer, topic, range(COUNT))
        await poll(
            lambda: read_progress(producer, group, queue),
            lambda found: found is not None and (found.offset, found.eruca_done) == wanted,
        )
        await producer.send(topic, LAST)


async def read_again(nameserver: str, group: str, topic: str) -> list[bytes]:
    """What the next member of the group gets."""
    async with make_consumer(nameserver, group, topic) as consumer:
        return await read_until_last(consumer)


@pytest.mark.parametrize("kind", ["iterate", "handle"])
def test_a_killed_consumer(cluster: Cluster, kind: str) -> None:
    place = cluster.name_server, f"acking-{kind}", f"acked-{kind}"
    keeps = cluster.kind == "eruca"
    with start_member(kind, *place):
        asyncio.run(send_and_wait(*place, (1, "1-2,4-8") if keeps else (1, None)))
    every = [b"%d" % number for number in range(COUNT)]
    assert asyncio.run(read_again(*place)) == (list(NEVER_DONE) if keeps else every[1:])
