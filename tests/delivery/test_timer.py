"""Arbitrary delays, end to end: our producer and consumer, our broker, and what it leaves for a Java broker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import eruca.sync
from eruca import Consumer, Outcome, Producer
from eruca._client.message import Message
from eruca.errors import ConfigError, MessageIllegal
from eruca.testing import EmbeddedBroker
from tests.figures import note_figures
from tests.integration.broker.conftest import allow_new_files
from tests.patience import PATIENCE_S

__all__ = ["allow_new_files"]

SEED = 20261115
COUNT = 300
# What a busy machine may add; `make bench ONLY=delay` measures it.
LATE_MS_MAX = 2000


@pytest.fixture
async def broker(tmp_path: Path, allow_new_files: None) -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(tmp_path) as broker:
        yield broker


async def consume(broker: EmbeddedBroker, count: int, settle_s: float = 0.0) -> list[tuple[bytes, int, int]]:
    """Return body, due time and arrival time (ms) of this many messages, and of what arrives a moment later."""
    found: list[tuple[bytes, int, int]] = []
    complete = asyncio.Event()
    consumer = Consumer(broker.nameserver, group="readers", start="earliest")

    @consumer.handler("timers")
    async def take(message: Message) -> Outcome:
        found.append((message.body, int(message.all_properties["TIMER_OUT_MS"]), time.time_ns() // 1_000_000))
        if len(found) >= count:
            complete.set()
        return Outcome.DONE

    async with consumer:
        async with asyncio.timeout(PATIENCE_S):
            await complete.wait()
        await asyncio.sleep(settle_s)
    return found


async def test_random_delays_none_early_none_lost_none_twice(broker: EmbeddedBroker) -> None:
    generator = random.Random(SEED)
    async with Producer(broker.nameserver) as producer:

        async def send(number: int) -> bytes | None:
            body = b"%d" % number
            # Those that are cancelled: not due before that is done, and before the last of the others is.
            delay = timedelta(milliseconds=generator.randrange(500 if number % 10 else 2000, 4000))
            timer = delay if number % 2 else datetime.now(UTC) + delay
            receipt = await producer.send("timers", body, timer=timer)
            if number % 10:
                return body
            await producer.cancel_delayed("timers", receipt)
            return None

        sent = {body for body in await asyncio.gather(*[send(number) for number in range(COUNT)]) if body}
        found = await consume(broker, len(sent), settle_s=1.0)
    lates = sorted([arrived - due for _, due, arrived in found])
    note_figures(f"seed {SEED}: {len(found)} delivered, {COUNT - len(sent)} cancelled, latest {lates[-1]} ms late")
    assert sorted([body for body, _, _ in found]) == sorted(sent)
    assert lates[0] >= 0
    assert lates[-1] < LATE_MS_MAX


async def test_plain_clients_have_it_too(broker: EmbeddedBroker) -> None:
    def send() -> None:
        with eruca.sync.Producer(broker.nameserver) as producer:
            producer.send("timers", b"kept", timer=timedelta(milliseconds=700))
            receipt = producer.send("timers", b"cancelled", timer=timedelta(milliseconds=600))
            producer.cancel_delayed("timers", receipt)

    await asyncio.to_thread(send)
    assert [body for body, _, _ in await consume(broker, 1, settle_s=0.3)] == [b"kept"]


async def test_what_cannot_be_is_refused(broker: EmbeddedBroker) -> None:
    async with Producer(broker.nameserver) as producer:
        with pytest.raises(ConfigError, match="must be at most 3456000 seconds"):
            await producer.send("timers", b"x", timer=timedelta(days=40, seconds=1))
        with pytest.raises(ConfigError, match=r"timer=.*time zone"):
            await producer.send("timers", b"x", timer=datetime(2030, 1, 1))
        with pytest.raises(MessageIllegal, match="delay and timer are mutually exclusive"):
            await producer.send("timers", b"x", timer=timedelta(days=3), delay=3)
        with pytest.raises(MessageIllegal, match="only brokers"):
            await producer.send("rmq_sys_wheel_timer", b"x")
