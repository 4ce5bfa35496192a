"""Those who wait for the same thing go on in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


class Arrivals:
    """Whoever wants one thing, a connection for example, and does not have it yet."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: Those who wait, in the order in which they came. Every send looks whether there is anybody.
        self.waiting: dict[object, None] = {}

    async def take(self, peek: Callable[[], _T | None], find: Callable[[], Awaitable[_T]]) -> _T:
        """Return what `peek` or else `find` returns. While somebody who came earlier waits, it is not our turn."""
        me = object()
        self.waiting[me] = None
        try:
            while (found := peek()) is not None:
                if next(iter(self.waiting)) is me:
                    return found
                await asyncio.sleep(0)
            return await find()
        finally:
            del self.waiting[me]
