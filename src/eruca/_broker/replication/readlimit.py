"""How far readers may read: a message that a change of the master could take back is hidden until it no longer can.

If it were shown, a reader that continues from its own position would skip what the new master has at that offset. So,
with the option `readConfirmedOnly` in force, readers get the records before a position:

    on a master    what every possible successor has (`SyncCondition.safe`), and what is known from before
    on a slave     what its master confirmed; everything it has if that is a Java broker

What is known from before (`floor`) is what a slave learned from its master, or what a master had when it stopped being
one. It is saved from time to time, so that a member that starts alone shows what was already shown.

Held pulls wake not when a message is stored but when it becomes readable. For this, queues are tracked rather than
messages: those that end beyond the limit, each with its first hidden message, ordered by where these messages end.
"""

from __future__ import annotations

import heapq
from typing import Final

from eruca._broker.options import BrokerRole, LiveOptions
from eruca._broker.standing import Standing
from eruca._core.replication.synced import EVERYTHING, SyncCondition
from eruca._ground.signals import Signal
from eruca._store.messagestore import MessageStore
from eruca._store.queues.consumequeue import FILLER_SIZE, ConsumeQueue

# This many entries are checked one by one: mostly few become readable at once.
_LOOK_ENTRIES: Final = 32


class ReadLimit:
    """The position that readers of one broker cannot read beyond."""

    def __init__(self, options: LiveOptions, standing: Standing, store: MessageStore, saved: int = -1) -> None:
        """`saved` is the last saved limit; if negative, none was ever saved, and existing messages have been shown."""
        self._options = options
        self._standing = standing
        self._store = store
        # Only while this broker is the master.
        self._condition: SyncCondition | None = None
        tail = store.log.readable_end
        self._floor = min(saved, tail) if saved >= 0 else tail
        # The first hidden offset of each queue that has one, and where its record ends (never too late).
        self._hidden: dict[tuple[str, int], int] = {}
        self._due: list[tuple[int, str, int]] = []
        #: Whether there is a limit at all. Every pull checks this.
        self.is_bounding = False
        #: Called for messages that became readable: topic, queue id, first offset, and the offset after the last.
        self.readable: Signal[str, int, int, int] = Signal()
        self.follow_options()

    # -- for readers -------------------------------------------------------------------------------------------------

    def find_position(self) -> int:
        """Return the position where the readable part ends."""
        return self.certain if self.is_bounding else EVERYTHING

    @property
    def certain(self) -> int:
        """The position before which nothing can be taken back, whether readers are limited or not."""
        condition = self._condition
        return self._floor if condition is None else max(self._floor, condition.safe)

    def find_max(self, queue: ConsumeQueue | None) -> int:
        """Return the offset after the last readable message of a queue."""
        if queue is None:
            return 0
        return queue.max_offset if not self.is_bounding else queue.find_end(self.certain)

    # -- new messages ------------------------------------------------------------------------------------------------

    def hide(self, topic: str, queue_id: int, offset: int, position: int, end_position: int) -> bool:
        """Messages arrived in a queue between two positions; return whether the last of them is hidden."""
        key = (topic, queue_id)
        # What follows a hidden message is hidden; this is common, and finding the limit takes longer.
        if key in self._hidden:
            return True
        if end_position <= self.find_position():
            return False
        self._hide(key, offset, position)
        return True

    def _hide(self, key: tuple[str, int], offset: int, position: int) -> None:
        if key not in self._hidden:
            self._hidden[key] = offset
            heapq.heappush(self._due, (position, *key))

    def release(self) -> None:
        """The limit may have moved: wake the pulls that wait for what is readable now."""
        due = self._due
        if not due or due[0][0] > (limit := self.find_position()):
            return
        keys: list[tuple[str, int]] = []
        while due and due[0][0] <= limit:
            keys.append(heapq.heappop(due)[1:])
        for key in keys:
            queue = self._store.queues.get(*key)
            first = self._hidden.pop(key)
            if queue is None:
                continue
            # A queue that was deleted starts again at 0.
            first = max(first, queue.min_offset) if first <= queue.max_offset else queue.min_offset
            end = self._find_end(queue, first, limit)
            if (entry := queue.entry(end)) is not None:
                # Before any pull is woken: that could cause more messages to be stored.
                self._hide(key, end, limit + 1 if entry.size == FILLER_SIZE else entry.position + entry.size)
            self.readable.tell(*key, first, end)

    @staticmethod
    def _find_end(queue: ConsumeQueue, first: int, limit: int) -> int:
        """Return the offset after the last readable message, given that all before an offset are readable."""
        if queue.end_position > limit:
            for offset, (position, size, _) in enumerate(queue.entries(first, _LOOK_ENTRIES), first):
                if position + size > limit and size != FILLER_SIZE:
                    return offset
        return queue.find_end(limit)

    # -- moving the limit --------------------------------------------------------------------------------------------

    def learn(self, position: int) -> None:
        """The master of this slave reported that nothing before a position can be taken back."""
        self._floor = max(self._floor, position)
        self.release()

    def cut(self, position: int) -> None:
        """The log of this slave continues at a position, where it may have been cut."""
        self._floor = min(self._floor, position)
        # Hidden offsets may now belong to other messages.
        self._hidden.clear()
        self._due.clear()
        self.follow_options()

    def begin(self, condition: SyncCondition) -> None:
        """Start a mastership: reports of slaves count from now on."""
        # A limit beyond the end of this log would cover other records than it was meant for.
        self._floor = min(self._floor, self._store.log.readable_end)
        self._condition = condition
        self.follow_options()

    def end(self) -> None:
        """End a mastership: positions it has proven stay readable."""
        if self._condition is not None:
            self._floor = min(self.certain, self._store.log.readable_end)
            self._condition = None

    def follow_options(self) -> None:
        """The role or an option changed."""
        is_wanted = self._options.now.reads_confirmed
        self.is_bounding = is_wanted and self._standing.role is not BrokerRole.ASYNC_MASTER
        if self.is_bounding:
            limit = self.certain
            for queue in self._store.queues:
                if queue.end_position > limit:
                    self._hide((queue.topic, queue.queue_id), 0, 0)
        self.release()

    # -- saving ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> int:
        """Return the position to save."""
        return min(self.find_position(), self._store.log.readable_end)
