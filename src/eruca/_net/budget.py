"""Budgets: how much memory all connections of this process may take together, and who has to go when it is used up.

A `Budget` is about what connections hold while bytes are on their way: unfinished frames, requests that wait, answers
that are not sent. An `Account` is about what is kept for them: heartbeats, registrations. In both the connection that
takes most is closed, with a line in the log, and all others go on.

>>> from eruca._net.budget import REGISTRY
>>> REGISTRY.snapshot()["eruca_server_held_bytes"]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import ref

from eruca._ground.limits import HELD_BYTES_MAX, HELD_BYTES_MIN, HELD_MEMORY_SHARE
from eruca._net.link import Link
from eruca._observe.metrics import Registry

REGISTRY: Final = Registry("eruca_server_")

_CLOSED: Final = ("closed_for_memory_total", "Connections closed because they took the most of a budget of memory.")


OwnerT = TypeVar("OwnerT")


def show(name: str, help_text: str, owner: OwnerT, read: Callable[[OwnerT], int]) -> None:
    """Let a metric be read from an object for as long as that is there."""
    found = ref(owner)

    def read_now() -> int:
        there = found()
        return 0 if there is None else read(there)

    REGISTRY.gauge(name, help_text).read_from(read_now)


class Budget:
    """What the connections of one process may hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._links: set[Link] = set()
        # What they held at the last count, and all that came since: never too little.
        self._held = 0
        self.closed = 0

    def join(self, link: Link) -> None:
        """Count a connection."""
        self._links.add(link)

    def leave(self, link: Link) -> None:
        """Count it no more."""
        self._links.discard(link)

    def add(self, size: int) -> None:
        """Some connection holds this much more."""
        self._held += size
        if self._held > self.bytes_max:
            self.bound()

    def count(self) -> int:
        """What all connections hold now."""
        return sum([link.held_bytes for link in self._links])

    def bound(self) -> None:
        """Count what is held, and close the largest holders while it is too much."""
        held = {link: size for link in self._links if link.is_open and (size := link.held_bytes)}
        self._held = sum(held.values())
        if self._held <= self.bytes_max:
            return
        # A quarter is freed, so that this is not done again with every answer.
        for link in sorted(held, key=held.__getitem__, reverse=True):
            if self._held <= self.bytes_max * 3 // 4:
                break
            self._held -= held[link]
            self.closed += 1
            REGISTRY.counter(*_CLOSED, budget="held").add()
            link.complain(
                f"is closed: it holds {held[link]} bytes ({link.unsent_bytes} it does not read, "
                f"{link.unfinished_bytes} of an unfinished frame), and all connections together may hold "
                f"{self.bytes_max}"
            )
            link.abort()


class Account:
    """What is kept for connections, weighed: more than the whole may not be kept."""

    def __init__(self, what: str, bytes_max: int) -> None:
        self.what = what
        self.bytes_max = bytes_max
        self._kept: dict[Link, int] = {}
        self.total = 0
        show(f"{what}_bytes", f"Memory taken by {what} that are kept, as it is estimated.", self, lambda it: it.total)

    def add(self, link: Link, size: int) -> None:
        """A connection has this much more, or less, kept for it."""
        mine = self._kept.get(link, 0) + size
        if mine > 0:
            self._kept[link] = mine
        else:
            self._kept.pop(link, None)
        self.total += size
        if self.total > self.bytes_max:
            self._bound()

    def leave(self, link: Link) -> None:
        """A connection ended."""
        size = self._kept.pop(link, 0)
        self.total -= size

    def _bound(self) -> None:
        """Close who has most; what is kept for it goes when its owner hears of that."""
        while self.total > self.bytes_max:
            largest = max(self._kept, key=self._kept.__getitem__)
            REGISTRY.counter(*_CLOSED, budget=self.what).add()
            largest.complain(
                f"is closed: its {self.what} take {self._kept[largest]} bytes, and those of all connections together "
                f"may take {self.bytes_max}"
            )
            largest.abort()
            self.leave(largest)


def _measure_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


#: All servers of this process share it.
PROCESS: Final = Budget(max(HELD_BYTES_MIN, min(HELD_BYTES_MAX, _measure_memory() // HELD_MEMORY_SHARE)))
show("held_bytes", "Bytes of unfinished frames, waiting requests and answers not sent.", PROCESS, Budget.count)
show(
    "held_bytes_max",
    "What connections may hold before the largest holder is closed.",
    PROCESS,
    lambda budget: budget.bytes_max,
)
