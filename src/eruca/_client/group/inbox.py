"""One queue of ours: what was pulled of it, what is being worked on, and where to go on."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self

from eruca._client.group.subscriptions import Subscription
from eruca._client.message import Settle
from eruca._core.processqueue import ProcessQueue
from eruca._wire.bodies import MessageQueue, ProcessQueueInfo
from eruca._wire.record import Record


class LastRead(NamedTuple):
    """A message, so that it is known again: brokers of one name have it at the same place."""

    queue_offset: int
    position: int
    store_timestamp: int
    body_crc: int

    @classmethod
    def of(cls, record: Record) -> Self:
        """The same of a record."""
        return cls(record.queue_offset, record.position, record.store_timestamp, record.body_crc)


class Inbox:
    """The state of one queue a consumer has."""

    def __init__(self, queue: MessageQueue, subscription: Subscription, next_offset: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.process: ProcessQueue[Record] = ProcessQueue()
        # Where the next pull begins.
        self.next_offset = next_offset
        self._first_offset = next_offset
        # Not ours any more: whatever still comes of it counts for nothing.
        self.dropped = False
        # The user does not want anything of it now.
        self.paused = False
        # Which broker of the name to ask next.
        self.broker_id = 0
        # Whose queue the offsets are of: the master and its mastership (-1: not known yet). That of a master that takes
        # over may go on differently.
        self.master = ""
        self.epoch = -1
        # The message that was read last.
        self.last: LastRead | None = None
        # The broker that was asked last, and the one that answered last, if it has all that was read.
        self.asked = ""
        self.source = ""
        # The refusal that was logged last, until a pull works again.
        self.trouble = ""
        self.task: asyncio.Task[None] | None = None
        # Takes the acknowledgements of its messages.
        self.settle: Settle | None = None
        # Messages handlers work on: the loop time they began, by offset.
        self.running: dict[int, tuple[float, Record]] = {}
        # Set whenever there may be room, or a reason to look again.
        self.changed = asyncio.Event()
        self.last_pull = 0.0
        self.last_consumed = 0.0
        # Ordered consumers hold a lock of the broker, until this loop time as far as we know.
        self.locked_until = 0.0
        self.locked_at_ms = 0
        # Another has that lock now, and may be further than we are: our offset must not take the group back.
        self.is_lost = False

    @property
    def commit_offset(self) -> int:
        """The offset to commit: that of the first message that is not done."""
        found = self.process.commit_offset
        return self._first_offset if found is None else found

    def finish(self, offset: int) -> bool:
        """A message is done; False when it is not here any more."""
        done = self.process.finish(offset)
        self.changed.set()
        return done

    def move(self, offset: int) -> None:
        """Go on elsewhere: what `next_offset` says is not there, because it expired or because the broker lost it."""
        if offset < self.next_offset:
            # New messages get offsets we have seen before, and must not be taken for those.
            self.process = ProcessQueue()
            self._first_offset = offset
        self.process.skip_to(offset)
        self.next_offset = offset

    def is_ours(self) -> bool:
        """Is the queue still ours? It may be another's after any wait."""
        return not self.dropped

    def is_paused(self) -> bool:
        """Does the user not want anything of it? That may change during any wait too."""
        return self.paused

    def drop(self) -> None:
        """It is not ours any more."""
        self.dropped = True
        self.changed.set()

    def describe(self, now: float, now_ms: int) -> ProcessQueueInfo:
        """What the console shows of it; `now` is loop time, `now_ms` the wall clock."""

        def to_wall(loop_time: float) -> int:
            return now_ms - round((now - loop_time) * 1000) if loop_time else 0

        process = self.process
        return ProcessQueueInfo(
            commit_offset=self.commit_offset,
            cached_msg_min_offset=process.first_open or 0,
            cached_msg_max_offset=process.last_open or 0,
            cached_msg_count=process.count,
            cached_msg_size_mib=process.bytes // (1024 * 1024),
            locked=self.locked_until > now,
            try_unlock_times=0,
            last_lock_timestamp=self.locked_at_ms,
            dropped=self.dropped,
            last_pull_timestamp=to_wall(self.last_pull),
            last_consume_timestamp=to_wall(self.last_consumed),
        )
