"""Waiting tasks continue in the order in which they arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


class Arrivals:
    """The tasks that wait for one thing, for example a connection."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        #: The waiting tasks in order of arrival. Every send checks whether there are any.
        self.waiting: dict[object, None] = {}

    async def take(self, peek: Callable[[], _T | None], find: Callable[[], Awaitable[_T]]) -> _T:
        """Return what `peek` or else `find` returns, but not before tasks that arrived earlier."""
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
