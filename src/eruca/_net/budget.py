"""Budgets: how much memory all connections of this process may use together, and which one is closed when it runs out.

A `Budget` covers what connections hold while bytes are in transit: unfinished frames, waiting requests, unsent
responses. An `Account` covers state that is kept for them: heartbeats, registrations. The largest connection of whoever
uses most is closed, with a line in the log, and all others continue.

>>> from eruca.metrics import SERVER
>>> SERVER.snapshot()["eruca_server_held_bytes"]
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf
from time import perf_counter
from typing import Final

from eruca._ground.limits import HELD_BYTES_MAX, HELD_BYTES_MIN, HELD_MEMORY_SHARE
from eruca._net.heap import HeapWatch
from eruca._net.meters import count_refused, show
from eruca._net.networks import WHITE_LISTED, find_network
from eruca._net.peers import Peer
from eruca._net.turns import Slices
from eruca._observe.metrics import SERVER

_COUNT_SECONDS: Final = 0.5
# Memory of a connection itself: about 5 KiB, and 25 with TLS. It is not held, but comes back when a crowd leaves.
_LINK_BYTES: Final = 8 * 1024
_CLOSED: Final = ("closed_for_memory_total", "Connections closed because they used most of a memory budget.")


class Budget:
    """The memory that the connections of one process may hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._links: set[Peer] = set()
        # What they held at the last count, plus everything added since: never too low.
        self._held = 0
        # Everything that was ever added.
        self._added = 0
        self._counted_at = -inf
        self._is_counting = False
        self.closed = 0
        self._heap = HeapWatch()

    def join(self, link: Peer) -> None:
        """Add a connection."""
        self._links.add(link)

    def leave(self, link: Peer) -> None:
        """Remove a connection."""
        self._links.discard(link)

    def add(self, size: int) -> None:
        """Record that some connection holds this many more bytes."""
        self._held += size
        self._added += size
        if self._held > self.bytes_max:
            self.bound()

    def count(self) -> int:
        """Return what all connections hold now."""
        return sum([link.held_bytes for link in self._links])

    async def scan(self) -> None:
        """Keep what is held within the limit, and give memory back to the system after a peak.

        Each server calls it regularly. Far from the limit, a count for all of them twice a second is enough.
        """
        now = perf_counter()
        if self._is_counting or (now < self._counted_at + _COUNT_SECONDS and self._held <= self.bytes_max // 2):
            return
        self._is_counting, self._counted_at = True, now
        try:
            await self._heap.look(self._held + len(self._links) * _LINK_BYTES)
            await self._count_in_slices()
            if self._held > self.bytes_max:
                self.bound()
            await self._heap.look(self._held + len(self._links) * _LINK_BYTES)
        finally:
            self._is_counting = False

    async def _count_in_slices(self) -> None:
        """Count what is held, without keeping the loop: twenty thousand connections take 30 ms."""
        slices, added, held = Slices(), self._added, 0
        for link in list(self._links):
            held += link.held_bytes
            if slices.is_over:
                await slices.rest()
        self._held = held + self._added - added

    def bound(self) -> None:
        """Count what is held, and close connections while it is too much: the largest of the largest holder first."""
        held = {link: size for link in self._links if link.is_open and (size := link.held_bytes)}
        self._held = sum(held.values())
        if self._held <= self.bytes_max:
            return
        # A quarter is freed, so that this does not repeat with every response.
        for link in _list_largest(held):
            if self._held <= self.bytes_max * 3 // 4:
                break
            self._held -= held[link]
            self.closed += 1
            count_closed("held")
            count_refused("serverMaxHeldBytes")
            link.complain(
                f"was closed: it holds {held[link]} bytes ({link.unsent_bytes} that it does not read, "
                f"{link.unfinished_bytes} of an unfinished frame), and the limit for all connections is "
                f"{self.bytes_max} (serverMaxHeldBytes)"
            )
            link.abort()


def _list_largest(held: Mapping[Peer, int]) -> Iterator[Peer]:
    """Yield connections in the order in which they have to go.

    A crowd of connections that hold little each must not push out one that holds much for a moment. So what counts is
    what an account, or an address that has not authenticated, holds in all; addresses come before accounts.
    """
    links: dict[tuple[bool, str], list[Peer]] = {}
    totals: Counter[tuple[bool, str]] = Counter()
    for link in sorted(held, key=held.__getitem__):
        is_named = link.account not in (None, WHITE_LISTED)
        holder = link.account is not None, str(link.account) if is_named else find_network(link.peer_host[0])
        links.setdefault(holder, []).append(link)
        totals[holder] += held[link]
    heap = [(holder[0], -total, holder) for holder, total in totals.items()]
    heapify(heap)
    while heap:
        is_known, total, holder = heap[0]
        link = links[holder].pop()
        if links[holder]:
            heapreplace(heap, (is_known, total + held[link], holder))
        else:
            heappop(heap)
        yield link


class Account:
    """The estimated memory of state kept for connections, with a limit for the total."""

    def __init__(self, what: str, bytes_max: int, option: str) -> None:
        """`option` is the key of the option that sets the limit."""
        self.what = what
        self.bytes_max = bytes_max
        self._option = option
        self._kept: dict[Peer, int] = {}
        self.total = 0
        show(f"{what}_bytes", f"Estimated memory of {what}.", self, lambda it: it.total)

    def add(self, link: Peer, size: int) -> None:
        """Record that this much more, or less, is kept for a connection."""
        mine = self._kept.get(link, 0) + size
        if mine > 0:
            self._kept[link] = mine
        else:
            self._kept.pop(link, None)
        self.total += size
        if self.total > self.bytes_max:
            self._bound()

    def leave(self, link: Peer) -> None:
        """Remove a closed connection."""
        size = self._kept.pop(link, 0)
        self.total -= size

    def _bound(self) -> None:
        """Close connections while it is too much; their state is removed when the owner is notified."""
        # A part is freed, so that this does not repeat with every addition.
        for largest in _list_largest(self._kept):
            if self.total <= self.bytes_max * 15 // 16:
                break
            count_closed(self.what)
            count_refused(self._option)
            largest.complain(
                f"was closed: its {self.what} take {self._kept[largest]} bytes, and the limit for all connections "
                f"is {self.bytes_max} ({self._option})"
            )
            largest.abort()
            self.leave(largest)


def count_closed(what: str) -> None:
    """Count a connection that was closed because connections held too much of something."""
    SERVER.counter(*_CLOSED, budget=what).add()


def _measure_memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


#: Shared by all servers of this process. A server with the option serverMaxHeldBytes changes its limit.
PROCESS: Final = Budget(max(HELD_BYTES_MIN, min(HELD_BYTES_MAX, _measure_memory() // HELD_MEMORY_SHARE)))
show("held_bytes", "Bytes of unfinished frames, waiting requests and unsent responses.", PROCESS, Budget.count)
show(
    "held_bytes_max",
    "Limit of held bytes; above it the largest holder is closed.",
    PROCESS,
    lambda budget: budget.bytes_max,
)
