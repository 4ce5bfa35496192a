"""The orders of `eruca demo --spark`: sent by a producer and counted by a group."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from eruca._client.message import Message
from eruca._client.produce.outgoing import Outgoing
from eruca._client.produce.producer import Producer
from eruca._client.push.consumer import Consumer
from eruca.errors import ErucaError

TOPIC = "orders"
# The groups: one of the consumer, one for the offsets that Spark commits.
BILLING = "billing"
REVENUE = "revenue"

_HOUR = timedelta(hours=1)
_CENTS = {"melon": 320, "pear": 45, "rocket": 190, "basil": 150, "fig": 80}
# Bodies that are not orders, as in every real topic.
BROKEN = (b"<order/>", b"[]", b'{"order": "o-x", "cents": "many"}', b'{"order": "o-y", "at": "2026-01-01T00:00:00Z"}')
_CONSUME_SECONDS_MAX = 120
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Order:
    """One order."""

    name: str
    product: str
    cents: int
    at: datetime

    @property
    def hour(self) -> datetime:
        """The hour in which it was placed."""
        return self.at.replace(minute=0, second=0, microsecond=0)

    def pack(self) -> Outgoing:
        """Return it as a message."""
        body = {"order": self.name, "product": self.product, "cents": self.cents, "at": self.at.isoformat()}
        return Outgoing(json.dumps(body).encode(), keys=[self.name], tags=self.product)


@dataclass(slots=True)
class Takings:
    """How many orders, and how much money."""

    orders: int = 0
    cents: int = 0


@dataclass(slots=True)
class Consumed:
    """What a group has seen."""

    orders: set[str] = field(default_factory=set)
    cents: int = 0
    broken: Counter[bytes] = field(default_factory=Counter)


def make_orders(count: int, hours: int, seed: int, now: datetime) -> list[Order]:
    """Return orders of the last full hours, more at noon than at night. Seed and time determine them."""
    chance = random.Random(seed)
    begin = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - hours * _HOUR
    slots = [begin + number * _HOUR for number in range(hours)]
    weights = [1 + 3 * max(0.0, 1 - abs(slot.hour - 13) / 9) for slot in slots]
    made = []
    for number, slot in enumerate(sorted(chance.choices(slots, weights, k=count))):
        product = chance.choice(list(_CENTS))
        at = slot + timedelta(milliseconds=chance.randrange(3_600_000))
        made.append(Order(f"o-{number}", product, _CENTS[product] * chance.randint(1, 12), at))
    return made


def sum_up(orders: Sequence[Order]) -> dict[datetime, Takings]:
    """Return the revenue of each hour, in order."""
    by_hour: dict[datetime, Takings] = {}
    for order in sorted(orders, key=lambda order: order.hour):
        takings = by_hour.setdefault(order.hour, Takings())
        takings.orders += 1
        takings.cents += order.cents
    return by_hour


async def send_orders(nameserver: str, orders: Sequence[Order]) -> int:
    """Send all orders as they were placed, and some bodies that are not orders. Returns the number of messages."""
    messages = [order.pack() for order in orders]
    for number, body in enumerate(BROKEN):
        messages.insert(len(messages) * number // len(BROKEN), Outgoing(body, tags="broken"))
    async with Producer(nameserver, group="shop", timeout=30.0) as producer:
        for at in range(0, len(messages), _BATCH):
            await producer.send_batch(TOPIC, messages[at : at + _BATCH])
    return len(messages)


async def consume_orders(nameserver: str, count: int) -> Consumed:
    """Consume this many messages as a group; a message that is delivered again counts once."""
    seen = Consumed()
    places: set[tuple[str, int, int]] = set()
    complete = asyncio.Event()
    consumer = Consumer(nameserver, group=BILLING, start="earliest")

    @consumer.handler(TOPIC)
    async def book(message: Message) -> None:
        place = (message.queue.broker_name, message.queue.queue_id, message.offset)
        if place in places:
            return
        places.add(place)
        if message.tags == "broken":
            seen.broken[message.body] += 1
        else:
            order = json.loads(message.body)
            seen.orders.add(order["order"])
            seen.cents += order["cents"]
        if len(places) == count:
            complete.set()

    async with consumer:
        try:
            await asyncio.wait_for(complete.wait(), _CONSUME_SECONDS_MAX)
        except TimeoutError:
            raise ErucaError(f"the group got {len(places)} of {count} messages") from None
    return seen


def check_consumed(orders: Sequence[Order], seen: Consumed) -> None:
    """Raise ErucaError unless the group has seen every order."""
    missing = {order.name for order in orders} - seen.orders
    cents = sum(order.cents for order in orders)
    if missing or cents != seen.cents or seen.broken != Counter(BROKEN):
        raise ErucaError(f"the group's result is wrong: {len(missing)} orders missing, {seen.cents} cents of {cents}")
