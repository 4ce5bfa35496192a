"""One assigned queue: the messages pulled from it, those being processed, and where to continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Self

from eruca._client.group.subscriptions import Subscription
from eruca._client.message import Settle
from eruca._core.processqueue import ProcessQueue
from eruca._wire.bodies import MessageQueue, ProcessQueueInfo
from eruca._wire.done import Ranges
from eruca._wire.record import Record


class LastRead(NamedTuple):
    """Identifies a message: brokers of the same name have it at the same position."""

    queue_offset: int
    position: int
    store_timestamp: int
    body_crc: int

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the identity of a record."""
        return cls(record.queue_offset, record.position, record.store_timestamp, record.body_crc)


class Inbox:
    """The state of one queue assigned to a consumer."""

    def __init__(self, queue: MessageQueue, subscription: Subscription, next_offset: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.process: ProcessQueue[Record] = ProcessQueue()
        # Where the next pull begins.
        self.next_offset = next_offset
        self._first_offset = next_offset
        # The queue is no longer assigned to us: messages of it that still arrive are ignored.
        self.dropped = False
        # It is about to be dropped: nothing more of it is started or handed out.
        self.leaving = False
        # The offset after the last message that was handed out to code that iterates.
        self.handed_to = 0
        # The user has paused it.
        self.paused = False
        # Which broker of the broker name to ask next.
        self.broker_id = 0
        # The master the offsets belong to, and its epoch (-1: not known yet). After a failover, the queue of the new
        # master may continue differently.
        self.master = ""
        self.epoch = -1
        # The message that was read last.
        self.last: LastRead | None = None
        # The broker that was asked last, and the one that answered last, if it has everything that was read.
        self.asked = ""
        self.source = ""
        # The broker that said which messages are done already, and how often connections to it had been lost by then.
        self._done_at: tuple[str, int] | None = None
        # The last refusal that was logged; cleared when a pull works again.
        self.trouble = ""
        self.task: asyncio.Task[None] | None = None
        # Takes the acknowledgements of its messages.
        self.settle: Settle | None = None
        # Messages being processed by handlers: the loop time at which each began, by offset.
        self.running: dict[int, tuple[float, Record]] = {}
        # Set whenever there may be room, or another reason to check again.
        self.changed = asyncio.Event()
        self.last_pull = 0.0
        self.last_consumed = 0.0
        # Ordered and exclusive consumers lock the queue at the broker, as far as we know until this loop time.
        self.locked_until = 0.0
        self.locked_at_ms = 0
        # Another member has that lock now and may be further ahead: our offset must not move the group back.
        self.is_lost = False

    @property
    def commit_offset(self) -> int:
        """The offset to commit: the offset of the first message that is not done."""
        found = self.process.commit_offset
        return self._first_offset if found is None else found

    def expect_done(self, ranges: Ranges, source: tuple[str, int] | None) -> None:
        """Take messages for done that the last owner of the queue has finished, as long as they come from `source`."""
        self.process.expect_done(ranges)
        self._done_at = source

    def check_done(self, source: tuple[str, int]) -> None:
        """Expect nothing to be done unless messages still come from the same broker, over an unbroken connection.

        Another one, or one that has restarted, may have other messages at these offsets.
        """
        if source != self._done_at:
            self.forget_done()

    def forget_done(self) -> None:
        """Expect nothing to be done: what arrives may be other messages. They are at worst delivered again."""
        self.process.expect_done(())

    def finish(self, offset: int) -> bool:
        """Mark a message as done; False when it is no longer here."""
        done = self.process.finish(offset)
        self.changed.set()
        return done

    def end(self, records: list[Record]) -> None:
        """Take messages off the running ones, and mark them done unless the queue now belongs to another member."""
        for record in records:
            offset = record.queue_offset
            self.running.pop(offset, None)
            if not self.dropped:
                self.process.finish(offset)
        self.changed.set()

    def move(self, offset: int) -> None:
        """Continue at another offset: `next_offset` does not exist, because it expired or the broker lost it."""
        if offset < self.next_offset:
            # New messages get offsets that were used before, and must not be mistaken for the old messages.
            self.process = ProcessQueue()
            self._first_offset = offset
        self.forget_done()
        self.process.skip_to(offset)
        self.next_offset = offset

    def is_ours(self) -> bool:
        """Return whether the queue is still assigned to us; this may change during any wait."""
        return not self.dropped

    def is_paused(self) -> bool:
        """Return whether the user has paused the queue; this may change during any wait."""
        return self.paused

    @property
    def is_settled(self) -> bool:
        """Whether all messages that were handed out to code that iterates are done; they are handed out in order."""
        first = self.process.first_open
        return first is None or first >= self.handed_to

    async def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so or the queue is dropped; False if it was not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so() and self.is_ours():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    def drop(self) -> None:
        """Mark the queue as no longer assigned to us."""
        self.dropped = self.leaving = True
        self.changed.set()

    def describe(self, now: float, now_ms: int) -> ProcessQueueInfo:
        """Return what the console shows about it; `now` is loop time, `now_ms` the wall clock."""

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
