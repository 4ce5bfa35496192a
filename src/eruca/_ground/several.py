"""Doing much, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable


async def run_some(works: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Run all works, at most `at_once` at a time. They must not raise."""
    left = iter(works)

    async def work() -> None:
        for each in left:
            await each()

    await asyncio.gather(*[work() for _ in range(at_once)])
