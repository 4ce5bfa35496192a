"""Live tail: the messages of a topic as they arrive, filtered, at a bounded rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, cast

from starlette.responses import Response

from eruca._admin.storedmessages import StoredMessage
from eruca._console.identity.rights import Need
from eruca._console.messages.filtering import Filter
from eruca._console.messages.reading import link_message, make_viewer, read_filter, require_keys
from eruca._console.messages.viewing import MessageView
from eruca._console.pages.commands import write_flags
from eruca._console.pages.rendering import render_part
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.visit import Shown, Visit
from eruca._ground.limits import CONSOLE_TAIL_RATE_MAX
from eruca._wire.names import check_topic
from eruca.errors import ConfigError

#: Rows that the page keeps; older ones leave it.
ROWS_MAX: Final = 500
#: The last messages of each queue that are shown first.
LAST: Final = 5
# The first messages are all there after a pause of this length, or when there are this many; in a topic that is never
# silent, after this long.
_SILENT_S: Final = 0.3
_FIRST_MAX: Final = ROWS_MAX
_FIRST_S: Final = 1.0
_TOPIC_CHARS_MAX: Final = 255


class Valve:
    """Lets at most this number of messages a second pass, and counts the others."""

    def __init__(self, rate: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._second = now()
        self._passed = 0
        self.skipped = 0

    def lets_pass(self) -> bool:
        """Return whether one more message may pass now."""
        now = self._now()
        if now - self._second >= 1:
            self._second, self._passed = now, 0
        if self._passed >= self._rate:
            self.skipped += 1
            return False
        self._passed += 1
        return True


async def show_tail(visit: Visit) -> Shown:
    """Show the page of a live tail; the rows come with the events."""
    topic = visit.query.get("topic", "").strip()
    problem = None
    try:
        filter = read_filter(visit)
        if topic:
            check_topic(topic)
    except ConfigError as error:
        filter, problem = None, error
    query = {"topic": topic, "filter": filter.text if filter else None, "key": visit.query.get("key")}
    return visit.show(
        "tailing/tail.html",
        topic=topic,
        problem=problem,
        saved=await visit.parts.messages.saved.list(visit.user.name),
        events=visit.url("tail", "events", **query) if topic and problem is None else "",
        rows_max=ROWS_MAX,
        command=visit.command("tail", topic or "TOPIC", "--follow", *write_flags(key=query["key"] or None)),
    )


async def watch(visit: Visit) -> Response:
    """Send the messages that arrive."""
    topic = check_topic(visit.query.get("topic", "")[:_TOPIC_CHARS_MAX])
    # Raises now, while the answer can still be a status.
    filter = read_filter(visit)
    if visit.query.get("key"):
        require_keys(visit, topic)
    queues = await visit.admin.topics.queues(topic)
    # Not more than the page keeps.
    last = max(1, min(LAST, _FIRST_MAX // max(1, len(queues.items))))
    return visit.parts.streams.answer(visit, _follow(visit, topic, filter, last))


async def _follow(visit: Visit, topic: str, filter: Filter | None, last: int) -> AsyncIterator[tuple[str, str]]:
    view, valve = make_viewer(visit, topic), Valve(CONSOLE_TAIL_RATE_MAX)
    messages = visit.admin.messages.tail(topic, last=last, key=visit.query.get("key") or None)
    seen = 0
    async with aclosing(sort_first(cast(Any, messages))) as opened:
        async for message, is_first in opened:
            seen += 1
            shown = await view(message)
            # What was there before is shown at once, and does not use up the first second of what arrives.
            if (filter is None or filter.matches(shown)) and (is_first or valve.lets_pass()):
                yield "tail-rows", _draw(visit, shown, message)
            yield "tail-count", render_part(visit, "tailing/parts.html:count", seen, valve.skipped)


async def sort_first(messages: AsyncGenerator[StoredMessage, None]) -> AsyncGenerator[tuple[StoredMessage, bool], None]:
    """Yield the messages, each with whether it is one of the first burst.

    Those that are there at the start come queue by queue, and are put in the order of time.
    """
    async with aclosing(messages) as opened:
        waiting = asyncio.ensure_future(anext(opened))
        try:
            first: list[StoredMessage] = []
            end = time.monotonic() + _FIRST_S
            while len(first) < _FIRST_MAX and (left := end - time.monotonic()) > 0:
                if not (await asyncio.wait((waiting,), timeout=min(_SILENT_S, left)))[0]:
                    break
                first.append(waiting.result())
                waiting = asyncio.ensure_future(anext(opened))
            for message in sorted(first, key=lambda each: (each.stored_at is not None, each.stored_at)):
                yield message, True
            while True:
                yield await waiting, False
                waiting = asyncio.ensure_future(anext(opened))
        except StopAsyncIteration:
            return
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


def _draw(visit: Visit, view: MessageView, message: StoredMessage) -> str:
    return render_part(visit, "tailing/parts.html:row", view, link_message(visit, message))


ROUTES: tuple[Route, ...] = (
    Route(
        "/c/{cluster}/tail",
        show_tail,
        Need.VIEW,
        names={"topic": "topic"},
        nav=Nav("data", 40, "nav.tail", "tail", "l"),
        in_api=False,
    ),
    Route("/c/{cluster}/tail/events", watch, Need.VIEW, names={"topic": "topic"}, in_api=False),
)
