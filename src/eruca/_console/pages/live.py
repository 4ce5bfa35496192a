"""What is live: server-sent events, bounded in number, ended with the session and when the console stops.

A page has `<section data-live="URL">`; app.js opens the stream, and each event replaces the content of the element
whose id is the name of the event. A stream is closed while its tab is hidden.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from eruca.errors import ErucaError

if TYPE_CHECKING:
    from eruca._console.pages.visit import Visit

#: Streams of all users, and of one.
STREAMS_MAX = 100
STREAMS_OF_ONE_MAX = 8
# A proxy closes a connection on which nothing happens.
_BEAT_S = 15.0
# Events that are not the content of an element: app.js listens to them by name. All others carry the element as
# their id, because a browser has to know the names of events before it hears them.
_SIGNALS = frozenset({"live-error", "live-end"})
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """The open streams of a console."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    def answer(self, visit: Visit, events: AsyncIterator[tuple[str, str]]) -> StreamingResponse:
        """Return a response that sends events, each the id of an element and its new content (HTML).

        Raises HTTPException (429) when too many streams are open.
        """
        name = visit.user.name
        if self._open[name] >= STREAMS_OF_ONE_MAX or self._open.total() >= STREAMS_MAX:
            raise HTTPException(429, "too many live views are open; close some tabs")
        return StreamingResponse(self._send(visit, events), media_type="text/event-stream", headers=_HEADERS)

    async def _send(self, visit: Visit, events: AsyncIterator[tuple[str, str]]) -> AsyncIterator[str]:
        name = visit.user.name
        self._open[name] += 1
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            # A browser that is told to wait asks again after this pause when the stream has ended.
            yield "retry: 3000\n\n"
            async with aclosing(_with_beats(events, closing)) as written:
                async for event in written:
                    if not await visit.parts.identity.gate.is_current(visit.session):
                        break
                    yield ": beat\n\n" if event is None else write_event(*event)
        except ErucaError as error:
            yield write_event("live-error", str(error))
        finally:
            closing.cancel()
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]


async def _take(events: AsyncIterator[tuple[str, str]]) -> tuple[str, str]:
    return await anext(events)


async def _with_beats(
    events: AsyncIterator[tuple[str, str]], closing: asyncio.Future[Any]
) -> AsyncGenerator[tuple[str, str] | None, None]:
    """Yield events, and None when none came for a while; ends when the console stops."""
    waiting: asyncio.Future[tuple[str, str]] | None = None
    try:
        while not closing.done():
            waiting = waiting or asyncio.ensure_future(_take(events))
            await asyncio.wait((waiting, closing), timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                yield None
                continue
            done, waiting = waiting, None
            try:
                yield done.result()
            except StopAsyncIteration:
                return
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def write_event(name: str, data: str) -> str:
    """Return one event. Its data may have several lines."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n" if name in _SIGNALS else f"id: {name}\n{lines}\n"
