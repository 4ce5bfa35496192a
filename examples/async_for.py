"""Messages one by one with `async for`: you decide when each is done.

Only acknowledged messages are done. A message that is retried is delivered again later. If a consumer dies, its
unacknowledged messages are delivered to another member of the group.

    python examples/async_for.py
    python examples/async_for.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio

from stage import Stage, open_stage, tell

from eruca import Consumer, Outgoing, Producer


async def main(stage: Stage) -> None:
    """Send some letters, and read all but the adverts."""
    topic, group = stage.name("letters"), stage.name("readers")
    async with Producer(stage.nameserver, group=stage.name("writers")) as producer:
        for text, tag in (("dear reader", "letter"), ("buy now!", "advert"), ("kind regards", "letter")):
            receipt = await producer.send(topic, text.encode(), tags=tag)
            tell(f"* Sent {text!r} as {tag}: stored at offset {receipt.offset} of queue {receipt.queue.queue_id}.")
        await producer.send_batch(topic, [Outgoing(f"page {n}".encode(), tags="letter") for n in (1, 2, 3)])
        tell("* Sent three pages as one batch.")

    read = 0
    async with Consumer(stage.nameserver, group=group, subscribe={topic: "letter"}, start="earliest") as consumer:
        async for message in consumer:
            if message.body == b"kind regards" and message.delivery == 1:
                tell("  not now: kind regards")
                await message.retry(delay_level=1)
                continue
            tell(f"  read: {message.body.decode()}{' (delivered again)' if message.delivery > 1 else ''}")
            await message.ack()
            read += 1
            if read == 5:
                break
    tell("* All five letters were read, and no adverts.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        asyncio.run(main(stage))
