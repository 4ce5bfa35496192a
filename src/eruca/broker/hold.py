"""Held pulls: requests for messages that are not there yet, answered as soon as one arrives (`arrivals`).

A hold wakes when a message of its queue passes its filter, when its time is over, and at every scan if its queue grew
by messages that do not match (so that the consumer's offset moves on).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from eruca.limits import HOLDS_MAX, HOLDS_OF_CONNECTION_MAX
from eruca.net.link import Link
from eruca.wire.frame import Command

# Run again for a held pull; the flag says whether it may be held once more.
Resume = Callable[["Hold", bool], None]


@dataclass(slots=True)
class Hold:
    """One parked pull."""

    link: Link
    command: Command
    # The typed pull header; kept so that it is decoded once.
    header: object
    topic: str
    queue_id: int
    # The pull waits for an offset above this one.
    offset: int
    deadline: float
    # Does a tags code interest this pull? None: every message does.
    wants: Callable[[int], bool] | None


class Holds:
    """All parked pulls, by queue."""

    def __init__(self, resume: Resume, max_offset: Callable[[str, int], int]) -> None:
        self._resume = resume
        self._max_offset = max_offset
        self._by_queue: dict[tuple[str, int], list[Hold]] = {}
        # How many pulls of each connection are parked, and how many in all.
        self._of_link: dict[Link, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, link: Link) -> bool:
        """May one more pull of a connection be parked?"""
        return self._of_link.get(link, 0) < HOLDS_OF_CONNECTION_MAX and self._count < HOLDS_MAX

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Does anybody wait for a queue?"""
        return (topic, queue_id) in self._by_queue

    def find_lowest(self, topic: str, queue_id: int) -> int | None:
        """The lowest offset that somebody waits for in a queue; None: nobody does."""
        holds = self._by_queue.get((topic, queue_id))
        return None if holds is None else min([hold.offset for hold in holds])

    def park(self, hold: Hold) -> None:
        """Keep a pull until something happens."""
        self._by_queue.setdefault((hold.topic, hold.queue_id), []).append(hold)
        self._of_link[hold.link] = self._of_link.get(hold.link, 0) + 1
        self._count += 1

    def _take_out(self, hold: Hold) -> None:
        """Count a pull as parked no more; it may be parked again while it is resumed."""
        self._count -= 1
        left = self._of_link[hold.link] - 1
        if left:
            self._of_link[hold.link] = left
        else:
            del self._of_link[hold.link]

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """A message came: wake who waits for it."""
        holds = self._by_queue.pop((topic, queue_id), None)
        if holds is None:
            return
        stay: list[Hold] = []
        for hold in holds:
            if max_offset > hold.offset and (hold.wants is None or hold.wants(tags_code)):
                self._take_out(hold)
                self._resume(hold, True)
            else:
                stay.append(hold)
        if stay:
            self._by_queue.setdefault((topic, queue_id), []).extend(stay)

    def scan(self, *, unmatched: bool) -> None:
        """Answer pulls whose time is over and, if asked, those whose queue grew without a match."""
        now = asyncio.get_running_loop().time()
        for key in list(self._by_queue):
            holds = self._by_queue.pop(key)
            stay: list[Hold] = []
            end = self._max_offset(*key)
            for hold in holds:
                if not hold.link.is_open:
                    self._take_out(hold)
                elif unmatched and end > hold.offset:
                    self._take_out(hold)
                    self._resume(hold, True)
                elif now >= hold.deadline:
                    self._take_out(hold)
                    self._resume(hold, False)
                else:
                    stay.append(hold)
            if stay:
                self._by_queue.setdefault(key, []).extend(stay)

    def drop_link(self, link: Link) -> None:
        """Forget the pulls of a connection that closed."""
        count = self._of_link.pop(link, 0)
        if not count:
            return
        self._count -= count
        for key in list(self._by_queue):
            left = [hold for hold in self._by_queue[key] if hold.link is not link]
            if left:
                self._by_queue[key] = left
            else:
                del self._by_queue[key]

    def release_all(self) -> None:
        """Answer every pull now; the broker stops."""
        for key in list(self._by_queue):
            for hold in self._by_queue.pop(key):
                self._take_out(hold)
                self._resume(hold, False)
