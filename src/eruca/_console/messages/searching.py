"""Searching a topic: a plan, read in bounded steps. A step says how far it came, and the next one continues there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

import msgspec

from eruca._admin.admin import Admin
from eruca._admin.results import Problem
from eruca._admin.storedmessages import StoredMessage
from eruca._console.messages.filtering import Filter
from eruca._console.messages.viewing import MessageView
from eruca._ground.limits import (
    CONSOLE_FOUND_MAX,
    CONSOLE_SCAN_BYTES_MAX,
    CONSOLE_SCAN_MESSAGES_MAX,
    CONSOLE_SCAN_SECONDS_MAX,
    CONSOLE_SCANS_MAX,
)
from eruca.errors import ConfigError

#: Shows a message to a user.
Viewer: TypeAlias = Callable[[StoredMessage], Awaitable[MessageView]]

#: How messages are looked for.
MODES: Final = ("newest", "oldest", "key", "id", "offset")
_QUEUE_DIGITS_MAX: Final = 9
_OFFSET_DIGITS_MAX: Final = 18
_PLACES_MAX: Final = 4096


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

    topic: str
    mode: str = "newest"
    # A key or an id.
    name: str = ""
    # With the mode offset, and as a restriction of newest and oldest.
    broker: str | None = None
    queue: int | None = None
    offset: int | None = None
    since: datetime | None = None
    until: datetime | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one step found."""

    items: list[MessageView]
    # Messages that were read, and the time of the last one.
    scanned: int
    reached: datetime | None = None
    # `end`: everything was read. Otherwise why it stopped: found (enough), messages, bytes or seconds.
    stopped: str = "end"
    # Where the next step continues: the last offset of each queue; empty at the end.
    resume: dict[str, int] = {}
    # The index has more messages than were asked for; only with a key or an id.
    cut: bool = False
    problems: list[Problem] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one step may read, and find."""

    found: int = CONSOLE_FOUND_MAX
    messages: int = CONSOLE_SCAN_MESSAGES_MAX
    bytes: int = CONSOLE_SCAN_BYTES_MAX
    seconds: float = CONSOLE_SCAN_SECONDS_MAX


class Searching:
    """Runs the searches of all users, a few at the same time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._turns = asyncio.Semaphore(CONSOLE_SCANS_MAX)

    async def run(
        self,
        admin: Admin,
        wanted: Wanted,
        view: Viewer,
        filter: Filter | None = None,
        resume: Mapping[str, int] | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - it is frozen
    ) -> Found:
        """Run one step of a search. Raises NoRoute, NetError and what the cluster refuses."""
        async with self._turns:
            if wanted.mode in ("key", "id"):
                return await _look_up(admin, wanted, view, filter, bounds)
            return await self._scan(admin, wanted, view, filter, resume or {}, bounds)

    async def _scan(
        self,
        admin: Admin,
        wanted: Wanted,
        view: Viewer,
        filter: Filter | None,
        resume: Mapping[str, int],
        bounds: Bounds,
    ) -> Found:
        items: list[MessageView] = []
        places = dict(resume)
        scanned = size = 0
        reached, stopped = None, "end"
        deadline = self._now() + bounds.seconds
        messages = admin.messages.read(
            wanted.topic,
            broker=wanted.broker,
            queue=wanted.queue,
            offset=wanted.offset if wanted.mode == "offset" else None,
            since=wanted.since,
            until=wanted.until,
            newest_first=wanted.mode == "newest",
            resume=resume,
            limit=None,
        )
        async with aclosing(cast(Any, messages)) as opened:
            async for message in opened:
                stopped = _find_reason(bounds, len(items), scanned, size, self._now() >= deadline)
                if stopped:
                    break
                scanned += 1
                size += message.size
                reached = message.stored_at
                places[f"{message.broker}:{message.queue}"] = message.offset
                seen = await view(message)
                if filter is None or filter.matches(seen):
                    items.append(seen)
                stopped = "end"
        return Found(
            items=items,
            scanned=scanned,
            reached=reached,
            stopped=stopped,
            resume={} if stopped == "end" else places,
            problems=list_too_large(wanted.topic, filter),
        )


def _find_reason(bounds: Bounds, found: int, scanned: int, size: int, is_late: bool) -> str:
    """Return why the step ends before the next message; empty if it continues. It reads at least one message."""
    if found >= bounds.found:
        return "found"
    if scanned >= bounds.messages:
        return "messages"
    if size >= bounds.bytes:
        return "bytes"
    return "seconds" if is_late and scanned else ""


async def _look_up(
    admin: Admin,
    wanted: Wanted,
    view: Viewer,
    filter: Filter | None,
    bounds: Bounds,
) -> Found:
    """Ask the index of the brokers for a key or an id."""
    if wanted.mode == "key":
        listed = await admin.messages.find_by_key(
            wanted.topic, wanted.name, since=wanted.since, until=wanted.until, limit=bounds.found
        )
    else:
        listed = await admin.messages.find(wanted.topic, wanted.name, limit=bounds.found)
    seen = [await view(message) for message in reversed(listed.items)]
    return Found(
        items=[each for each in seen if filter is None or filter.matches(each)],
        scanned=len(seen),
        cut=listed.cut,
        problems=[*listed.problems, *list_too_large(wanted.topic, filter)],
    )


def list_too_large(topic: str, filter: Filter | None) -> list[Problem]:
    """Return what to show of messages that a filter could not look into."""
    if filter is None or not filter.too_large:
        return []
    error = f"messages that are too large for the filter, or too deep: {filter.too_large}"
    return [Problem(where=topic, error=error, hint="compare less of them: a member of a list, or fewer fields")]


# -- where to continue, in an address ----------------------------------------------------------------------------------


def write_places(places: Mapping[str, int]) -> str:
    """Return offsets of queues as a short text: `broker-a:0=41,1=44;broker-b:0=7`."""
    by_broker: dict[str, list[str]] = {}
    for place, offset in sorted(places.items()):
        broker, _, queue = place.rpartition(":")
        by_broker.setdefault(broker, []).append(f"{queue}={offset}")
    return ";".join(f"{broker}:{','.join(queues)}" for broker, queues in by_broker.items())


def read_places(text: str) -> dict[str, int]:
    """Read what `write_places` wrote. Raises ConfigError."""
    places: dict[str, int] = {}
    for part in filter(None, text.split(";")):
        broker, _, queues = part.rpartition(":")
        for each in queues.split(","):
            queue, _, offset = each.partition("=")
            if not (broker and is_number(queue, _QUEUE_DIGITS_MAX) and is_number(offset, _OFFSET_DIGITS_MAX)):
                raise ConfigError("the place to continue from is not valid", hint="start the search again")
            places[f"{broker}:{int(queue)}"] = int(offset)
            if len(places) > _PLACES_MAX:
                raise ConfigError(f"the place to continue from has more than {_PLACES_MAX} queues")
    return places


def is_number(text: str, digits_max: int = _OFFSET_DIGITS_MAX) -> bool:
    """Return whether a text is a number of plain digits, not too many."""
    return text.isascii() and text.isdecimal() and len(text) <= digits_max
