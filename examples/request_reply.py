"""Request and reply: a message whose sender waits for the answer.

A desk asks what things cost, and a clerk replies. The clerk may run in another process or be written in another
language. The request is an ordinary message that any member of the clerk's group may receive; the reply is routed back
to the sender automatically.

    python examples/request_reply.py
    python examples/request_reply.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio

from stage import IMPATIENT, Stage, open_stage, tell

from eruca import Consumer, Message, Producer
from eruca.errors import RequestTimeout

PRICES = {"apple": "0.50", "melon": "3.20"}


async def main(stage: Stage) -> None:
    """Ask for two prices, and for one that nobody knows."""
    topic = stage.name("prices")
    clerk = Consumer(stage.nameserver, group=stage.name("clerks"), start="earliest", options=IMPATIENT)

    @clerk.handler(topic)
    async def answer(question: Message) -> None:
        price = PRICES.get(question.body.decode())
        if price is not None:
            await question.reply(price.encode())

    async with Producer(stage.nameserver, group=stage.name("desk")) as desk, clerk:
        for fruit in PRICES:
            reply = await desk.request(topic, fruit.encode(), timeout=10)
            tell(f"* What is one {fruit}? {reply.body.decode()}")
        try:
            await desk.request(topic, b"moonfruit", timeout=1)
        except RequestTimeout as error:
            tell(f"* What is one moonfruit? No answer: {error}")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        asyncio.run(main(stage))
