"""A consumer that never finishes some messages: `iterate` or `handle`, the name server, a group and a topic.

It acknowledges every message but those with the bodies `1` and `4`, and then works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys

from eruca import Consumer, Message, Offsets

NEVER_DONE = (b"1", b"4")


async def iterate(consumer: Consumer, topic: str) -> None:
    """Acknowledge message by message."""
    async with consumer:
        async for message in consumer:
            if message.body not in NEVER_DONE:
                await message.ack()


async def handle(consumer: Consumer, topic: str) -> None:
    """Return from the handler, or never do."""

    @consumer.handler(topic)
    async def work(message: Message) -> None:
        if message.body in NEVER_DONE:
            await asyncio.Event().wait()

    await consumer.run()


if __name__ == "__main__":
    kind, nameserver, group, topic = sys.argv[1:]
    subscribe = (topic,) if kind == "iterate" else ()
    consumer = Consumer(nameserver, group=group, subscribe=subscribe, start="earliest", offsets=Offsets(interval=0.2))
    asyncio.run((iterate if kind == "iterate" else handle)(consumer, topic))
