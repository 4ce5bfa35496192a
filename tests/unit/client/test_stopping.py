"""Clients that run side by side in one loop end side by side: none is interrupted because another is done."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from eruca._client.stopping import Client, run_until_stopped


class SlowClient(Client):
    """A client whose start and close end when a test wants it."""

    def __init__(self, *, starts: bool = True, closes: bool = True) -> None:
        self.may_start, self.may_close = asyncio.Event(), asyncio.Event()
        self.has_begun, self.is_closing, self.is_closed = asyncio.Event(), asyncio.Event(), False
        if starts:
            self.may_start.set()
        if closes:
            self.may_close.set()

    async def start(self) -> None:
        self.has_begun.set()
        try:
            await self.may_start.wait()
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        self.is_closing.set()
        await self.may_close.wait()
        self.is_closed = True


@pytest.mark.parametrize("starts", [True, False], ids=["running", "starting"])
def test_the_first_one_that_is_done_waits_for_the_others(starts: bool) -> None:
    """As `asyncio.run` with Ctrl-C: the main task is cancelled, and all tasks that are left when it ends."""
    clients: list[SlowClient] = []

    async def main() -> None:
        clients[:] = [SlowClient(), SlowClient(starts=starts, closes=False)]
        quick, slow = clients
        everything = asyncio.gather(*[run_until_stopped(each, asyncio.Event) for each in clients])
        await slow.has_begun.wait()
        await asyncio.sleep(0)
        everything.cancel()
        await slow.is_closing.wait()
        while not quick.is_closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(100):  # the quick one has every chance to end before the other
            await asyncio.sleep(0)
        assert not everything.done()
        slow.may_close.set()
        with suppress(asyncio.CancelledError):
            await everything

    asyncio.run(main())
    assert [each.is_closed for each in clients] == [True, True]
