"""The first rows of a live tail: in the order of time, and soon, however busy the topic is."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from eruca._admin.storedmessages import StoredMessage
from eruca._console.tailing.pages import LAST, sort_first
from eruca._ground.limits import CONSOLE_TAIL_RATE_MAX
from tests.unit.admin.test_drafts import make_message

_BEGIN = datetime(2026, 11, 15, tzinfo=UTC)


def _make(second: int) -> StoredMessage:
    return make_message(stored_at=_BEGIN + timedelta(seconds=second))


async def test_the_first_messages_are_in_the_order_of_time() -> None:
    async def arrive() -> AsyncGenerator[StoredMessage, None]:
        for second in (3, 1, 2):
            yield _make(second)
        await asyncio.Event().wait()

    async with aclosing(sort_first(arrive())) as found:
        shown = [(await anext(found))[0] for _ in range(3)]
    assert [message.stored_at for message in shown] == [_make(second).stored_at for second in (1, 2, 3)]


async def test_a_topic_that_is_never_silent_is_shown_soon() -> None:
    async def arrive() -> AsyncGenerator[StoredMessage, None]:
        for second in itertools.count():
            await asyncio.sleep(0.05)  # Messages arrive more often than the pause that it waits for.
            yield _make(second)

    begun = time.monotonic()
    async with aclosing(sort_first(arrive())) as found:
        first, is_first = await anext(found)
    assert is_first
    assert first.stored_at == _BEGIN
    # 200 messages, for which it waited before, take ten seconds.
    assert time.monotonic() - begun < 8


async def test_the_first_burst_is_told_from_what_arrives_later() -> None:
    """Eight queues have more first messages than the rate of a second lets pass."""
    is_seen = asyncio.Event()

    async def arrive() -> AsyncGenerator[StoredMessage, None]:
        for second in range(8 * LAST + CONSOLE_TAIL_RATE_MAX):
            yield _make(second)
        await is_seen.wait()
        yield _make(1000)

    async with aclosing(sort_first(arrive())) as found:
        burst = [await anext(found) for _ in range(8 * LAST + CONSOLE_TAIL_RATE_MAX)]
        is_seen.set()
        _, is_first = await anext(found)
    assert all(is_one for _, is_one in burst)
    assert not is_first
