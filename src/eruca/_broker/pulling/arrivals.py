"""Waking held pulls when messages arrive: soon, but after the work that senders wait for.

Answering a pull costs as much as several sends. So pulls are woken only after the results of a send are under way: its
response (written at the end of the loop iteration) or the chunk for the slaves (an iteration or two later).
"""

from __future__ import annotations

import asyncio

from eruca._broker.pulling.hold import Holds
from eruca._broker.replication.readlimit import ReadLimit
from eruca._store.messagestore import MessageStore
from eruca._store.queues.dispatch import Grown


class Arrivals:
    """Wakes held pulls when there is something to read."""

    def __init__(self, store: MessageStore, reads: ReadLimit, holds: Holds) -> None:
        self._store = store
        self._reads = reads
        self._holds = holds
        # For queues with held pulls: the offsets of the first message not announced yet, and of the end.
        self._untold: dict[tuple[str, int], tuple[int, int]] = {}
        reads.readable.listen(self.on_readable)

    def on_dispatched(self, grown: Grown) -> None:
        """Messages were stored and these queues have grown; hot path."""
        reads, held = self._reads, self._holds.by_queue
        if not held and not reads.is_bounding:
            return
        for queue, begin in grown:
            topic, queue_id = queue.topic, queue.queue_id
            if reads.is_bounding:
                first = queue.entry(begin)
                if first is not None and reads.hide(
                    topic, queue_id, begin, first.position + first.size, queue.end_position
                ):
                    continue
            if (topic, queue_id) in held:
                self._tell_soon((topic, queue_id), begin, queue.max_offset)

    def on_readable(self, topic: str, queue_id: int, begin: int, end: int) -> None:
        """Hidden messages of a queue became readable, from offset `begin` up to, but not including, `end`."""
        lowest = self._holds.find_lowest(topic, queue_id)
        if lowest is not None:
            self._wake(topic, queue_id, max(begin, lowest), end)

    def _tell_soon(self, key: tuple[str, int], begin: int, end: int) -> None:
        if not self._untold:
            loop = asyncio.get_running_loop()
            # The iteration after the one in which slaves are sent new data.
            loop.call_soon(loop.call_soon, loop.call_soon, self._tell)
        known = self._untold.get(key)
        self._untold[key] = (begin if known is None else known[0], end)

    def _tell(self) -> None:
        untold, self._untold = self._untold, {}
        for (topic, queue_id), (begin, end) in untold.items():
            self._wake(topic, queue_id, begin, end)

    def _wake(self, topic: str, queue_id: int, begin: int, end: int) -> None:
        """Wake the pulls that wait for messages of a queue."""
        holds = self._holds
        held = holds.by_queue
        queue = self._store.queues.get(topic, queue_id)
        for offset in range(begin, end):
            if queue is None or (topic, queue_id) not in held:
                return
            entry = queue.entry(offset)
            # A queue that was deleted meanwhile starts again at 0.
            if entry is not None:
                holds.on_arrival(topic, queue_id, offset + 1, entry.tags_code)
