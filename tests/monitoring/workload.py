"""Producers and consumers of every kind, so that every metric has something to show."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from eruca import Consumer, Decision, Flow, Message, Offsets, Outcome, Producer, Retry, TransactionalProducer
from eruca._client.group.settings import Start
from tests.patience import PATIENCE_S

# Retries come at once, and the last level never; producers are asked about transactions at once, repeatedly.
OPTIONS = (
    "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 10h",
    "transactionCheckInterval=500",
    "transactionTimeOut=200",
    "transactionCheckMax=100000",
)
LAST_LEVEL = 18
EARLY = 30
_PAUSE_S = 0.02


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def never(message: Message) -> None:
    """A handler that hangs."""
    await asyncio.Event().wait()


async def fail(message: Message) -> Outcome:
    """A handler that fails."""
    return Outcome.LATER


async def abandon(nameservers: str) -> None:
    """A transaction whose producer leaves without a decision."""
    gone = TransactionalProducer(nameservers, group="gone", check=lambda _: Decision.UNKNOWN)
    async with gone, gone.transaction("points", b"nobody knows") as half:
        half.leave_open()


async def consume_some(nameservers: str) -> None:
    """A group that read a little and left."""
    async with Consumer(nameservers, group="archive", subscribe="orders", start="earliest") as consumer:
        async for message in consumer:
            await message.ack()
            break


@asynccontextmanager
async def run_workload(nameservers: str, home: Path) -> AsyncIterator[None]:
    """Clients that send and consume all the time; when the block begins, each has done what it does."""
    done = {"billing": 0, "feed": 0}

    async def take(message: Message) -> None:
        done["billing"] += 1

    async def show(message: Message) -> None:
        done["feed"] += 1

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(nameservers, group="shop"))
        for number in range(EARLY):
            await producer.send("orders", b"order %d" % number, tags="new", keys=[f"o-{number}"])
        await producer.send("orders", os.urandom(3000))
        await producer.send("mails", b"to nobody")
        await producer.send("orders", b"much later", delay_level=LAST_LEVEL)
        await producer.send("orders", b"tomorrow", timer=timedelta(days=1))
        payments = await stack.enter_async_context(
            TransactionalProducer(nameservers, group="payments", check=lambda _: Decision.ROLLBACK)
        )
        async with payments.transaction("points", b"100 points"):
            pass
        await payments.send_transaction("points", b"50 points", local=lambda _: Decision.ROLLBACK)
        await abandon(nameservers)
        await consume_some(nameservers)
        start: Start = "earliest"
        billing = Consumer(nameservers, group="billing", start=start)
        billing.handler("orders")(take)
        slow = Consumer(nameservers, group="slow", start=start, drain=0, flow=Flow(batch=1, count_max=1))
        slow.handler("orders", concurrency=1)(never)
        mailer = Consumer(nameservers, group="mailer", start=start, retry=Retry(max_deliveries=2))
        mailer.handler("mails")(fail)
        feed = Consumer(
            nameservers, group="feed", start=start, broadcast=True, offsets=Offsets(directory=home / "feed")
        )
        feed.handler("orders")(show)
        for consumer in (billing, slow, mailer, feed):
            await stack.enter_async_context(consumer)
        sending = asyncio.create_task(_send_on(producer))
        stack.callback(sending.cancel)
        await wait_until(lambda: done["billing"] > EARLY and done["feed"] > EARLY)
        yield


async def _send_on(producer: Producer) -> None:
    number = 0
    while True:
        number += 1
        await producer.send("orders", b"order %d" % number)
        if number % 50 == 0:
            await producer.send("mails", b"to nobody")
        await asyncio.sleep(_PAUSE_S)
