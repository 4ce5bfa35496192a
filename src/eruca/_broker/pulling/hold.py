"""Held pulls: requests for messages that do not exist yet, answered as soon as one arrives (`arrivals`).

A hold wakes when a message in its queue passes its filter, when it times out, and at every scan if its queue grew by
messages that do not match (so that the consumer's offset advances).

Responses are made in time slices, so that many pulls that wake at once do not block the loop. While a peer is not
reading what was already sent, its pulls wait: otherwise a message of 4 MB that wakes a thousand of its pulls would be
copied a thousand times.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

import msgspec

from eruca._broker.options import LiveOptions
from eruca._ground.limits import (
    HOLD_BYTES,
    SLICE_SECONDS,
)
from eruca._net.link import Link
from eruca._net.meters import count_refused, show
from eruca._net.turns import find_turns
from eruca._wire.frame import Command

# Runs a held pull again; the flag tells whether it may be held once more.
Resume = Callable[["Hold", bool], None]


class Hold(msgspec.Struct, eq=False, gc=False):
    """One parked pull.

    The garbage collector does not know it: that looks at all objects it knows at once, and of these there may be very
    many. It is not needed: a pull leaves the tables below when it is answered or its connection closes.
    """

    link: Link
    command: Command
    # The typed pull header; kept so that it is decoded once.
    header: object
    topic: str
    queue_id: int
    # The pull waits for an offset above this one.
    offset: int
    deadline: float
    # Whether a tags code matches this pull; None if every message does.
    wants: Callable[[int], bool] | None
    # Estimated memory in bytes.
    weight: int = HOLD_BYTES


class _Holder:
    """The pulls parked for one connection."""

    __slots__ = ("holds", "ready", "weight")

    def __init__(self) -> None:
        self.holds: dict[Hold, None] = {}
        self.weight = 0
        # Pulls to be answered once the peer has read its pending data, and whether each may be held once more.
        self.ready: deque[tuple[Hold, bool]] = deque()


class Holds:
    """All parked pulls, by queue and by connection."""

    def __init__(self, options: LiveOptions, resume: Resume, max_offset: Callable[[str, int], int]) -> None:
        self._options = options
        self._resume = resume
        self._max_offset = max_offset
        #: The pulls that wait for each queue. Dicts keep the order and allow removal from the middle.
        self.by_queue: dict[tuple[str, int], dict[Hold, None]] = {}
        # Every connection that has had a held pull, until it closes: a consumer has the next one soon.
        self._by_link: dict[Link, _Holder] = {}
        self._count = 0
        self._weight = 0
        # To be answered in this loop iteration or the next ones, in order.
        self._ready: deque[tuple[Hold, bool]] = deque()
        self._is_queued = False
        # Pulls of closed connections that may still be in their queues.
        self._gone: deque[Hold] = deque()
        show("held_pulls", "Number of held pulls.", self, len)
        show("held_pulls_bytes", "Estimated memory of held pulls.", self, lambda holds: holds.weight)

    def __len__(self) -> int:
        return self._count

    @property
    def weight(self) -> int:
        """Estimated memory of the parked pulls in bytes."""
        return self._weight

    @property
    def waking(self) -> int:
        """The number of pulls that are about to be answered."""
        return len(self._ready)

    def has_room(self, link: Link, weight: int = HOLD_BYTES) -> bool:
        """Whether one more pull of a connection may be parked. If not, the client is to be answered at once."""
        options = self._options.now
        holder = self._by_link.get(link)
        count, held = (0, 0) if holder is None else (len(holder.holds), holder.weight)
        if (
            count < options.holds_of_connection_max
            and held + weight <= options.holds_of_connection_bytes_max
            and self._count < options.holds_max
            and self._weight + weight <= options.holds_bytes_max
        ):
            return True
        if count >= options.holds_of_connection_max:
            key = "maxHeldPullsPerConnection"
        elif held + weight > options.holds_of_connection_bytes_max:
            key = "maxHeldPullBytesPerConnection"
        else:
            key = "maxHeldPulls" if self._count >= options.holds_max else "maxHeldPullBytes"
        count_refused(key)
        link.complain(f"has a pull that is not held: {count} are held for it, {self._count} in all (limit: {key})")
        return False

    def find_lowest(self, topic: str, queue_id: int) -> int | None:
        """Return the lowest offset that a pull waits for in a queue; None if no pull does."""
        holds = self.by_queue.get((topic, queue_id))
        return None if holds is None else min([hold.offset for hold in holds])

    def park(self, hold: Hold) -> None:
        """Park a pull until it is woken."""
        self.by_queue.setdefault((hold.topic, hold.queue_id), {})[hold] = None
        holder = self._by_link.get(hold.link)
        if holder is None:
            holder = self._by_link[hold.link] = _Holder()
        holder.holds[hold] = None
        holder.weight += hold.weight
        self._count += 1
        self._weight += hold.weight

    # -- waking ------------------------------------------------------------------------------------------------------

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, tags_code: int) -> None:
        """A message arrived: wake the pulls that wait for it."""
        holds = self.by_queue.get((topic, queue_id))
        if holds is None:
            return
        woken = [hold for hold in holds if max_offset > hold.offset and (hold.wants is None or hold.wants(tags_code))]
        self._wake(woken, may_hold=True)

    def scan(self, *, unmatched: bool) -> Iterator[None]:
        """Answer pulls that timed out and, if `unmatched`, those whose queue grew without a match.

        Yields after each queue, so that the caller can do other work in between.
        """
        now = asyncio.get_running_loop().time()
        for key in list(self.by_queue):
            holds = self.by_queue.get(key)
            if holds is None:
                continue
            if unmatched:
                end = self._max_offset(*key)
                self._wake([hold for hold in holds if end > hold.offset], may_hold=True)
            self._wake([hold for hold in self.by_queue.get(key, ()) if now >= hold.deadline], may_hold=False)
            yield

    def release_all(self) -> None:
        """Answer every pull now, because the broker stops."""
        for key in list(self.by_queue):
            self._leave_queue(list(self.by_queue[key]), may_hold=False)
        ready, self._ready = self._ready, deque()
        for holder in self._by_link.values():
            ready.extend(holder.ready)
            holder.ready.clear()
        for hold, _ in ready:
            if self._find_holder(hold) is not None:
                self._take_out(hold)
                self._resume(hold, False)

    def _wake(self, holds: list[Hold], *, may_hold: bool) -> None:
        if holds:
            self._leave_queue(holds, may_hold=may_hold)
            if not self._is_queued:
                self._answer()

    def _leave_queue(self, holds: list[Hold], *, may_hold: bool) -> None:
        """Remove pulls of one queue from it: they no longer wait for a message, only for their turn."""
        key = (holds[0].topic, holds[0].queue_id)
        queue = self.by_queue[key]
        if len(holds) == len(queue):
            # A message for everybody, of whom there may be very many.
            del self.by_queue[key]
        else:
            for hold in holds:
                del queue[hold]
        self._ready.extend([(hold, may_hold) for hold in holds])

    def _answer(self) -> None:
        """Answer the pulls whose turn it is, for at most one time slice."""
        self._is_queued = False
        ready = self._ready
        end = perf_counter() + SLICE_SECONDS
        while ready:
            hold, may_hold = ready.popleft()
            holder = self._find_holder(hold)
            if holder is not None and not hold.link.is_writable:
                if not holder.ready:
                    hold.link.when_writable(lambda link=hold.link: self._on_writable(link))  # type: ignore[misc]
                holder.ready.append((hold, may_hold))
            elif holder is not None:
                self._take_out(hold)
                self._resume(hold, may_hold)
            if ready and perf_counter() >= end:
                self._is_queued = True
                find_turns(asyncio.get_running_loop()).call(self._answer)
                return

    def _find_holder(self, hold: Hold) -> _Holder | None:
        """Return the connection's holder of a pull that is still parked; None if the connection has closed."""
        holder = self._by_link.get(hold.link)
        return holder if holder is not None and hold in holder.holds else None

    def _on_writable(self, link: Link) -> None:
        """A peer has read its pending data: queue its waiting pulls for an answer."""
        holder = self._by_link.get(link)
        if holder is None:
            return
        self._ready.extend(holder.ready)
        holder.ready.clear()
        if self._ready and not self._is_queued:
            self._is_queued = True
            find_turns(asyncio.get_running_loop()).call(self._answer)

    # -- counting ----------------------------------------------------------------------------------------------------

    def _take_out(self, hold: Hold) -> None:
        """Stop counting a pull as parked; it may be parked again when it is resumed."""
        holder = self._by_link[hold.link]
        del holder.holds[hold]
        holder.weight -= hold.weight
        self._count -= 1
        self._weight -= hold.weight

    def drop_link(self, link: Link) -> None:
        """Drop the pulls of a closed connection."""
        holder = self._by_link.pop(link, None)
        if holder is None:
            return
        self._count -= len(holder.holds)
        self._weight -= holder.weight
        # They are not answered any more, so taking them out of their queues can wait: many may go at once.
        was_idle = not self._gone
        self._gone.extend(holder.holds)
        if was_idle:
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Remove pulls of closed connections from their queues, for at most one time slice."""
        gone, end = self._gone, perf_counter() + SLICE_SECONDS
        while gone:
            hold = gone.popleft()
            key = (hold.topic, hold.queue_id)
            queue = self.by_queue.get(key)
            # Not in the queue: it was only waiting for its turn.
            if queue is not None and hold in queue:
                del queue[hold]
                if not queue:
                    del self.by_queue[key]
            if gone and perf_counter() >= end:
                find_turns(asyncio.get_running_loop()).call(self._forget_gone)
                return
