"""Retries, and dead letters: what happens to a message that always fails.

A handler that raises gets its message again, each time after a longer pause. After `max_deliveries` deliveries the
broker moves the message to the dead letter topic of the group, where it can be inspected, repaired and sent again.

    python examples/retry_to_dead_letter.py
    python examples/retry_to_dead_letter.py --nameserver 127.0.0.1:9876     the waits are 10 and 30 seconds there
"""

from __future__ import annotations

import asyncio
import json

from stage import IMPATIENT, Stage, open_stage, tell

from eruca import Consumer, Message, Producer, Retry


async def main(stage: Stage) -> None:
    """Send three invoices, one that fails once and one that always fails; repair the latter."""
    topic, group = stage.name("invoices"), stage.name("accounting")
    booked: asyncio.Queue[str] = asyncio.Queue()
    consumer = Consumer(stage.nameserver, group=group, start="earliest", retry=Retry(max_deliveries=3))

    @consumer.handler(topic)
    async def book(message: Message) -> None:
        invoice = json.loads(message.body)
        tell(f"  {invoice['id']}: delivery {message.delivery}")
        if invoice["id"] == "i-2" and message.delivery == 1:
            raise ConnectionError("the ledger is locked at the moment")
        if invoice["amount"] < 0:
            raise ValueError("an invoice with a negative amount")
        await booked.put(invoice["id"])

    async with Producer(stage.nameserver, group=stage.name("sales")) as producer:
        for invoice in ({"id": "i-1", "amount": 10}, {"id": "i-2", "amount": 20}, {"id": "i-3", "amount": -30}):
            await producer.send(topic, json.dumps(invoice).encode(), keys=[str(invoice["id"])])
        tell("* Three invoices were sent. The second will fail once, the third always.")
        async with consumer:
            for _ in range(2):
                tell(f"* {await asyncio.wait_for(booked.get(), 120)} is booked.")
            letter = await read_dead_letter(stage, group)
            tell(f"* {letter.keys[0]} is a dead letter after {letter.delivery - 1} deliveries: {letter.body.decode()}")
            repaired = json.loads(letter.body) | {"amount": 30}
            await producer.send(topic, json.dumps(repaired).encode(), keys=letter.keys)
            tell(f"* Repaired and sent again; {await asyncio.wait_for(booked.get(), 120)} is booked.")


async def read_dead_letter(stage: Stage, group: str) -> Message:
    """Return the first dead letter of a group; it creates its topic."""
    async with Consumer(
        stage.nameserver,
        group=stage.name("morgue"),
        subscribe=f"%DLQ%{group}",
        start="earliest",
        options=IMPATIENT,
    ) as morgue:
        async for letter in morgue:
            await letter.ack()
            return letter
    raise AssertionError("the iteration only ends with the consumer")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        asyncio.run(main(stage))
