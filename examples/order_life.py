"""An order's life: placed, paid, done, kept in order by key.

Many orders are under way at the same time, and two workers share the work. The steps of one order carry the same
`shard`, so they are in one queue, and ordered handlers work on each queue one message after the other. Even when a
step fails and is tried again, no later step of that order overtakes it.

    python examples/order_life.py
    python examples/order_life.py --nameserver 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio

from stage import Stage, open_stage, tell

from eruca import Consumer, Message, Producer, Retry

ORDERS = [f"o-{number}" for number in range(1, 7)]
STEPS = ["placed", "paid", "done"]


class Shop:
    """What the workers have done, and whether they have finished."""

    def __init__(self) -> None:
        self.lives: dict[str, list[str]] = {order: [] for order in ORDERS}
        self.is_bank_away = True
        self.complete = asyncio.Event()

    def make_worker(self, stage: Stage, name: str) -> Consumer:
        """A member of the group; each queue belongs to one member at a time."""
        worker = Consumer(stage.nameserver, group=stage.name("warehouse"), start="earliest", retry=Retry(suspend=0.05))

        @worker.handler(stage.name("orders"), ordered=True)
        async def work(message: Message) -> None:
            order, step = message.keys[0], message.body.decode()
            if (order, step) == ("o-3", "paid") and self.is_bank_away:
                self.is_bank_away = False
                tell(f"  {name}: {order} {step}: the bank does not answer, so this step is retried first")
                raise ConnectionError("the bank does not answer")
            self.lives[order].append(step)
            tell(f"  {name}: {order} {step}")
            if sum(map(len, self.lives.values())) == len(ORDERS) * len(STEPS):
                self.complete.set()

        return worker


async def main(stage: Stage) -> None:
    """Send the steps of all orders, interleaved, and have two workers do them."""
    shop = Shop()
    async with Producer(stage.nameserver, group=stage.name("shop")) as producer:
        for step in STEPS:
            for order in ORDERS:
                await producer.send(stage.name("orders"), step.encode(), keys=[order], shard=order)
    tell(f"* {len(ORDERS)} orders were sent step by step, interleaved; the steps of one order are in one queue.")
    async with shop.make_worker(stage, "Ada"), shop.make_worker(stage, "Bob"):
        await asyncio.wait_for(shop.complete.wait(), 60)
    for order, life in shop.lives.items():
        assert life == STEPS, f"{order} went through {life}"
    tell("* Every order was placed, then paid, then done.")


if __name__ == "__main__":
    with open_stage(__doc__) as stage:
        asyncio.run(main(stage))
