"""Delayed messages are listed from the moment they are acknowledged."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from eruca import Producer
from eruca.admin import Admin
from eruca.testing import EmbeddedBroker

NEVER_MS = 10**9


@pytest.fixture(autouse=True)
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of the timer is not saved before the broker stops."""
    monkeypatch.setattr("eruca._broker.delaying.timing.SAVE_INTERVAL_MS", NEVER_MS)


async def test_the_first_message_with_a_time_is_listed_at_once(broker: EmbeddedBroker, admin: Admin) -> None:
    await asyncio.to_thread(broker.create_topic, "orders", 1)
    assert (await admin.delayed.list()).items == []
    async with Producer(broker.nameserver, group="shop") as producer:
        receipt = await producer.send("orders", b"later", timer=timedelta(hours=1), keys=["o-1"])
    (waiting,) = (await admin.delayed.list()).items
    assert (waiting.topic, waiting.keys, waiting.message_id) == ("orders", ["o-1"], receipt.message_id)
    assert (await admin.delayed.cancel("orders", receipt.message_id, dry_run=True)).outcome == "planned"
