"""How far readers may read: a message that a change of the master could take back is not shown before it cannot.

Were it shown, a reader that goes on from its own position would skip what the new master has at that offset. So, with
the option `readConfirmedOnly` in force, readers get the records before a position:

    on a master    what all have that may replace it (`SyncCondition.safe`), and what is known from before
    on a slave     what its master said so of; all it has when that is a Java broker

What is known from before (`floor`) is what a slave has heard of its master, or a master had when it stopped being one.
It is saved now and then, so that a member that starts alone shows what was shown already.

Held pulls do not wake when a message is stored but when it becomes readable. Kept for that are queues, not messages:
those that end behind the limit, each with its first message that is hidden, in the order of where these end.
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

# As many entries are looked at one by one: what becomes readable at once is mostly little.
_LOOK_ENTRIES: Final = 32


class ReadLimit:
    """The position that readers of one broker do not get beyond."""

    def __init__(self, options: LiveOptions, standing: Standing, store: MessageStore, saved: int = -1) -> None:
        """`saved` is what was saved last; negative: nothing ever was, and what is there has been shown."""
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
        #: Is there a limit at all? Every pull asks this.
        self.is_bounding = False
        #: Told of messages that became readable: topic, queue id, the offset of the first and the one behind the last.
        self.readable: Signal[str, int, int, int] = Signal()
        self.follow_options()

    # -- what readers ask --------------------------------------------------------------------------------------------

    def find_position(self) -> int:
        """The position where what may be read ends."""
        return self.certain if self.is_bounding else EVERYTHING

    @property
    def certain(self) -> int:
        """The position before which nothing can be taken back, whether readers are bound by it or not."""
        condition = self._condition
        return self._floor if condition is None else max(self._floor, condition.safe)

    def find_max(self, queue: ConsumeQueue | None) -> int:
        """The offset behind the last message of a queue that may be read."""
        if queue is None:
            return 0
        return queue.max_offset if not self.is_bounding else queue.find_end(self.certain)

    # -- messages come -----------------------------------------------------------------------------------------------

    def hide(self, topic: str, queue_id: int, offset: int, position: int, end_position: int) -> bool:
        """Messages of a queue came, the first from a position on: may the last, which ends at another, not be read?"""
        key = (topic, queue_id)
        # What comes behind a hidden message is hidden; many do, and finding the limit takes longer.
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
        """The limit may have moved: wake those who wait for what can be read now."""
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
            # A queue that was deleted begins anew.
            first = max(first, queue.min_offset) if first <= queue.max_offset else queue.min_offset
            end = self._find_end(queue, first, limit)
            if (entry := queue.entry(end)) is not None:
                # Before anybody is woken: one who is may have more stored.
                self._hide(key, end, limit + 1 if entry.size == FILLER_SIZE else entry.position + entry.size)
            self.readable.tell(*key, first, end)

    @staticmethod
    def _find_end(queue: ConsumeQueue, first: int, limit: int) -> int:
        """The offset behind the last readable message, when all before an offset are."""
        if queue.end_position > limit:
            for offset, (position, size, _) in enumerate(queue.entries(first, _LOOK_ENTRIES), first):
                if position + size > limit and size != FILLER_SIZE:
                    return offset
        return queue.find_end(limit)

    # -- what moves it -----------------------------------------------------------------------------------------------

    def learn(self, position: int) -> None:
        """The master of this slave says that nothing before a position can be taken back."""
        self._floor = max(self._floor, position)
        self.release()

    def cut(self, position: int) -> None:
        """The log of this slave goes on at a position, where it may have been cut."""
        self._floor = min(self._floor, position)
        # Offsets that were hidden may be other messages' now.
        self._hidden.clear()
        self._due.clear()
        self.follow_options()

    def begin(self, condition: SyncCondition) -> None:
        """A mastership begins: what slaves report counts from now on."""
        # What this log does not have will be another thing than was meant.
        self._floor = min(self._floor, self._store.log.readable_end)
        self._condition = condition
        self.follow_options()

    def end(self) -> None:
        """A mastership ends: what it had proven stays."""
        if self._condition is not None:
            self._floor = min(self.certain, self._store.log.readable_end)
            self._condition = None

    def follow_options(self) -> None:
        """Role or option changed."""
        is_wanted = self._options.now.reads_confirmed
        self.is_bounding = is_wanted and self._standing.role is not BrokerRole.ASYNC_MASTER
        if self.is_bounding:
            limit = self.certain
            for queue in self._store.queues:
                if queue.end_position > limit:
                    self._hide((queue.topic, queue.queue_id), 0, 0)
        self.release()

    # -- what is kept ------------------------------------------------------------------------------------------------

    def snapshot(self) -> int:
        """What is saved."""
        return min(self.find_position(), self._store.log.readable_end)
