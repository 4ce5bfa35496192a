"""A cluster with something on every page: topics, messages, groups that keep up and groups that do not, dead letters.

Used for screenshots and for the checks of accessibility.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from eruca import ClientOptions, Consumer, Message, Offsets, Producer, Rebalance, Receipt
from eruca.admin import Admin
from tests.admin.stage import poll
from tests.integration.admin.staging import bury, prepare

TOPICS: Final = {
    "shop-orders": 8,
    "shop-payments": 8,
    "shop-shipments": 4,
    "shop-refunds": 4,
    "billing-invoices": 4,
    "billing-reminders": 2,
    "audit-logins": 1,
    "inventory": 4,
}
#: Groups by what becomes of them.
KEEPS_UP, SLOW, ABSENT, FAILING = "billing", "analytics", "reporting", "payments-worker"
LATE: Final = "fraud-check"
KEY: Final = "order-1007"
DOUBT: Final = "7F00000100002A9F0000000000000001"
_QUICK: Final = ClientOptions(route_interval=0.5)
_ORDERS: Final = 240
_DELAY_LEVELS: Final = (9, 16, 18)


class Scenery:
    """A filled cluster; `first` is the receipt of the message with the key `KEY`."""

    def __init__(self, first: Receipt) -> None:
        self.first = first

    @property
    def message_path(self) -> tuple[str, ...]:
        """The parts of the address of the page of that message."""
        queue = self.first.queue
        return ("messages", queue.topic, queue.broker_name, str(queue.queue_id), str(self.first.offset))


@asynccontextmanager
async def build_scenery(nameserver: str) -> AsyncIterator[Scenery]:
    """Fill a cluster, and keep its groups running in the block."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(nameserver, _QUICK))
        for topic, queues in TOPICS.items():
            await admin.topics.create(topic, queues=queues)
        await poll(admin.topics.list, lambda found: {row.name for row in found.items} >= TOPICS.keys())
        async with _member(nameserver, ABSENT, "shop-orders"):
            await stack.enter_async_context(_member(nameserver, KEEPS_UP, "shop-orders"))
            await stack.enter_async_context(_member(nameserver, FAILING, "shop-payments"))
            producer = await stack.enter_async_context(Producer(nameserver, group="shop", options=_QUICK, trace=True))
            await _send(producer, range(20))
            wanted = {KEEPS_UP, ABSENT, FAILING}
            await poll(admin.groups.list, lambda found: {row.name for row in found.items} >= wanted)
        receipts = await _send(producer, range(20, _ORDERS))
        await stack.enter_async_context(_member(nameserver, SLOW, "shop-orders", stops=True))
        await bury(admin, FAILING, "shop-payments", 7)
        await prepare(admin, "shop-payments", DOUBT)
        await poll(lambda: admin.messages.find_by_key("shop-orders", KEY), lambda found: bool(found.items))
        yield Scenery(receipts[KEY])


async def _send(producer: Producer, numbers: range) -> Mapping[str, Receipt]:
    receipts = {}
    for number in numbers:
        order = {"order": 987 + number, "customer": f"c-{number % 37}", "amount": round(7.5 + number * 1.37, 2)}
        body, key, region = json.dumps(order).encode(), f"order-{987 + number}", ("eu", "us", "cn")[number % 3]
        receipts[key] = await producer.send(
            "shop-orders", body, tags="paid" if number % 4 else "new", keys=key, properties={"region": region}
        )
        if number % 9 == 0:
            await producer.send("inventory", body, keys=key)
    for level in _DELAY_LEVELS:
        await producer.send("billing-reminders", b"{}", keys=f"reminder-{level}", delay_level=level)
    return receipts


@asynccontextmanager
async def keep_busy(nameserver: str) -> AsyncIterator[None]:
    """Send orders in the block, now more and now fewer; a group of its own takes half of them, and falls behind."""

    async def send_on(producer: Producer) -> None:
        for number in itertools.count(_ORDERS):
            await _send(producer, range(number, number + 1))
            # The pause between two orders is what this is about: there is nothing to wait for.
            await asyncio.sleep(0.06 + 0.03 * math.sin(number / 60))

    async with (
        Producer(nameserver, group="shop", options=_QUICK) as producer,
        _member(nameserver, LATE, "shop-orders", pause_s=2.5),
    ):
        sending = asyncio.create_task(send_on(producer))
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


@asynccontextmanager
async def _member(
    nameserver: str, group: str, topic: str, *, stops: bool = False, pause_s: float = 0
) -> AsyncIterator[None]:
    """Run a member of a group. One that `stops` keeps the first messages it gets for ever."""
    consumer = Consumer(
        nameserver,
        group=group,
        options=_QUICK,
        start="earliest",
        rebalance=Rebalance(interval=0.5),
        offsets=Offsets(interval=0.2),
    )
    never = asyncio.Event()

    @consumer.handler(topic)
    async def take(message: Message) -> None:
        if stops or pause_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(never.wait(), pause_s or None)

    async with consumer:
        yield
        never.set()
