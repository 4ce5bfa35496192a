"""Shared by the parts of the plain admin: their async twin, and the loop it runs in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from eruca._client.sync.base import PlainClient
from eruca.errors import ClientClosed

Part = TypeVar("Part")
Result = TypeVar("Result")
Row = TypeVar("Row")

_END: Final = object()


class PlainPart(Generic[Part]):
    """A part of the plain admin. It has no logic of its own: every call is made to its async twin, in the loop.

    Functions that are passed to it are called in the loop of the plain clients and must not block.
    """

    def __init__(self, twin: Part, client: PlainClient[Any]) -> None:
        self._twin = twin
        self._client = client

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of the twin and wait for it."""
        return self._client._run(work)

    def _iterate(self, rows: AsyncIterator[Row]) -> Iterator[Row]:
        """Yield the rows of the twin, one by one."""
        try:
            while (row := self._run(_next(rows))) is not _END:
                yield row
        finally:
            if isinstance(rows, AsyncGenerator):
                with suppress(ClientClosed):
                    self._run(_close(rows))


async def _next(rows: AsyncIterator[Row]) -> Any:
    return await anext(rows, _END)


async def _close(rows: AsyncGenerator[Any, Any]) -> None:
    await rows.aclose()
